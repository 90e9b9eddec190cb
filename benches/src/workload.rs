//! The shapes of cluster and pods on which scheduling speed is compared; built from numbers alone, so always the same.

use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Change, Options, Scheduler};
use scheduler_core::model::{
    Affinity, AffinityTerm, Container, Labels, Node, NodeSelectorTerm, NodeTemplate, Operator, Pod, PodPhase,
    PodResources, PodTemplate, PreferredSchedulingTerm, Requirement, Resources, Selector, Service, Taint, TaintEffect,
    Timestamp, Toleration, TolerationOperator, TopologySpreadConstraint, UnsatisfiableAction, shared_text,
};

/// Label of a node's name.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the incoming pods ask for beyond CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// a: nothing more.
    Basic,
    /// b: node selector, toleration, preferred node affinity.
    Selector,
    /// c: a hard constraint over zones and a soft one over nodes.
    Spread,
    /// d: required anti-affinity over nodes within groups.
    AntiAffinity,
    /// e: a, b and c in turn.
    Mixed,
    /// f: a, with services that turn on the default spreading.
    DefaultSpread,
    /// Required affinity over zones to pods of the same app.
    Affinity,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 7] = [
        Self::Basic,
        Self::Selector,
        Self::Spread,
        Self::AntiAffinity,
        Self::Mixed,
        Self::DefaultSpread,
        Self::Affinity,
    ];

    /// Short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Selector => "selector",
            Self::Spread => "spread",
            Self::AntiAffinity => "anti-affinity",
            Self::Mixed => "mixed",
            Self::DefaultSpread => "default-spread",
            Self::Affinity => "affinity",
        }
    }
}

/// Node `i`: 32 CPUs, 128Gi, 110 pods; ten zones; half with ssd; one in twenty tainted.
#[must_use]
pub fn node(i: usize) -> Node {
    let q = i / 10;
    let name: Arc<str> = format!("node-{i:06}").into();
    let disk = shared_text(if q.is_multiple_of(2) { "ssd" } else { "hdd" });
    let taint = Taint { key: shared_text("dedicated"), value: shared_text("gpu"), effect: TaintEffect::NoSchedule };
    let template = NodeTemplate {
        taints: if (i + q) % 20 == 7 { [taint].into() } else { Box::default() },
        allocatable: Resources { milli_cpu: 32_000, memory: 128 << 30, pods: 110, ..Resources::default() },
        ..NodeTemplate::default()
    };
    Node {
        labels: [(HOSTNAME, Arc::clone(&name)), (ZONE, shared_text(&format!("zone-{}", i % 10))), ("disktype", disk)]
            .map(|(key, value)| (shared_text(key), value))
            .into_iter()
            .collect(),
        name,
        ..template.into()
    }
}

/// Bound pod `j` of a cluster of `n_nodes`.
#[must_use]
pub fn bound_pod(j: usize, n_nodes: usize) -> Pod {
    let round = j / n_nodes;
    Pod {
        node_name: Some(format!("node-{:06}", j % n_nodes).into()),
        phase: PodPhase::Running,
        ..pod(
            format!("old-{j:07}"),
            &format!("app-{}", (j / 10) % 100),
            100 * (1 + (j + 7 * round) % 20),
            128 * (1 + (j + round) % 16),
        )
    }
}

/// Incoming pod `k` of a shape.
#[must_use]
pub fn new_pod(shape: Shape, k: usize, n_nodes: usize) -> Pod {
    let app = format!("app-{}", k % 10);
    let mut pod = pod(format!("new-{k:07}"), &app, 100 * (1 + k % 5), 256 * (1 + k % 4));
    let own_app = Arc::new(selector("app", &app));
    match shape {
        Shape::Basic | Shape::DefaultSpread => {}
        Shape::Selector => select(&mut pod),
        Shape::Spread => spread(&mut pod, &own_app),
        Shape::Mixed => match k % 3 {
            0 => {}
            1 => select(&mut pod),
            _ => spread(&mut pod, &own_app),
        },
        Shape::AntiAffinity => {
            let group = format!("anti-{}", k / (n_nodes / 2).clamp(1, 1000));
            pod.labels = [("app", &*app), ("anti", &*group)].into_iter().collect();
            pod.affinity = Some(Box::new(Affinity {
                has_pod_affinity: true,
                required_anti: [term(HOSTNAME, Arc::new(selector("anti", &group)))].into(),
                ..Affinity::default()
            }));
        }
        Shape::Affinity => {
            pod.affinity = Some(Box::new(Affinity {
                has_pod_affinity: true,
                required_pod: [term(ZONE, own_app)].into(),
                ..Affinity::default()
            }));
        }
    }
    pod
}

/// The incoming pods of a run: a shape, and how much they are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Incoming {
    /// What they ask for.
    pub shape: Shape,
    /// Nodes of the cluster; the groups of [`Shape::AntiAffinity`] depend on it.
    pub n_nodes: usize,
    /// Share of the pods, from 0 to 1, that differ from every other pod: they ask for some bytes of memory more.
    pub distinct: f64,
    /// Pods that follow each other with the same shape, as a workload's replicas do; at least 1.
    pub n_replicas: usize,
}

impl Incoming {
    /// Incoming pod `k`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "k times a share of at most 1 is at most k"
    )]
    pub fn pod(&self, k: usize) -> Pod {
        let template = k / self.n_replicas.max(1);
        let mut pod = new_pod(self.shape, template, self.n_nodes);
        pod.name = format!("new-{k:07}").into();
        pod.uid = Arc::clone(&pod.name);
        let n_distinct = |k: usize| (k as f64 * self.distinct) as usize;
        if n_distinct(k + 1) > n_distinct(k) {
            let bytes = i64::try_from(k + 1).unwrap_or(i64::MAX);
            pod.resources.requests.memory += bytes;
            pod.resources.scoring_memory += bytes;
            pod.resources.used_non_zero_memory += bytes;
        }
        pod
    }
}

/// A scheduler that knows the nodes, `n_bound` bound pods, and (for the default spreading) the services; it scores every
/// node.
///
/// # Panics
/// Never: the default configuration is valid.
#[must_use]
pub fn cluster(shape: Shape, n_nodes: usize, n_bound: usize) -> Scheduler {
    let registry = scheduler_core::plugins::registry();
    let mut scheduler = Scheduler::new(&KubeSchedulerConfiguration::default(), &registry, Options::default())
        .expect("the default configuration is valid");
    add_nodes(&mut scheduler, n_nodes);
    add_bound_pods(&mut scheduler, n_nodes, n_bound);
    add_services(&mut scheduler, shape);
    scheduler
}

/// Tells `scheduler` of the nodes.
pub fn add_nodes(scheduler: &mut Scheduler, n_nodes: usize) {
    for i in 0..n_nodes {
        scheduler.handle(Change::Applied(node(i).into()), Timestamp::ZERO);
    }
}

/// Tells `scheduler` of `n_bound` pods on the nodes.
pub fn add_bound_pods(scheduler: &mut Scheduler, n_nodes: usize, n_bound: usize) {
    for j in 0..n_bound {
        scheduler.handle(Change::Applied(bound_pod(j, n_nodes).into()), Timestamp::ZERO);
    }
}

/// Tells `scheduler` of the services that turn on the default spreading, if the shape wants it.
pub fn add_services(scheduler: &mut Scheduler, shape: Shape) {
    if shape != Shape::DefaultSpread {
        return;
    }
    for app in 0..10 {
        let service = Service {
            name: format!("app-{app}").into(),
            namespace: "default".into(),
            selector: Some([("app", format!("app-{app}").as_str())].into_iter().collect::<Labels>()),
        };
        scheduler.handle(Change::Applied(service.into()), Timestamp::ZERO);
    }
}

/// How many bound pods a cluster of this size has by default.
#[must_use]
pub fn default_bound(n_nodes: usize) -> usize {
    (20 * n_nodes).min(20_000)
}

fn pod(name: String, app: &str, milli_cpu: usize, mebibytes: usize) -> Pod {
    let milli_cpu = i64::try_from(milli_cpu).unwrap_or(i64::MAX);
    let memory = i64::try_from(mebibytes).unwrap_or(i64::MAX) << 20;
    let template = PodTemplate {
        namespace: shared_text("default"),
        scheduler_name: shared_text("default-scheduler"),
        labels: [(shared_text("app"), shared_text(app))].into_iter().collect(),
        containers: [Container {
            name: shared_text("c"),
            image: shared_text("registry.k8s.io/pause:3.9"),
            init: false,
        }]
        .into(),
        resources: PodResources {
            requests: Resources { milli_cpu, memory, ..Resources::default() },
            scoring_milli_cpu: milli_cpu,
            scoring_memory: memory,
            used_non_zero_milli_cpu: milli_cpu,
            used_non_zero_memory: memory,
            ..PodResources::default()
        },
        ..PodTemplate::default()
    };
    Pod { uid: name.as_str().into(), name: name.into(), ..template.into() }
}

fn select(pod: &mut Pod) {
    pod.node_selector = [("disktype", "ssd")].into_iter().collect();
    pod.tolerations = [Toleration {
        key: "dedicated".into(),
        operator: TolerationOperator::Equal,
        value: "gpu".into(),
        effect: Some(TaintEffect::NoSchedule),
    }]
    .into();
    let term = NodeSelectorTerm {
        match_expressions: [requirement(ZONE, &["zone-1", "zone-2"])].into(),
        ..NodeSelectorTerm::default()
    };
    pod.affinity = Some(Box::new(Affinity {
        preferred_node: [PreferredSchedulingTerm { weight: 10, term }].into(),
        ..Affinity::default()
    }));
}

fn spread(pod: &mut Pod, selector: &Arc<Selector>) {
    let constraint = |topology_key: &str, when_unsatisfiable| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.into(),
        when_unsatisfiable,
        selector: Arc::clone(selector),
        min_domains: 1,
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    pod.topology_spread_constraints = [
        constraint(ZONE, UnsatisfiableAction::DoNotSchedule),
        constraint(HOSTNAME, UnsatisfiableAction::ScheduleAnyway),
    ]
    .into();
}

fn requirement(key: &str, values: &[&str]) -> Requirement {
    Requirement { key: key.into(), operator: Operator::In, values: values.iter().map(|&value| value.into()).collect() }
}

fn selector(key: &str, value: &str) -> Selector {
    Selector::All([requirement(key, &[value])].into())
}

fn term(topology_key: &str, selector: Arc<Selector>) -> AffinityTerm {
    AffinityTerm {
        namespaces: [Arc::from("default")].into(),
        namespace_selector: Arc::default(),
        selector,
        topology_key: topology_key.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(distinct: f64, n_replicas: usize) -> Vec<i64> {
        let incoming = Incoming { shape: Shape::Basic, n_nodes: 10, distinct, n_replicas };
        (0..8)
            .map(|k| {
                incoming.pod(k).resources.requests.memory - ((256 * (1 + (k as i64 / n_replicas as i64) % 4)) << 20)
            })
            .collect()
    }

    #[test]
    fn the_share_of_distinct_pods_is_kept_all_along() {
        assert_eq!(memory(0.0, 1), [0; 8], "none");
        assert_eq!(memory(1.0, 1), [1, 2, 3, 4, 5, 6, 7, 8], "all");
        assert_eq!(memory(0.5, 1), [0, 2, 0, 4, 0, 6, 0, 8], "every second");
    }

    #[test]
    fn replicas_follow_each_other() {
        assert_eq!(memory(0.0, 4), [0; 8]);
        let incoming = Incoming { shape: Shape::Mixed, n_nodes: 10, distinct: 0.0, n_replicas: 3 };
        let pods: Vec<Pod> = (0..6).map(|k| incoming.pod(k)).collect();
        assert_eq!(pods[0].labels, pods[2].labels);
        assert_ne!(pods[2].labels, pods[3].labels);
        assert_ne!(pods[0].uid, pods[1].uid);
    }
}
