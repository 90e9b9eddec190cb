//! Host ports in use: for a port number, the nodes on which a pod holds it.

use rustc_hash::FxHashMap;

use super::NodeIdx;
use crate::model::{HostPort, Pod};

/// All host ports that pods on nodes hold.
#[derive(Debug, Clone, Default)]
pub struct HostPorts {
    by_port: FxHashMap<u16, Vec<(NodeIdx, HostPort)>>,
}

impl HostPorts {
    /// Who holds the port number, whatever address and protocol; one entry per holding pod.
    #[must_use]
    pub fn holders(&self, port: u16) -> &[(NodeIdx, HostPort)] {
        self.by_port.get(&port).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn add_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for port in &pod.host_ports {
            self.by_port.entry(port.port).or_default().push((node, port.clone()));
        }
    }

    pub(crate) fn remove_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for port in &pod.host_ports {
            let Some(holders) = self.by_port.get_mut(&port.port) else { continue };
            if let Some(at) = holders.iter().position(|(holder, held)| *holder == node && held == port) {
                holders.swap_remove(at);
            }
            if holders.is_empty() {
                self.by_port.remove(&port.port);
            }
        }
    }
}
