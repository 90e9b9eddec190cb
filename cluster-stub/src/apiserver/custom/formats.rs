//! The formats of texts that schemas can ask for; unknown ones ask for nothing.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/validation/formats.go`, kube-openapi `pkg/validation/strfmt`.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::civil::Date;

/// Whether a text has the format.
pub(super) fn holds(format: &str, text: &str) -> bool {
    let is_hex = |text: &str, lengths: &[usize]| {
        text.split('-').map(str::len).eq(lengths.iter().copied())
            && text.chars().all(|letter| letter == '-' || letter.is_ascii_hexdigit())
    };
    match format.replace('-', "").as_str() {
        "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.parse::<Date>().is_ok() && text.len() == 10,
        "duration" => is_duration(text),
        "ipv4" => matches!(text.parse(), Ok(IpAddr::V4(_))),
        "ipv6" => matches!(text.parse(), Ok(IpAddr::V6(_))),
        "cidr" => crate::apiserver::validation::ip::parse_cidr_sloppy(text).is_some(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_hex(text, &[8, 4, 4, 4, 12]) || is_hex(text, &[32]),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "hostname" => !text.is_empty() && text.len() <= 255 && text.split('.').all(is_host_label),
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()),
        "email" => {
            text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.split('.').all(is_host_label))
        }
        "mac" => {
            let parts: Vec<&str> = text.split([':', '-']).collect();
            parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
        }
        _ => true,
    }
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
}

/// Go's duration text, or a number and the name of a unit.
fn is_duration(text: &str) -> bool {
    let units = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"];
    let words = ["nano", "micro", "milli", "second", "sec", "minute", "min", "hour", "hr", "day", "week", "wk"];
    let mut rest = text.trim().trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let end =
            tail.find(|letter: char| letter.is_ascii_digit() || letter == '.' || letter == ' ').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let known = units.contains(&unit) || words.iter().any(|word| unit.starts_with(word));
        if number.is_empty() || number == "." || !known {
            return false;
        }
        any = true;
        rest = tail.trim_start();
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats() {
        let cases = [
            ("date-time", "2024-01-01T00:00:00Z", true),
            ("date-time", "2024-01-01", false),
            ("date", "2024-02-29", true),
            ("date", "2024-02-30", false),
            ("duration", "1h30m", true),
            ("duration", "5 days", true),
            ("duration", "5", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "::1", false),
            ("cidr", "10.0.0.0/8", true),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "123e4567", false),
            ("byte", "aGk=", true),
            ("byte", "?", false),
            ("unheard-of", "anything", true),
        ];
        for (format, text, want) in cases {
            assert_eq!(holds(format, text), want, "{format} {text}");
        }
    }
}
