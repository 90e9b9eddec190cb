//! DynamicResources, for pods without resource claims: its place in the order, its scores, its part of the messages.
//! A pod with claims is held back with a clear message. Upstream: plugins/dynamicresources (v1.36.2).

use std::hash::Hash;

use crate::cache::{NodeView, Objects};
use crate::framework::{
    ActionType, Binding, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource, FilterPlugin,
    FilterStates, FilterStatus, Filters, NominatedNode, Plugin, PluginError, PostFilterPlugin, PostFilterStatus,
    PreBindPlugin, PreEnqueuePlugin, PreEnqueueStatus, PreFilterStatus, PreFlight, Reason, Rejected, ReservePlugin,
    ReserveStatus, Result, Reuse, ScorePlugin, Sharing, Signature, Step,
};
use crate::model::Pod;

/// Stands where claims are allocated.
#[derive(Debug, Default)]
pub struct DynamicResources;

impl DynamicResources {
    /// Name in configurations.
    pub const NAME: &'static str = "DynamicResources";
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, objects, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        let needs_devices = needs_devices(pod, objects);
        needs_devices.hash(signature);
        if needs_devices { Sharing::Never } else { Sharing::ByNode }
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

/// Left by PreFilter for Score and PostFilter, also when it says Skip.
struct Seen {
    needs_devices: bool,
}

/// Whether an extended resource that the pod asks for may come from devices.
fn needs_devices(pod: &Pod, objects: &Objects) -> bool {
    pod.resources.requests.scalars.iter().any(|(name, amount)| *amount > 0 && objects.device_class_for(name).is_some())
}

impl PreEnqueuePlugin for DynamicResources {
    fn pre_enqueue(&self, pod: &Pod, _world: ClusterView<'_>) -> PreEnqueueStatus {
        if pod.resource_claims.is_empty() {
            return PreEnqueueStatus::Success;
        }
        let claims = pod.resource_claims.join(" ");
        PreEnqueueStatus::UnschedulableAndUnresolvable(vec![
            format!("waiting for the allocation of resource claims, which this scheduler does not do: [{claims}]")
                .into(),
        ])
    }
}

impl FilterPlugin for DynamicResources {
    type State = ();

    fn pre_filter(&self, cycle: Cycle<'_>, shared: &mut CycleState) -> Result<PreFilterStatus<()>> {
        let needs_devices = needs_devices(cycle.pod, cycle.objects);
        shared.insert(Seen { needs_devices });
        Ok(if needs_devices { PreFilterStatus::success(()) } else { PreFilterStatus::Skip })
    }

    /// A node that does not offer the resource itself would have to allocate a device.
    fn filter(&self, state: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        state.ok_or_else(PluginError::not_found)?;
        let resources = cycle.snapshot.resources();
        let offers = |name: &str| resources.id(name).is_some_and(|id| node.allocatable(id) > 0);
        let fits = cycle
            .pod
            .resources
            .requests
            .scalars
            .iter()
            .all(|(name, amount)| *amount <= 0 || offers(name) || cycle.objects.device_class_for(name).is_none());
        Ok(FilterStatus::resolvable_never_unless(fits))
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("cannot allocate all claims".into());
    }
}

impl PostFilterPlugin for DynamicResources {
    fn post_filter(
        &self,
        _: Cycle<'_>,
        shared: &mut CycleState,
        _: &Filters<'_>,
        _: &FilterStates,
        _: &Rejected,
    ) -> Result<PostFilterStatus> {
        let seen = shared.get::<Seen>().ok_or_else(PluginError::not_found)?;
        let reason = if seen.needs_devices { "still not schedulable" } else { "no new claims to deallocate" };
        Ok(PostFilterStatus::Unschedulable { reasons: vec![reason.into()], nominated: NominatedNode::Keep })
    }
}

impl ScorePlugin for DynamicResources {
    type State = ();

    /// Without claims there are no alternatives to prefer: zero.
    fn score(&self, _: Option<&()>, _: Cycle<'_>, shared: &CycleState, _: NodeView<'_>) -> Result<i64> {
        shared.get::<Seen>().ok_or_else(PluginError::not_found)?;
        Ok(0)
    }

    fn normalizes(&self) -> bool {
        false
    }

    fn uniform_score(&self, _: Option<&()>, _: Cycle<'_>, shared: &CycleState) -> Option<i64> {
        shared.get::<Seen>().map(|_| 0)
    }
}

impl ReservePlugin for DynamicResources {
    fn reserve(&self, _: Cycle<'_>, _: &mut CycleState, _: NodeView<'_>) -> Result<ReserveStatus> {
        Ok(ReserveStatus::Success)
    }

    fn unreserve(&self, _: &mut Binding, _: ClusterView<'_>) {}
}

impl PreBindPlugin for DynamicResources {
    fn pre_flight(&self, _: &Binding, _: ClusterView<'_>) -> Result<PreFlight> {
        Ok(PreFlight::Skip)
    }

    fn pre_bind(&self, _: &mut Binding, _: ClusterView<'_>) -> Result<Step> {
        Ok(Step::Done)
    }
}

impl EnqueueExtensions for DynamicResources {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL | ActionType::UPDATE_NODE_TAINT,
            ),
            EventFilter::new(EventResource::ResourceClaim, ActionType::ADD | ActionType::UPDATE),
            EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
            EventFilter::new(EventResource::DeviceClass, ActionType::ADD | ActionType::UPDATE),
            EventFilter::new(EventResource::ResourceSlice, ActionType::ADD | ActionType::UPDATE),
        ]
    }
}
