//! VolumeZone: a bound volume with zone or region labels goes only with nodes of that zone or region.
//! Upstream v1.36.2: plugins/volumezone.

use std::hash::Hash;
use std::sync::Arc;

use crate::cache::NodeView;
use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterPlugin, FilterStatus, Hint, Plugin, PreFilterStatus, Reason, Result, Reuse,
    Sharing, Signature,
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

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.volumes.is_empty().hash(signature);
        if pod.mounts_anywhere() { Sharing::ByNode } else { Sharing::Never }
    }

    fn reuse(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState) -> Reuse {
        if pod.mounts_anywhere() { Reuse::Everything } else { Reuse::Nothing }
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

#[cfg(test)]
mod tests {
    use super::VolumeZone;
    use crate::cache::{Cache, Objects};
    use crate::framework::{
        ActionType, ClusterEvent, Cycle, CycleState, EnqueueExtensions, EventResource, FilterPlugin, FilterStatus,
        Hint, PreFilterStatus,
    };
    use crate::model::{
        Labels, Node, Object, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, Quantity, StorageClass,
        Timestamp, Volume, VolumeBindingMode, VolumeSource,
    };
    use std::sync::Arc;

    fn pod() -> Pod {
        let source = VolumeSource::PersistentVolumeClaim { claim_name: "c".into(), read_only: false };
        let volumes = [Volume { name: "v".into(), source }].into();
        PodTemplate { namespace: "d".into(), volumes, ..PodTemplate::default() }.into()
    }

    fn claim(name: &str, volume: &str, class: Option<&str>) -> PersistentVolumeClaim {
        PersistentVolumeClaim {
            name: name.into(),
            namespace: "d".into(),
            uid: "".into(),
            resource_version: "".into(),
            labels: Labels::default(),
            annotations: Labels::default(),
            is_terminating: false,
            controller_uid: None,
            access_modes: [].into(),
            selector: None,
            request: Quantity::default(),
            volume_name: volume.into(),
            storage_class_name: class.map(Into::into),
            volume_mode: "Filesystem".into(),
            volume_attributes_class_name: None,
            phase: "Bound".into(),
        }
    }

    fn volume(labels: &[(&str, &str)]) -> PersistentVolume {
        PersistentVolume {
            name: "pv".into(),
            uid: "".into(),
            resource_version: "".into(),
            labels: labels.iter().copied().collect(),
            annotations: Labels::default(),
            is_terminating: false,
            capacity: Quantity::default(),
            access_modes: [].into(),
            claim_ref: None,
            storage_class_name: "".into(),
            node_affinity: None,
            volume_mode: "Filesystem".into(),
            volume_attributes_class_name: None,
            source: VolumeSource::Other,
            phase: "Bound".into(),
        }
    }

    fn class(volume_binding_mode: VolumeBindingMode) -> StorageClass {
        StorageClass {
            name: "s".into(),
            provisioner: "x".into(),
            volume_binding_mode,
            allowed_topologies: [].into(),
            annotations: Labels::default(),
        }
    }

    fn verdict(objects: Vec<Object>, node_labels: &[(&str, &str)]) -> Result<Option<FilterStatus>, String> {
        let mut world = Objects::default();
        for object in objects {
            world.apply(&object);
        }
        let mut cache = Cache::new();
        let labels = node_labels.iter().copied().collect();
        cache.set_node(Arc::new(Node { name: "n".into(), labels, ..Node::default() }));
        let (pod, snapshot) = (pod(), cache.snapshot());
        let cycle = Cycle { pod: &pod, snapshot, objects: &world, now: Timestamp::ZERO, seed: 0 };
        let node = snapshot.view(snapshot.find("n").unwrap());
        let without_state = VolumeZone.filter(None, cycle, node).unwrap();
        match VolumeZone.pre_filter(cycle, &mut CycleState::default()).unwrap() {
            PreFilterStatus::Skip => Ok(None),
            PreFilterStatus::Success { state, .. } => {
                let status = VolumeZone.filter(Some(&state), cycle, node).unwrap();
                assert_eq!(status, without_state, "the same without PreFilter");
                Ok(Some(status))
            }
            PreFilterStatus::UnschedulableAndUnresolvable { reasons } => {
                assert_eq!(without_state, FilterStatus::UnschedulableAndUnresolvable);
                Err(reasons.join(", "))
            }
            PreFilterStatus::Unschedulable { .. } => unreachable!("the plugin never says so"),
        }
    }

    #[test]
    fn labels_of_volume_and_node_must_agree() {
        const GA: &str = "topology.kubernetes.io/zone";
        const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
        const REGION: &str = "topology.kubernetes.io/region";
        let no = Some(FilterStatus::UnschedulableAndUnresolvable);
        let yes = Some(FilterStatus::Success);
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: [(&str, Pairs, Pairs, Option<FilterStatus>); 10] = [
            ("same zone", &[(GA, "a")], &[(GA, "a")], yes),
            ("other zone", &[(GA, "a")], &[(GA, "b")], no),
            ("one of several zones", &[(GA, "a__b")], &[(GA, "b")], yes),
            ("no label on the volume", &[], &[(GA, "a")], None),
            ("an empty value is no zone", &[(GA, "a__")], &[(GA, "b")], None),
            ("a node without any topology label", &[(GA, "a")], &[("x", "y")], yes),
            ("a node that lacks this label only", &[(GA, "a")], &[(REGION, "r")], no),
            ("a beta label of the volume falls back", &[(BETA, "a")], &[(GA, "a")], yes),
            ("not the reverse", &[(GA, "a")], &[(BETA, "a")], no),
            ("zone and region", &[(GA, "a"), (REGION, "r")], &[(GA, "a"), (REGION, "q")], no),
        ];
        for (name, on_volume, on_node, want) in cases {
            let objects = vec![claim("c", "pv", None).into(), volume(on_volume).into()];
            assert_eq!(verdict(objects, on_node), Ok(want), "{name}");
        }
    }

    #[test]
    fn what_is_not_bound_or_not_there() {
        use VolumeBindingMode::{Immediate, WaitForFirstConsumer};
        let cases: [(&str, Vec<Object>, Result<Option<FilterStatus>, &str>); 6] = [
            ("no claim", vec![], Err("persistentvolumeclaim \"c\" not found")),
            ("no volume", vec![claim("c", "pv", None).into()], Err("persistentvolume \"pv\" not found")),
            (
                "neither volume nor class",
                vec![claim("c", "", None).into()],
                Err("PersistentVolumeClaim had no pv name and storageClass name"),
            ),
            (
                "unknown class",
                vec![claim("c", "", Some("s")).into()],
                Err("storageclass.storage.k8s.io \"s\" not found"),
            ),
            (
                "immediate and unbound",
                vec![claim("c", "", Some("s")).into(), class(Immediate).into()],
                Err("PersistentVolume had no name"),
            ),
            ("bound later", vec![claim("c", "", Some("s")).into(), class(WaitForFirstConsumer).into()], Ok(None)),
        ];
        for (name, objects, want) in cases {
            assert_eq!(verdict(objects, &[]), want.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn events_that_may_help() {
        let zoned = |zone| Object::from(volume(&[("topology.kubernetes.io/zone", zone)]));
        let late = class(VolumeBindingMode::WaitForFirstConsumer);
        let cases: Vec<(&str, Option<Object>, Option<Object>, Hint)> = vec![
            ("its claim", None, Some(claim("c", "pv", None).into()), Hint::Queue),
            ("another claim", None, Some(claim("other", "pv", None).into()), Hint::Skip),
            ("a volume", None, Some(zoned("a")), Hint::Queue),
            ("a volume moves", Some(zoned("a")), Some(zoned("b")), Hint::Queue),
            ("a volume stays", Some(zoned("a")), Some(zoned("a")), Hint::Skip),
            ("a class that waits", None, Some(late.into()), Hint::Queue),
            ("a class that does not", None, Some(class(VolumeBindingMode::Immediate).into()), Hint::Skip),
            ("a node", None, Some(Node::default().into()), Hint::Queue),
        ];
        let (cache, objects) = (Cache::new(), Objects::default());
        let world =
            crate::framework::ClusterView { snapshot: cache.snapshot(), objects: &objects, now: Timestamp::ZERO };
        for (name, old, new, want) in cases {
            let event = ClusterEvent { resource: EventResource::WildCard, action: ActionType::ADD, old, new };
            assert_eq!(VolumeZone.hint(&pod(), &event, world).unwrap(), want, "{name}");
        }
    }
}
