//! VolumeBinding: places a pod where its volumes are or can be, and binds its claims before the pod.
//! Upstream v1.36.2: plugins/volumebinding. Search is in `find`, decisions in force in `assume`, progress in `bind`.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cache::NodeView;
use crate::config::args::{PluginArgs, VolumeBindingArgs};
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, Binding, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreBindPlugin, PreFilterStatus,
    PreFlight, PreScoreStatus, Reason, ReservePlugin, ReserveStatus, Result, Reuse, ScorePlugin, Sharing, Signature,
    Step,
};
use crate::model::{ANNOTATION_MIGRATED_PLUGINS, Object, Pod, VolumeSource};

mod assume;
mod bind;
mod find;
#[cfg(test)]
mod tests;

use assume::Assumptions;
use bind::Plan;
pub use find::PodClaims;
use find::Refusal;

/// Name of the plugin.
pub const NAME: &str = "VolumeBinding";

/// Where the plugin runs.
pub const POINTS: &[ExtensionPoint] = &[
    ExtensionPoint::PreFilter,
    ExtensionPoint::Filter,
    ExtensionPoint::PreScore,
    ExtensionPoint::Score,
    ExtensionPoint::Reserve,
    ExtensionPoint::PreBind,
];

const UNBOUND_IMMEDIATE: &str = "pod has unbound immediate PersistentVolumeClaims";
const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The plugin.
#[derive(Debug)]
pub struct VolumeBinding {
    bind_timeout: Duration,
    /// Locked once a cycle, never for each node.
    assumptions: Mutex<Assumptions>,
}

/// What PreFilter found, kept for Reserve.
struct Found(Arc<PodClaims>);

impl VolumeBinding {
    /// A plugin with these (valid) arguments.
    pub fn new(args: &VolumeBindingArgs) -> Self {
        let seconds = u64::try_from(args.bind_timeout_seconds).unwrap_or(0);
        Self { bind_timeout: Duration::from_secs(seconds), assumptions: Mutex::default() }
    }

    /// Builds the plugin for the registry.
    ///
    /// # Errors
    /// When the arguments are those of another plugin.
    pub fn build(args: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
        let args = match args.cloned().or_else(|| PluginArgs::defaults(NAME)) {
            Some(PluginArgs::VolumeBinding(args)) => args,
            other => return Err(BuildError(format!("got arguments {other:?}, want VolumeBindingArgs"))),
        };
        let plugin = Arc::new(Self::new(&args));
        let extensions = Extensions::new().pre_filter(&plugin).filter(&plugin).pre_score(&plugin).score(&plugin);
        Ok(extensions.reserve(&plugin).pre_bind(&plugin).enqueue(&plugin))
    }

    fn lock(&self) -> MutexGuard<'_, Assumptions> {
        // A panic elsewhere leaves whole entries: each change is one call.
        self.assumptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.volumes.is_empty().hash(signature);
        if pod.mounts_anywhere() { Sharing::ByNode } else { Sharing::Never }
    }

    fn reuse(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState) -> Reuse {
        if pod.mounts_anywhere() { Reuse::Everything } else { Reuse::Nothing }
    }
}

impl FilterPlugin for VolumeBinding {
    type State = Arc<PodClaims>;

    fn pre_filter(&self, cycle: Cycle<'_>, shared: &mut CycleState) -> Result<PreFilterStatus<Self::State>> {
        if cycle.pod.volumes.is_empty() {
            shared.insert(Found(Arc::default()));
            return Ok(PreFilterStatus::Skip);
        }
        let mut assumptions = self.lock();
        assumptions.expire(cycle.objects);
        Ok(match PodClaims::of(cycle.pod, cycle.objects, &assumptions) {
            Err(Refusal::Reason(reason)) => PreFilterStatus::unresolvable(reason),
            Err(Refusal::UnboundImmediate) => PreFilterStatus::unresolvable(UNBOUND_IMMEDIATE),
            Ok(None) => {
                shared.insert(Found(Arc::default()));
                PreFilterStatus::Skip
            }
            Ok(Some(claims)) => {
                let claims = Arc::new(claims);
                shared.insert(Found(Arc::clone(&claims)));
                PreFilterStatus::success(claims)
            }
        })
    }

    fn filter(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let claims = state.ok_or_else(PluginError::not_found)?;
        let found = claims.find_on(node.node(), cycle.objects)?;
        Ok(FilterStatus::resolvable_never_unless(found.is_ok()))
    }

    fn reasons(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        let Some(Ok(Err(conflicts))) = state.map(|claims| claims.find_on(node.node(), cycle.objects)) else { return };
        let reasons = [
            (conflicts.node_conflict, NODE_CONFLICT),
            (conflicts.bind_conflict, BIND_CONFLICT),
            (conflicts.not_enough_space, NOT_ENOUGH_SPACE),
            (conflicts.volume_missing, VOLUME_MISSING),
        ];
        out.extend(reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| Reason::from(reason)));
    }
}

/// Scoring by capacity belongs to a feature (StorageCapacityScoring) that is off in v1.36.2: PreScore always skips.
impl ScorePlugin for VolumeBinding {
    type State = ();

    fn pre_score_mask(&self, _: Cycle<'_>, _: Option<&[u64]>, _: &CycleState) -> Result<Option<PreScoreStatus<()>>> {
        Ok(Some(PreScoreStatus::Skip))
    }

    fn score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState, _: NodeView<'_>) -> Result<i64> {
        Ok(0)
    }
}

impl ReservePlugin for VolumeBinding {
    fn reserve(&self, cycle: Cycle<'_>, shared: &mut CycleState, node: NodeView<'_>) -> Result<ReserveStatus> {
        let Found(claims) = shared.get().ok_or_else(PluginError::not_found)?;
        if claims.is_all_bound() {
            return Ok(ReserveStatus::Success);
        }
        let plan = match claims.find_on(node.node(), cycle.objects)? {
            Ok(volumes) => Plan::new(node.name(), &volumes),
            Err(_) => return Err(PluginError::new(format!("no pod volume found for node {:?}", node.name()))),
        };
        self.lock().assume(&plan);
        shared.insert(plan);
        Ok(ReserveStatus::Success)
    }

    fn unreserve(&self, binding: &mut Binding, _: ClusterView<'_>) {
        if let Some(plan) = binding.state.remove::<Plan>() {
            self.lock().revert(&plan);
        }
    }
}

impl PreBindPlugin for VolumeBinding {
    fn pre_flight(&self, binding: &Binding, _: ClusterView<'_>) -> Result<PreFlight> {
        let has_work = match binding.state.get::<Plan>() {
            Some(plan) => !plan.items.is_empty(),
            // Reserve makes no plan when everything is bound.
            None => !binding.state.get::<Found>().ok_or_else(PluginError::not_found)?.0.is_all_bound(),
        };
        Ok(if has_work { PreFlight::Work { parallel: true } } else { PreFlight::Skip })
    }

    fn pre_bind(&self, binding: &mut Binding, world: ClusterView<'_>) -> Result<Step> {
        let plan = binding.state.get_mut::<Plan>().ok_or_else(PluginError::not_found)?;
        if plan.items.is_empty() {
            return Ok(Step::Done);
        }
        plan.advance(&binding.results, self.bind_timeout, world)
    }
}

impl EnqueueExtensions for VolumeBinding {
    fn events_to_register(&self) -> Vec<EventFilter> {
        let add_or_update = ActionType::ADD | ActionType::UPDATE;
        vec![
            EventFilter::new(EventResource::StorageClass, add_or_update),
            EventFilter::new(EventResource::PersistentVolumeClaim, add_or_update),
            EventFilter::new(EventResource::PersistentVolume, add_or_update),
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
            EventFilter::new(EventResource::CsiNode, add_or_update),
            EventFilter::new(EventResource::CsiDriver, ActionType::UPDATE),
            EventFilter::new(EventResource::CsiStorageCapacity, add_or_update),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::StorageClass(old)), Some(Object::StorageClass(new))) => {
                old.allowed_topologies != new.allowed_topologies
            }
            (_, Some(Object::PersistentVolumeClaim(claim))) => pod.mounts(claim),
            (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => {
                old.annotations.get(ANNOTATION_MIGRATED_PLUGINS) != new.annotations.get(ANNOTATION_MIGRATED_PLUGINS)
            }
            (Some(Object::CsiDriver(old)), Some(Object::CsiDriver(new))) => {
                let mounts =
                    |volume: &VolumeSource| matches!(volume, VolumeSource::Csi { driver, .. } if *driver == new.name);
                let is_inline = pod.volumes.iter().any(|volume| mounts(&volume.source));
                is_inline && old.storage_capacity && !new.storage_capacity
            }
            (Some(Object::CsiStorageCapacity(old)), Some(Object::CsiStorageCapacity(new))) => {
                new.limit().is_some_and(|limit| old.limit().is_none_or(|old| limit.value() > old.value()))
            }
            _ => true,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}
