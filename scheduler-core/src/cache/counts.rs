//! How many pods a selector matches, per node and per domain: one sparse column per (selector, namespaces), kept current
//! by events.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::selector_index::SelectorIndex;
use super::{DomainCounts, Inclusion, LabelColumns, NodeCounts, NodeIdx};
use crate::model::{Node, Pod, Selector};

/// Which pods a column counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CountKey {
    /// Namespaces by name, sorted; `None` means all.
    pub namespaces: Option<Arc<[Arc<str>]>>,
    /// Pods by label.
    pub selector: Arc<Selector>,
    /// Whether pods that are being deleted are left out.
    pub skip_terminating: bool,
}

impl CountKey {
    /// Whether the pod is counted.
    #[must_use]
    pub fn matches(&self, pod: &Pod) -> bool {
        !(self.skip_terminating && pod.is_terminating())
            && self.namespaces.as_ref().is_none_or(|names| names.binary_search(&pod.namespace).is_ok())
            && self.selector.matches(&pod.labels)
    }
}

/// A count column; valid only within one [`super::Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountIdx(usize);

/// The sums of a count column by domain; valid only within one [`super::Snapshot`], and until columns are asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainIdx(CountIdx, usize);

#[derive(Debug, Clone)]
struct Column {
    key: CountKey,
    nodes: NodeCounts,
    domains: Vec<DomainCounts>,
    last_required: u64,
}

/// The count columns that were asked for.
#[derive(Debug, Clone, Default)]
pub struct PodCounts {
    columns: Vec<Option<Column>>,
    by_key: FxHashMap<CountKey, usize>,
    index: SelectorIndex<usize>,
    free: Vec<usize>,
    clock: u64,
}

/// Columns beyond this number make room for new ones, the least recently asked for first: a bound on memory and on
/// the work per pod event, far above the number of workloads that schedule at one time.
const MAX_COLUMNS: usize = 16_384;
/// The same for the sums by domain of one column.
const MAX_DOMAINS: usize = 32;

impl PodCounts {
    /// Where the column of the key is; `None` until [`super::Indexes::pod_count`] asked for it.
    #[must_use]
    pub fn find(&self, key: &CountKey) -> Option<CountIdx> {
        self.by_key.get(key).copied().map(CountIdx)
    }

    /// Matching pods per node.
    ///
    /// # Panics
    /// When the column is of another snapshot.
    #[must_use]
    pub fn nodes(&self, column: CountIdx) -> &NodeCounts {
        &self.columns[column.0].as_ref().expect("the column was found in this snapshot").nodes
    }

    /// Matching pods per node; `None` until [`super::Indexes::pod_count`] asked for it.
    #[must_use]
    pub fn get(&self, key: &CountKey) -> Option<&NodeCounts> {
        self.find(key).map(|column| self.nodes(column))
    }

    /// Matching pods per domain of a label, over the nodes that count; `None` until
    /// [`super::Indexes::domain_count`] asked for it.
    #[must_use]
    pub fn domains(&self, key: &CountKey, topology_key: &str, inclusion: &Inclusion) -> Option<&DomainCounts> {
        self.find_domains(key, topology_key, inclusion).map(|domains| self.domains_at(domains))
    }

    /// Where these sums are; `None` until [`super::Indexes::domain_count`] asked for them.
    #[must_use]
    pub fn find_domains(&self, key: &CountKey, topology_key: &str, inclusion: &Inclusion) -> Option<DomainIdx> {
        let at = self.find(key)?;
        let column = self.columns[at.0].as_ref()?;
        let found = column.domains.iter().position(|domains| domains.is_for(topology_key, inclusion));
        found.map(|domains| DomainIdx(at, domains))
    }

    /// Sums that were found.
    ///
    /// # Panics
    /// When they are of another snapshot.
    #[must_use]
    pub fn domains_at(&self, DomainIdx(column, at): DomainIdx) -> &DomainCounts {
        &self.columns[column.0].as_ref().expect("the column was found in this snapshot").domains[at]
    }

    /// Where the sums of a column by domain of a label are, over all nodes; `None` until
    /// [`super::Indexes::pod_count_and_sums`] asked for it.
    ///
    /// # Panics
    /// When the column is of another snapshot.
    #[must_use]
    pub fn find_over_all_nodes(&self, column: CountIdx, topology_key: &str) -> Option<DomainIdx> {
        let sums = &self.columns[column.0].as_ref().expect("the column was found in this snapshot").domains;
        let found = sums.iter().position(|domains| domains.is_over_all_nodes(topology_key));
        found.map(|at| DomainIdx(column, at))
    }

    pub(crate) fn ensure<'p>(&mut self, key: CountKey, pods: impl Iterator<Item = (NodeIdx, &'p [Arc<Pod>])>) {
        self.clock += 1;
        if let Some(&at) = self.by_key.get(&key) {
            if let Some(column) = &mut self.columns[at] {
                column.last_required = self.clock;
            }
            return;
        }
        if self.by_key.len() >= MAX_COLUMNS {
            self.evict();
        }
        let mut nodes = NodeCounts::default();
        for (node, pods) in pods {
            let n_pods = pods.iter().filter(|pod| key.matches(pod)).count();
            nodes.add(node, u32::try_from(n_pods).unwrap_or(u32::MAX));
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.columns.push(None);
            self.columns.len() - 1
        });
        self.index.insert(&key.selector, at);
        self.by_key.insert(key.clone(), at);
        self.columns[at] = Some(Column { key, nodes, domains: Vec::new(), last_required: self.clock });
    }

    /// The column and the label column must be there.
    pub(crate) fn ensure_domains(
        &mut self,
        key: &CountKey,
        topology_key: &Arc<str>,
        inclusion: Inclusion,
        labels: &LabelColumns,
        nodes: &[Arc<Node>],
        live: &[u64],
    ) {
        let Some(column) = self.by_key.get(key).and_then(|at| self.columns[*at].as_mut()) else { return };
        let Some(values) = labels.get(topology_key) else { return };
        if column.domains.iter().any(|domains| domains.is_for(topology_key, &inclusion)) {
            return;
        }
        if column.domains.len() >= MAX_DOMAINS {
            column.domains.remove(0);
        }
        let mut mask = live.to_vec();
        inclusion.retain(labels, nodes, &mut mask);
        let domains = DomainCounts::new(Arc::clone(topology_key), inclusion, values, &column.nodes, mask);
        column.domains.push(domains);
    }

    pub(crate) fn add_pod(&mut self, labels: &LabelColumns, node: NodeIdx, pod: &Pod) {
        for at in self.index.candidates(&pod.labels) {
            let Some(column) = &mut self.columns[at] else { continue };
            if column.key.matches(pod) {
                column.nodes.add(node, 1);
                for domains in &mut column.domains {
                    domains.count(labels, node, true);
                }
            }
        }
    }

    pub(crate) fn remove_pod(&mut self, labels: &LabelColumns, node: NodeIdx, pod: &Pod) {
        for at in self.index.candidates(&pod.labels) {
            let Some(column) = &mut self.columns[at] else { continue };
            if column.key.matches(pod) && column.nodes.take_one(node) {
                for domains in &mut column.domains {
                    domains.count(labels, node, false);
                }
            }
        }
    }

    /// The node is about to change or to go; the label columns still have its old values.
    pub(crate) fn exclude_node(&mut self, labels: &LabelColumns, node: NodeIdx) {
        for column in self.columns.iter_mut().flatten() {
            for domains in &mut column.domains {
                domains.exclude(labels, node, &column.nodes);
            }
        }
    }

    /// The node is there, or has changed; the label columns have its new values.
    pub(crate) fn include_node(&mut self, labels: &LabelColumns, idx: NodeIdx, node: &Node) {
        for column in self.columns.iter_mut().flatten() {
            for domains in &mut column.domains {
                domains.include_changed(labels, idx, node, &column.nodes);
            }
        }
    }

    fn evict(&mut self) {
        let mut by_age: Vec<(u64, usize)> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| Some((column.as_ref()?.last_required, at)))
            .collect();
        by_age.sort_unstable();
        for (_, at) in by_age.into_iter().take(MAX_COLUMNS / 4) {
            if let Some(column) = self.columns[at].take() {
                self.index.remove(&column.key.selector, at);
                self.by_key.remove(&column.key);
                self.free.push(at);
            }
        }
    }
}
