//! Pod affinity terms of the pods on nodes: each distinct term once, with the nodes that its owners run on.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::domain_sums::DomainSums;
use super::selector_index::SelectorIndex;
use super::{LabelColumn, LabelColumns, NodeCounts, NodeIdx};
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
    /// The same by domain. Not where each node is a domain of its own, nor before somebody asks for the label's column.
    sums: Option<DomainSums>,
}

impl TermEntry {
    /// How often pods of each domain hold the term, by value id of the topology key; values beyond its end have none.
    /// `None` if that is to be added up from [`TermEntry::nodes`].
    #[must_use]
    pub fn by_domain(&self) -> Option<&[u32]> {
        self.sums.as_ref().map(DomainSums::by_value)
    }

    fn ensure_sums(&mut self, labels: &LabelColumns) {
        if self.sums.is_none()
            && let Some(column) = summed_column(labels, &self.term)
        {
            self.sums = Some(DomainSums::new(column, &self.nodes));
        }
    }
}

/// The column of the term's topology key, if it is worth adding up.
fn summed_column<'a>(labels: &'a LabelColumns, term: &AffinityTerm) -> Option<&'a LabelColumn> {
    labels.get(&term.topology_key).filter(|column| !column.is_unique())
}

/// A term of one kind; valid only within one [`super::Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermIdx(usize);

/// Distinct terms of one kind. The pods that a term applies to are found from their labels, so an incoming pod costs
/// O(its labels + terms that may apply to it), not O(pods).
#[derive(Debug, Clone, Default)]
pub struct TermCounts {
    entries: Vec<TermEntry>,
    /// By weight and term, so that a term need not be copied to be found.
    ids: FxHashMap<i32, FxHashMap<AffinityTerm, usize>>,
    index: SelectorIndex<usize>,
    free: Vec<usize>,
    /// The term that came last. Replicas often follow each other, and two terms are compared faster than one is hashed.
    last: usize,
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

    fn add(&mut self, labels: &LabelColumns, node: NodeIdx, term: &AffinityTerm, weight: i32) {
        let is_known = |entry: &TermEntry| entry.weight == weight && entry.term == *term && !entry.nodes.is_empty();
        let at = if self.entries.get(self.last).is_some_and(is_known) {
            self.last
        } else if let Some(&at) = self.ids.get(&weight).and_then(|ids| ids.get(term)) {
            at
        } else {
            let mut entry = TermEntry { term: term.clone(), weight, nodes: NodeCounts::default(), sums: None };
            entry.ensure_sums(labels);
            let at = if let Some(at) = self.free.pop() {
                self.entries[at] = entry;
                at
            } else {
                self.entries.push(entry);
                self.entries.len() - 1
            };
            self.index.insert(&term.selector, at);
            self.ids.entry(weight).or_default().insert(term.clone(), at);
            at
        };
        self.last = at;
        let entry = &mut self.entries[at];
        entry.nodes.add(node, 1);
        if let Some((sums, column)) = entry.sums.as_mut().zip(labels.get(&term.topology_key)) {
            sums.add(column, node, 1);
        }
    }

    fn remove(&mut self, labels: &LabelColumns, node: NodeIdx, term: &AffinityTerm, weight: i32) {
        let Some(ids) = self.ids.get_mut(&weight) else { return };
        let Some(&at) = ids.get(term) else { return };
        let entry = &mut self.entries[at];
        let was_there = entry.nodes.take_one(node);
        if let Some((sums, column)) = entry.sums.as_mut().filter(|_| was_there).zip(labels.get(&term.topology_key)) {
            sums.subtract(column, node, 1);
        }
        if entry.nodes.is_empty() {
            entry.sums = None;
            self.index.remove(&term.selector, at);
            ids.remove(term);
            if ids.is_empty() {
                self.ids.remove(&weight);
            }
            self.free.push(at);
        }
    }

    /// Adds up by domain the terms that mean such a pod.
    fn ensure_sums(&mut self, labels: &LabelColumns, (namespace, namespace_labels): (&str, &Labels), pod: &Labels) {
        if self.is_empty() {
            return;
        }
        for at in self.index.candidates(pod) {
            let entry = &mut self.entries[at];
            if entry.sums.is_none() && entry.term.matches(namespace, pod, namespace_labels) {
                entry.ensure_sums(labels);
            }
        }
    }

    /// Before the node's labels change, or after.
    fn move_node(&mut self, labels: &LabelColumns, node: NodeIdx, change: impl Fn(&mut DomainSums, &LabelColumn, u32)) {
        for entry in &mut self.entries {
            let Some((sums, column)) = entry.sums.as_mut().zip(labels.get(&entry.term.topology_key)) else { continue };
            match entry.nodes.get(node) {
                0 => {}
                n => change(sums, column, n),
            }
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
    pub(crate) fn add_pod(&mut self, labels: &LabelColumns, node: NodeIdx, pod: &Pod) {
        self.count_keys(pod, true);
        self.update(pod, |terms, term, weight| terms.add(labels, node, term, weight));
    }

    pub(crate) fn remove_pod(&mut self, labels: &LabelColumns, node: NodeIdx, pod: &Pod) {
        self.count_keys(pod, false);
        self.update(pod, |terms, term, weight| terms.remove(labels, node, term, weight));
    }

    /// Adds up by domain the terms that mean such a pod.
    pub(crate) fn ensure_sums(&mut self, labels: &LabelColumns, pod: &Pod, namespace_labels: &Labels) {
        for terms in [&mut self.required, &mut self.required_anti, &mut self.preferred] {
            terms.ensure_sums(labels, (&pod.namespace, namespace_labels), &pod.labels);
        }
    }

    /// The node's labels are about to change; the columns still have the old values.
    pub(crate) fn exclude_node(&mut self, labels: &LabelColumns, node: NodeIdx) {
        for terms in [&mut self.required, &mut self.required_anti, &mut self.preferred] {
            terms.move_node(labels, node, |sums, column, n| sums.subtract(column, node, n));
        }
    }

    /// The node's labels have changed; the columns have the new values.
    pub(crate) fn include_node(&mut self, labels: &LabelColumns, node: NodeIdx) {
        for terms in [&mut self.required, &mut self.required_anti, &mut self.preferred] {
            terms.move_node(labels, node, |sums, column, n| sums.add(column, node, n));
        }
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
