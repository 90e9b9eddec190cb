//! IP addresses and ranges: strict parsing and upstream's texts.
//!
//! Upstream: apimachinery v1.36.2 `pkg/util/validation/ip.go`.

use std::net::IpAddr;

use super::field::{FieldError, Path};

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An address; IPv4 octets may have leading zeros.
pub fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let octets: Vec<&str> = text.split('.').collect();
    if octets.len() != 4
        || !octets.iter().all(|octet| !octet.is_empty() && octet.bytes().all(|digit| digit.is_ascii_digit()))
    {
        return None;
    }
    let trimmed: Vec<&str> = octets
        .iter()
        .map(|octet| match octet.trim_start_matches('0') {
            "" => "0",
            rest => rest,
        })
        .collect();
    trimmed.join(".").parse().ok()
}

/// Address and prefix length of a range; leading zeros are allowed.
pub fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_sloppy(address)?;
    if length.is_empty() || !length.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

/// The first address of the range that an address lies in.
pub fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

fn is_4in6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// A field that was always validated loosely: non-canonical forms are allowed, leading zeros are not.
pub fn validate_ip(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    match parse_sloppy(text) {
        None => out.push(FieldError::invalid(path, text, BAD_IP)),
        Some(_) if text.parse::<IpAddr>().is_err() => {
            out.push(FieldError::invalid(path, text, "must not have leading 0s"))
        }
        Some(address) if is_4in6(address) => {
            out.push(FieldError::invalid(path, text, "must not be an IPv4-mapped IPv6 address"));
        }
        Some(_) => {}
    }
}

/// An address in canonical form.
pub fn validate_canonical_ip(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let before = out.len();
    validate_ip(text, path, out);
    if out.len() == before
        && let Ok(address) = text.parse::<IpAddr>()
        && address.to_string() != text
    {
        out.push(FieldError::invalid(path, text, format!("must be in canonical form (\"{address}\")")));
    }
}

/// A range without bits behind the prefix.
pub fn validate_cidr(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let Some((address, length)) = parse_cidr_sloppy(text) else {
        out.push(FieldError::invalid(path, text, BAD_CIDR));
        return;
    };
    let strict = text
        .split_once('/')
        .is_some_and(|(front, back)| front.parse::<IpAddr>().is_ok() && (back == "0" || !back.starts_with('0')));
    if !strict {
        out.push(FieldError::invalid(path, text, "must not have leading 0s in IP or prefix length"));
    } else if is_4in6(address) {
        out.push(FieldError::invalid(path, text, "must not have an IPv4-mapped IPv6 address"));
    } else if masked(address, length) != address {
        out.push(FieldError::invalid(path, text, "must not have bits set beyond the prefix length"));
    }
}

/// A range in canonical form.
pub fn validate_canonical_cidr(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let before = out.len();
    validate_cidr(text, path, out);
    if out.len() == before
        && let Some((address, length)) = parse_cidr_sloppy(text)
        && format!("{address}/{length}") != text
    {
        out.push(FieldError::invalid(path, text, format!("must be in canonical form (\"{address}/{length}\")")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rule: fn(&str, &Path<'_>, &mut Vec<FieldError>), text: &str) -> usize {
        let mut errors = Vec::new();
        rule(text, &Path::root("ip"), &mut errors);
        errors.len()
    }

    #[test]
    fn addresses_are_strict_where_they_must_be() {
        for (text, loose, canonical) in [
            ("10.0.0.1", 0, 0),
            ("010.0.0.1", 1, 1),
            ("::ffff:1.2.3.4", 1, 1),
            ("FE80::1", 0, 1),
            ("not-an-ip", 1, 1),
            ("", 1, 1),
        ] {
            assert_eq!((faults(validate_ip, text), faults(validate_canonical_ip, text)), (loose, canonical), "{text}");
        }
    }

    #[test]
    fn ranges_have_no_bits_behind_the_prefix() {
        for (text, want) in [
            ("10.0.0.0/8", 0),
            ("10.0.0.1/8", 1),
            ("10.0.0.0/08", 1),
            ("10.0.0.0", 1),
            ("2001:db8::/64", 0),
            ("0.0.0.0/0", 0),
        ] {
            assert_eq!(faults(validate_cidr, text), want, "{text}");
        }
    }
}
