//! InterPodAffinity: pods that want to be near to, or far from, other pods; this file filters,
//! `inter_pod_affinity_score` scores. Upstream: plugins/interpodaffinity (v1.36.2).

use std::sync::Arc;

use super::inter_pod_affinity_counts::{Collector, Counted, Domains, TopologyCounts, domain_in};
use crate::cache::{Candidates, CountKey, IdSet, Indexes, LabelColumn, NodeIdx, NodeView, Objects};
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

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        // Terms of pods on nodes may bear on any pod: their topology keys need columns, too.
        for key in indexes.affinity_topology_keys() {
            indexes.label_column(&key);
        }
        indexes.affinity_term_sums(pod, &objects.namespace_labels(&pod.namespace));
        let Some(affinity) = &pod.affinity else { return };
        let preferred = affinity.preferred_pod.iter().chain(&affinity.preferred_anti).map(|weighted| &weighted.term);
        for term in affinity.required_anti.iter().chain(preferred) {
            indexes.pod_count_and_sums(count_key(term, objects), &term.topology_key);
        }
        let key = count_key_of_all(&affinity.required_pod, objects);
        for term in &affinity.required_pod {
            match &key {
                Some(key) => indexes.pod_count_and_sums(key.clone(), &term.topology_key),
                None => indexes.label_column(&term.topology_key),
            }
        }
    }

    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing {
        super::inter_pod_affinity_classes::sign(self, cycle, shared.get(), signature)
    }

    /// Terms of other pods do not change while only replicas come to nodes. Those that replicas bring along name topology
    /// keys that are signed already.
    fn reuse(&self, cycle: Cycle<'_>, _: &CycleState) -> Reuse {
        if super::inter_pod_affinity_classes::has_terms(cycle) { Reuse::Signature } else { Reuse::Everything }
    }

    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        super::inter_pod_affinity_classes::classify(self, cycle, shared.get(), nodes, classes);
    }
}

/// What the incoming pod's required terms mean. PreFilter leaves it for the rest of the cycle, and for replicas: while only
/// such come to nodes, columns stay where they are.
#[derive(Debug, Clone)]
pub(super) struct OwnTerms {
    /// All affinity terms together; `None` if they mean no pod.
    pub(super) affinity: Option<Counted>,
    /// Each anti-affinity term.
    pub(super) anti: Vec<Counted>,
    /// Labels of the pod's namespace.
    pub(super) namespace_labels: Labels,
    /// Whether all its affinity terms mean itself: the first of a group may go anywhere.
    matches_self: bool,
}

impl OwnTerms {
    fn new(Cycle { pod, snapshot, objects, .. }: Cycle<'_>) -> Self {
        let counted = |key: CountKey| Counted { column: snapshot.pod_counts().find(&key), key };
        let required = pod.required_affinity();
        Self {
            affinity: count_key_of_all(required, objects).map(counted),
            anti: pod.required_anti_affinity().iter().map(|term| counted(count_key(term, objects))).collect(),
            namespace_labels: objects.namespace_labels(&pod.namespace),
            matches_self: !required.is_empty() && required.iter().all(|term| term_means(term, pod, objects)),
        }
    }
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

    fn pre_filter(&self, cycle: Cycle<'_>, shared: &mut CycleState) -> Result<PreFilterStatus<Affinities>> {
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let (required, anti_terms) = (pod.required_affinity(), pod.required_anti_affinity());
        let is_replica = shared.get::<OwnTerms>().is_some();
        let has_own = !required.is_empty() || !anti_terms.is_empty();
        if has_own && !is_replica {
            shared.insert(OwnTerms::new(cycle));
        }
        let own = shared.get::<OwnTerms>();
        let namespace_labels = match own {
            Some(own) => own.namespace_labels.clone(),
            None => cycle.objects.namespace_labels(&pod.namespace),
        };
        let mut existing = Collector::default();
        let terms = snapshot.required_anti_affinity_terms();
        for (term, entry) in terms.matching(&pod.namespace, &pod.labels, &namespace_labels) {
            existing.add_entry(snapshot, term, entry);
        }
        // Replicas are seldom filtered in chunks.
        let in_chunks = !is_replica;
        let existing_anti = existing.finish(snapshot, in_chunks);
        if existing_anti.0.is_empty() && own.is_none() {
            return Ok(PreFilterStatus::Skip);
        }

        let (mut anti, mut affinity) = (Collector::default(), Collector::default());
        for (term, counted) in anti_terms.iter().zip(own.map_or(&[][..], |own| &own.anti)) {
            anti.add_pods(snapshot, &term.topology_key, counted);
        }
        if let Some(counted) = own.and_then(|own| own.affinity.as_ref()) {
            for term in required {
                affinity.add_pods(snapshot, &term.topology_key, counted);
            }
        }
        Ok(PreFilterStatus::success(Affinities {
            existing_anti,
            affinity: affinity.finish(snapshot, in_chunks),
            anti: anti.finish(snapshot, in_chunks),
            namespace_labels,
            matches_self: own.is_some_and(|own| own.matches_self),
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
            let key = &term.topology_key;
            let domain = match snapshot.labels().get(key) {
                Some(column) => domain_in(column, node.idx()),
                // Without a column there are no counts either.
                None if !node.labels().contains_key(key) => None,
                None => {
                    pods_exist = false;
                    continue;
                }
            };
            let Some(domain) = domain else { return Some(REASON_AFFINITY) };
            let count = self.affinity.of(key).map(|domains| domains.get(snapshot, domain, node.idx()));
            pods_exist &= count.is_some_and(|count| count > 0);
        }
        let may_be_first = || self.matches_self && self.affinity.is_empty(snapshot);
        if !pods_exist && !may_be_first() {
            return Some(REASON_AFFINITY);
        }
        let is_near = |term: &AffinityTerm| self.anti.count(snapshot, &term.topology_key, node.idx()) > 0;
        if pod.required_anti_affinity().iter().any(is_near) {
            return Some(REASON_ANTI);
        }
        let keeps_off = |domains: &Domains| domains.count(snapshot, node.idx()) > 0;
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
