//! PodTopologySpread: spreads pods evenly over the domains of node labels; this file filters, `pod_topology_spread_score`
//! scores. Upstream: plugins/podtopologyspread (v1.36.2).

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::pod_topology_spread_constraints::{Constraint, Constraints, Place};
use crate::cache::{
    Candidates, CountKey, DomainCounts, IdSet, Indexes, LabelColumn, LabelIdx, NodeIdx, NodeMatcher, NodeView, Objects,
    Snapshot,
};
use crate::config::args::PodTopologySpreadArgs;
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result, Reuse, Sharing, Signature,
};
use crate::model::{Node, Object, Pod, Selector, TopologySpreadConstraint, UnsatisfiableAction};

const REASON_SKEW: &str = "node(s) didn't match pod topology spread constraints";
const REASON_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// The label that names a node: counted per node, not per value.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Compares the domains' pods.
#[derive(Debug)]
pub struct PodTopologySpread {
    /// For pods without constraints of their own; the selector is deduced from what owns the pod.
    defaults: Box<[TopologySpreadConstraint]>,
    /// Whether the defaults are the built-in ones, which do not demand that nodes have every label.
    pub(super) system_defaulted: bool,
}

impl PodTopologySpread {
    /// Name in configurations.
    pub const NAME: &'static str = "PodTopologySpread";

    /// Takes the default constraints from the arguments.
    #[must_use]
    pub fn new(args: &PodTopologySpreadArgs) -> Self {
        let constraint = |max_skew, topology_key: &str, when_unsatisfiable| TopologySpreadConstraint {
            max_skew,
            topology_key: topology_key.into(),
            when_unsatisfiable,
            selector: Arc::default(),
            min_domains: 1,
            honor_node_affinity: true,
            honor_node_taints: false,
        };
        if args.defaulting_type == "System" {
            let soft = |max_skew, key| constraint(max_skew, key, UnsatisfiableAction::ScheduleAnyway);
            return Self {
                defaults: [soft(3, HOSTNAME), soft(5, "topology.kubernetes.io/zone")].into(),
                system_defaulted: true,
            };
        }
        // Keys to match would narrow a selector of the constraint itself; the deduced selector replaces that.
        let defaults = args.default_constraints.iter().map(|configured| TopologySpreadConstraint {
            min_domains: configured.min_domains.unwrap_or(1),
            honor_node_affinity: configured.node_affinity_policy.as_deref().is_none_or(|policy| policy == "Honor"),
            honor_node_taints: configured.node_taints_policy.as_deref() == Some("Honor"),
            ..constraint(
                configured.max_skew,
                &configured.topology_key,
                match configured.when_unsatisfiable.as_str() {
                    "ScheduleAnyway" => UnsatisfiableAction::ScheduleAnyway,
                    _ => UnsatisfiableAction::DoNotSchedule,
                },
            )
        });
        Self { defaults: defaults.collect(), system_defaulted: false }
    }

    /// The constraints that hold for the pod.
    pub(super) fn constraints(&self, pod: &Pod, objects: &Objects) -> Constraints {
        let of = |constraint: &TopologySpreadConstraint, selector: Arc<Selector>| Constraint {
            max_skew: constraint.max_skew,
            min_domains: constraint.min_domains,
            is_hostname: constraint.topology_key.as_ref() == HOSTNAME,
            topology_key: Arc::clone(&constraint.topology_key),
            honor_node_affinity: constraint.honor_node_affinity,
            honor_node_taints: constraint.honor_node_taints,
            matches_self: selector.matches(&pod.labels),
            count: CountKey { namespaces: Some([Arc::clone(&pod.namespace)].into()), selector, skip_terminating: true },
        };
        let own = &pod.topology_spread_constraints;
        if own.is_empty() && self.defaults.is_empty() {
            return Constraints::default();
        }
        let (list, selector) = if own.is_empty() {
            if pod.controller.is_none() && objects.services_in(&pod.namespace).next().is_none() {
                return Constraints::default();
            }
            let selector = super::default_selector::default_selector(pod, objects);
            if selector.is_everything() {
                return Constraints::default();
            }
            (&self.defaults, Some(Arc::new(selector)))
        } else {
            (own, None)
        };
        let of_kind = |action: UnsatisfiableAction| {
            let of_kind = list.iter().filter(|constraint| constraint.when_unsatisfiable == action);
            of_kind
                .map(|c| of(c, selector.as_ref().map_or_else(|| Arc::clone(&c.selector), Arc::clone)))
                .collect::<Arc<[Constraint]>>()
        };
        Constraints {
            hard: of_kind(UnsatisfiableAction::DoNotSchedule),
            soft: of_kind(UnsatisfiableAction::ScheduleAnyway),
            soft_require_all: !own.is_empty() || !self.system_defaulted,
            places: SmallVec::new(),
        }
    }
}

/// Whether node affinity and taints are honoured.
type Policies = (bool, bool);

/// Nodes, one bit a slot, whose pods count for a constraint: they have every key in question, and the policies hold.
/// Constraints with equal policies share the mask.
pub(super) fn included_nodes(cycle: Cycle<'_>, constraints: &[Constraint], keys: bool) -> Vec<Arc<[u64]>> {
    let snapshot = cycle.snapshot;
    let mut with_keys = snapshot.live().to_vec();
    if keys {
        let mut nodes = Candidates::new(0, &mut with_keys);
        for constraint in constraints {
            match snapshot.labels().get(&constraint.topology_key) {
                Some(column) => {
                    nodes.retain_ids(column.values(), &IdSet::AllBut([LabelColumn::NONE].into_iter().collect()));
                }
                None => nodes.retain(|node| snapshot.node(node).labels.contains_key(&constraint.topology_key)),
            }
        }
    }
    let mut masks: Vec<(Policies, Arc<[u64]>)> = Vec::new();
    constraints
        .iter()
        .map(|constraint| {
            let policies = (constraint.honor_node_affinity, constraint.honor_node_taints);
            if let Some((_, mask)) = masks.iter().find(|(known, _)| *known == policies) {
                return Arc::clone(mask);
            }
            let mut words = with_keys.clone();
            let mut nodes = Candidates::new(0, &mut words);
            if constraint.honor_node_affinity {
                match NodeMatcher::of_pod(cycle.pod, snapshot) {
                    Some(matcher) => matcher.retain(snapshot, &mut nodes),
                    None => nodes.retain(|node| cycle.pod.selects_node(snapshot.node(node))),
                }
            }
            if constraint.honor_node_taints {
                let taints = snapshot.taints();
                let tolerated: SmallVec<[bool; 32]> =
                    taints.classes().map(|class| cycle.pod.tolerates_all(class)).collect();
                if tolerated.iter().any(|tolerated| !tolerated) {
                    let ids = IdSet::new(tolerated.len(), false, |class| tolerated[class as usize]);
                    nodes.retain_ids(taints.of_slots(), &ids);
                }
            }
            let mask: Arc<[u64]> = words.into();
            masks.push((policies, Arc::clone(&mask)));
            mask
        })
        .collect()
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        let constraints = self.constraints(pod, objects);
        for (is_hard, of_kind) in [(true, &constraints.hard), (false, &constraints.soft)] {
            for constraint in &**of_kind {
                indexes.label_column(&constraint.topology_key);
                if constraint.count.selector.is_everything() {
                    continue;
                }
                if constraint.is_hostname && !is_hard {
                    indexes.pod_count(constraint.count.clone());
                } else {
                    let inclusion = constraints.inclusion(is_hard, constraint, pod);
                    indexes.domain_count(&constraint.count, &constraint.topology_key, inclusion);
                }
            }
        }
        NodeMatcher::require(pod, indexes);
    }

    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing {
        match shared.get::<Constraints>() {
            Some(constraints) => super::pod_topology_spread_classes::sign(constraints, cycle, signature),
            None => Sharing::Never,
        }
    }

    /// The constraints hold; the counts change with every replica.
    fn reuse(&self, _: Cycle<'_>, shared: &CycleState) -> Reuse {
        match shared.get::<Constraints>() {
            Some(constraints) if constraints.is_empty() => Reuse::Everything,
            _ => Reuse::Signature,
        }
    }

    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        if let Some(constraints) = shared.get::<Constraints>() {
            super::pod_topology_spread_classes::classify(constraints, cycle, nodes, classes);
        }
    }
}

/// The two domains with the fewest pods, as upstream keeps them: a change of another domain is noticed only when it
/// goes below. Upstream: `criticalPaths`.
#[derive(Debug, Clone, Copy)]
struct CriticalPaths([(u32, i32); 2]);

impl CriticalPaths {
    const NEW: Self = Self([(LabelColumn::NONE, i32::MAX); 2]);

    fn update(&mut self, domain: u32, count: i32) {
        let paths = &mut self.0;
        if let Some(known) = paths.iter_mut().find(|(known, _)| *known == domain) {
            known.1 = count;
            if paths[0].1 > paths[1].1 {
                paths.swap(0, 1);
            }
        } else if count < paths[0].1 {
            paths[1] = paths[0];
            paths[0] = (domain, count);
        } else if count < paths[1].1 {
            paths[1] = (domain, count);
        }
    }
}

/// Pods per domain of one constraint.
#[derive(Debug, Clone)]
struct Domains {
    /// By value id; absent domains hold [`Domains::ABSENT`].
    base: Arc<[i32]>,
    /// Changes of a what-if run.
    changes: SmallVec<[(u32, i32); 2]>,
    n_domains: usize,
    paths: CriticalPaths,
}

impl Domains {
    const ABSENT: i32 = i32::MIN;

    fn new(base: Arc<[i32]>) -> Self {
        let (mut n_domains, mut paths) = (0, CriticalPaths::NEW);
        for (domain, &count) in (0..).zip(&*base).filter(|(_, count)| **count != Self::ABSENT) {
            n_domains += 1;
            if count < paths.0[1].1 {
                paths.update(domain, count);
            }
        }
        Self { base, changes: SmallVec::new(), n_domains, paths }
    }

    /// From the sums that events keep current.
    fn kept(column: &LabelColumn, counts: &DomainCounts) -> Self {
        let n_ids = column.n_ids();
        let count = |domain: u32| match counts.exists(domain) {
            true => i32::try_from(counts.n_pods(domain)).unwrap_or(i32::MAX),
            false => Self::ABSENT,
        };
        Self::new((0..u32::try_from(n_ids).unwrap_or(u32::MAX)).map(count).collect())
    }

    fn get(&self, domain: u32) -> i32 {
        let base = self.base.get(domain as usize).copied().filter(|count| *count != Self::ABSENT).unwrap_or(0);
        base + self.changes.iter().find(|(changed, _)| *changed == domain).map_or(0, |(_, change)| *change)
    }

    fn change(&mut self, domain: u32, by: i32) {
        match self.changes.iter_mut().find(|(changed, _)| *changed == domain) {
            Some((_, change)) => *change += by,
            None => self.changes.push((domain, by)),
        }
        let count = self.get(domain);
        self.paths.update(domain, count);
    }

    fn minimum(&self, min_domains: i32) -> i32 {
        if i64::try_from(self.n_domains).unwrap_or(i64::MAX) < i64::from(min_domains) { 0 } else { self.paths.0[0].1 }
    }
}

/// Hard constraints with the pods per domain.
#[derive(Debug, Clone)]
pub struct Spread {
    constraints: Arc<[Constraint]>,
    /// The column of each.
    labels: SmallVec<[Option<LabelIdx>; 2]>,
    domains: SmallVec<[Domains; 2]>,
    /// For each constraint the domains that may take the pod, what-if changes not minded; `None` if no node has the label.
    /// Computed when it is first asked for.
    open: OnceLock<Arc<[Option<IdSet>]>>,
}

impl Spread {
    fn new(constraints: Arc<[Constraint]>, snapshot: &Snapshot, domains: SmallVec<[Domains; 2]>) -> Self {
        let labels = constraints.iter().map(|constraint| snapshot.labels().find(&constraint.topology_key)).collect();
        Self { constraints, labels, domains, open: OnceLock::new() }
    }

    /// The id of the node's value of the key of the constraint at this position, if the node has the label and the key has
    /// a column.
    fn domain_of(&self, at: usize, snapshot: &Snapshot, node: NodeIdx) -> Option<u32> {
        let id = snapshot.labels().at(self.labels[at]?).values()[node.slot()];
        (id != LabelColumn::NONE).then_some(id)
    }

    fn open(&self, snapshot: &Snapshot) -> &[Option<IdSet>] {
        let open = |(at, constraint): (usize, &Constraint)| {
            let n_ids = snapshot.labels().get(&constraint.topology_key)?.n_ids();
            let (limit, counts) = (self.limit(at), &self.domains[at].base);
            // A domain without included nodes counts as zero.
            Some(IdSet::new(n_ids, false, |domain| match counts.get(domain as usize) {
                Some(&Domains::ABSENT) | None => limit >= 0,
                Some(&count) => i64::from(count) <= limit,
            }))
        };
        self.open.get_or_init(|| self.constraints.iter().enumerate().map(open).collect())
    }

    /// The most pods that a domain may hold before the incoming one.
    fn limit(&self, at: usize) -> i64 {
        let constraint = &self.constraints[at];
        i64::from(constraint.max_skew) - i64::from(constraint.matches_self)
            + i64::from(self.domains[at].minimum(constraint.min_domains))
    }

    fn update(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>, by: i32) {
        if pod.namespace != cycle.pod.namespace {
            return;
        }
        self.open(cycle.snapshot);
        let has_all = |constraint: &Constraint| node.labels().contains_key(&constraint.topology_key);
        if !self.constraints.iter().all(has_all) {
            return;
        }
        for (constraint, domains) in self.constraints.iter().zip(&mut self.domains) {
            // Terminating pods were not counted, yet count here; so does an empty selector.
            let counts = constraint.count.selector.matches(&pod.labels) && constraint.includes(cycle.pod, node.node());
            if counts && let Some(domain) = domain_of(cycle.snapshot, &constraint.topology_key, node.idx()) {
                domains.change(domain, by);
            }
        }
    }
}

/// The id of the node's value of a topology key, if the node has the label and the key has a column.
fn domain_of(snapshot: &Snapshot, key: &str, node: NodeIdx) -> Option<u32> {
    let id = snapshot.labels().get(key)?.values()[node.slot()];
    (id != LabelColumn::NONE).then_some(id)
}

impl FilterPlugin for PodTopologySpread {
    type State = Spread;

    fn pre_filter(&self, cycle: Cycle<'_>, shared: &mut CycleState) -> Result<PreFilterStatus<Spread>> {
        let is_replica = shared.get::<Constraints>().is_some();
        if !is_replica {
            shared.insert(self.constraints(cycle.pod, cycle.objects).find_indexes(cycle));
        }
        let constraints = shared.get::<Constraints>().ok_or_else(PluginError::not_found)?;
        let hard = Arc::clone(&constraints.hard);
        if hard.is_empty() {
            return Ok(PreFilterStatus::Skip);
        }
        let mut included: Option<Vec<Arc<[u64]>>> = None;
        let domains = hard
            .iter()
            .enumerate()
            .map(|(at, constraint)| {
                let (labels, counts) = (cycle.snapshot.labels(), cycle.snapshot.pod_counts());
                match constraints.places.get(at) {
                    Some(Place { label: Some(label), domains: Some(domains), .. }) => {
                        Ok(Domains::kept(labels.at(*label), counts.domains_at(*domains)))
                    }
                    _ => {
                        let included = included.get_or_insert_with(|| included_nodes(cycle, &hard, true));
                        count_domains(cycle.snapshot, constraint, &included[at])
                    }
                }
            })
            .collect::<Result<_>>()?;
        let spread = Spread::new(hard, cycle.snapshot, domains);
        if !is_replica {
            // Replicas are seldom filtered in chunks.
            spread.open(cycle.snapshot);
        }
        Ok(PreFilterStatus::success(spread))
    }

    fn filter(&self, state: Option<&Spread>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let spread = state.ok_or_else(PluginError::not_found)?;
        for at in 0..spread.constraints.len() {
            let Some(domain) = spread.domain_of(at, cycle.snapshot, node.idx()) else {
                return Ok(FilterStatus::UnschedulableAndUnresolvable);
            };
            if i64::from(spread.domains[at].get(domain)) > spread.limit(at) {
                return Ok(FilterStatus::Unschedulable);
            }
        }
        Ok(FilterStatus::Success)
    }

    fn filter_chunk(&self, state: Option<&Spread>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        let spread = state.ok_or_else(PluginError::not_found)?;
        for (constraint, open) in spread.constraints.iter().zip(spread.open(cycle.snapshot)) {
            match (cycle.snapshot.labels().get(&constraint.topology_key), open) {
                (Some(column), Some(open)) => nodes.retain_ids(column.values(), open),
                _ => nodes.clear(),
            }
        }
        Ok(())
    }

    fn reasons(&self, state: Option<&Spread>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        let Some(spread) = state else { return };
        for at in 0..spread.constraints.len() {
            let reason = match spread.domain_of(at, cycle.snapshot, node.idx()) {
                None => REASON_LABEL,
                Some(domain) if i64::from(spread.domains[at].get(domain)) > spread.limit(at) => REASON_SKEW,
                Some(_) => continue,
            };
            out.push(reason.into());
            return;
        }
    }

    fn add_pod(&self, state: &mut Spread, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        state.update(cycle, pod, node, 1);
        Ok(())
    }

    fn remove_pod(&self, state: &mut Spread, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        state.update(cycle, pod, node, -1);
        Ok(())
    }
}

/// By looking at the nodes.
fn count_domains(snapshot: &Snapshot, constraint: &Constraint, included: &[u64]) -> Result<Domains> {
    let key = &constraint.topology_key;
    let column = snapshot.labels().get(key).ok_or_else(|| no_column(key))?;
    let mut counts = vec![Domains::ABSENT; column.n_ids()];
    let values = column.values();
    for (at, &word) in included.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            let slot = at * 64 + word.trailing_zeros() as usize;
            word &= word - 1;
            counts[values[slot] as usize] = 0;
        }
    }
    for (node, count) in constraint.counted(snapshot) {
        let slot = node.slot();
        if included[slot / 64] >> (slot % 64) & 1 == 1 {
            counts[values[slot] as usize] += i32::try_from(count).unwrap_or(i32::MAX);
        }
    }
    Ok(Domains::new(counts.into()))
}

pub(super) fn no_column(key: &str) -> PluginError {
    PluginError::new(format!("label {key:?} has no column"))
}

impl EnqueueExtensions for PodTopologySpread {
    fn events_to_register(&self) -> Vec<EventFilter> {
        let pod =
            ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::UPDATE_POD_TOLERATION | ActionType::DELETE;
        let node = ActionType::ADD | ActionType::DELETE | ActionType::UPDATE_NODE_LABEL | ActionType::UPDATE_NODE_TAINT;
        vec![EventFilter::new(EventResource::Pod, pod), EventFilter::new(EventResource::Node, node)]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, world: ClusterView<'_>) -> Result<Hint> {
        let constraints = self.constraints(pod, world.objects).hard;
        let helps = match event.object() {
            Some(Object::Node(_)) => {
                let node = |object: &Option<Object>| match object {
                    Some(Object::Node(node)) => Some(Arc::clone(node)),
                    _ => None,
                };
                node_helps(&constraints, node(&event.old).as_deref(), node(&event.new).as_deref())
            }
            _ => {
                let (old, new) = event.pods();
                pod_helps(&constraints, pod, old, new)
            }
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

fn node_helps(constraints: &[Constraint], old: Option<&Node>, new: Option<&Node>) -> bool {
    let matches = |node: &Node| constraints.iter().all(|c| node.labels.contains_key(&c.topology_key));
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = |c: &Constraint| old.labels.get(&c.topology_key) != new.labels.get(&c.topology_key);
            matches(old) != matches(new)
                || (matches(new) && (constraints.iter().any(moved) || old.taints != new.taints))
        }
        (None, Some(node)) | (Some(node), None) => matches(node),
        (None, None) => false,
    }
}

fn pod_helps(constraints: &[Constraint], pod: &Pod, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let involved = |other: &Pod| {
        other.uid == pod.uid
            || ((other.node_name.is_some() || other.nominated_node_name.is_some()) && other.namespace == pod.namespace)
    };
    if [old, new].into_iter().flatten().any(|other| !involved(other)) {
        return false;
    }
    let selected = |other: &Pod| constraints.iter().any(|c| c.count.selector.matches(&other.labels));
    match (old, new) {
        (Some(old), Some(new)) => {
            let tolerates_more = new.uid == pod.uid
                && old.tolerations != new.tolerations
                && constraints.iter().any(|c| c.honor_node_taints);
            tolerates_more
                || constraints
                    .iter()
                    .any(|c| c.count.selector.matches(&old.labels) != c.count.selector.matches(&new.labels))
        }
        (Some(only), None) | (None, Some(only)) => selected(only),
        (None, None) => false,
    }
}
