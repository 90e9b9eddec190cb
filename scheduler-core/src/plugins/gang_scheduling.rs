//! GangScheduling: not a default plugin. It may be enabled by hand and then lets every pod pass.
//! Upstream: plugins/gangscheduling (v1.36.2).
//!
//! Pod groups are a feature (GenericWorkload, GangScheduling) that is off in that version: the API server drops
//! `spec.schedulingGroup`, and the plugin looks at nothing else.

use crate::cache::NodeView;
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource, Hint,
    PermitPlugin, PermitStatus, Plugin, PreEnqueuePlugin, PreEnqueueStatus, Result, WaitingPods,
};
use crate::model::Pod;

/// Lets pods without a group pass.
#[derive(Debug, Default)]
pub struct GangScheduling;

impl GangScheduling {
    /// Name in configurations.
    pub const NAME: &'static str = "GangScheduling";
}

impl Plugin for GangScheduling {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl PreEnqueuePlugin for GangScheduling {
    fn pre_enqueue(&self, _: &Pod, _: ClusterView<'_>) -> PreEnqueueStatus {
        PreEnqueueStatus::Success
    }
}

impl PermitPlugin for GangScheduling {
    fn permit(&self, _: Cycle<'_>, _: &mut CycleState, _: NodeView<'_>, _: &mut WaitingPods) -> Result<PermitStatus> {
        Ok(PermitStatus::Success)
    }
}

impl EnqueueExtensions for GangScheduling {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![EventFilter::new(EventResource::Pod, ActionType::ADD)]
    }

    /// No pod is ever rejected here, so no event helps one.
    fn hint(&self, _: &Pod, _: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        Ok(Hint::Skip)
    }
}
