//! What the machine is called and where others reach it. Asks the system only; sends nothing.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Documentation addresses (RFC 5737): nothing is ever there.
const NOWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// The machine's name in lower case, `localhost` if it has none that is a DNS name.
pub(super) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.unwrap_or_default().trim().to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name =
        !name.is_empty() && name.chars().all(fits) && !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']);
    if is_name { name } else { "localhost".to_owned() }
}

/// The address to publish in the Endpoints of the Service `kubernetes`, which may not be a loopback one: where the
/// server listens, else the address of the interface that leads out, else one that leads nowhere.
pub(super) fn advertised(bind: IpAddr) -> IpAddr {
    if !bind.is_loopback() && !bind.is_unspecified() {
        return bind;
    }
    // Connecting a UDP socket only picks a route.
    let route = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(NOWHERE).and_then(|()| socket.local_addr()))
        .map(|address| address.ip());
    match route {
        Ok(address) if !address.is_loopback() && !address.is_unspecified() => address,
        _ => IpAddr::V4(NOWHERE.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_advertised_that_endpoints_may_have() {
        let given: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(advertised(given), given);
        for bind in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
            let address = advertised(bind);
            assert!(!address.is_loopback() && !address.is_unspecified(), "{address}");
        }
        assert!(!name().is_empty());
    }
}
