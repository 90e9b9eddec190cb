//! What stands in the scheduling queue: a pod with the history of its attempts.

use std::sync::Arc;

use super::EventFilter;
use crate::model::{Pod, Timestamp};

/// A pod in the queue, or in flight. Upstream: framework `QueuedPodInfo` (v1.36.2).
///
/// It is called an entity because a group of pods will stand here too; nothing but [`QueuedEntity::pod`] assumes one.
#[derive(Debug, Clone)]
pub struct QueuedEntity {
    /// The pod, as last seen.
    pub pod: Arc<Pod>,
    /// When it entered the active queue, or was added.
    pub timestamp: Timestamp,
    /// Attempts so far, the one in flight included.
    pub attempts: u32,
    /// Attempts that ended unschedulable: the exponent of its back-off.
    pub unschedulable_count: u32,
    /// Attempts that ended in an error since the last that did not.
    pub consecutive_errors_count: u32,
    /// When back-off ends; set while it stands in the back-off queue.
    pub backoff_expiration: Option<Timestamp>,
    /// When it was first popped.
    pub initial_attempt_timestamp: Option<Timestamp>,
    /// Whether it was last moved because it had waited for minutes.
    pub was_flushed_from_unschedulable: bool,
    /// Plugins that rejected it in the last attempt, sorted.
    pub unschedulable_plugins: Vec<&'static str>,
    /// Plugins that answered Pending in the last attempt, sorted.
    pub pending_plugins: Vec<&'static str>,
    /// The PreEnqueue plugin that holds it back.
    pub gating_plugin: Option<&'static str>,
    /// Events that may release it from the gating plugin.
    pub gating_plugin_events: Vec<EventFilter>,
}

impl QueuedEntity {
    /// A pod that was never tried.
    #[must_use]
    pub fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        Self {
            pod,
            timestamp: now,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors_count: 0,
            backoff_expiration: None,
            initial_attempt_timestamp: None,
            was_flushed_from_unschedulable: false,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            gating_plugin: None,
            gating_plugin_events: Vec::new(),
        }
    }

    /// Whether a PreEnqueue plugin holds it back.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.gating_plugin.is_some()
    }

    /// Forgets who rejected it, before a new attempt says so again.
    pub fn clear_rejector_plugins(&mut self) {
        self.unschedulable_plugins.clear();
        self.pending_plugins.clear();
        self.gating_plugin = None;
        self.gating_plugin_events.clear();
    }
}
