//! The first address of the range of Service addresses.

use std::net::IpAddr;

/// First usable address of `range`, which must hold at least eight addresses; `None` if it is no such CIDR.
pub(super) fn first_address(range: &str) -> Option<IpAddr> {
    let (address, bits) = range.split_once('/')?;
    let bits: u32 = bits.parse().ok()?;
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => {
            let host_bits = 32_u32.checked_sub(bits).filter(|host_bits| *host_bits >= 3)?;
            let network = u32::from(address) & u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(IpAddr::V4((network + 1).into()))
        }
        IpAddr::V6(address) => {
            let host_bits = 128_u32.checked_sub(bits).filter(|host_bits| *host_bits >= 3)?;
            let network = u128::from(address) & u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(IpAddr::V6((network + 1).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_follows_the_network_address() {
        let cases = [
            ("10.96.0.0/16", Some("10.96.0.1")),
            ("10.96.3.7/16", Some("10.96.0.1")),
            ("192.168.1.8/29", Some("192.168.1.9")),
            ("fd00::/108", Some("fd00::1")),
            ("10.96.0.0/30", None),
            ("10.96.0.0/33", None),
            ("10.96.0.0", None),
            ("x/16", None),
        ];
        for (range, want) in cases {
            assert_eq!(first_address(range).map(|a| a.to_string()).as_deref(), want, "{range}");
        }
    }
}
