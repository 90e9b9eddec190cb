//! Pods of one count column by the domain of a node label, over the nodes that count: kept current by events, so that a
//! spread constraint is looked at without looking at nodes.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bits::{clear_bit, set_bit};
use super::{Candidates, IdSet, LabelColumn, LabelColumns, NodeCounts, NodeIdx};
use crate::model::{Labels, Node, NodeSelector, Pod, Toleration};

/// Which nodes count: what a spread constraint's policies and keys ask of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Inclusion {
    keys: SmallVec<[Arc<str>; 2]>,
    selection: Option<(Labels, Option<Arc<NodeSelector>>)>,
    tolerations: Option<Box<[Toleration]>>,
}

impl Inclusion {
    /// Nodes with all the labels; that the pod selects, if its node affinity is honoured; whose taints it tolerates, if
    /// those are.
    #[must_use]
    pub fn new<'k>(keys: impl Iterator<Item = &'k Arc<str>>, pod: &Pod, affinity: bool, taints: bool) -> Self {
        let required = pod.affinity.as_deref().and_then(|affinity| affinity.required_node.clone());
        let selects = affinity && (!pod.node_selector.is_empty() || required.is_some());
        Self {
            keys: keys.cloned().collect(),
            selection: selects.then(|| (pod.node_selector.clone(), required)),
            tolerations: taints.then(|| pod.tolerations.clone()),
        }
    }

    /// Labels that a node must have to count.
    pub(super) fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    /// The nodes that count, among those given; there must be columns of [`Inclusion::keys`]. As [`Inclusion::includes`]
    /// says, but without a look at every node.
    pub(super) fn retain(&self, labels: &LabelColumns, nodes: &[Arc<Node>], mask: &mut [u64]) {
        let mut candidates = Candidates::new(0, mask);
        for key in &self.keys {
            match labels.get(key) {
                Some(column) => {
                    candidates.remove_ids(column.values(), &IdSet::Only([LabelColumn::NONE].into_iter().collect()))
                }
                None => candidates.retain(|node| nodes[node.slot()].labels.contains_key(key)),
            }
        }
        if self.selection.is_some() || self.tolerations.is_some() {
            candidates.retain(|node| self.includes(&nodes[node.slot()]));
        }
    }

    /// Whether the node counts.
    #[must_use]
    pub fn includes(&self, node: &Node) -> bool {
        let tolerated = |tolerations: &[Toleration]| {
            let hard = node.taints.iter().filter(|taint| taint.forbids_scheduling());
            hard.into_iter().all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint)))
        };
        self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.selection.as_ref().is_none_or(|(labels, required)| {
                labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                    && required.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
            })
            && self.tolerations.as_ref().is_none_or(|tolerations| tolerated(tolerations))
    }
}

/// The sums for one label and one choice of nodes.
#[derive(Debug, Clone)]
pub struct DomainCounts {
    topology_key: Arc<str>,
    inclusion: Inclusion,
    included: Vec<u64>,
    /// By value id: included nodes, and pods on them.
    n_nodes: Vec<u32>,
    n_pods: Vec<u32>,
}

impl DomainCounts {
    /// Pods in the domain, on nodes that count.
    #[inline]
    #[must_use]
    pub fn n_pods(&self, domain: u32) -> u32 {
        self.n_pods.get(domain as usize).copied().unwrap_or(0)
    }

    /// Whether the domain has a node that counts.
    #[inline]
    #[must_use]
    pub fn exists(&self, domain: u32) -> bool {
        self.n_nodes.get(domain as usize).is_some_and(|n_nodes| *n_nodes > 0)
    }

    /// Pods of each domain, on nodes that count, by value id.
    #[must_use]
    pub fn pods_by_domain(&self) -> &[u32] {
        &self.n_pods
    }

    /// Over the nodes of the mask, which all count.
    pub(super) fn new(
        topology_key: Arc<str>,
        inclusion: Inclusion,
        column: &LabelColumn,
        counts: &NodeCounts,
        mut mask: Vec<u64>,
    ) -> Self {
        let none = IdSet::Only([LabelColumn::NONE].into_iter().collect());
        let mut labelled = Candidates::new(0, &mut mask);
        labelled.remove_ids(column.values(), &none);
        let (mut n_nodes, mut n_pods) = (vec![0; column.n_ids()], vec![0_u32; column.n_ids()]);
        for node in labelled.iter() {
            n_nodes[column.values()[node.slot()] as usize] += 1;
        }
        let mut domains = Self { topology_key, inclusion, included: mask, n_nodes, n_pods: Vec::new() };
        for (node, count) in counts.iter().filter(|(node, _)| domains.is_included(*node)) {
            let of_domain = &mut n_pods[column.values()[node.slot()] as usize];
            *of_domain = of_domain.saturating_add(count);
        }
        domains.n_pods = n_pods;
        domains
    }

    pub(super) fn is_for(&self, topology_key: &str, inclusion: &Inclusion) -> bool {
        *self.topology_key == *topology_key && self.inclusion == *inclusion
    }

    /// Whether every node with the label counts.
    pub(super) fn is_over_all_nodes(&self, topology_key: &str) -> bool {
        let Inclusion { keys, selection, tolerations } = &self.inclusion;
        *self.topology_key == *topology_key && keys.is_empty() && selection.is_none() && tolerations.is_none()
    }

    /// A pod that counts came to the node, or left it.
    pub(super) fn count(&mut self, labels: &LabelColumns, node: NodeIdx, comes: bool) {
        if !self.is_included(node) {
            return;
        }
        let domain = labels.get(&self.topology_key).map(|column| column.values()[node.slot()]);
        if let Some(n_pods) = domain.and_then(|domain| self.n_pods.get_mut(domain as usize)) {
            *n_pods = if comes { n_pods.saturating_add(1) } else { n_pods.saturating_sub(1) };
        }
    }

    /// The node is about to change or to go: it no longer counts. The label column still has its old value.
    pub(super) fn exclude(&mut self, labels: &LabelColumns, node: NodeIdx, counts: &NodeCounts) {
        if !self.is_included(node) {
            return;
        }
        clear_bit(&mut self.included, node.slot());
        let Some(column) = labels.get(&self.topology_key) else { return };
        let domain = column.values()[node.slot()] as usize;
        self.n_nodes[domain] -= 1;
        self.n_pods[domain] = self.n_pods[domain].saturating_sub(counts.get(node));
    }

    /// The node is there, or has changed; the label column has its new value.
    pub(super) fn include_changed(&mut self, labels: &LabelColumns, idx: NodeIdx, node: &Node, counts: &NodeCounts) {
        if let Some(column) = labels.get(&self.topology_key) {
            self.include(idx, node, column.values()[idx.slot()], counts);
        }
    }

    fn include(&mut self, idx: NodeIdx, node: &Node, domain: u32, counts: &NodeCounts) {
        if domain == LabelColumn::NONE || !self.inclusion.includes(node) {
            return;
        }
        let (word, domain) = (idx.slot() / 64, domain as usize);
        if self.included.len() <= word {
            self.included.resize(word + 1, 0);
        }
        if self.n_nodes.len() <= domain {
            self.n_nodes.resize(domain + 1, 0);
            self.n_pods.resize(domain + 1, 0);
        }
        set_bit(&mut self.included, idx.slot());
        self.n_nodes[domain] += 1;
        self.n_pods[domain] = self.n_pods[domain].saturating_add(counts.get(idx));
    }

    fn is_included(&self, node: NodeIdx) -> bool {
        let slot = node.slot();
        self.included.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}
