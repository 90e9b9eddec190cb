//! The read face of the cache: what plugins see during a cycle. Nothing here changes anything.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bits::ones;
use super::cluster_index::{ClusterIndex, ClusterIndexes};
use super::priorities::LowestPriorities;
use super::terms::AffinityTerms;
use super::{
    ChangeLog, HostPorts, Images, LabelColumns, NodeView, PodCounts, ResourceColumns, TaintClasses, TermCounts,
};
use crate::model::{Node, Pod};

/// A node's slot: valid only within one [`Snapshot`], since slots of removed nodes are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIdx(u32);

impl NodeIdx {
    /// The first slot, whether a node is in it or not.
    pub(crate) const FIRST: Self = Self(0);

    /// Position of the node in every column.
    #[must_use]
    #[inline]
    pub const fn slot(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) fn from_slot(slot: usize) -> Self {
        Self(u32::try_from(slot).expect("the cache refuses more than 2^32 slots"))
    }
}

/// All nodes and the pods on them, assumed ones included, as columns over node slots.
///
/// Columns are padded to a multiple of 64 slots; empty slots hold neutral values and are not in
/// [`Snapshot::live`]. Node order is slot order.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(crate) live: Vec<u64>,
    pub(crate) n_nodes: usize,
    pub(crate) index: FxHashMap<Arc<str>, NodeIdx>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The names of the nodes once more: every binding needs one, and nothing else of its node's object.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) pods: Vec<Vec<Arc<Pod>>>,
    pub(crate) resources: ResourceColumns,
    pub(crate) taints: TaintClasses,
    pub(crate) unschedulable: Vec<u64>,
    pub(crate) labels: LabelColumns,
    pub(crate) images: Images,
    pub(crate) ports: HostPorts,
    pub(crate) priorities: LowestPriorities,
    pub(crate) counts: PodCounts,
    pub(crate) terms: AffinityTerms,
    pub(crate) changes: ChangeLog,
    pub(super) kept: ClusterIndexes,
}

impl Snapshot {
    /// Number of nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Length of every column: a multiple of 64, empty slots included.
    #[must_use]
    pub fn n_slots(&self) -> usize {
        self.nodes.len()
    }

    /// Which slots hold a node, one bit each.
    #[must_use]
    pub fn live(&self) -> &[u64] {
        &self.live
    }

    /// All nodes, in node order.
    pub fn iter(&self) -> impl Iterator<Item = NodeIdx> + '_ {
        self.live
            .iter()
            .enumerate()
            .flat_map(|(at, &word)| ones(word).map(move |bit| NodeIdx::from_slot(at * 64 + bit)))
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeIdx> {
        self.index.get(name).copied()
    }

    /// One node with what runs on it.
    #[must_use]
    pub fn view(&self, node: NodeIdx) -> NodeView<'_> {
        NodeView::new(self, node)
    }

    /// One node object.
    #[must_use]
    pub fn node(&self, node: NodeIdx) -> &Node {
        &self.nodes[node.slot()]
    }

    /// Name of one node.
    #[must_use]
    pub fn name(&self, node: NodeIdx) -> &Arc<str> {
        &self.names[node.slot()]
    }

    /// Pods on one node, assumed ones included.
    #[must_use]
    pub fn pods(&self, node: NodeIdx) -> &[Arc<Pod>] {
        &self.pods[node.slot()]
    }

    /// The lowest priority of the pods on one node; the highest possible one where there are none.
    #[must_use]
    pub fn lowest_priority(&self, node: NodeIdx) -> i32 {
        self.priorities.get(node.slot())
    }

    /// Allocatable and requested amounts.
    #[must_use]
    pub fn resources(&self) -> &ResourceColumns {
        &self.resources
    }

    /// Distinct taint lists.
    #[must_use]
    pub fn taints(&self) -> &TaintClasses {
        &self.taints
    }

    /// Which nodes have `spec.unschedulable`, one bit a slot.
    #[must_use]
    pub fn unschedulable(&self) -> &[u64] {
        &self.unschedulable
    }

    /// The index of this type, if a plugin asked for it with [`Indexes::keep`](super::Indexes::keep).
    #[must_use]
    pub fn kept<I: ClusterIndex>(&self) -> Option<&I> {
        self.kept.get()
    }

    /// Label columns that plugins asked for.
    #[must_use]
    pub fn labels(&self) -> &LabelColumns {
        &self.labels
    }

    /// Images on nodes.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Host ports in use.
    #[must_use]
    pub fn host_ports(&self) -> &HostPorts {
        &self.ports
    }

    /// Pod counts that plugins asked for.
    #[must_use]
    pub fn pod_counts(&self) -> &PodCounts {
        &self.counts
    }

    /// Which nodes changed.
    #[must_use]
    pub fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    /// Required pod affinity terms of pods on nodes.
    #[must_use]
    pub fn required_affinity_terms(&self) -> &TermCounts {
        &self.terms.required
    }

    /// Required pod anti-affinity terms of pods on nodes.
    #[must_use]
    pub fn required_anti_affinity_terms(&self) -> &TermCounts {
        &self.terms.required_anti
    }

    /// Preferred terms of pods on nodes, anti-affinity with negative weight.
    #[must_use]
    pub fn preferred_affinity_terms(&self) -> &TermCounts {
        &self.terms.preferred
    }
}
