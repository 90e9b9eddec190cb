//! Looks for the smallest changes that let a pod in: tries what stands in the way of the nearest nodes, and asks the engine each time.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler_core::cache::NodeIdx;
use scheduler_core::engine::{Examination, PostFilterOutcome};
use scheduler_core::framework::NominatedNode;
use scheduler_core::model::{Node, Pod, Resources};

use super::remedy::{Remedy, Step, hard_constraints};
use super::what_if::{Different, WhatIf};

/// Nodes that are looked at: those with the fewest plugins against them.
const MAX_NODES: usize = 64;
/// Combinations of steps that the engine is asked about.
const MAX_TRIES: usize = 48;
/// Remedies that are given.
const MAX_REMEDIES: usize = 6;
/// Highest skew that is tried.
const MAX_SKEW: i32 = 1 << 16;

impl WhatIf<'_> {
    /// Changes that let a pod in that fits nowhere now, the smallest first. Each was checked.
    pub(crate) fn remedies(&mut self, pod: &Pod) -> Vec<Remedy> {
        let mut pod = pod.clone();
        let mut base = Vec::new();
        if !pod.scheduling_gates.is_empty() {
            base.push(Step::Ungate(pod.scheduling_gates.to_vec()));
            pod.scheduling_gates = Box::default();
        }
        let Some(examination) = self.examine(&pod) else { return Vec::new() };
        if let Some(node) = examination.feasible.first().filter(|_| !base.is_empty()) {
            return vec![Remedy { steps: base, node: node.to_string(), n_nodes: examination.feasible.len() }];
        }
        let mut remedies = Vec::new();
        let mut told: Vec<String> = Vec::new();
        let mut candidates = self.candidates(&pod, &examination);
        candidates.sort_by_key(|(cost, _, _)| *cost);
        for (_, node, steps) in candidates.into_iter().take(MAX_TRIES) {
            let steps: Vec<Step> = base.iter().cloned().chain(steps).collect();
            let kinds = format!("{:?}", steps.iter().map(|step| step.text("")).collect::<Vec<_>>());
            if told.contains(&kinds) {
                continue;
            }
            if let Some(remedy) = self.check(&pod, &node, steps) {
                told.push(kinds);
                remedies.push(remedy);
            }
            if remedies.len() >= MAX_REMEDIES {
                break;
            }
        }
        remedies.extend(self.by_priority(&pod, &examination, &base));
        remedies.extend(self.by_new_node(&pod, &base));
        remedies
    }

    /// Asks the engine whether the steps let the pod onto the node.
    fn check(&mut self, pod: &Pod, node: &str, steps: Vec<Step>) -> Option<Remedy> {
        let idx = self.snapshot().find(node)?;
        let before = self.snapshot().node(idx).clone();
        let (mut changed, mut after, mut different) = (pod.clone(), before.clone(), Vec::new());
        for step in &steps {
            step.change_pod(&mut changed);
            step.change_cluster(&mut after, &mut different);
        }
        if after != before {
            different.push(Different::Node(Arc::new(after)));
        }
        let examination = self.examine_with(&changed, &different)?;
        let fits = examination.feasible.iter().any(|feasible| **feasible == *node);
        fits.then(|| Remedy { steps, node: node.to_owned(), n_nodes: examination.feasible.len() })
    }

    /// Steps by node, with what they cost: fewer plugins and smaller changes first.
    fn candidates(&mut self, pod: &Pod, examination: &Examination) -> Vec<(u64, String, Vec<Step>)> {
        let mut near: Vec<(usize, Arc<str>)> = examination
            .filter
            .iter()
            .filter(|(_, rejection)| rejection.is_some())
            .map(|(node, _)| (examination.filter_all.get(node).map_or(1, BTreeMap::len), Arc::clone(node)))
            .collect();
        near.sort();
        let mut candidates = Vec::new();
        for (n_plugins, name) in near.into_iter().take(MAX_NODES) {
            let Some(idx) = self.snapshot().find(&name) else { continue };
            let empty = BTreeMap::new();
            let plugins: Vec<&str> = examination.filter_all.get(&name).unwrap_or(&empty).keys().copied().collect();
            // One alternative for each way around a plugin; all plugins of a node must be got around.
            let mut ways: Vec<Vec<Step>> = vec![Vec::new()];
            for plugin in &plugins {
                let alternatives = self.ways_around(plugin, pod, idx);
                ways = ways
                    .iter()
                    .flat_map(|way| alternatives.iter().map(move |steps| [&way[..], &steps[..]].concat()))
                    .take(16)
                    .collect();
            }
            if plugins.is_empty() {
                ways = vec![vec![Step::DropNodeAffinity]];
            }
            for steps in ways.into_iter().filter(|steps| !steps.is_empty()) {
                candidates.push((
                    n_plugins as u64 * 1_000_000 + steps.iter().map(cost).sum::<u64>(),
                    name.to_string(),
                    steps,
                ));
            }
        }
        candidates
    }

    /// Ways around one plugin on one node; none if nothing is known that helps.
    fn ways_around(&mut self, plugin: &str, pod: &Pod, idx: NodeIdx) -> Vec<Vec<Step>> {
        let node = self.snapshot().node(idx).clone();
        match plugin {
            "NodeResourcesFit" => self.around_resources(pod, idx),
            "TaintToleration" => {
                let taints = node.taints.iter().filter(|taint| taint.forbids_scheduling() && !pod.tolerates(taint));
                vec![taints.cloned().map(Step::Tolerate).collect()]
            }
            "NodeUnschedulable" => vec![vec![Step::Uncordon]],
            "NodeAffinity" => around_affinity(pod, &node),
            "NodePorts" => {
                let clash = |other: &&Arc<Pod>| {
                    other.host_ports.iter().any(|theirs| pod.host_ports.iter().any(|own| clashes(own, theirs)))
                };
                let pods: Vec<Arc<Pod>> = self.snapshot().pods(idx).iter().filter(clash).cloned().collect();
                if pods.is_empty() { Vec::new() } else { vec![vec![Step::Evict(pods, "holds the host port")]] }
            }
            "PodTopologySpread" => self.around_spread(pod, &node.name),
            "InterPodAffinity" => self.around_pod_affinity(pod, &node),
            _ => Vec::new(),
        }
    }

    fn around_resources(&self, pod: &Pod, idx: NodeIdx) -> Vec<Vec<Step>> {
        let snapshot = self.snapshot();
        let columns = snapshot.resources();
        let slot = idx.slot();
        let mut lower = Vec::new();
        let mut short: Vec<(Arc<str>, i64)> = Vec::new();
        for (name, asked) in amounts(&pod.resources.requests) {
            let (allocatable, requested) =
                columns.id(&name).map_or((0, 0), |id| (columns.allocatable(id)[slot], columns.requested(id)[slot]));
            let free = allocatable - requested;
            if asked > free {
                // A round amount: whole MiB where there is at least one.
                let bytes = matches!(&*name, "memory" | "ephemeral-storage") && free >= 1 << 20;
                let to = if bytes { free >> 20 << 20 } else { free };
                if to > 0 {
                    lower.push(Step::Request { resource: Arc::clone(&name), from: asked, to });
                }
                short.push((name, asked - free));
            }
        }
        let mut ways = Vec::new();
        if lower.len() == short.len() && !lower.is_empty() {
            ways.push(lower);
        }
        let limit = snapshot.node(idx).allocatable.pods;
        let too_many = i64::try_from(snapshot.pods(idx).len()).unwrap_or(i64::MAX) >= limit;
        if let Some(pods) = leaving(snapshot.pods(idx), &short, usize::from(too_many)) {
            ways.push(vec![Step::Evict(pods, "takes what it needs")]);
        }
        ways
    }

    fn around_spread(&mut self, pod: &Pod, node: &str) -> Vec<Vec<Step>> {
        let mut ways = Vec::new();
        for at in hard_constraints(pod) {
            let constraint = &pod.topology_spread_constraints[at];
            let (key, from) = (Arc::clone(&constraint.topology_key), constraint.max_skew);
            let passes = |asked: &mut Self, skew: i32| {
                let mut changed = pod.clone();
                changed.topology_spread_constraints[at].max_skew = skew;
                let examination = asked.examine(&changed);
                examination.is_some_and(|examination| {
                    examination.filter_all.get(node).is_none_or(|plugins| !plugins.contains_key("PodTopologySpread"))
                })
            };
            if !passes(self, MAX_SKEW) {
                continue;
            }
            let (mut low, mut high) = (from, MAX_SKEW);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if passes(self, middle) { high = middle } else { low = middle }
            }
            ways.push(vec![Step::MaxSkew { at, key, from, to: high }]);
        }
        ways
    }

    fn around_pod_affinity(&self, pod: &Pod, node: &Node) -> Vec<Vec<Step>> {
        let snapshot = self.snapshot();
        let objects = self.scheduler().objects();
        let labels_of = |namespace: &str| objects.namespace_labels(namespace);
        let same_domain = |other: &Node, key: &str| {
            let value = node.labels.get(key);
            value.is_some() && other.labels.get(key) == value
        };
        let mut against = Vec::new();
        for idx in snapshot.iter() {
            let other_node = snapshot.node(idx);
            for other in snapshot.pods(idx) {
                let own = pod.required_anti_affinity().iter().any(|term| {
                    same_domain(other_node, &term.topology_key)
                        && term.matches(&other.namespace, &other.labels, &labels_of(&other.namespace))
                });
                let theirs = other.required_anti_affinity().iter().any(|term| {
                    same_domain(other_node, &term.topology_key)
                        && term.matches(&pod.namespace, &pod.labels, &labels_of(&pod.namespace))
                });
                if own || theirs {
                    against.push(Arc::clone(other));
                }
            }
        }
        let mut steps = Vec::new();
        if !against.is_empty() {
            steps.push(Step::Evict(against, "anti-affinity keeps them apart"));
        }
        for (at, term) in pod.required_affinity().iter().enumerate() {
            let satisfied = snapshot.iter().any(|idx| {
                same_domain(snapshot.node(idx), &term.topology_key)
                    && snapshot
                        .pods(idx)
                        .iter()
                        .any(|other| term.matches(&other.namespace, &other.labels, &labels_of(&other.namespace)))
            });
            if !satisfied {
                steps.push(Step::DropAffinity(at, Arc::clone(&term.topology_key)));
            }
        }
        // Later positions first, so that earlier ones keep their meaning.
        steps.reverse();
        if steps.is_empty() { Vec::new() } else { vec![steps] }
    }

    /// A priority with which the pod would preempt others.
    fn by_priority(&mut self, pod: &Pod, examination: &Examination, base: &[Step]) -> Option<Remedy> {
        if !base.is_empty() || !matches!(examination.post_filter, Some(PostFilterOutcome::Unschedulable(_))) {
            return None;
        }
        let snapshot = self.snapshot();
        let mut priorities: Vec<i32> = snapshot
            .iter()
            .flat_map(|idx| snapshot.pods(idx))
            .map(|other| other.priority)
            .filter(|other| *other >= pod.priority)
            .collect();
        priorities.sort_unstable();
        priorities.dedup();
        // Class values above this are kept for the system.
        for priority in priorities.into_iter().filter(|priority| *priority < 1_000_000_000).take(8) {
            let step = Step::Priority(priority + 1);
            let mut changed = pod.clone();
            step.change_pod(&mut changed);
            if let Some(PostFilterOutcome::Success(NominatedNode::Set(node))) = self.examine(&changed)?.post_filter {
                return Some(Remedy { steps: vec![step], node: node.to_string(), n_nodes: 1 });
            }
        }
        None
    }

    /// A node to add: like one that is there, or the smallest that takes the pod.
    fn by_new_node(&mut self, pod: &Pod, base: &[Step]) -> Option<Remedy> {
        const NAME: &str = "a-new-node";
        let snapshot = self.snapshot();
        let mut shapes: Vec<Node> = Vec::new();
        for idx in snapshot.iter() {
            let node = snapshot.node(idx);
            let relabel = |(key, value): (&Arc<str>, &Arc<str>)| {
                let is_name = **value == *node.name;
                (Arc::clone(key), if is_name { NAME.into() } else { Arc::clone(value) })
            };
            let mut shape = Node {
                name: NAME.into(),
                uid: NAME.into(),
                labels: node.labels.iter().map(relabel).collect(),
                ..node.clone()
            };
            if shape.unschedulable {
                shape.unschedulable = false;
            }
            let known = |other: &Node| {
                other.allocatable == shape.allocatable && other.labels == shape.labels && other.taints == shape.taints
            };
            if shapes.len() < 32 && !shapes.iter().any(known) {
                shapes.push(shape);
            }
        }
        shapes.sort_by_key(|shape| (shape.allocatable.milli_cpu, shape.allocatable.memory));
        let smallest =
            shapes.first().cloned().unwrap_or_else(|| Node { name: NAME.into(), uid: NAME.into(), ..Node::default() });
        let requests = &pod.resources.requests;
        let allocatable = Resources {
            milli_cpu: requests.milli_cpu.saturating_add(999).max(1000) / 1000 * 1000,
            memory: requests.memory.saturating_add((1 << 30) - 1).max(1 << 30) >> 30 << 30,
            ephemeral_storage: requests.ephemeral_storage,
            pods: 110,
            scalars: requests.scalars.clone(),
        };
        let labels = smallest.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
        let selected = pod.node_selector.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
        let mut made = Node { labels: labels.chain(selected).collect(), ..smallest };
        made.allocatable = allocatable;
        made.taints = Box::default();
        for shape in shapes.into_iter().chain([made]) {
            let step = Step::AddNode(Box::new(shape.clone()));
            let examination = self.examine_with(pod, &[Different::Node(Arc::new(shape))])?;
            if examination.feasible.iter().any(|node| **node == *NAME) {
                let steps = base.iter().cloned().chain([step]).collect();
                return Some(Remedy { steps, node: NAME.to_owned(), n_nodes: 1 });
            }
        }
        None
    }
}

fn around_affinity(pod: &Pod, node: &Node) -> Vec<Vec<Step>> {
    let missing = || pod.node_selector.iter().filter(|(key, value)| node.labels.get(key) != Some(*value));
    let drops: Vec<Step> =
        missing().map(|(key, value)| Step::DropSelector(Arc::clone(key), Arc::clone(value))).collect();
    // A node's name is no label to give to another one.
    let is_name = missing().any(|(key, _)| &**key == "kubernetes.io/hostname");
    let mut labels: Vec<Step> = if is_name {
        drops.clone()
    } else {
        missing().map(|(key, value)| Step::Label(Arc::clone(key), Arc::clone(value))).collect()
    };
    let required = pod.affinity.as_deref().and_then(|affinity| affinity.required_node.as_deref());
    let Some(selector) = required.filter(|selector| !selector.matches(&node.name, &node.labels)) else {
        return if labels == drops { vec![labels] } else { vec![labels, drops] };
    };
    let mut ways = Vec::new();
    for term in &selector.terms {
        // A term that labels alone can satisfy.
        let missing: Vec<_> =
            term.match_expressions.iter().filter(|requirement| !requirement.matches(&node.labels)).collect();
        let by_labels = term.match_fields.is_empty()
            && missing.iter().all(|requirement| {
                !requirement.values.is_empty() && requirement.operator == scheduler_core::model::Operator::In
            });
        if by_labels && !missing.is_empty() {
            let more = missing
                .iter()
                .map(|requirement| Step::Label(Arc::clone(&requirement.key), Arc::clone(&requirement.values[0])));
            ways.push(labels.iter().cloned().chain(more).collect());
        }
    }
    labels.push(Step::DropNodeAffinity);
    ways.push(labels);
    ways
}

/// The fewest pods whose going frees enough: of the lowest priority first, then the largest.
fn leaving(pods: &[Arc<Pod>], short: &[(Arc<str>, i64)], n_least: usize) -> Option<Vec<Arc<Pod>>> {
    let frees = |pod: &Pod| short.iter().map(|(name, amount)| pod.resources.used().get(name).min(*amount)).sum::<i64>();
    let mut order: Vec<&Arc<Pod>> = pods.iter().filter(|pod| short.is_empty() || frees(pod) > 0).collect();
    order.sort_by(|a, b| {
        a.priority.cmp(&b.priority).then_with(|| frees(b).cmp(&frees(a))).then_with(|| a.name.cmp(&b.name))
    });
    let mut left: Vec<(Arc<str>, i64)> = short.to_vec();
    let mut gone: Vec<Arc<Pod>> = Vec::new();
    for pod in order {
        if gone.len() >= n_least && left.iter().all(|(_, amount)| *amount <= 0) {
            break;
        }
        for (name, amount) in &mut left {
            *amount -= pod.resources.used().get(name);
        }
        gone.push(Arc::clone(pod));
    }
    let enough = left.iter().all(|(_, amount)| *amount <= 0) && gone.len() >= n_least;
    (enough && !gone.is_empty()).then_some(gone)
}

fn amounts(resources: &Resources) -> Vec<(Arc<str>, i64)> {
    let mut all: Vec<(Arc<str>, i64)> = vec![
        ("cpu".into(), resources.milli_cpu),
        ("memory".into(), resources.memory),
        ("ephemeral-storage".into(), resources.ephemeral_storage),
    ];
    all.extend(resources.scalars.iter().cloned());
    all.retain(|(_, amount)| *amount > 0);
    all
}

fn clashes(own: &scheduler_core::model::HostPort, theirs: &scheduler_core::model::HostPort) -> bool {
    let any = |ip: &str| ip == "0.0.0.0";
    own.port == theirs.port
        && own.protocol == theirs.protocol
        && (own.ip == theirs.ip || any(&own.ip) || any(&theirs.ip))
}

/// How large a step is, beside others around the same number of plugins.
fn cost(step: &Step) -> u64 {
    match step {
        Step::Request { from, to, .. } => 1_000 + u64::try_from((from - to) * 10_000 / (*from).max(1)).unwrap_or(0),
        Step::Tolerate(_) | Step::Uncordon => 2_000,
        Step::Label(..) => 3_000,
        Step::MaxSkew { from, to, .. } => 3_000 + u64::try_from(to - from).unwrap_or(0),
        Step::Evict(pods, _) => 5_000 + 1_000 * pods.len() as u64,
        Step::DropSelector(..) => 4_000,
        Step::DropNodeAffinity | Step::DropAffinity(..) => 8_000,
        Step::Ungate(_) | Step::AddNode(_) | Step::Priority(_) => 0,
    }
}
