//! What the engine wants of the world, as data. The host performs effects and reports back by id.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::model::ObjectRef;

/// Identifies an effect until its result is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectId(pub u64);

/// Something for the host to do.
#[derive(Debug)]
pub struct Effect {
    /// To be named in [`crate::engine::Scheduler::handle_result`], for every kind of effect.
    pub id: EffectId,
    /// The profile (`schedulerName`) on whose behalf it happens: the reporting controller of events.
    pub scheduler_name: Arc<str>,
    /// What to do.
    pub kind: EffectKind,
}

/// Kinds of effects.
#[derive(Debug)]
pub enum EffectKind {
    /// Create the pod's binding: POST `pods/<name>/binding`.
    Bind {
        /// The pod.
        pod: ObjectRef,
        /// The node.
        node: Arc<str>,
    },
    /// Have an extender bind the pod: [`Extender::bind`](super::Extender::bind).
    BindByExtender {
        /// The pod.
        pod: ObjectRef,
        /// The node.
        node: Arc<str>,
        /// Its position among the scheduler's extenders.
        extender: usize,
    },
    /// Patch the pod's status.
    PatchPodStatus {
        /// The pod.
        pod: ObjectRef,
        /// A condition to set; `None` leaves conditions alone.
        condition: Option<PodCondition>,
        /// What to do with `status.nominatedNodeName`.
        nominated: NominatedNode,
    },
    /// Evict a victim of preemption: patch its `DisruptionTarget` condition, then delete it.
    DeleteVictim {
        /// The pod that needs the room.
        preemptor: ObjectRef,
        /// The pod that goes.
        victim: ObjectRef,
        /// Where both meet.
        node: Arc<str>,
        /// The condition to set before deletion.
        condition: PodCondition,
    },
    /// Record an event (events.k8s.io/v1).
    RecordEvent {
        /// The pod that the event is about.
        regarding: ObjectRef,
        /// A second pod, such as the preemptor.
        related: Option<ObjectRef>,
        /// Normal or warning.
        event_type: EventType,
        /// Machine-readable reason, such as `FailedScheduling`.
        reason: &'static str,
        /// What was being done, such as `Scheduling`.
        action: &'static str,
        /// Text, at most 1024 bytes.
        note: String,
    },
    /// Tell the volume controller which volume or node a claim is for: patch a PVC or PV.
    BindVolume {
        /// Claim.
        claim: ObjectRef,
        /// Volume to reserve for the claim; `None` asks for provisioning on `node`.
        volume: Option<ObjectRef>,
        /// Selected node.
        node: Arc<str>,
    },
    /// Something that only the host and a plugin understand.
    Custom(Box<dyn CustomEffect>),
}

/// A plugin's own effect; the host downcasts it.
pub trait CustomEffect: Any + Send + Sync + fmt::Debug {}

impl<T: Any + Send + Sync + fmt::Debug> CustomEffect for T {}

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Nothing wrong.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// As in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A condition of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCondition {
    /// Type, such as `PodScheduled`.
    pub condition_type: &'static str,
    /// Status: true or false.
    pub status: bool,
    /// Reason, such as `Unschedulable`.
    pub reason: &'static str,
    /// Whole text, not cut.
    pub message: String,
    /// `metadata.generation` of the pod that was looked at; `None` when unknown.
    pub observed_generation: Option<i64>,
}

/// What happens to `status.nominatedNodeName`. Upstream: framework `NominatingInfo` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NominatedNode {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is cleared.
    Clear,
    /// It is set.
    Set(Arc<str>),
}

/// Why an effect failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EffectError {
    /// The host's text, such as the API server's.
    pub message: String,
    /// Whether the object is gone (404): there is nothing left to retry.
    pub not_found: bool,
}
