//! What a fleet of kubelets can be told at start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::runtime::ContainerRuntime;
use super::simulated::SimulatedRuntime;

/// Which nodes the kubelets stand for, and how they behave.
#[derive(Clone)]
pub struct KubeletOptions {
    /// The nodes that register themselves at start, as [`super::nodes::default_nodes`] makes them. Their status is
    /// completed with what is missing. Nodes that others create are taken over besides.
    pub nodes: Vec<Node>,
    /// Where the containers run.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// How often a node's Lease is renewed. Upstream: a quarter of nodeLeaseDurationSeconds (40), v1.36.2.
    pub lease_renew_interval: Duration,
    /// How often a node's status is sent although nothing changed. Upstream: nodeStatusReportFrequency, v1.36.2.
    pub status_report_frequency: Duration,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            nodes: super::nodes::default_nodes(3),
            runtime: Arc::new(SimulatedRuntime::default()),
            lease_renew_interval: Duration::from_secs(10),
            status_report_frequency: Duration::from_secs(5 * 60),
        }
    }
}

impl fmt::Debug for KubeletOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletOptions")
            .field("nodes", &self.nodes.len())
            .field("runtime", &self.runtime.version())
            .field("lease_renew_interval", &self.lease_renew_interval)
            .field("status_report_frequency", &self.status_report_frequency)
            .finish()
    }
}
