//! A random cluster and what happens to it. All randomness comes from the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler_core::engine::Change;
use scheduler_core::model::{
    Affinity, AffinityTerm, Container, ContainerImage, HostPort, Labels, Namespace, Node, NodeSelector,
    NodeSelectorTerm, NodeTemplate, Object, Operator, Pod, PodPhase, PodResources, PodTemplate,
    PreferredSchedulingTerm, Requirement, Resources, Selector, Service, Taint, TaintEffect, Timestamp, Toleration,
    TolerationOperator, TopologySpreadConstraint, UnsatisfiableAction, WeightedAffinityTerm,
};

pub(crate) struct World {
    state: u64,
    nodes: BTreeMap<usize, Node>,
    pods: BTreeMap<usize, Pod>,
    n_pods_made: usize,
    /// Nodes and pods are at most about so many.
    n_nodes_at_most: usize,
    n_pods_at_most: usize,
}

const KEYS: [&str; 3] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk"];

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            n_pods_made: 0,
            n_nodes_at_most: 12,
            n_pods_at_most: 150,
        }
    }

    /// With so many nodes to begin with, and no more later.
    pub(crate) fn with_nodes(mut self, n_nodes: usize) -> Self {
        self.n_nodes_at_most = n_nodes;
        for i in 0..n_nodes {
            let node = self.random_node(i);
            self.nodes.insert(i, node);
        }
        self
    }

    /// The next thing that happens to a pod that is there already, or `None` if there is none.
    fn some_pod(&mut self) -> Option<usize> {
        let first = self.below(self.n_pods_made + 1);
        self.pods.range(first..).next().or(self.pods.iter().next()).map(|(i, _)| *i)
    }

    /// A pod that is like another in everything that counts.
    pub(crate) fn replica_of(&mut self, template: &Pod) -> Pod {
        self.n_pods_made += 1;
        let name: Arc<str> = format!("p{}", self.n_pods_made).into();
        Pod { name: Arc::clone(&name), uid: name, ..template.clone() }
    }

    /// The scheduler's decision is confirmed.
    pub(crate) fn bind(&mut self, pod: Pod, node: &Arc<str>) -> Change {
        // The watch may show the binding alone, or with the kubelet's first words.
        let phase = if self.chance(2) { PodPhase::Pending } else { PodPhase::Running };
        let pod = Pod { node_name: Some(Arc::clone(node)), phase, ..pod };
        self.pods.insert(self.n_pods_made, pod.clone());
        Change::Applied(pod.into())
    }

    /// Everything that exists now.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let nodes = self.nodes.values().cloned().map(Object::from);
        let pods = self.pods.values().cloned().map(Object::from);
        Self::surroundings().into_iter().chain(nodes).chain(pods).collect()
    }

    pub(crate) fn many_nodes(&mut self, n_nodes: usize) -> Vec<Object> {
        (0..n_nodes).map(|i| self.random_node(i).into()).chain(Self::surroundings()).collect()
    }

    /// The next thing that happens.
    pub(crate) fn random_changes(&mut self) -> Vec<Change> {
        if self.nodes.is_empty() {
            let mut changes: Vec<Change> = Self::surroundings().into_iter().map(Change::Applied).collect();
            changes.extend((0..6).map(|i| self.set_node(i)));
            return changes;
        }
        match self.below(10) {
            0 => {
                let i = self.below(self.n_nodes_at_most);
                vec![self.set_node(i)]
            }
            1 => {
                let i = self.below(self.n_nodes_at_most);
                self.nodes.remove(&i).map(|node| Change::Deleted(node.into())).into_iter().collect()
            }
            2 | 3 => {
                let pod = self.some_pod().and_then(|i| self.pods.remove(&i));
                pod.map(|pod| Change::Deleted(pod.into())).into_iter().collect()
            }
            4 => {
                let Some(i) = self.some_pod() else { return Vec::new() };
                let labels = self.random_labels();
                let terminating = self.chance(3).then_some(Timestamp::ZERO);
                let Some(pod) = self.pods.get_mut(&i) else { return Vec::new() };
                pod.labels = labels;
                pod.deletion_timestamp = terminating;
                vec![Change::Applied(pod.clone().into())]
            }
            _ if self.pods.len() > self.n_pods_at_most => {
                let pod = self.some_pod().and_then(|i| self.pods.remove(&i));
                pod.map(|pod| Change::Deleted(pod.into())).into_iter().collect()
            }
            _ => {
                let mut pod = self.random_new_pod();
                pod.node_name = Some(format!("n{}", self.below(self.n_nodes_at_most + 1)).into());
                pod.phase = PodPhase::Running;
                self.pods.insert(self.n_pods_made, pod.clone());
                vec![Change::Applied(pod.into())]
            }
        }
    }

    pub(crate) fn random_new_pod(&mut self) -> Pod {
        self.n_pods_made += 1;
        let i = self.n_pods_made;
        let milli_cpu = i64::try_from(self.below(12) * 100).unwrap_or(0);
        let memory = i64::try_from(self.below(8)).unwrap_or(0) << 28;
        let scalars = if self.chance(5) { vec![(Arc::from("example.com/gpu"), 1)] } else { Vec::new() };
        let namespace = self.random_namespace();
        let template = PodTemplate {
            scheduler_name: "default-scheduler".into(),
            labels: self.random_labels(),
            node_selector: if self.chance(5) {
                [("disk", self.pick(&["ssd", "hdd", "none"]))].into_iter().collect()
            } else {
                Labels::default()
            },
            tolerations: if self.chance(3) { [self.random_toleration()].into() } else { Box::default() },
            affinity: self.chance(2).then(|| Box::new(self.random_affinity(&namespace))),
            topology_spread_constraints: (0..self.below(3)).map(|_| self.random_constraint()).collect(),
            containers: [Container { name: "c".into(), image: self.pick(&["a:1", "b", "c:2"]).into(), init: false }]
                .into(),
            host_ports: if self.chance(6) { [self.random_port()].into() } else { Box::default() },
            resources: PodResources {
                requests: Resources { milli_cpu, memory, scalars, ..Resources::default() },
                scoring_milli_cpu: milli_cpu.max(100),
                scoring_memory: memory.max(200 << 20),
                used_non_zero_milli_cpu: milli_cpu.max(100),
                used_non_zero_memory: memory.max(200 << 20),
                ..PodResources::default()
            },
            namespace,
            ..PodTemplate::default()
        };
        Pod { name: format!("p{i}").into(), uid: format!("p{i}").into(), ..template.into() }
    }

    fn surroundings() -> Vec<Object> {
        let namespace = |name: &str, team: &str| {
            Object::from(Namespace { name: name.into(), labels: [("team", team)].into_iter().collect() })
        };
        let selector = Some([("app", "a")].into_iter().collect::<Labels>());
        let service = Service { name: "a".into(), namespace: "x".into(), selector };
        vec![namespace("x", "red"), namespace("y", "blue"), service.into()]
    }

    fn set_node(&mut self, i: usize) -> Change {
        let node = self.random_node(i);
        self.nodes.insert(i, node.clone());
        Change::Applied(node.into())
    }

    fn random_node(&mut self, i: usize) -> Node {
        let name: Arc<str> = format!("n{i}").into();
        let mut labels = vec![(KEYS[0], name.to_string())];
        if !self.chance(5) {
            labels.push((KEYS[1], format!("z{}", self.below(3))));
        }
        if self.chance(2) {
            labels.push((KEYS[2], self.pick(&["ssd", "hdd"]).to_owned()));
        }
        let image = |name: &str| ContainerImage { names: [name.into()].into(), size_bytes: 400 << 20 };
        let labels = labels.into_iter().collect();
        let template = NodeTemplate {
            unschedulable: self.chance(9),
            taints: if self.chance(4) { [self.random_taint()].into() } else { Box::default() },
            allocatable: Resources {
                milli_cpu: i64::try_from(1_000 * (1 + self.below(8))).unwrap_or(0),
                memory: i64::try_from(1 + self.below(16)).unwrap_or(0) << 30,
                pods: i64::try_from(2 + self.below(20)).unwrap_or(0),
                scalars: if self.chance(3) { vec![("example.com/gpu".into(), 2)] } else { Vec::new() },
                ..Resources::default()
            },
            ..NodeTemplate::default()
        };
        let images = if self.chance(3) { [image("a:1"), image("b:latest")].into() } else { Box::default() };
        Node { name, labels, images, ..template.into() }
    }

    fn random_affinity(&mut self, namespace: &Arc<str>) -> Affinity {
        let terms = |world: &mut Self, n: usize| {
            (0..world.below(n + 1)).map(|_| world.random_term(namespace)).collect::<Vec<_>>()
        };
        let required_pod = if self.chance(4) { terms(self, 2) } else { Vec::new() };
        let required_anti = if self.chance(3) { terms(self, 2) } else { Vec::new() };
        let weigh = |terms: Vec<AffinityTerm>| {
            terms.into_iter().zip([7, 40]).map(|(term, weight)| WeightedAffinityTerm { term, weight }).collect()
        };
        let (preferred_pod, preferred_anti) = (terms(self, 2), terms(self, 2));
        let node_term = |world: &mut Self| NodeSelectorTerm {
            match_expressions: [world.random_requirement()].into(),
            ..NodeSelectorTerm::default()
        };
        Affinity {
            required_node: self
                .chance(4)
                .then(|| Arc::new(NodeSelector { terms: [node_term(self), node_term(self)].into() })),
            preferred_node: if self.chance(2) {
                [PreferredSchedulingTerm { weight: 5, term: node_term(self) }].into()
            } else {
                Box::default()
            },
            has_pod_affinity: true,
            required_pod: required_pod.into(),
            required_anti: required_anti.into(),
            preferred_pod: weigh(preferred_pod),
            preferred_anti: weigh(preferred_anti),
        }
    }

    fn random_term(&mut self, namespace: &Arc<str>) -> AffinityTerm {
        let selects = self.chance(3);
        let team = Requirement {
            key: "team".into(),
            operator: self.pick(&[Operator::In, Operator::NotIn]),
            values: ["red".into()].into(),
        };
        AffinityTerm {
            namespaces: if selects { [].into() } else { [Arc::clone(namespace)].into() },
            namespace_selector: Arc::new(if selects { Selector::All([team].into()) } else { Selector::Nothing }),
            selector: Arc::new(self.random_selector()),
            topology_key: self.pick(&KEYS).into(),
        }
    }

    fn random_constraint(&mut self) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: i32::try_from(1 + self.below(3)).unwrap_or(1),
            topology_key: self.pick(&KEYS).into(),
            when_unsatisfiable: self.pick(&[UnsatisfiableAction::DoNotSchedule, UnsatisfiableAction::ScheduleAnyway]),
            selector: Arc::new(self.random_selector()),
            min_domains: i32::try_from(1 + self.below(4)).unwrap_or(1),
            honor_node_affinity: self.chance(2),
            honor_node_taints: self.chance(2),
        }
    }

    fn random_selector(&mut self) -> Selector {
        if self.chance(8) {
            return Selector::everything();
        }
        let operator = self.pick(&[Operator::In, Operator::In, Operator::NotIn, Operator::Exists]);
        let value = self.pick(&["a", "b", "c"]);
        let values = if operator == Operator::Exists { Box::default() } else { [value.into()].into() };
        Selector::All([Requirement { key: "app".into(), operator, values }].into())
    }

    fn random_requirement(&mut self) -> Requirement {
        let key = self.pick(&KEYS);
        let operator = self.pick(&[Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
        let values = match operator {
            Operator::Exists | Operator::DoesNotExist => Box::default(),
            _ => [self.pick(&["z0", "z1", "ssd", "n1"]).into()].into(),
        };
        Requirement { key: key.into(), operator, values }
    }

    fn random_labels(&mut self) -> Labels {
        [("app", self.pick(&["a", "b", "c"]))].into_iter().collect()
    }

    fn random_namespace(&mut self) -> Arc<str> {
        self.pick(&["x", "y"]).into()
    }

    fn random_taint(&mut self) -> Taint {
        let effects = [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
        Taint { key: self.pick(&["t", "u"]).into(), value: "v".into(), effect: self.pick(&effects) }
    }

    fn random_toleration(&mut self) -> Toleration {
        Toleration {
            key: self.pick(&["t", "u"]).into(),
            operator: self.pick(&[TolerationOperator::Equal, TolerationOperator::Exists]),
            value: "v".into(),
            effect: None,
        }
    }

    fn random_port(&mut self) -> HostPort {
        HostPort { ip: self.pick(&["0.0.0.0", "10.0.0.1"]).into(), protocol: "TCP".into(), port: 8080 }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// One time in `n`.
    pub(crate) fn chance(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap_or(0) % n
    }
}
