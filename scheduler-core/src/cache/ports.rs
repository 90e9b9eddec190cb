//! Host ports in use: for a port number, the nodes on which a pod holds it.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::NodeIdx;
use crate::model::{HostPort, Pod};

/// All host ports that pods on nodes hold. A pod that goes is found through its node: an agent that holds the same port on
/// every node costs no more than another pod.
#[derive(Debug, Clone, Default)]
pub struct HostPorts {
    by_port: FxHashMap<u16, FxHashMap<NodeIdx, SmallVec<[HostPort; 1]>>>,
}

impl HostPorts {
    /// Who holds the port number, whatever address and protocol, in no particular order; one entry per holding pod.
    pub fn holders(&self, port: u16) -> impl Iterator<Item = (NodeIdx, &HostPort)> {
        let by_node = self.by_port.get(&port).into_iter().flatten();
        by_node.flat_map(|(node, held)| held.iter().map(|held| (*node, held)))
    }

    pub(crate) fn add_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for port in &pod.host_ports {
            self.by_port.entry(port.port).or_default().entry(node).or_default().push(port.clone());
        }
    }

    pub(crate) fn remove_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for port in &pod.host_ports {
            let Some(by_node) = self.by_port.get_mut(&port.port) else { continue };
            let Some(held) = by_node.get_mut(&node) else { continue };
            if let Some(at) = held.iter().position(|held| held == port) {
                held.swap_remove(at);
            }
            if held.is_empty() {
                by_node.remove(&node);
            }
            if by_node.is_empty() {
                self.by_port.remove(&port.port);
            }
        }
    }
}
