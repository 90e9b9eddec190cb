//! Texts that Go decodes by themselves: quantities, times, durations, base64. Each gives the text that is stored, or Go's error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use cluster_stub_base::quantity::{Quantity, QuantityError};

/// The error of a quantity that is neither text nor number.
pub const QUANTITY_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A quantity in canonical form.
///
/// # Errors
/// Upstream's text.
pub fn quantity(text: &str) -> Result<String, String> {
    Quantity::canonical(text).map_err(|error: QuantityError| error.to_string())
}

/// RFC 3339 in UTC with whole seconds; `None` for the empty text, which Go takes for no time.
///
/// # Errors
/// Go's `parsing time …`.
pub fn time(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = parse(text, "2006-01-02T15:04:05Z07:00")?;
    Ok(Some(parsed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}

/// RFC 3339 in UTC with six digits after the second.
///
/// # Errors
/// Go's `parsing time …`.
pub fn micro_time(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if is_canonical_micro_time(text) {
        return Ok(Some(text.to_string()));
    }
    let parsed = parse(text, "2006-01-02T15:04:05.000000Z07:00")?;
    Ok(Some(parsed.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
}

/// Whether a time is surely written already as [`micro_time`] gives it; a 29th of February is left to the calendar.
#[must_use]
pub fn is_canonical_micro_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000000Z";
    let text = text.as_bytes();
    let number = |from: usize| text[from..from + 2].iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
    let n_days = |month| match month {
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    text.len() == SHAPE.len()
        && text
            .iter()
            .zip(SHAPE)
            .all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
        && text.starts_with(b"20")
        && (1..=12).contains(&number(5))
        && (1..=n_days(number(5))).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    // jiff takes more forms than RFC 3339; Go wants the `T` and no blanks.
    let shaped = text.as_bytes().get(10) == Some(&b'T');
    let parsed = text.parse::<Timestamp>().ok().filter(|_| shaped);
    parsed.ok_or_else(|| format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""))
}

/// A Go duration such as `1h30m`; it is kept as it comes.
///
/// # Errors
/// Go's `time: …`.
pub fn duration(text: &str) -> Result<String, String> {
    let invalid = || format!("time: invalid duration \"{text}\"");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(text.to_string());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.parse::<f64>().is_err() {
            return Err(invalid());
        }
        let unit = tail.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(tail.len());
        match &tail[..unit] {
            "" => return Err(format!("time: missing unit in duration \"{text}\"")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            other => return Err(format!("time: unknown unit \"{other}\" in duration \"{text}\"")),
        }
        rest = &tail[unit..];
    }
    Ok(text.to_string())
}

/// Base64 in its one standard form.
///
/// # Errors
/// Go's `illegal base64 data at input byte …`.
pub fn bytes(text: &str) -> Result<String, String> {
    // Go skips line ends inside the text.
    let joined: String;
    let plain = if text.contains(['\n', '\r']) {
        joined = text.replace(['\n', '\r'], "");
        joined.as_str()
    } else {
        text
    };
    match STANDARD.decode(plain) {
        Ok(_) => Ok(plain.to_string()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding) => {
            Err(format!("illegal base64 data at input byte {}", plain.len() / 4 * 4))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stored_in_utc() {
        assert_eq!(time("2024-01-02T03:04:05+02:00"), Ok(Some("2024-01-02T01:04:05Z".to_string())));
        assert_eq!(time(""), Ok(None));
        assert_eq!(micro_time("2024-01-02T03:04:05.1Z"), Ok(Some("2024-01-02T03:04:05.100000Z".to_string())));
        let error = "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"";
        assert_eq!(time("x"), Err(error.to_string()));
    }

    #[test]
    fn a_time_that_is_canonical_is_kept_and_every_other_is_read() {
        for (text, canonical) in [
            ("2026-11-30T17:44:11.123456Z", true),
            ("2026-02-28T23:59:59.000000Z", true),
            ("2026-12-31T23:59:59.000000Z", true),
            ("2028-02-29T23:59:59.000000Z", false),
            ("2026-11-31T00:00:00.000000Z", false),
            ("2026-13-01T00:00:00.000000Z", false),
            ("2026-00-01T00:00:00.000000Z", false),
            ("2026-01-00T00:00:00.000000Z", false),
            ("2026-01-01T24:00:00.000000Z", false),
            ("2026-01-01T00:60:00.000000Z", false),
            ("2026-01-01T00:00:60.000000Z", false),
            ("2026-01-01T00:00:00.00000Z", false),
            ("2026-01-01t00:00:00.000000Z", false),
            ("2026-01-01T00:00:00.000000+", false),
            ("1969-01-01T00:00:00.000000Z", false),
        ] {
            assert_eq!(is_canonical_micro_time(text), canonical, "{text}");
            if canonical {
                let read = parse(text, "").map(|time| time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
                assert_eq!(read.as_deref(), Ok(text));
            }
        }
    }

    #[test]
    fn durations_follow_go() {
        for good in ["1h30m", "0", "1.5s", "-2ms"] {
            assert_eq!(duration(good), Ok(good.to_string()));
        }
        assert_eq!(duration("5"), Err("time: missing unit in duration \"5\"".to_string()));
        assert_eq!(duration("5x"), Err("time: unknown unit \"x\" in duration \"5x\"".to_string()));
        assert_eq!(duration("soon"), Err("time: invalid duration \"soon\"".to_string()));
    }

    #[test]
    fn base64_errors_name_the_byte() {
        assert_eq!(bytes("aGk="), Ok("aGk=".to_string()));
        assert_eq!(bytes("aG\nk="), Ok("aGk=".to_string()));
        assert_eq!(bytes("a%k="), Err("illegal base64 data at input byte 1".to_string()));
    }
}
