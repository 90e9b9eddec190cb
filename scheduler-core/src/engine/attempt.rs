//! What came of one scheduling cycle.

use std::sync::Arc;

use super::DecisionRecord;
use crate::framework::{NominatedNode, QueuedEntity};
use crate::model::Pod;

/// One cycle: which pod was tried, and what came of it.
#[derive(Debug)]
pub struct Attempt {
    /// The pod as it was scheduled.
    pub pod: Arc<Pod>,
    /// The profile that served it.
    pub scheduler_name: Arc<str>,
    /// How many attempts the pod has had, this one included.
    pub attempts: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// Node by node why; only while records are kept.
    pub record: Option<Box<DecisionRecord>>,
}

impl Attempt {
    pub(super) fn skipped(entity: &QueuedEntity) -> Self {
        Self {
            pod: Arc::clone(&entity.pod),
            scheduler_name: Arc::clone(&entity.pod.scheduler_name),
            attempts: entity.attempts,
            outcome: Outcome::Skipped,
            record: None,
        }
    }
}

/// What came of a cycle. Upstream: `ScheduleResult` and the status of `schedulingCycle` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A node was chosen; binding has begun, or waits for a Permit plugin.
    Scheduled {
        /// The node.
        node: Arc<str>,
        /// Nodes that were looked at.
        n_evaluated: usize,
        /// Nodes that fit.
        n_feasible: usize,
    },
    /// The pod fits nowhere now.
    Unschedulable {
        /// The whole message, as in the pod's condition.
        message: String,
        /// What happens to its nomination; set when preemption makes room.
        nominated: NominatedNode,
    },
    /// The cycle broke.
    Error {
        /// The whole message, as in the pod's condition.
        message: String,
    },
    /// There was nothing to do: the pod is being deleted, or is placed already.
    Skipped,
}
