//! What a cluster can be told at start.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;

use crate::kubelet::nodes::default_nodes;
use cluster_stub_base::story::Story;

/// Settings of a cluster. The defaults are three nodes in memory on a free port of the loopback interface.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Keeps objects and keys here; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// Address that the API server listens on.
    pub bind_address: IpAddr,
    /// Port that it listens on; 0 takes a free one.
    pub port: u16,
    /// Nodes that register at start.
    pub nodes: Vec<Node>,
    /// Static tokens, as kube-apiserver's `--token-auth-file` has them.
    pub token_auth_file: Option<PathBuf>,
    /// Whether controllers run.
    pub controllers: bool,
    /// Whether simulated kubelets run.
    pub kubelet: bool,
    /// Range of Service addresses in CIDR notation.
    pub service_range: String,
    /// Who follows along.
    pub story: Story,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions {
            data_dir: None,
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            nodes: default_nodes(3),
            token_auth_file: None,
            controllers: true,
            kubelet: true,
            service_range: "10.96.0.0/16".to_owned(),
            story: Story::silent(),
        }
    }
}
