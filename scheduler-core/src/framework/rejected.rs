//! Which nodes a failed attempt rejected, for PostFilter plugins and the message.

use std::collections::BTreeSet;

use super::{FilterStatus, ReasonCounts, Reasons};
use crate::cache::NodeIdx;

/// The verdicts of a failed attempt. Upstream: framework `NodeToStatus` and `Diagnosis` (v1.36.2).
#[derive(Debug, Clone, Default)]
pub struct Rejected {
    /// Nodes that Filter or an extender rejected, in node order.
    pub nodes: Vec<RejectedNode>,
    /// Why: the reasons of all `nodes`, counted. [`super::Filters::filter`] says it of one node.
    pub reasons: ReasonCounts,
    /// The verdict on all nodes that are not in `nodes`; `Unschedulable` is never said of them by Filter.
    pub absent: Option<(FilterStatus, Reasons)>,
    /// All nodes of the cluster.
    pub n_nodes: usize,
    /// Plugins that rejected the pod or a node.
    pub unschedulable_plugins: BTreeSet<&'static str>,
    /// Text of a PreFilter rejection; then `nodes` is empty.
    pub pre_filter_message: Option<String>,
    /// Whether PreFilter rejected the pod for good, so that plugins left no state.
    pub pre_filter_unresolvable: bool,
}

/// One rejected node.
#[derive(Debug, Clone, Copy)]
pub struct RejectedNode {
    /// The node.
    pub node: NodeIdx,
    /// Resolvable or not.
    pub status: FilterStatus,
    /// The first plugin that rejected it; `None` for an extender.
    pub plugin: Option<&'static str>,
}

impl Rejected {
    /// Nodes on which removing pods may help, in node order. Upstream: `NodesForStatusCode(Unschedulable)`.
    pub fn resolvable(&self) -> impl Iterator<Item = NodeIdx> + '_ {
        self.nodes
            .iter()
            .filter(|rejected| rejected.status == FilterStatus::Unschedulable)
            .map(|rejected| rejected.node)
    }

    /// Whether the verdict on the nodes outside `nodes` leaves room for preemption.
    #[must_use]
    pub fn absent_are_resolvable(&self) -> bool {
        matches!(self.absent, Some((FilterStatus::Unschedulable, _)))
    }
}
