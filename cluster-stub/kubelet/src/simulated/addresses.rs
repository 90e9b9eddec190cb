//! Pod addresses: a /24 of 10.244.0.0/14 for each node, the first free host of it for each pod. In memory only; what
//! pods have already is claimed again after a restart.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// First pod network, 10.244.0.0; each further node takes the next /24.
const FIRST_NETWORK: u32 = 0x0AF4_0000;
/// Nodes whose networks lie in 10.244.0.0 to 10.255.255.0; further ones take theirs from 100.64.0.0/10.
const FIRST_NETWORKS: u32 = 12 * 256;
const MORE_NETWORKS: u32 = 0x6440_0000;
/// Hosts of a network that pods get: .2 to .254.
const HOSTS: std::ops::RangeInclusive<u32> = 2..=254;
/// Where pods go whose node's network is full, 198.18.0.0/15.
const OVERFLOW: u32 = 0xC612_0000;

/// Which pod has which address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    nodes: HashMap<String, Network>,
    pods: HashMap<String, (String, u32)>,
    overflow: BTreeSet<u32>,
}

#[derive(Debug)]
struct Network {
    base: u32,
    used: BTreeSet<u32>,
}

impl Addresses {
    /// The pod's address; the same one when asked again.
    pub(super) fn assign(&mut self, node: &str, pod_uid: &str) -> String {
        if let Some((_, address)) = self.pods.get(pod_uid) {
            return Ipv4Addr::from(*address).to_string();
        }
        let network = self.network(node);
        let address = match HOSTS.map(|host| network.base + host).find(|address| !network.used.contains(address)) {
            Some(address) => {
                network.used.insert(address);
                address
            }
            None => {
                let free = (OVERFLOW..).find(|address| !self.overflow.contains(address)).unwrap_or(OVERFLOW);
                self.overflow.insert(free);
                free
            }
        };
        self.pods.insert(pod_uid.to_owned(), (node.to_owned(), address));
        Ipv4Addr::from(address).to_string()
    }

    /// Notes that the pod has this address already.
    pub(super) fn claim(&mut self, node: &str, pod_uid: &str, address: &str) {
        let Ok(address) = address.parse::<Ipv4Addr>().map(u32::from) else { return };
        let network = self.network(node);
        if address & 0xFFFF_FF00 == network.base || !network.used.is_empty() {
            network.used.insert(address);
        } else {
            // The nodes may come back in another order: a node keeps the network that its pods are in.
            network.base = address & 0xFFFF_FF00;
            network.used.insert(address);
        }
        self.pods.insert(pod_uid.to_owned(), (node.to_owned(), address));
    }

    /// Gives the pod's address back.
    pub(super) fn release(&mut self, pod_uid: &str) {
        if let Some((node, address)) = self.pods.remove(pod_uid) {
            self.overflow.remove(&address);
            if let Some(network) = self.nodes.get_mut(&node) {
                network.used.remove(&address);
            }
        }
    }

    fn network(&mut self, node: &str) -> &mut Network {
        if !self.nodes.contains_key(node) {
            let taken: BTreeSet<u32> = self.nodes.values().map(|network| network.base).collect();
            let candidates = (0..FIRST_NETWORKS).map(|i| FIRST_NETWORK + (i << 8));
            let more = (0..16_384).map(|i| MORE_NETWORKS + (i << 8));
            let base = candidates.chain(more).find(|base| !taken.contains(base)).unwrap_or(FIRST_NETWORK);
            self.nodes.insert(node.to_owned(), Network { base, used: BTreeSet::new() });
        }
        self.nodes.get_mut(node).expect("it was inserted if it was missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_network_and_each_pod_its_address() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.assign("a", "1"), "10.244.0.2");
        assert_eq!(addresses.assign("b", "2"), "10.244.1.2");
        assert_eq!(addresses.assign("a", "3"), "10.244.0.3");
        assert_eq!(addresses.assign("a", "1"), "10.244.0.2", "asked again");
        addresses.release("1");
        assert_eq!(addresses.assign("a", "4"), "10.244.0.2", "free again");
    }

    #[test]
    fn full_network_overflows_instead_of_giving_an_address_twice() {
        let mut addresses = Addresses::default();
        let all: BTreeSet<String> = (0..600).map(|i| addresses.assign("a", &i.to_string())).collect();
        assert_eq!(all.len(), 600);
        assert!(all.contains("198.18.0.0"));
    }

    #[test]
    fn claimed_address_is_not_given_to_another_pod() {
        let mut addresses = Addresses::default();
        addresses.claim("a", "old", "10.244.7.2");
        assert_eq!(addresses.assign("a", "new"), "10.244.7.3");
        assert_eq!(addresses.assign("a", "old"), "10.244.7.2");
    }
}
