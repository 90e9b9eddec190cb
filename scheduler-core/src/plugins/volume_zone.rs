//! VolumeZone: a bound volume with zone or region labels goes only with nodes of that zone or region.
//! Upstream v1.36.2: plugins/volumezone.

use std::sync::Arc;

use crate::cache::NodeView;
use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterPlugin, FilterStatus, Hint, Plugin, PreFilterStatus, Reason, Result,
};
use crate::model::{Object, PersistentVolume, Pod, VolumeBindingMode};

/// Name of the plugin.
pub const NAME: &str = "VolumeZone";

/// Where the plugin runs.
pub const POINTS: &[ExtensionPoint] = &[ExtensionPoint::PreFilter, ExtensionPoint::Filter];

const CONFLICT: &str = "node(s) had no available volume zone";

/// Topology labels, and the label of a node that stands in for one that it does not have.
const TOPOLOGY_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The plugin.
#[derive(Debug)]
pub struct VolumeZone;

/// A label that the node must have, with one of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    key: &'static str,
    instead: &'static str,
    values: Vec<Box<str>>,
}

impl VolumeZone {
    /// Builds the plugin for the registry.
    ///
    /// # Errors
    /// Never; arguments are ignored.
    pub fn build(_: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
        let plugin = Arc::new(Self);
        Ok(Extensions::new().pre_filter(&plugin).filter(&plugin).enqueue(&plugin))
    }
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }
}

impl FilterPlugin for VolumeZone {
    type State = Arc<[Topology]>;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<Self::State>> {
        Ok(match topologies_of_pod(cycle) {
            Err(reason) => PreFilterStatus::unresolvable(reason),
            Ok(topologies) if topologies.is_empty() => PreFilterStatus::Skip,
            Ok(topologies) => PreFilterStatus::success(topologies.into()),
        })
    }

    fn filter(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        if cycle.pod.volumes.is_empty() {
            return Ok(FilterStatus::Success);
        }
        let computed;
        let topologies: &[Topology] = match state {
            Some(state) => state,
            None => match topologies_of_pod(cycle) {
                Ok(topologies) => {
                    computed = topologies;
                    &computed
                }
                Err(_) => return Ok(FilterStatus::UnschedulableAndUnresolvable),
            },
        };
        let labels = node.labels();
        // A cluster of one zone may do without labels.
        let is_labelled = TOPOLOGY_LABELS.iter().any(|(key, _)| labels.contains_key(key));
        let fits = |topology: &Topology| {
            let value = labels.get(topology.key).or_else(|| labels.get(topology.instead));
            value.is_some_and(|value| topology.values.iter().any(|known| **known == **value))
        };
        Ok(FilterStatus::resolvable_never_unless(!is_labelled || topologies.iter().all(fits)))
    }

    fn reasons(&self, state: Option<&Self::State>, cycle: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        let reason = match state {
            Some(_) => CONFLICT.into(),
            None => topologies_of_pod(cycle).err().unwrap_or_else(|| CONFLICT.into()),
        };
        out.push(reason);
    }
}

impl EnqueueExtensions for VolumeZone {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::StorageClass, ActionType::ADD),
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL),
            EventFilter::new(EventResource::PersistentVolumeClaim, ActionType::ADD | ActionType::UPDATE),
            EventFilter::new(EventResource::PersistentVolume, ActionType::ADD | ActionType::UPDATE),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (_, Some(Object::PersistentVolumeClaim(claim))) => {
                claim.namespace == pod.namespace && pod.named_claims().any(|name| *name == claim.name)
            }
            (_, Some(Object::StorageClass(class))) => {
                class.volume_binding_mode == VolumeBindingMode::WaitForFirstConsumer
            }
            (Some(Object::PersistentVolume(old)), Some(Object::PersistentVolume(new))) => {
                topologies_of(old) != topologies_of(new)
            }
            _ => true,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

/// What the labels of the pod's bound volumes ask of a node, or why the pod cannot be placed.
fn topologies_of_pod(cycle: Cycle<'_>) -> std::result::Result<Vec<Topology>, Reason> {
    let (pod, objects) = (cycle.pod, cycle.objects);
    let mut topologies = Vec::new();
    for name in pod.named_claims() {
        if name.is_empty() {
            return Err("PersistentVolumeClaim had no name".into());
        }
        let not_found = || format!("persistentvolumeclaim {name:?} not found");
        let claim = objects.claim(&pod.namespace, name).ok_or_else(not_found)?;
        if !claim.volume_name.is_empty() {
            let not_found = || format!("persistentvolume {:?} not found", claim.volume_name);
            let volume = objects.persistent_volume(&claim.volume_name).ok_or_else(not_found)?;
            topologies.extend(topologies_of(volume));
            continue;
        }
        let class_name = claim.class_name();
        if class_name.is_empty() {
            return Err("PersistentVolumeClaim had no pv name and storageClass name".into());
        }
        let not_found = || format!("storageclass.storage.k8s.io {class_name:?} not found");
        let class = objects.storage_class(class_name).ok_or_else(not_found)?;
        if class.volume_binding_mode != VolumeBindingMode::WaitForFirstConsumer {
            return Err("PersistentVolume had no name".into());
        }
    }
    Ok(topologies)
}

/// The topology labels of a volume. Values are separated by `__`; a label with an empty one is ignored.
fn topologies_of(volume: &PersistentVolume) -> Vec<Topology> {
    let topology = |(key, instead): (&'static str, &'static str)| {
        let mut values: Vec<Box<str>> = volume.labels.get(key)?.split("__").map(|value| value.trim().into()).collect();
        values.sort_unstable();
        values.dedup();
        values.iter().all(|value| !value.is_empty()).then_some(Topology { key, instead, values })
    };
    TOPOLOGY_LABELS.into_iter().filter_map(topology).collect()
}
