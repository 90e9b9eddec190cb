//! What the replicas of a workload have in common: constraints and requests, all parsed.

use std::sync::Arc;

use super::{Affinity, Labels, Resources, Toleration, TopologySpreadConstraint, Volume};

/// Whether a pod may push others out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PreemptionPolicy {
    /// Pods of lower priority may be evicted for it.
    #[default]
    PreemptLowerPriority,
    /// It waits.
    Never,
}

/// The owner that controls the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// `apiVersion`, group and version.
    pub api_version: Arc<str>,
    /// Kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    /// Name in the pod's namespace.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Arc<str>,
}

/// A port of the node that the pod occupies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Address; `0.0.0.0` when the pod names none.
    pub ip: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// 1 to 65535.
    pub port: u16,
}

/// What the scheduler reads of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Container {
    /// Container name.
    pub name: Arc<str>,
    /// Image as written.
    pub image: Arc<str>,
    /// Whether it is an init container.
    pub init: bool,
}

/// Requests of a pod in the four ways in which the scheduler adds them up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodResources {
    /// What the pod asks for before it runs: the filter of `NodeResourcesFit` and `NodeResourcesBalancedAllocation`.
    pub requests: Resources,
    /// Milli CPU for scoring: 100m for each container that names none; pod-level requests ignored.
    pub scoring_milli_cpu: i64,
    /// Bytes of memory for scoring: 200Mi for each container that names none; pod-level requests ignored.
    pub scoring_memory: i64,
    /// Ephemeral storage and scalars for scoring: pod-level requests ignored.
    pub scoring_other: Option<Box<Resources>>,
    /// What the pod takes on its node, resizes in progress included, where that differs from `requests`.
    pub used: Option<Box<Resources>>,
    /// Milli CPU the pod takes on its node, with the default for containers that name none.
    pub used_non_zero_milli_cpu: i64,
    /// Bytes of memory the pod takes on its node, with the default for containers that name none.
    pub used_non_zero_memory: i64,
}

impl PodResources {
    /// What the pod takes on its node. Upstream: `PodInfo.CalculateResource` (v1.36.2).
    #[must_use]
    pub fn used(&self) -> &Resources {
        self.used.as_deref().unwrap_or(&self.requests)
    }

    /// Whether resources are in play that not every node has a column for, such as devices.
    #[must_use]
    pub fn has_scalars(&self) -> bool {
        !self.requests.scalars.is_empty() || !self.scoring().scalars.is_empty() || !self.used().scalars.is_empty()
    }

    /// Ephemeral storage and scalar resources as scoring counts them.
    #[must_use]
    pub fn scoring(&self) -> &Resources {
        self.scoring_other.as_deref().unwrap_or(&self.requests)
    }
}

/// Everything of a pod but who it is and how it is: replicas share one, so that a pod is small. Upstream: most of
/// `v1.PodTemplateSpec` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodTemplate {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// The owner with `controller: true`.
    pub controller: Option<Arc<OwnerReference>>,
    /// Which scheduler (profile) decides; `default-scheduler` when absent.
    pub scheduler_name: Arc<str>,
    /// `spec.priority`; 0 when absent.
    pub priority: i32,
    /// Whether it may preempt.
    pub preemption_policy: PreemptionPolicy,
    /// Names of the gates that hold it back.
    pub scheduling_gates: Box<[Arc<str>]>,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// Affinity; `None` when the pod has none.
    pub affinity: Option<Box<Affinity>>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// Spread constraints.
    pub topology_spread_constraints: Box<[TopologySpreadConstraint]>,
    /// Volumes.
    pub volumes: Box<[Volume]>,
    /// Containers, init containers last.
    pub containers: Box<[Container]>,
    /// Host ports of containers and sidecars.
    pub host_ports: Box<[HostPort]>,
    /// `spec.resourceClaims`, by name in the pod.
    pub resource_claims: Box<[Arc<str>]>,
    /// Node features that the pod needs, sorted. Upstream: component-helpers/nodedeclaredfeatures.
    pub required_node_features: Box<[&'static str]>,
    /// Requests.
    pub resources: PodResources,
}

impl PodTemplate {
    /// Required pod anti-affinity terms; empty without affinity.
    #[must_use]
    pub fn required_anti_affinity(&self) -> &[super::AffinityTerm] {
        self.affinity.as_deref().map_or(&[], |affinity| &affinity.required_anti)
    }

    /// Required pod affinity terms; empty without affinity.
    #[must_use]
    pub fn required_affinity(&self) -> &[super::AffinityTerm] {
        self.affinity.as_deref().map_or(&[], |affinity| &affinity.required_pod)
    }

    /// Whether a node satisfies `spec.nodeSelector` and the required node affinity.
    /// Upstream: component-helpers nodeaffinity `GetRequiredNodeAffinity(pod).Match(node)` (v1.36.2).
    #[must_use]
    pub fn selects_node(&self, node: &super::Node) -> bool {
        self.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self
                .affinity
                .as_deref()
                .and_then(|affinity| affinity.required_node.as_deref())
                .is_none_or(|selector| selector.matches(&node.name, &node.labels))
    }

    /// Whether the pod tolerates every taint that forbids scheduling or evicts.
    /// Upstream: component-helpers `FindMatchingUntoleratedTaint` with `DoNotScheduleTaintsFilterFunc` (v1.36.2).
    #[must_use]
    pub fn tolerates_all(&self, taints: &[super::Taint]) -> bool {
        taints.iter().filter(|taint| taint.forbids_scheduling()).all(|taint| self.tolerates(taint))
    }

    /// Whether one of the tolerations covers the taint.
    #[must_use]
    pub fn tolerates(&self, taint: &super::Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }
}
