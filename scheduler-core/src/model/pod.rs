//! A pod as the scheduler needs it: who it is, where it is, and the template that says the rest.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{ObjectRef, PodTemplate, Timestamp};

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

/// A pod: who it is and how it is, and the [`PodTemplate`] that it shares with its replicas, whose fields read as its own.
/// Upstream: `v1.Pod` with what framework `PodInfo` derives from it (v1.36.2).
///
/// ```
/// use scheduler_core::model::{Pod, PodTemplate};
///
/// let template = PodTemplate { priority: 7, ..PodTemplate::default() };
/// let mut pod = Pod { name: "web-1".into(), template: template.into(), ..Pod::default() };
/// let replica = Pod { name: "web-2".into(), ..pod.clone() };
/// pod.priority += 1; // of this pod alone
/// assert_eq!((pod.priority, replica.priority), (8, 7));
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pod {
    /// Name.
    pub name: Arc<str>,
    /// UID: the identity in cache and queue.
    pub uid: Arc<str>,
    /// Resource version of the object this was parsed from; part of an event's reference.
    pub resource_version: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// When the object was created.
    pub creation_timestamp: Option<Timestamp>,
    /// Set once deletion began.
    pub deletion_timestamp: Option<Timestamp>,
    /// Where it is bound.
    pub node_name: Option<Arc<str>>,
    /// Where the scheduler expects to place it.
    pub nominated_node_name: Option<Arc<str>>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// When the kubelet accepted it.
    pub start_time: Option<Timestamp>,
    /// Condition `PodScheduled` as last seen.
    pub scheduled_condition: Option<Box<ScheduledCondition>>,
    /// Whether condition `DisruptionTarget` is true with reason `PreemptionByScheduler`.
    pub preempted_by_scheduler: bool,
    /// Everything else.
    pub template: Arc<PodTemplate>,
}

impl From<PodTemplate> for Pod {
    /// A pod without a name.
    fn from(template: PodTemplate) -> Self {
        Self { template: template.into(), ..Self::default() }
    }
}

impl Deref for Pod {
    type Target = PodTemplate;

    fn deref(&self) -> &PodTemplate {
        &self.template
    }
}

impl DerefMut for Pod {
    /// A template of this pod's own from now on.
    fn deref_mut(&mut self) -> &mut PodTemplate {
        Arc::make_mut(&mut self.template)
    }
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
            uid: _,
            resource_version: _,
            generation: _,
            creation_timestamp: _,
            deletion_timestamp,
            node_name: _,
            nominated_node_name: _,
            phase,
            start_time,
            scheduled_condition: _,
            preempted_by_scheduler,
            template,
        } = self;
        // Equal at once if it is the same one.
        *template == other.template
            && *deletion_timestamp == other.deletion_timestamp
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
}
