//! InterPodAffinity among pods that are alike: what they sign, and which nodes the terms cannot tell apart.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::inter_pod_affinity::{InterPodAffinity, OwnTerms, count_key};
use super::inter_pod_affinity_counts::Counted;
use crate::cache::{LabelColumn, NodeCounts, NodeIdx, Snapshot, TermCounts};
use crate::framework::{Cycle, Sharing, Signature};
use crate::model::{AffinityTerm, WeightedAffinityTerm};

/// The class of a node has room for so many topology keys.
const MAX_KEYS: usize = 2;

/// Everything that bears on the pod at one topology key.
struct AtKey<'a> {
    key: &'a Arc<str>,
    column: &'a LabelColumn,
    /// Counts by node that decide: affinity, anti-affinity, anti-affinity of pods on nodes.
    deciding: [SmallVec<[&'a NodeCounts; 2]>; 3],
    /// Counts by node that score, each with its weight.
    scoring: SmallVec<[(&'a NodeCounts, i64); 2]>,
}

pub(super) fn sign(
    plugin: &InterPodAffinity,
    cycle: Cycle<'_>,
    own: Option<&OwnTerms>,
    signature: &mut Signature,
) -> Sharing {
    let (pod, objects) = (cycle.pod, cycle.objects);
    if !has_terms(cycle) && !is_meant(cycle) {
        return Sharing::ByNode;
    }
    let Some(all) = at_keys(plugin, cycle, own) else { return Sharing::Never };
    for at_key in &all {
        (at_key.key, at_key.column.is_unique()).hash(signature);
    }
    (&pod.namespace, objects.namespace_labels(&pod.namespace), &pod.labels).hash(signature);
    if let Some(affinity) = pod.affinity.as_deref() {
        (&affinity.required_pod, &affinity.required_anti).hash(signature);
        (&affinity.preferred_pod, &affinity.preferred_anti).hash(signature);
        for term in own_terms(cycle) {
            count_key(term, objects).namespaces.hash(signature);
        }
    }
    signature.write_u8(1);
    Sharing::ByClass
}

pub(super) fn classify(
    plugin: &InterPodAffinity,
    cycle: Cycle<'_>,
    own: Option<&OwnTerms>,
    nodes: &[NodeIdx],
    classes: &mut [u64],
) {
    classes.fill(0);
    for (at, at_key) in at_keys(plugin, cycle, own).into_iter().flatten().enumerate() {
        for (class, node) in classes.iter_mut().zip(nodes) {
            *class |= u64::from(at_key.class(*node)) << (32 * at);
        }
    }
}

impl AtKey<'_> {
    /// The domain; or what the node has, where each node is a domain of its own.
    fn class(&self, node: NodeIdx) -> u32 {
        let domain = self.column.values()[node.slot()];
        if !self.column.is_unique() || domain == LabelColumn::NONE {
            return domain;
        }
        let mut class = 0;
        for (at, counts) in self.deciding.iter().enumerate() {
            class |= u32::from(counts.iter().any(|counts| counts.get(node) > 0)) << at;
        }
        let score = |(counts, weight): &(&NodeCounts, i64)| weight.wrapping_mul(i64::from(counts.get(node)));
        let score = self.scoring.iter().map(score).fold(0_i64, i64::wrapping_add);
        // A score too large for the class makes the node a class of its own.
        const MIDDLE: i64 = 1 << 26;
        match u32::try_from(score.saturating_add(MIDDLE)) {
            Ok(score) if score < 1 << 27 => class | score << 3,
            _ => 1 << 31 | u32::try_from(node.slot()).unwrap_or(0),
        }
    }
}

/// Whether the pod has terms of its own.
pub(super) fn has_terms(cycle: Cycle<'_>) -> bool {
    own_terms(cycle).next().is_some()
}

fn own_terms(cycle: Cycle<'_>) -> impl Iterator<Item = &AffinityTerm> {
    let affinity = cycle.pod.affinity.as_deref();
    affinity.into_iter().flat_map(|affinity| {
        let preferred = affinity.preferred_pod.iter().chain(&affinity.preferred_anti);
        affinity.required_pod.iter().chain(&affinity.required_anti).chain(preferred.map(|weighted| &weighted.term))
    })
}

/// The terms of pods on nodes, by kind: required, required anti-affinity, preferred.
fn kinds(snapshot: &Snapshot) -> [&TermCounts; 3] {
    [snapshot.required_affinity_terms(), snapshot.required_anti_affinity_terms(), snapshot.preferred_affinity_terms()]
}

/// Whether a term of a pod on a node means the pod.
fn is_meant(cycle: Cycle<'_>) -> bool {
    let kinds = kinds(cycle.snapshot);
    if kinds.iter().all(|terms| terms.is_empty()) {
        return false;
    }
    let labels = cycle.objects.namespace_labels(&cycle.pod.namespace);
    kinds.iter().any(|terms| terms.matching(&cycle.pod.namespace, &cycle.pod.labels, &labels).next().is_some())
}

/// By key, sorted. `None` if there are too many keys, or if a column is missing.
fn at_keys<'a>(
    plugin: &InterPodAffinity,
    cycle: Cycle<'a>,
    own: Option<&OwnTerms>,
) -> Option<SmallVec<[AtKey<'a>; MAX_KEYS]>> {
    let (pod, snapshot, objects) = (cycle.pod, cycle.snapshot, cycle.objects);
    let mut all: SmallVec<[AtKey<'a>; MAX_KEYS]> = SmallVec::new();
    let mut find = |key: &'a Arc<str>| -> Option<usize> {
        if let Some(at) = all.iter().position(|at_key| at_key.key == key) {
            return Some(at);
        }
        let column = snapshot.labels().get(key).filter(|_| all.len() < MAX_KEYS)?;
        all.push(AtKey { key, column, deciding: Default::default(), scoring: SmallVec::new() });
        Some(all.len() - 1)
    };
    let counts_of = |term: &AffinityTerm| snapshot.pod_counts().get(&count_key(term, objects));

    // First all keys, then what stands at them.
    let labels = own.map_or_else(|| objects.namespace_labels(&pod.namespace), |own| own.namespace_labels.clone());
    let [required, required_anti, preferred] = kinds(snapshot).map(|terms| {
        let matching = terms.matching(&pod.namespace, &pod.labels, &labels).map(|(_, entry)| entry);
        matching.collect::<SmallVec<[_; 4]>>()
    });
    for term in own_terms(cycle) {
        find(&term.topology_key)?;
    }
    for entry in required.iter().chain(&required_anti).chain(&preferred) {
        find(&entry.term.topology_key)?;
    }
    all.sort_by(|a, b| a.key.cmp(b.key));
    // Only where each node is a domain of its own do counts tell nodes apart: see `AtKey::class`.
    for at_key in all.iter_mut().filter(|at_key| at_key.column.is_unique()) {
        let is_here = |term: &AffinityTerm| term.topology_key == *at_key.key;
        let nodes = |counted: &Counted| counted.column.map(|column| snapshot.pod_counts().nodes(column));
        if let Some(affinity) = own.and_then(|own| own.affinity.as_ref())
            && pod.required_affinity().iter().any(is_here)
        {
            at_key.deciding[0].push(nodes(affinity)?);
        }
        for (term, counted) in pod.required_anti_affinity().iter().zip(own.map_or(&[][..], |own| &own.anti)) {
            if is_here(term) {
                at_key.deciding[1].push(nodes(counted)?);
            }
        }
        at_key.deciding[2].extend(required_anti.iter().filter(|entry| is_here(&entry.term)).map(|entry| &entry.nodes));
        let own: [(&[WeightedAffinityTerm], i64); 2] = match pod.affinity.as_deref() {
            Some(affinity) => [(&affinity.preferred_pod, 1), (&affinity.preferred_anti, -1)],
            None => [(&[], 1), (&[], -1)],
        };
        for (terms, sign) in own {
            for weighted in terms.iter().filter(|weighted| is_here(&weighted.term)) {
                at_key.scoring.push((counts_of(&weighted.term)?, sign * i64::from(weighted.weight)));
            }
        }
        let hard_weight = i64::from(plugin.hard_weight);
        let required = required.iter().filter(|entry| is_here(&entry.term)).map(|entry| (&entry.nodes, hard_weight));
        let preferred =
            preferred.iter().filter(|entry| is_here(&entry.term)).map(|entry| (&entry.nodes, i64::from(entry.weight)));
        at_key.scoring.extend(required.chain(preferred));
    }
    Some(all)
}
