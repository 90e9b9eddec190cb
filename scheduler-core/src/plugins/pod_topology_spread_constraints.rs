//! What PodTopologySpread compares: the constraints of one pod, and where their indexes are.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::{CountIdx, CountKey, DomainIdx, Inclusion, LabelIdx, NodeIdx, Snapshot};
use crate::framework::Cycle;
use crate::model::{Node, Pod};

/// All constraints of one pod; PreFilter leaves them for the rest of the cycle.
#[derive(Debug, Clone, Default)]
pub(super) struct Constraints {
    pub(super) hard: Arc<[Constraint]>,
    pub(super) soft: Arc<[Constraint]>,
    /// Whether nodes that lack a label of a soft constraint score 0, and their pods do not count.
    pub(super) soft_require_all: bool,
    /// Where the indexes of each are, the hard ones first: for replicas, too, since columns stay while only such come to
    /// nodes. Empty until [`Constraints::find_indexes`].
    pub(super) places: SmallVec<[Place; 2]>,
}

/// Where the indexes of a constraint are; `None` where nobody keeps them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) label: Option<LabelIdx>,
    /// Pods by domain; not for soft constraints over host names.
    pub(super) domains: Option<DomainIdx>,
    /// Pods by node.
    pub(super) nodes: Option<CountIdx>,
}

impl Constraints {
    pub(super) fn find_indexes(mut self, cycle: Cycle<'_>) -> Self {
        let (labels, counts) = (cycle.snapshot.labels(), cycle.snapshot.pod_counts());
        let place = |is_hard: bool, constraint: &Constraint| {
            let domains = (is_hard || !constraint.is_hostname).then(|| {
                let inclusion = self.inclusion(is_hard, constraint, cycle.pod);
                counts.find_domains(&constraint.count, &constraint.topology_key, &inclusion)
            });
            Place {
                label: labels.find(&constraint.topology_key),
                domains: domains.flatten(),
                nodes: counts.find(&constraint.count),
            }
        };
        let hard = self.hard.iter().map(|constraint| place(true, constraint));
        let places = hard.chain(self.soft.iter().map(|constraint| place(false, constraint))).collect();
        self.places = places;
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hard.is_empty() && self.soft.is_empty()
    }

    /// The nodes whose pods count for one of the constraints.
    pub(super) fn inclusion(&self, is_hard: bool, constraint: &Constraint, pod: &Pod) -> Inclusion {
        let of_kind = if is_hard { &self.hard } else { &self.soft };
        let has_all = is_hard || self.soft_require_all;
        let keys = of_kind.iter().filter(|_| has_all).map(|constraint| &constraint.topology_key);
        Inclusion::new(keys, pod, constraint.honor_node_affinity, constraint.honor_node_taints)
    }
}

/// One constraint of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Constraint {
    pub(super) max_skew: i32,
    pub(super) min_domains: i32,
    pub(super) is_hostname: bool,
    pub(super) topology_key: Arc<str>,
    pub(super) honor_node_affinity: bool,
    pub(super) honor_node_taints: bool,
    pub(super) matches_self: bool,
    pub(super) count: CountKey,
}

impl Constraint {
    /// Whether the node's pods count: a policy is to honour what keeps the pod itself off the node.
    /// Upstream: `matchNodeInclusionPolicies`.
    pub(super) fn includes(&self, pod: &Pod, node: &Node) -> bool {
        (!self.honor_node_affinity || pod.selects_node(node))
            && (!self.honor_node_taints || pod.tolerates_all(&node.taints))
    }

    /// Matching pods of each node that has some. An empty selector counts none.
    pub(super) fn counted(&self, snapshot: &Snapshot) -> Vec<(NodeIdx, u32)> {
        if self.count.selector.is_everything() {
            return Vec::new();
        }
        if let Some(column) = snapshot.pod_counts().get(&self.count) {
            return column.iter().collect();
        }
        let count = |node| snapshot.pods(node).iter().filter(|pod| self.count.matches(pod)).count();
        snapshot
            .iter()
            .map(|node| (node, u32::try_from(count(node)).unwrap_or(u32::MAX)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}
