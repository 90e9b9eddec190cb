//! Pod affinity terms of the pods on nodes: each distinct term once, with the nodes that its owners run on.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::selector_index::SelectorIndex;
use super::{NodeCounts, NodeIdx};
use crate::model::{AffinityTerm, Labels, Pod};

/// One distinct term.
#[derive(Debug, Clone)]
pub struct TermEntry {
    /// The term.
    pub term: AffinityTerm,
    /// Its weight, negative for preferred anti-affinity; 0 for required terms.
    pub weight: i32,
    /// How often pods on each node hold the term.
    pub nodes: NodeCounts,
}

/// A term of one kind; valid only within one [`super::Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermIdx(usize);

/// Distinct terms of one kind. The pods that a term applies to are found from their labels, so an incoming pod costs
/// O(its labels + terms that may apply to it), not O(pods).
#[derive(Debug, Clone, Default)]
pub struct TermCounts {
    entries: Vec<TermEntry>,
    ids: FxHashMap<(AffinityTerm, i32), usize>,
    index: SelectorIndex<usize>,
    free: Vec<usize>,
}

impl TermCounts {
    /// Whether no pod on a node holds a term of this kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The terms that mean a pod in `namespace` (with the labels given) with these pod labels.
    pub fn matching<'a, 'p>(
        &'a self,
        namespace: &'p str,
        labels: &'p Labels,
        namespace_labels: &'p Labels,
    ) -> impl Iterator<Item = (TermIdx, &'a TermEntry)> + use<'a, 'p>
    where
        'a: 'p,
    {
        self.index
            .candidates(labels)
            .map(|at| (TermIdx(at), &self.entries[at]))
            .filter(move |(_, entry)| entry.term.matches(namespace, labels, namespace_labels))
    }

    /// One of the terms.
    ///
    /// # Panics
    /// When it is of another snapshot.
    #[must_use]
    pub fn entry(&self, term: TermIdx) -> &TermEntry {
        &self.entries[term.0]
    }

    fn add(&mut self, node: NodeIdx, term: &AffinityTerm, weight: i32) {
        let key = (term.clone(), weight);
        let at = if let Some(&at) = self.ids.get(&key) {
            at
        } else {
            let entry = TermEntry { term: term.clone(), weight, nodes: NodeCounts::default() };
            let at = if let Some(at) = self.free.pop() {
                self.entries[at] = entry;
                at
            } else {
                self.entries.push(entry);
                self.entries.len() - 1
            };
            self.index.insert(&term.selector, at);
            self.ids.insert(key, at);
            at
        };
        self.entries[at].nodes.add(node, 1);
    }

    fn remove(&mut self, node: NodeIdx, term: &AffinityTerm, weight: i32) {
        let key = (term.clone(), weight);
        let Some(&at) = self.ids.get(&key) else { return };
        let entry = &mut self.entries[at];
        entry.nodes.take_one(node);
        if entry.nodes.is_empty() {
            self.index.remove(&term.selector, at);
            self.ids.remove(&key);
            self.free.push(at);
        }
    }
}

/// The terms of all pods on nodes, by kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct AffinityTerms {
    /// How many terms of any kind name each topology key.
    topology_keys: FxHashMap<Arc<str>, usize>,
    pub(crate) required: TermCounts,
    pub(crate) required_anti: TermCounts,
    /// Affinity with its weight, anti-affinity with its weight negated.
    pub(crate) preferred: TermCounts,
}

impl AffinityTerms {
    pub(crate) fn add_pod(&mut self, node: NodeIdx, pod: &Pod) {
        self.count_keys(pod, true);
        self.update(pod, |terms, term, weight| terms.add(node, term, weight));
    }

    pub(crate) fn remove_pod(&mut self, node: NodeIdx, pod: &Pod) {
        self.count_keys(pod, false);
        self.update(pod, |terms, term, weight| terms.remove(node, term, weight));
    }

    pub(crate) fn topology_keys(&self) -> Vec<Arc<str>> {
        self.topology_keys.keys().cloned().collect()
    }

    fn count_keys(&mut self, pod: &Pod, add: bool) {
        let Some(affinity) = &pod.affinity else { return };
        let required = affinity.required_pod.iter().chain(&affinity.required_anti);
        let preferred = affinity.preferred_pod.iter().chain(&affinity.preferred_anti).map(|weighted| &weighted.term);
        for term in required.chain(preferred) {
            if add {
                *self.topology_keys.entry(Arc::clone(&term.topology_key)).or_default() += 1;
            } else if let Some(count) = self.topology_keys.get_mut(&term.topology_key) {
                *count -= 1;
                if *count == 0 {
                    self.topology_keys.remove(&term.topology_key);
                }
            }
        }
    }

    fn update(&mut self, pod: &Pod, apply: impl Fn(&mut TermCounts, &AffinityTerm, i32)) {
        let Some(affinity) = &pod.affinity else { return };
        for term in &affinity.required_pod {
            apply(&mut self.required, term, 0);
        }
        for term in &affinity.required_anti {
            apply(&mut self.required_anti, term, 0);
        }
        for weighted in &affinity.preferred_pod {
            apply(&mut self.preferred, &weighted.term, weighted.weight);
        }
        for weighted in &affinity.preferred_anti {
            apply(&mut self.preferred, &weighted.term, weighted.weight.saturating_neg());
        }
    }
}
