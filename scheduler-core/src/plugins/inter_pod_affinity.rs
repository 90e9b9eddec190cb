//! InterPodAffinity: pods that want to be near to, or far from, other pods; this file filters,
//! `inter_pod_affinity_score` scores. Upstream: plugins/interpodaffinity (v1.36.2).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cache::{
    Candidates, CountIdx, CountKey, IdSet, Indexes, LabelColumn, NodeCounts, NodeIdx, NodeView, Objects, Snapshot,
    TermEntry, TermIdx,
};
use crate::config::args::InterPodAffinityArgs;
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result, Reuse, Sharing, Signature,
};
use crate::model::{AffinityTerm, Labels, Node, Object, Pod, Requirement, Selector};

const REASON_AFFINITY: &str = "node(s) didn't match pod affinity rules";
const REASON_ANTI: &str = "node(s) didn't match pod anti-affinity rules";
const REASON_EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// Compares terms with pods.
#[derive(Debug)]
pub struct InterPodAffinity {
    pub(super) hard_weight: i32,
    pub(super) ignore_preferred_terms_of_existing_pods: bool,
}

impl InterPodAffinity {
    /// Name in configurations.
    pub const NAME: &'static str = "InterPodAffinity";

    /// Takes the weight of required terms in scoring from the arguments.
    #[must_use]
    pub fn new(args: &InterPodAffinityArgs) -> Self {
        Self {
            hard_weight: args.hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods,
        }
    }
}

/// The pods that one of the incoming pod's terms means.
///
/// The namespaces that the term selects are added to those that it names. Upstream tests the selector against a
/// namespace without labels, too: `NotIn`, `DoesNotExist` and an empty selector so mean every namespace.
pub(super) fn count_key(term: &AffinityTerm, objects: &Objects) -> CountKey {
    CountKey {
        namespaces: resolve_namespaces(term, objects),
        selector: Arc::clone(&term.selector),
        skip_terminating: false,
    }
}

/// Sorted names; `None` means all namespaces.
fn resolve_namespaces(term: &AffinityTerm, objects: &Objects) -> Option<Arc<[Arc<str>]>> {
    if *term.namespace_selector == Selector::Nothing {
        return Some(Arc::clone(&term.namespaces));
    }
    if term.namespace_selector.matches(&Labels::default()) {
        return None;
    }
    let selected = objects
        .namespaces()
        .filter(|namespace| term.namespace_selector.matches(&namespace.labels))
        .map(|namespace| Arc::clone(&namespace.name));
    let mut names: Vec<Arc<str>> = term.namespaces.iter().cloned().chain(selected).collect();
    names.sort();
    names.dedup();
    Some(names.into())
}

/// The pods that all terms mean; `None` if no pod can be.
pub(super) fn count_key_of_all(terms: &[AffinityTerm], objects: &Objects) -> Option<CountKey> {
    let mut keys = terms.iter().map(|term| count_key(term, objects));
    let first = keys.next()?;
    keys.try_fold(first, |all, key| {
        let namespaces = match (all.namespaces, key.namespaces) {
            (None, other) | (other, None) => other,
            (Some(a), Some(b)) => Some(a.iter().filter(|name| b.binary_search(name).is_ok()).cloned().collect()),
        };
        let selector = match (&*all.selector, &*key.selector) {
            (Selector::All(a), Selector::All(b)) => {
                let mut requirements: Vec<Requirement> = a.iter().chain(b).cloned().collect();
                requirements.sort();
                requirements.dedup();
                Selector::All(requirements.into())
            }
            _ => return None,
        };
        Some(CountKey { namespaces, selector: Arc::new(selector), skip_terminating: false })
    })
}

/// Pods per node that a key counts, from the column or, without one, by looking at every pod.
pub(super) fn counted(snapshot: &Snapshot, key: &CountKey, mut each: impl FnMut(NodeIdx, i64)) {
    if let Some(column) = snapshot.pod_counts().get(key) {
        for (node, count) in column.iter() {
            each(node, i64::from(count));
        }
        return;
    }
    for node in snapshot.iter() {
        let count = snapshot.pods(node).iter().filter(|pod| key.matches(pod)).count();
        if count > 0 {
            each(node, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        // Terms of pods on nodes may bear on any pod: their topology keys need columns, too.
        for key in indexes.affinity_topology_keys() {
            indexes.label_column(&key);
        }
        let Some(affinity) = &pod.affinity else { return };
        let preferred = affinity.preferred_pod.iter().chain(&affinity.preferred_anti).map(|weighted| &weighted.term);
        for term in affinity.required_anti.iter().chain(preferred) {
            indexes.label_column(&term.topology_key);
            indexes.pod_count(count_key(term, objects));
        }
        for term in &affinity.required_pod {
            indexes.label_column(&term.topology_key);
        }
        if let Some(key) = count_key_of_all(&affinity.required_pod, objects) {
            indexes.pod_count(key);
        }
    }

    fn sign(&self, cycle: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        super::inter_pod_affinity_classes::sign(self, cycle, signature)
    }

    /// Terms of other pods do not change while only replicas without terms come to nodes.
    fn reuse(&self, cycle: Cycle<'_>, _: &CycleState) -> Reuse {
        if super::inter_pod_affinity_classes::has_terms(cycle) { Reuse::Nothing } else { Reuse::Everything }
    }

    fn classify(&self, cycle: Cycle<'_>, _: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        super::inter_pod_affinity_classes::classify(self, cycle, nodes, classes);
    }
}

/// Counts by domain of one topology key.
#[derive(Debug, Clone)]
struct Domains {
    topology_key: Arc<str>,
    base: Base,
    /// Changes of a what-if run.
    changes: SmallVec<[Change; 2]>,
}

/// So many more or fewer at a domain; the node is one of it.
#[derive(Debug, Clone, Copy)]
struct Change {
    domain: u32,
    node: NodeIdx,
    by: i64,
}

/// Counts before any what-if change.
#[derive(Debug, Clone)]
enum Base {
    /// Added up by domain.
    Summed {
        counts: Arc<FxHashMap<u32, i64>>,
        /// Domains with a positive count, and nothing else.
        positive: Arc<IdSet>,
    },
    /// Each node is a domain of its own: as events keep the counts. Their sum is what counts.
    OnNodes(SmallVec<[Kept; 2]>),
}

/// Counts by node that events keep.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Pods(CountIdx),
    /// Nodes of pods that hold a required anti-affinity term.
    AntiAffinity(TermIdx),
}

impl Kept {
    fn nodes(self, snapshot: &Snapshot) -> &NodeCounts {
        match self {
            Self::Pods(column) => snapshot.pod_counts().nodes(column),
            Self::AntiAffinity(term) => &snapshot.required_anti_affinity_terms().entry(term).nodes,
        }
    }
}

impl Domains {
    fn get(&self, snapshot: &Snapshot, domain: u32, node: NodeIdx) -> i64 {
        let base = match &self.base {
            Base::Summed { counts, .. } => counts.get(&domain).copied().unwrap_or(0),
            Base::OnNodes(all) => all.iter().map(|kept| i64::from(kept.nodes(snapshot).get(node))).sum(),
        };
        base + self.changes.iter().find(|change| change.domain == domain).map_or(0, |change| change.by)
    }

    fn is_empty(&self, snapshot: &Snapshot) -> bool {
        let is_zero = |domain: u32, node: NodeIdx| self.get(snapshot, domain, node) == 0;
        let base_is_empty = match &self.base {
            // The count of a domain is the same whichever node asks.
            Base::Summed { counts, .. } => counts.keys().all(|domain| is_zero(*domain, NodeIdx::FIRST)),
            Base::OnNodes(all) => self.labelled(snapshot, all).all(|(node, domain)| is_zero(domain, node)),
        };
        base_is_empty && self.changes.iter().all(|change| is_zero(change.domain, change.node))
    }

    /// Nodes that have a count and the label, with their domains.
    fn labelled<'s>(&self, snapshot: &'s Snapshot, all: &'s [Kept]) -> impl Iterator<Item = (NodeIdx, u32)> + use<'s> {
        let values = snapshot.labels().get(&self.topology_key).map(LabelColumn::values);
        let nodes = all.iter().flat_map(|kept| kept.nodes(snapshot).iter()).map(|(node, _)| node);
        nodes
            .map(move |node| (node, values.map_or(LabelColumn::NONE, |values| values[node.slot()])))
            .filter(|(_, domain)| *domain != LabelColumn::NONE)
    }

    /// Keeps the nodes in domains whose count is positive, or the others; what-if changes are not minded.
    fn retain(&self, snapshot: &Snapshot, nodes: &mut Candidates<'_>, positive: bool) {
        let Some(column) = snapshot.labels().get(&self.topology_key) else { return };
        let values = column.values();
        match &self.base {
            Base::Summed { positive: domains, .. } if positive => nodes.retain_ids(values, domains),
            Base::Summed { positive: domains, .. } => nodes.remove_ids(values, domains),
            Base::OnNodes(all) if positive => {
                nodes.retain(|node| {
                    values[node.slot()] != LabelColumn::NONE
                        && all.iter().any(|kept| kept.nodes(snapshot).get(node) > 0)
                });
            }
            Base::OnNodes(all) if column.n_labelled() == snapshot.n_nodes() => {
                for kept in all {
                    nodes.subtract(kept.nodes(snapshot).nonzero());
                }
            }
            Base::OnNodes(all) => {
                nodes.retain(|node| {
                    values[node.slot()] == LabelColumn::NONE
                        || all.iter().all(|kept| kept.nodes(snapshot).get(node) == 0)
                });
            }
        }
    }
}

/// Counts by topology key and domain. Upstream: `topologyToMatchedTermCount`.
#[derive(Debug, Clone, Default)]
struct TopologyCounts(SmallVec<[Domains; 1]>);

/// Collects [`TopologyCounts`].
#[derive(Default)]
struct Collector {
    summed: FxHashMap<Arc<str>, FxHashMap<u32, i64>>,
    on_nodes: FxHashMap<Arc<str>, SmallVec<[Kept; 2]>>,
}

impl Collector {
    /// Adds counts of one kind: by reference if each node is a domain of its own and events keep them, else node by node.
    fn add(
        &mut self,
        snapshot: &Snapshot,
        topology_key: &Arc<str>,
        kept: Option<Kept>,
        nodes: impl FnOnce(&mut dyn FnMut(NodeIdx, i64)),
    ) {
        let Some(column) = snapshot.labels().get(topology_key) else { return };
        if let Some(kept) = kept.filter(|_| column.is_unique()) {
            self.on_nodes.entry(Arc::clone(topology_key)).or_default().push(kept);
            return;
        }
        let values = column.values();
        let domains = self.summed.entry(Arc::clone(topology_key)).or_default();
        nodes(&mut |node, count| {
            let domain = values[node.slot()];
            if domain != LabelColumn::NONE {
                *domains.entry(domain).or_default() += count;
            }
        });
    }

    fn add_entry(&mut self, snapshot: &Snapshot, term: TermIdx, entry: &TermEntry) {
        self.add(snapshot, &entry.term.topology_key, Some(Kept::AntiAffinity(term)), |each| {
            for (node, count) in entry.nodes.iter() {
                each(node, i64::from(count));
            }
        });
    }

    fn add_pods(&mut self, snapshot: &Snapshot, topology_key: &Arc<str>, key: &CountKey) {
        let kept = snapshot.pod_counts().find(key).map(Kept::Pods);
        self.add(snapshot, topology_key, kept, |each| counted(snapshot, key, each));
    }

    fn finish(self, snapshot: &Snapshot) -> TopologyCounts {
        let summed = self.summed.into_iter().map(|(topology_key, counts)| {
            let n_ids = snapshot.labels().get(&topology_key).map_or(0, LabelColumn::n_ids);
            let positive = IdSet::new(n_ids, false, |domain| counts.get(&domain).is_some_and(|count| *count > 0));
            (topology_key, Base::Summed { counts: Arc::new(counts), positive: Arc::new(positive) })
        });
        let on_nodes = self.on_nodes.into_iter().map(|(topology_key, all)| (topology_key, Base::OnNodes(all)));
        let mut all: SmallVec<[Domains; 1]> = summed
            .chain(on_nodes)
            .map(|(topology_key, base)| Domains { topology_key, base, changes: SmallVec::new() })
            // Counts on nodes without the label are in no domain.
            .filter(|domains| match &domains.base {
                Base::Summed { counts, .. } => !counts.is_empty(),
                Base::OnNodes(all) => domains.labelled(snapshot, all).next().is_some(),
            })
            .collect();
        all.sort_by(|a, b| a.topology_key.cmp(&b.topology_key));
        TopologyCounts(all)
    }
}

impl TopologyCounts {
    fn of(&self, topology_key: &str) -> Option<&Domains> {
        self.0.iter().find(|domains| domains.topology_key.as_ref() == topology_key)
    }

    fn count(&self, snapshot: &Snapshot, topology_key: &str, node: NodeIdx) -> i64 {
        match (self.of(topology_key), domain_of(snapshot, topology_key, node)) {
            (Some(domains), Some(domain)) => domains.get(snapshot, domain, node),
            _ => 0,
        }
    }

    fn is_empty(&self, snapshot: &Snapshot) -> bool {
        self.0.iter().all(|domains| domains.is_empty(snapshot))
    }

    fn change(&mut self, snapshot: &Snapshot, topology_key: &Arc<str>, node: NodeIdx, by: i64) {
        let Some(domain) = domain_of(snapshot, topology_key, node) else { return };
        let at = self.0.iter().position(|domains| domains.topology_key == *topology_key).unwrap_or_else(|| {
            let base = Base::Summed { counts: Arc::default(), positive: Arc::new(IdSet::Only(SmallVec::new())) };
            self.0.push(Domains { topology_key: Arc::clone(topology_key), base, changes: SmallVec::new() });
            self.0.len() - 1
        });
        let changes = &mut self.0[at].changes;
        match changes.iter_mut().find(|change| change.domain == domain) {
            Some(change) => change.by += by,
            None => changes.push(Change { domain, node, by }),
        }
    }
}

fn domain_of(snapshot: &Snapshot, topology_key: &str, node: NodeIdx) -> Option<u32> {
    let id = snapshot.labels().get(topology_key)?.values()[node.slot()];
    (id != LabelColumn::NONE).then_some(id)
}

/// What the incoming pod meets.
#[derive(Debug, Clone)]
pub struct Affinities {
    /// Domains of pods whose anti-affinity means the incoming pod.
    existing_anti: TopologyCounts,
    /// Domains of pods that all of the incoming pod's affinity terms mean.
    affinity: TopologyCounts,
    /// Domains of pods that its anti-affinity terms mean.
    anti: TopologyCounts,
    /// Labels of its namespace.
    namespace_labels: Labels,
    /// Whether all its affinity terms mean itself: the first of a group may go anywhere.
    matches_self: bool,
}

/// Whether all terms mean the pod; false without terms. Namespace selectors see no labels, as in upstream.
fn all_terms_mean(terms: &[AffinityTerm], pod: &Pod) -> bool {
    let none = Labels::default();
    !terms.is_empty() && terms.iter().all(|term| term.matches(&pod.namespace, &pod.labels, &none))
}

/// As [`all_terms_mean`], with the namespaces that the selectors of the incoming pod's terms select.
fn term_means(term: &AffinityTerm, pod: &Pod, objects: &Objects) -> bool {
    count_key(term, objects).matches(pod)
}

impl FilterPlugin for InterPodAffinity {
    type State = Affinities;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<Affinities>> {
        let (pod, snapshot, objects) = (cycle.pod, cycle.snapshot, cycle.objects);
        let namespace_labels = objects.namespace_labels(&pod.namespace);
        let mut existing = Collector::default();
        let terms = snapshot.required_anti_affinity_terms();
        for (term, entry) in terms.matching(&pod.namespace, &pod.labels, &namespace_labels) {
            existing.add_entry(snapshot, term, entry);
        }
        let existing_anti = existing.finish(snapshot);
        let (required, anti_terms) = (pod.required_affinity(), pod.required_anti_affinity());
        if existing_anti.0.is_empty() && required.is_empty() && anti_terms.is_empty() {
            return Ok(PreFilterStatus::Skip);
        }

        let mut anti = Collector::default();
        for term in anti_terms {
            anti.add_pods(snapshot, &term.topology_key, &count_key(term, objects));
        }
        let mut affinity = Collector::default();
        if let Some(key) = count_key_of_all(required, objects) {
            for term in required {
                affinity.add_pods(snapshot, &term.topology_key, &key);
            }
        }
        let matches_self = !required.is_empty() && required.iter().all(|term| term_means(term, pod, objects));
        Ok(PreFilterStatus::success(Affinities {
            existing_anti,
            affinity: affinity.finish(snapshot),
            anti: anti.finish(snapshot),
            namespace_labels,
            matches_self,
        }))
    }

    fn filter(&self, state: Option<&Affinities>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let state = state.ok_or_else(PluginError::not_found)?;
        Ok(match state.first_violation(cycle, node) {
            None => FilterStatus::Success,
            Some(REASON_AFFINITY) => FilterStatus::UnschedulableAndUnresolvable,
            Some(_) => FilterStatus::Unschedulable,
        })
    }

    fn filter_chunk(&self, state: Option<&Affinities>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let may_be_first = state.matches_self && state.affinity.is_empty(snapshot);
        for term in pod.required_affinity() {
            let Some(column) = snapshot.labels().get(&term.topology_key) else {
                nodes.clear();
                return Ok(());
            };
            match state.affinity.of(&term.topology_key) {
                _ if may_be_first => {
                    nodes.retain_ids(column.values(), &IdSet::AllBut([LabelColumn::NONE].into_iter().collect()));
                }
                Some(domains) => domains.retain(snapshot, nodes, true),
                None => nodes.clear(),
            }
        }
        // Own terms name every key that `anti` can hold.
        for domains in state.anti.0.iter().chain(&state.existing_anti.0) {
            domains.retain(snapshot, nodes, false);
        }
        Ok(())
    }

    fn reasons(&self, state: Option<&Affinities>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        out.extend(state.and_then(|state| state.first_violation(cycle, node)).map(Reason::from));
    }

    fn add_pod(&self, state: &mut Affinities, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        state.update(cycle, pod, node, 1);
        Ok(())
    }

    fn remove_pod(&self, state: &mut Affinities, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        state.update(cycle, pod, node, -1);
        Ok(())
    }
}

impl Affinities {
    fn first_violation(&self, cycle: Cycle<'_>, node: NodeView<'_>) -> Option<&'static str> {
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let mut pods_exist = true;
        for term in pod.required_affinity() {
            if !node.labels().contains_key(&term.topology_key) {
                return Some(REASON_AFFINITY);
            }
            pods_exist &= self.affinity.count(snapshot, &term.topology_key, node.idx()) > 0;
        }
        let is_first = self.matches_self && self.affinity.is_empty(snapshot);
        if !(pods_exist || is_first) {
            return Some(REASON_AFFINITY);
        }
        let is_near = |term: &AffinityTerm| self.anti.count(snapshot, &term.topology_key, node.idx()) > 0;
        if pod.required_anti_affinity().iter().any(is_near) {
            return Some(REASON_ANTI);
        }
        let keeps_off = |domains: &Domains| self.existing_anti.count(snapshot, &domains.topology_key, node.idx()) > 0;
        self.existing_anti.0.iter().any(keeps_off).then_some(REASON_EXISTING)
    }

    fn update(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>, by: i64) {
        let (incoming, snapshot, objects) = (cycle.pod, cycle.snapshot, cycle.objects);
        for term in pod.required_anti_affinity() {
            if term.matches(&incoming.namespace, &incoming.labels, &self.namespace_labels) {
                self.existing_anti.change(snapshot, &term.topology_key, node.idx(), by);
            }
        }
        let required = incoming.required_affinity();
        if !required.is_empty() && required.iter().all(|term| term_means(term, pod, objects)) {
            for term in required {
                self.affinity.change(snapshot, &term.topology_key, node.idx(), by);
            }
        }
        for term in incoming.required_anti_affinity() {
            if term_means(term, pod, objects) {
                self.anti.change(snapshot, &term.topology_key, node.idx(), by);
            }
        }
    }
}

impl EnqueueExtensions for InterPodAffinity {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Pod, ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::DELETE),
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::Node(old)), Some(Object::Node(new))) => node_helps(pod, Some(old), new),
            (None, Some(Object::Node(new))) => node_helps(pod, None, new),
            _ => {
                let (old, new) = event.pods();
                pod_helps(pod, old, new)
            }
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

fn pod_helps(pod: &Pod, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    if old.is_some() && new.is_some_and(|new| new.uid == pod.uid) {
        return true;
    }
    let is_nowhere = |other: &Pod| other.node_name.is_none() && other.nominated_node_name.is_none();
    if [old, new].into_iter().flatten().any(is_nowhere) {
        return false;
    }
    let (terms, anti) = (pod.required_affinity(), pod.required_anti_affinity());
    match (old, new) {
        (Some(old), Some(new)) => {
            (!all_terms_mean(terms, old) && all_terms_mean(terms, new))
                || (all_terms_mean(anti, old) && !all_terms_mean(anti, new))
        }
        (None, Some(new)) => all_terms_mean(terms, new),
        (Some(old), None) => all_terms_mean(anti, old) || all_terms_mean(old.required_anti_affinity(), pod),
        (None, None) => false,
    }
}

fn node_helps(pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let values = |term: &AffinityTerm| {
        (old.and_then(|old| old.labels.get(&term.topology_key)), new.labels.get(&term.topology_key))
    };
    let affinity_helps = pod.required_affinity().iter().any(|term| match values(term) {
        (None, Some(_)) => true,
        (Some(old), Some(new)) => old != new,
        (_, None) => false,
    });
    let anti_helps = pod.required_anti_affinity().iter().any(|term| match values(term) {
        _ if old.is_none() => true,
        (Some(_), None) => true,
        (Some(old), Some(new)) => old != new,
        (None, _) => false,
    });
    affinity_helps || anti_helps
}
