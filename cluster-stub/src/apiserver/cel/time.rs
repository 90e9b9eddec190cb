//! Durations and timestamps as CEL reads and writes them.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Go's duration text: `1h30m`, `-1.5s`, `100ms`.
pub(super) fn parse_duration(text: &str) -> Option<SignedDuration> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        if !whole.is_empty() {
            total = total.checked_add(whole.parse::<i128>().ok()?.checked_mul(scale)?)?;
        }
        let mut part = scale;
        for digit in fraction.chars() {
            part /= 10;
            total += i128::from(digit.to_digit(10)?) * part;
        }
        rest = tail;
    }
    let nanoseconds = i64::try_from(if negative { -total } else { total }).ok()?;
    Some(SignedDuration::from_nanos(nanoseconds))
}

/// A duration as CEL writes it: seconds.
pub(super) fn format_duration(duration: SignedDuration) -> String {
    let nanoseconds = duration.as_nanos();
    let (sign, rest) = if nanoseconds < 0 { ("-", -nanoseconds) } else { ("", nanoseconds) };
    let (seconds, fraction) = (rest / 1_000_000_000, rest % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// RFC 3339, with a time zone.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The moment in a time zone: a name or an offset such as `+02:00`; UTC without one.
pub(super) fn zoned(moment: Timestamp, zone: Option<&str>) -> Option<Zoned> {
    let Some(name) = zone else { return Some(moment.to_zoned(TimeZone::UTC)) };
    let offset = |text: &str| -> Option<TimeZone> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (hours, minutes) = rest.split_once(':')?;
        let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
        jiff::tz::Offset::from_seconds(sign * seconds).ok().map(TimeZone::fixed)
    };
    let zone = match name {
        "UTC" | "" => TimeZone::UTC,
        name => offset(name).or_else(|| TimeZone::get(name).ok())?,
    };
    Some(moment.to_zoned(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [
            ("1h30m", Some("5400s")),
            ("1.5s", Some("1.5s")),
            ("-100ms", Some("-0.1s")),
            ("0", Some("0s")),
            (".5m", Some("30s")),
            ("1", None),
            ("", None),
            ("5x", None),
            (".s", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn offsets_move_the_clock() {
        let moment = parse_timestamp("2024-01-01T23:30:00Z").expect("a time");
        assert_eq!(zoned(moment, Some("+01:00")).expect("an offset").day(), 2);
        assert_eq!(zoned(moment, None).expect("UTC").day(), 1);
        assert!(zoned(moment, Some("Nowhere/Else")).is_none());
    }
}
