//! Spans and points of virtual time as people write them: `90`, `90s`, `1h30m`, `2d`, `2026-01-31T00:00:00Z`.

use std::time::Duration;

use scheduler_core::model::Timestamp;
use serde_json::Value;

/// Units, longest first so that `ms` is not read as `m`.
const UNITS: [(&str, f64); 7] =
    [("ms", 0.001), ("us", 0.000_001), ("w", 604_800.0), ("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];

/// Longest span that is read, in seconds: about 285 years.
const LONGEST: f64 = 9.0e9;

/// A span: a number of seconds, or numbers with units such as `1h30m`.
///
/// # Errors
/// The text is neither; what was expected is said.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration, expected seconds or for example 90s, 1h30m, 2d");
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    if let Ok(number) = rest.parse::<f64>() {
        seconds = number;
        rest = "";
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| rest[end..].starts_with(unit)).ok_or_else(wrong)?;
        seconds += number * factor;
        rest = &rest[end + unit.len()..];
    }
    if !(0.0..=LONGEST).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A span in a JSON value: a number of seconds or a text.
///
/// # Errors
/// As [`duration`].
pub(crate) fn duration_of(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Number(number) => duration(&number.to_string()),
        Value::String(text) => duration(text),
        other => Err(format!("{other} is no duration, expected seconds or for example \"90s\"")),
    }
}

/// A point of virtual time in a JSON value: seconds since the start, a span since the start, or RFC 3339.
///
/// # Errors
/// The value is none of them.
pub(crate) fn instant_of(value: &Value) -> Result<Timestamp, String> {
    if let Value::String(text) = value
        && let Ok(at) = text.parse::<jiff::Timestamp>()
    {
        return Ok(Timestamp::from_micros(at.as_microsecond()));
    }
    duration_of(value)
        .map(|span| Timestamp::ZERO.after(span))
        .map_err(|_| format!("{value} is no time, expected seconds, a span such as \"5m\", or RFC 3339"))
}

/// Whether a point of virtual time is given by its date.
pub(crate) fn is_date(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

/// A span for people, with two units at most: `1h 30m`, `2.5s`.
pub(crate) fn pretty(seconds: f64) -> String {
    if seconds < 60.0 {
        let text = format!("{seconds:.2}");
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let whole = seconds.round() as u64;
    let parts = [("d", whole / 86_400), ("h", whole / 3_600 % 24), ("m", whole / 60 % 60), ("s", whole % 60)];
    let first = parts.iter().position(|(_, amount)| *amount > 0).unwrap_or(3);
    let text: Vec<String> = parts[first..]
        .iter()
        .take(2)
        .filter(|(_, amount)| *amount > 0)
        .map(|(unit, amount)| format!("{amount}{unit}"))
        .collect();
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spans_are_read() {
        for (text, seconds) in
            [("90", 90.0), ("0.5", 0.5), ("90s", 90.0), ("1h30m", 5400.0), ("250ms", 0.25), ("2d", 172_800.0)]
        {
            assert_eq!(duration(text).map(|span| span.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "s", "5 parsecs", "-1", "1h2", "nan", "inf", "1e300"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn points_are_read() {
        assert_eq!(instant_of(&json!(1.5)), Ok(Timestamp::from_micros(1_500_000)));
        assert_eq!(instant_of(&json!("2m")), Ok(Timestamp::from_secs(120)));
        assert_eq!(instant_of(&json!("1970-01-01T00:01:00Z")), Ok(Timestamp::from_secs(60)));
        assert!(instant_of(&json!("tomorrow")).is_err());
        assert!(instant_of(&json!(null)).is_err());
    }

    #[test]
    fn spans_are_written_short() {
        for (seconds, text) in
            [(0.0, "0s"), (2.5, "2.5s"), (90.0, "1m 30s"), (3600.0, "1h"), (12_902_960.0, "149d 8h"), (86_460.0, "1d")]
        {
            assert_eq!(pretty(seconds), text);
        }
    }
}
