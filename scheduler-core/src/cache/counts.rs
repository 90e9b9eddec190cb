//! How many pods a selector matches, per node: one sparse column per (selector, namespaces), kept current by events.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::NodeIdx;
use super::selector_index::SelectorIndex;
use crate::model::{Pod, Selector};

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

#[derive(Debug, Clone)]
struct Column {
    key: CountKey,
    per_node: FxHashMap<NodeIdx, u32>,
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

impl PodCounts {
    /// Matching pods per node, nodes without any left out; `None` until [`super::Indexes::pod_count`] asked for it.
    #[must_use]
    pub fn get(&self, key: &CountKey) -> Option<&FxHashMap<NodeIdx, u32>> {
        let at = *self.by_key.get(key)?;
        self.columns[at].as_ref().map(|column| &column.per_node)
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
        let mut per_node = FxHashMap::default();
        for (node, pods) in pods {
            let n_pods = pods.iter().filter(|pod| key.matches(pod)).count();
            if n_pods > 0 {
                per_node.insert(node, u32::try_from(n_pods).unwrap_or(u32::MAX));
            }
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.columns.push(None);
            self.columns.len() - 1
        });
        self.index.insert(&key.selector, at);
        self.by_key.insert(key.clone(), at);
        self.columns[at] = Some(Column { key, per_node, last_required: self.clock });
    }

    pub(crate) fn add_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for at in self.index.candidates(&pod.labels) {
            let Some(column) = &mut self.columns[at] else { continue };
            if column.key.matches(pod) {
                *column.per_node.entry(node).or_default() += 1;
            }
        }
    }

    pub(crate) fn remove_pod(&mut self, node: NodeIdx, pod: &Pod) {
        for at in self.index.candidates(&pod.labels) {
            let Some(column) = &mut self.columns[at] else { continue };
            if column.key.matches(pod)
                && let Some(count) = column.per_node.get_mut(&node)
            {
                *count -= 1;
                if *count == 0 {
                    column.per_node.remove(&node);
                }
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
