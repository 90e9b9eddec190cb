//! A pod as the scheduler needs it: identity, constraints and requests, all parsed.

use std::sync::Arc;

use super::{Affinity, Labels, ObjectRef, Resources, Timestamp, Toleration, TopologySpreadConstraint, Volume};

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PodPhase {
    /// Not running yet.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// Ended well. The scheduler treats the pod as gone.
    Succeeded,
    /// Ended badly. The scheduler treats the pod as gone.
    Failed,
    /// The node is out of reach.
    Unknown,
}

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
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The pod's `PodScheduled` condition, so that it is patched only when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledCondition {
    /// Whether it is true.
    pub status: bool,
    /// Reason.
    pub reason: Box<str>,
    /// Message.
    pub message: Box<str>,
    /// Generation of the pod it is about.
    pub observed_generation: Option<i64>,
}

/// What the scheduler reads of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// A pod. Upstream: `v1.Pod` with what framework `PodInfo` derives from it (v1.36.2).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pod {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// UID: the identity in cache and queue.
    pub uid: Arc<str>,
    /// Resource version of the object this was parsed from; part of an event's reference.
    pub resource_version: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// `metadata.generation`.
    pub generation: i64,
    /// When the object was created.
    pub creation_timestamp: Option<Timestamp>,
    /// Set once deletion began.
    pub deletion_timestamp: Option<Timestamp>,
    /// The owner with `controller: true`.
    pub controller: Option<Arc<OwnerReference>>,

    /// Which scheduler (profile) decides; `default-scheduler` when absent.
    pub scheduler_name: Arc<str>,
    /// Where it is bound.
    pub node_name: Option<Arc<str>>,
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

    /// `status.phase`.
    pub phase: PodPhase,
    /// Where the scheduler expects to place it.
    pub nominated_node_name: Option<Arc<str>>,
    /// When the kubelet accepted it.
    pub start_time: Option<Timestamp>,
    /// Condition `PodScheduled` as last seen.
    pub scheduled_condition: Option<Box<ScheduledCondition>>,
    /// Whether condition `DisruptionTarget` is true with reason `PreemptionByScheduler`.
    pub preempted_by_scheduler: bool,
}

impl Pod {
    /// Whether the pod has ended; such pods are hidden from scheduling.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether deletion began.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether the two are alike in everything but what binding changes: node, nomination, condition `PodScheduled`,
    /// generation and resource version.
    #[must_use]
    pub fn differs_by_binding_at_most(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.name == other.name
            && self.creation_timestamp == other.creation_timestamp
            && self.is_replica_of(other)
    }

    /// Whether the two are alike in everything but who they are, and what binding changes: name, UID, age, node, nomination,
    /// condition `PodScheduled`, generation and resource version.
    #[must_use]
    pub fn is_replica_of(&self, other: &Self) -> bool {
        // Named one by one, so that a new field is thought of.
        let Self {
            name: _,
            namespace,
            uid: _,
            resource_version: _,
            labels,
            generation: _,
            creation_timestamp: _,
            deletion_timestamp,
            controller,
            scheduler_name,
            node_name: _,
            priority,
            preemption_policy,
            scheduling_gates,
            node_selector,
            affinity,
            tolerations,
            topology_spread_constraints,
            volumes,
            containers,
            host_ports,
            resource_claims,
            required_node_features,
            resources,
            phase,
            nominated_node_name: _,
            start_time,
            scheduled_condition: _,
            preempted_by_scheduler,
        } = self;
        *namespace == other.namespace
            && *labels == other.labels
            && *deletion_timestamp == other.deletion_timestamp
            && *controller == other.controller
            && *scheduler_name == other.scheduler_name
            && *priority == other.priority
            && *preemption_policy == other.preemption_policy
            && *scheduling_gates == other.scheduling_gates
            && *node_selector == other.node_selector
            && *affinity == other.affinity
            && *tolerations == other.tolerations
            && *topology_spread_constraints == other.topology_spread_constraints
            && *volumes == other.volumes
            && *containers == other.containers
            && *host_ports == other.host_ports
            && *resource_claims == other.resource_claims
            && *required_node_features == other.required_node_features
            && *resources == other.resources
            && *phase == other.phase
            && *start_time == other.start_time
            && *preempted_by_scheduler == other.preempted_by_scheduler
    }

    /// Its name, namespace, UID and resource version.
    #[must_use]
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
            uid: Arc::clone(&self.uid),
            resource_version: Arc::clone(&self.resource_version),
        }
    }

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
