//! A pod for a test, said in a line.

use std::sync::Arc;

use super::{quantity, taint};
use crate::model::{
    Affinity, AffinityTerm, Container, HostPort, Labels, NodeSelector, NodeSelectorTerm, Object, Operator,
    OwnerReference, Pod, PodPhase, PodResources, PodTemplate, PreemptionPolicy, PreferredSchedulingTerm, Quantity,
    Requirement, ResourceList, Resources, Selector, Timestamp, Toleration, TolerationOperator,
    TopologySpreadConstraint, UnsatisfiableAction, Volume, VolumeSource, WeightedAffinityTerm,
};

/// Builds a [`Pod`]; see [`pod`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it becomes a pod"]
pub struct PodBuilder {
    pod: Pod,
    /// Requests of the containers, in their order.
    requests: Vec<ResourceList>,
}

/// A pod of this name in the namespace `default`, for the profile `default-scheduler`, with one container that asks for
/// nothing. The name is its UID, too.
///
/// ```
/// use scheduler_core::model::Pod;
/// use scheduler_core::testing::pod;
///
/// let pod: Pod = pod("web-1").label("app", "web").cpu("500m").memory("1Gi").priority(10).into();
/// assert_eq!(pod.resources.requests.milli_cpu, 500);
/// ```
pub fn pod(name: &str) -> PodBuilder {
    let template = PodTemplate {
        namespace: "default".into(),
        scheduler_name: "default-scheduler".into(),
        ..PodTemplate::default()
    };
    let pod = Pod { name: name.into(), uid: name.into(), ..template.into() };
    PodBuilder { pod, requests: Vec::new() }.container("main", "")
}

impl PodBuilder {
    /// Another namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.pod.namespace = namespace.into();
        self
    }

    /// Another UID than the name.
    pub fn uid(mut self, uid: &str) -> Self {
        self.pod.uid = uid.into();
        self
    }

    /// `spec.schedulerName`.
    pub fn scheduler_name(mut self, name: &str) -> Self {
        self.pod.scheduler_name = name.into();
        self
    }

    /// A label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.pod.labels = with_pair(&self.pod.labels, key, value);
        self
    }

    /// `spec.priority`.
    pub fn priority(mut self, priority: i32) -> Self {
        self.pod.priority = priority;
        self
    }

    /// `preemptionPolicy: Never`.
    pub fn never_preempts(mut self) -> Self {
        self.pod.preemption_policy = PreemptionPolicy::Never;
        self
    }

    /// Bound to a node, and running there.
    pub fn on(mut self, node: &str) -> Self {
        self.pod.node_name = Some(node.into());
        self.pod.phase = PodPhase::Running;
        self
    }

    /// `status.nominatedNodeName`.
    pub fn nominated_to(mut self, node: &str) -> Self {
        self.pod.nominated_node_name = Some(node.into());
        self
    }

    /// Being deleted since `at`.
    pub fn deleted_at(mut self, at: Timestamp) -> Self {
        self.pod.deletion_timestamp = Some(at);
        self
    }

    /// `status.startTime`.
    pub fn started_at(mut self, at: Timestamp) -> Self {
        self.pod.start_time = Some(at);
        self
    }

    /// One more container; the requests that follow are its own.
    pub fn container(mut self, name: &str, image: &str) -> Self {
        let container = Container { name: name.into(), image: image.into(), init: false };
        self.pod.containers = appended(&self.pod.containers, container);
        self.requests.push(ResourceList::new());
        self
    }

    /// The image of the last container.
    pub fn image(mut self, image: &str) -> Self {
        if let Some(container) = self.pod.containers.last_mut() {
            container.image = image.into();
        }
        self
    }

    /// CPU request of the last container.
    pub fn cpu(self, amount: &str) -> Self {
        self.request("cpu", amount)
    }

    /// Memory request of the last container.
    pub fn memory(self, amount: &str) -> Self {
        self.request("memory", amount)
    }

    /// Request of the last container for any resource.
    ///
    /// # Panics
    /// When the amount is no quantity.
    pub fn request(mut self, resource: &str, amount: &str) -> Self {
        if let Some(requests) = self.requests.last_mut() {
            requests.insert(resource.into(), quantity(amount));
        }
        self
    }

    /// A host port, TCP on every address.
    pub fn host_port(mut self, port: u16) -> Self {
        let port = HostPort { ip: "0.0.0.0".into(), protocol: "TCP".into(), port };
        self.pod.host_ports = appended(&self.pod.host_ports, port);
        self
    }

    /// A volume of the claim of this name.
    pub fn claim(self, name: &str) -> Self {
        let source = VolumeSource::PersistentVolumeClaim { claim_name: name.into(), read_only: false };
        self.volume(Volume { name: name.into(), source })
    }

    /// A volume.
    pub fn volume(mut self, volume: Volume) -> Self {
        self.pod.volumes = appended(&self.pod.volumes, volume);
        self
    }

    /// The name of a scheduling gate.
    pub fn scheduling_gate(mut self, name: &str) -> Self {
        self.pod.scheduling_gates = appended(&self.pod.scheduling_gates, name.into());
        self
    }

    /// The owner that controls the pod.
    pub fn controlled_by(mut self, api_version: &str, kind: &str, name: &str) -> Self {
        self.pod.controller = Some(Arc::new(OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: name.into(),
        }));
        self
    }

    /// Tolerates a taint, written as for a node: `key=value:NoSchedule`; `key:NoExecute` tolerates any value.
    ///
    /// # Panics
    /// When the text is no taint.
    pub fn tolerates(mut self, text: &str) -> Self {
        let taint = taint(text);
        let operator = if taint.value.is_empty() { TolerationOperator::Exists } else { TolerationOperator::Equal };
        let toleration = Toleration { key: taint.key, operator, value: taint.value, effect: Some(taint.effect) };
        self.pod.tolerations = appended(&self.pod.tolerations, toleration);
        self
    }

    /// A pair of `spec.nodeSelector`.
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.pod.node_selector = with_pair(&self.pod.node_selector, key, value);
        self
    }

    /// A term of the required node affinity: the label has one of the values. Of several terms one must hold.
    pub fn node_affinity(mut self, key: &str, values: &[&str]) -> Self {
        let term = NodeSelectorTerm { match_expressions: [is_in(key, values)].into(), ..NodeSelectorTerm::default() };
        let affinity = self.affinity();
        let known = affinity.required_node.as_deref().map(|selector| &*selector.terms).unwrap_or_default();
        affinity.required_node = Some(Arc::new(NodeSelector { terms: appended(known, term) }));
        self
    }

    /// A preferred node affinity term.
    pub fn preferred_node_affinity(mut self, weight: i32, key: &str, values: &[&str]) -> Self {
        let term = NodeSelectorTerm { match_expressions: [is_in(key, values)].into(), ..NodeSelectorTerm::default() };
        let affinity = self.affinity();
        affinity.preferred_node = appended(&affinity.preferred_node, PreferredSchedulingTerm { weight, term });
        self
    }

    /// A required pod affinity term: a pod of this namespace with the label is in the same domain of the key.
    pub fn pod_affinity(mut self, topology_key: &str, label: (&str, &str)) -> Self {
        let term = self.term(topology_key, label);
        let affinity = self.affinity();
        affinity.required_pod = appended(&affinity.required_pod, term);
        self
    }

    /// A required pod anti-affinity term: no pod of this namespace with the label is in the same domain of the key.
    pub fn pod_anti_affinity(mut self, topology_key: &str, label: (&str, &str)) -> Self {
        let term = self.term(topology_key, label);
        let affinity = self.affinity();
        affinity.required_anti = appended(&affinity.required_anti, term);
        self
    }

    /// A preferred pod affinity term.
    pub fn preferred_pod_affinity(mut self, weight: i32, topology_key: &str, label: (&str, &str)) -> Self {
        let term = self.term(topology_key, label);
        let affinity = self.affinity();
        affinity.preferred_pod = appended(&affinity.preferred_pod, WeightedAffinityTerm { term, weight });
        self
    }

    /// A preferred pod anti-affinity term.
    pub fn preferred_pod_anti_affinity(mut self, weight: i32, topology_key: &str, label: (&str, &str)) -> Self {
        let term = self.term(topology_key, label);
        let affinity = self.affinity();
        affinity.preferred_anti = appended(&affinity.preferred_anti, WeightedAffinityTerm { term, weight });
        self
    }

    /// A spread constraint that filters (`DoNotSchedule`).
    pub fn spread(self, max_skew: i32, topology_key: &str, label: (&str, &str)) -> Self {
        self.constraint(max_skew, topology_key, label, UnsatisfiableAction::DoNotSchedule)
    }

    /// A spread constraint that scores (`ScheduleAnyway`).
    pub fn spread_softly(self, max_skew: i32, topology_key: &str, label: (&str, &str)) -> Self {
        self.constraint(max_skew, topology_key, label, UnsatisfiableAction::ScheduleAnyway)
    }

    /// Changes what the builder has no word for.
    pub fn change(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.pod);
        self
    }

    /// The finished pod.
    #[must_use]
    pub fn build(mut self) -> Pod {
        self.pod.resources = added_up(&self.requests);
        self.pod
    }

    fn constraint(
        mut self,
        max_skew: i32,
        topology_key: &str,
        (key, value): (&str, &str),
        when_unsatisfiable: UnsatisfiableAction,
    ) -> Self {
        let constraint = TopologySpreadConstraint {
            max_skew,
            topology_key: topology_key.into(),
            when_unsatisfiable,
            selector: Arc::new(Selector::All([is_in(key, &[value])].into())),
            min_domains: 1,
            honor_node_affinity: true,
            honor_node_taints: false,
        };
        self.pod.topology_spread_constraints = appended(&self.pod.topology_spread_constraints, constraint);
        self
    }

    fn term(&self, topology_key: &str, (key, value): (&str, &str)) -> AffinityTerm {
        AffinityTerm {
            namespaces: [Arc::clone(&self.pod.namespace)].into(),
            namespace_selector: Arc::new(Selector::Nothing),
            selector: Arc::new(Selector::All([is_in(key, &[value])].into())),
            topology_key: topology_key.into(),
        }
    }

    fn affinity(&mut self) -> &mut Affinity {
        let affinity = self.pod.affinity.get_or_insert_default();
        affinity.has_pod_affinity = true;
        affinity
    }
}

fn is_in(key: &str, values: &[&str]) -> Requirement {
    let mut values: Vec<Arc<str>> = values.iter().map(|&value| value.into()).collect();
    values.sort_unstable();
    Requirement { key: key.into(), operator: Operator::In, values: values.into() }
}

fn with_pair(labels: &Labels, key: &str, value: &str) -> Labels {
    let known = labels.iter().map(|(key, value)| (&**key, &**value));
    known.chain([(key, value)]).collect()
}

fn appended<T: Clone>(known: &[T], more: T) -> Box<[T]> {
    known.iter().cloned().chain([more]).collect()
}

/// Requests of plain containers, added up in the ways of the scheduler; scoring assumes 100m and 200Mi for a container
/// that names none. Upstream: scheduler/util `GetNonzeroRequestForResource` (v1.36.2).
fn added_up(containers: &[ResourceList]) -> PodResources {
    let (mut requests, mut scoring) = (ResourceList::new(), ResourceList::new());
    let assumed = [("cpu", Quantity::from_millis(100)), ("memory", Quantity::from_units(200 << 20))];
    for container in containers {
        for (name, amount) in container {
            add(&mut requests, name, *amount);
            add(&mut scoring, name, *amount);
        }
        for (name, amount) in assumed.iter().filter(|(name, _)| !container.contains_key(*name)) {
            add(&mut scoring, &Arc::from(*name), *amount);
        }
    }
    let scoring = Resources::from_list(&scoring);
    PodResources {
        requests: Resources::from_list(&requests),
        scoring_milli_cpu: scoring.milli_cpu,
        scoring_memory: scoring.memory,
        used_non_zero_milli_cpu: scoring.milli_cpu,
        used_non_zero_memory: scoring.memory,
        ..PodResources::default()
    }
}

fn add(list: &mut ResourceList, name: &Arc<str>, amount: Quantity) {
    let sum = list.get(name).map_or(amount, |known| known.plus(amount));
    list.insert(Arc::clone(name), sum);
}

impl From<PodBuilder> for Pod {
    fn from(builder: PodBuilder) -> Self {
        builder.build()
    }
}

impl From<PodBuilder> for Object {
    fn from(builder: PodBuilder) -> Self {
        builder.build().into()
    }
}
