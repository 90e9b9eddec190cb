//! What changed between two versions of a pod, as actions that queueing hints register for.
//! Upstream v1.36.2: framework/events.go PodSchedulingPropertiesChange.

use crate::framework::ActionType;
use crate::model::{Pod, Resources};

/// One action for each kind of change; a change of any other kind is the general update.
pub fn pod_update_actions(old: &Pod, new: &Pod) -> Vec<ActionType> {
    let mut actions = Vec::new();
    if old.labels != new.labels {
        actions.push(ActionType::UPDATE_POD_LABEL);
    }
    if asks_for_less(old.resources.used(), new.resources.used()) {
        actions.push(ActionType::UPDATE_POD_SCALE_DOWN);
    }
    if !old.scheduling_gates.is_empty() && new.scheduling_gates.is_empty() {
        actions.push(ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    }
    // The API lets tolerations be added, never changed or removed.
    if old.tolerations.len() != new.tolerations.len() {
        actions.push(ActionType::UPDATE_POD_TOLERATION);
    }
    if actions.is_empty() {
        actions.push(ActionType::UPDATE);
    }
    actions
}

/// Whether any resource is requested less than before, or not at all any more.
fn asks_for_less(old: &Resources, new: &Resources) -> bool {
    old.milli_cpu > new.milli_cpu
        || old.memory > new.memory
        || old.ephemeral_storage > new.ephemeral_storage
        || old.scalars.iter().any(|(name, value)| *value > new.scalar(name))
}
