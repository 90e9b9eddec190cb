//! SchedulingGates: a pod with `spec.schedulingGates` does not enter the queue. Upstream: plugins/schedulinggates (v1.36.2).

use crate::framework::{
    ActionType, ClusterEvent, ClusterView, EnqueueExtensions, EventFilter, EventResource, Hint, Plugin,
    PreEnqueuePlugin, PreEnqueueStatus, Result,
};
use crate::model::Pod;

/// Holds gated pods.
#[derive(Debug, Default)]
pub struct SchedulingGates;

impl SchedulingGates {
    /// Name in configurations.
    pub const NAME: &'static str = "SchedulingGates";
}

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl PreEnqueuePlugin for SchedulingGates {
    fn pre_enqueue(&self, pod: &Pod, _world: ClusterView<'_>) -> PreEnqueueStatus {
        if pod.scheduling_gates.is_empty() {
            return PreEnqueueStatus::Success;
        }
        let gates = pod.scheduling_gates.join(" ");
        PreEnqueueStatus::UnschedulableAndUnresolvable(vec![format!("waiting for scheduling gates: [{gates}]").into()])
    }
}

impl EnqueueExtensions for SchedulingGates {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let is_own = event.pods().1.is_some_and(|changed| changed.uid == pod.uid);
        Ok(if is_own { Hint::Queue } else { Hint::Skip })
    }
}
