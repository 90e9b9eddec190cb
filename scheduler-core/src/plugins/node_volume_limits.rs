//! NodeVolumeLimits: how many volumes of a CSI driver a node can attach. Upstream v1.36.2: plugins/nodevolumelimits.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cache::{NodeView, Objects};
use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result,
    Reuse, Sharing, Signature,
};
use crate::model::{
    CsiNode, Object, PersistentVolumeClaim, Pod, Volume, VolumeAttachment, VolumeSource, is_translatable,
    migrated_driver,
};

/// Name of the plugin.
pub const NAME: &str = "NodeVolumeLimits";

/// Where the plugin runs.
pub const POINTS: &[ExtensionPoint] = &[ExtensionPoint::PreFilter, ExtensionPoint::Filter];

const EXCEEDED: &str = "node(s) exceed max volume count";

/// The plugin.
#[derive(Debug)]
pub struct NodeVolumeLimits;

/// Driver and handle: the same for the same volume, whoever mounts it.
type VolumeId = (Arc<str>, Arc<str>);

/// Attached volumes by node name.
type Attached = FxHashMap<Arc<str>, Vec<VolumeId>>;

impl NodeVolumeLimits {
    /// Builds the plugin for the registry.
    ///
    /// # Errors
    /// Never; arguments are ignored.
    pub fn build(_: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
        let plugin = Arc::new(Self);
        Ok(Extensions::new().pre_filter(&plugin).filter(&plugin).enqueue(&plugin))
    }
}

impl Plugin for NodeVolumeLimits {
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

/// Why the volumes of the new pod cannot be counted.
enum Uncounted {
    /// For good, as long as the claim is not there.
    MissingClaim(String),
    Broken(PluginError),
}

impl FilterPlugin for NodeVolumeLimits {
    /// What is attached where, if limits are to be checked at all.
    type State = Arc<Attached>;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<Self::State>> {
        if !cycle.pod.volumes.iter().any(may_count) {
            return Ok(PreFilterStatus::Skip);
        }
        let mut attached = Attached::default();
        for attachment in cycle.objects.volume_attachments() {
            if let Some(id) = attached_volume(attachment, cycle.objects) {
                attached.entry(Arc::clone(&attachment.node_name)).or_default().push(id);
            }
        }
        Ok(PreFilterStatus::success(Arc::new(attached)))
    }

    fn filter(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        match exceeds_limit(state, cycle, node) {
            Ok(exceeds) => Ok(FilterStatus::fits_if(!exceeds)),
            Err(Uncounted::MissingClaim(_)) => Ok(FilterStatus::UnschedulableAndUnresolvable),
            Err(Uncounted::Broken(error)) => Err(error),
        }
    }

    fn reasons(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push(match exceeds_limit(state, cycle, node) {
            Err(Uncounted::MissingClaim(reason)) => reason.into(),
            _ => EXCEEDED.into(),
        });
    }
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::CsiNode, ActionType::ADD),
            EventFilter::new(EventResource::CsiNode, ActionType::UPDATE),
            EventFilter::new(EventResource::Pod, ActionType::DELETE),
            EventFilter::new(EventResource::PersistentVolumeClaim, ActionType::ADD),
            EventFilter::new(EventResource::VolumeAttachment, ActionType::DELETE),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => raises_a_limit(old, new),
            (Some(Object::Pod(deleted)), None) => {
                let was_placed = deleted.node_name.is_some() || deleted.nominated_node_name.is_some();
                was_placed && deleted.volumes.iter().any(may_count)
            }
            (_, Some(Object::PersistentVolumeClaim(claim))) => pod.mounts(claim),
            (Some(Object::VolumeAttachment(detached)), None) => pod.volumes.iter().any(|volume| match &volume.source {
                VolumeSource::PersistentVolumeClaim { .. } => true,
                VolumeSource::Csi { .. } => false,
                inline => inline.csi_volume().is_some_and(|(driver, _)| *driver == *detached.attacher),
            }),
            _ => true,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

/// Whether volumes like this one are counted, if a driver serves them.
fn may_count(volume: &Volume) -> bool {
    matches!(volume.source, VolumeSource::PersistentVolumeClaim { .. } | VolumeSource::Ephemeral)
        || volume.source.in_tree_plugin().is_some()
}

fn raises_a_limit(old: &CsiNode, new: &CsiNode) -> bool {
    let limit = |node: &CsiNode, name: &str| {
        let driver = node.drivers.iter().find(|driver| *driver.name == *name);
        driver.and_then(|driver| driver.allocatable).unwrap_or(0)
    };
    new.drivers.iter().any(|driver| driver.allocatable.unwrap_or(0) > limit(old, &driver.name))
}

fn exceeds_limit(
    state: Option<&Arc<Attached>>,
    cycle: Cycle<'_>,
    node: NodeView<'_>,
) -> std::result::Result<bool, Uncounted> {
    let csi_node = cycle.objects.csi_node(node.name()).map(|node| &**node);
    let mut new = volumes_of(cycle.pod, csi_node, cycle.objects, true)?;
    let limits: BTreeMap<&str, i64> = csi_node
        .into_iter()
        .flat_map(|node| &node.drivers)
        .filter_map(|driver| Some((&*driver.name, i64::from(driver.allocatable?))))
        .collect();
    if new.is_empty() || limits.is_empty() {
        return Ok(false);
    }
    let mut used = BTreeSet::new();
    for pod in node.pods() {
        used.extend(volumes_of(pod, csi_node, cycle.objects, false)?);
    }
    new.retain(|volume| !used.contains(volume));
    match state {
        Some(attached) => used.extend(attached.get(node.name()).into_iter().flatten().cloned()),
        None => {
            let here = cycle.objects.volume_attachments().filter(|attachment| attachment.node_name == *node.name());
            used.extend(here.filter_map(|attachment| attached_volume(attachment, cycle.objects)));
        }
    }
    let count =
        |volumes: &BTreeSet<VolumeId>, driver: &str| volumes.iter().filter(|(name, _)| **name == *driver).count();
    Ok(limits.iter().any(|(driver, &limit)| {
        let n_new = count(&new, driver);
        n_new > 0 && i64::try_from(count(&used, driver) + n_new).unwrap_or(i64::MAX) > limit
    }))
}

/// The volumes of a pod that count. What a running pod mounts but cannot be found does not; for a new pod that is an error.
fn volumes_of(
    pod: &Pod,
    csi_node: Option<&CsiNode>,
    objects: &Objects,
    is_new: bool,
) -> std::result::Result<BTreeSet<VolumeId>, Uncounted> {
    let mut volumes = BTreeSet::new();
    for volume in &pod.volumes {
        let Some((claim_name, is_ephemeral)) = volume.claim_name(pod) else {
            // A migrated type counts only on nodes whose drivers are known.
            let migrated = csi_node.is_some() && volume.source.in_tree_plugin().is_some();
            volumes.extend(migrated.then(|| volume.source.csi_volume()).flatten().map(id));
            continue;
        };
        if claim_name.is_empty() {
            return Err(Uncounted::Broken(PluginError::new("PersistentVolumeClaim had no name")));
        }
        let namespace = &pod.namespace;
        let Some(claim) = objects.claim(namespace, &claim_name) else {
            if is_new {
                let reason =
                    format!("looking up PVC {namespace}/{claim_name}: persistentvolumeclaim {claim_name:?} not found");
                return Err(Uncounted::MissingClaim(reason));
            }
            continue;
        };
        if is_ephemeral && !claim.is_made_for(pod) {
            let name = &pod.name;
            let text =
                format!("PVC {namespace}/{claim_name} was not created for pod {namespace}/{name} (pod is not owner)");
            return Err(Uncounted::Broken(PluginError::new(text)));
        }
        volumes.extend(volume_of_claim(claim, csi_node, objects));
    }
    Ok(volumes)
}

fn id((driver, handle): (&str, &str)) -> VolumeId {
    (driver.into(), handle.into())
}

/// The volume of a claim: the one it is bound to, or one that its class will make.
fn volume_of_claim(claim: &PersistentVolumeClaim, csi_node: Option<&CsiNode>, objects: &Objects) -> Option<VolumeId> {
    let bound = (!claim.volume_name.is_empty()).then(|| objects.persistent_volume(&claim.volume_name)).flatten();
    if let Some(volume) = bound {
        let is_migrated = volume.source.in_tree_plugin().is_some();
        let counts = !is_migrated || csi_node.is_some();
        let (driver, handle) = counts.then(|| volume.source.csi_volume()).flatten()?;
        return (!driver.is_empty() && !handle.is_empty()).then(|| id((driver, handle)));
    }
    let class = objects.storage_class(claim.class_name()).filter(|_| !claim.class_name().is_empty())?;
    let provisioner = &*class.provisioner;
    let driver = match is_translatable(provisioner) {
        true => csi_node.and_then(|_| migrated_driver(provisioner))?,
        false => provisioner,
    };
    // No driver hands out such a handle, so it stands for this claim alone.
    let handle = format!("\0{}/{}", claim.namespace, claim.name);
    (!driver.is_empty()).then(|| id((driver, &handle)))
}

/// What an attachment attaches, if a CSI driver does it for a persistent volume.
fn attached_volume(attachment: &VolumeAttachment, objects: &Objects) -> Option<VolumeId> {
    let volume = objects.persistent_volume(&attachment.persistent_volume_name)?;
    match &volume.source {
        VolumeSource::Csi { volume_handle, .. } if !attachment.attacher.is_empty() => {
            Some((Arc::clone(&attachment.attacher), Arc::clone(volume_handle)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::NodeVolumeLimits;
    use crate::cache::{Cache, Objects};
    use crate::framework::{
        ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventResource, FilterPlugin,
        FilterStatus, Hint, PreFilterStatus,
    };
    use crate::model::{
        CsiNode, CsiNodeDriver, Labels, Node, Object, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate,
        Quantity, StorageClass, Timestamp, Volume, VolumeAttachment, VolumeBindingMode, VolumeSource,
    };

    fn pod(uid: &str, sources: &[VolumeSource]) -> Pod {
        let volume = |source: &VolumeSource| Volume { name: "v".into(), source: source.clone() };
        let volumes = sources.iter().map(volume).collect();
        let template = PodTemplate { namespace: "d".into(), volumes, ..PodTemplate::default() };
        Pod { name: uid.into(), uid: uid.into(), ..template.into() }
    }

    fn claimed(name: &str) -> VolumeSource {
        VolumeSource::PersistentVolumeClaim { claim_name: name.into(), read_only: false }
    }

    fn ebs(id: &str) -> VolumeSource {
        VolumeSource::AwsElasticBlockStore { volume_id: id.into(), read_only: false }
    }

    /// A claim of class `s`, bound to a CSI volume of the same name unless `is_bound` is false.
    fn claim(name: &str, is_bound: bool) -> [Object; 2] {
        let claim = PersistentVolumeClaim {
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
            volume_name: if is_bound { name.into() } else { "".into() },
            storage_class_name: Some("s".into()),
            volume_mode: "Filesystem".into(),
            volume_attributes_class_name: None,
            phase: "Bound".into(),
        };
        let volume = PersistentVolume {
            name: name.into(),
            uid: "".into(),
            resource_version: "".into(),
            labels: Labels::default(),
            annotations: Labels::default(),
            is_terminating: false,
            capacity: Quantity::default(),
            access_modes: [].into(),
            claim_ref: None,
            storage_class_name: "s".into(),
            node_affinity: None,
            volume_mode: "Filesystem".into(),
            volume_attributes_class_name: None,
            source: VolumeSource::Csi { driver: "csi".into(), volume_handle: format!("h-{name}").into() },
            phase: "Bound".into(),
        };
        [claim.into(), volume.into()]
    }

    fn csi_node(limits: &[(&str, Option<i32>)]) -> CsiNode {
        let driver = |&(name, allocatable): &(&str, Option<i32>)| CsiNodeDriver {
            name: name.into(),
            allocatable,
            topology_keys: [].into(),
        };
        CsiNode { name: "n".into(), annotations: Labels::default(), drivers: limits.iter().map(driver).collect() }
    }

    fn attachment(volume: &str) -> Object {
        VolumeAttachment {
            name: volume.into(),
            attacher: "csi".into(),
            node_name: "n".into(),
            persistent_volume_name: volume.into(),
        }
        .into()
    }

    fn world(objects: Vec<Object>) -> Objects {
        let mut world = Objects::default();
        for object in
            ["a", "b", "c"].iter().flat_map(|name| claim(name, true)).chain(claim("late", false)).chain(objects)
        {
            world.apply(&object);
        }
        world
    }

    /// `None` when PreFilter skips.
    fn verdict(new: &Pod, existing: &[Pod], objects: Vec<Object>) -> Option<FilterStatus> {
        let objects = world(objects);
        let mut cache = Cache::new();
        cache.set_node(Arc::new(Node { name: "n".into(), ..Node::default() }));
        for pod in existing {
            cache.set_pod(Arc::new(Pod { node_name: Some("n".into()), ..pod.clone() }));
        }
        let snapshot = cache.snapshot();
        let cycle = Cycle { pod: new, snapshot, objects: &objects, now: Timestamp::ZERO, seed: 0 };
        let node = snapshot.view(snapshot.find("n").unwrap());
        match NodeVolumeLimits.pre_filter(cycle, &mut CycleState::default()).unwrap() {
            PreFilterStatus::Success { state, .. } => {
                let status = NodeVolumeLimits.filter(Some(&state), cycle, node).unwrap();
                assert_eq!(status, NodeVolumeLimits.filter(None, cycle, node).unwrap(), "the same without PreFilter");
                Some(status)
            }
            _ => None,
        }
    }

    #[test]
    fn volumes_of_a_driver_are_counted_once_each_up_to_its_limit() {
        let (yes, no) = (Some(FilterStatus::Success), Some(FilterStatus::Unschedulable));
        let limit = |n| vec![Object::from(csi_node(&[("csi", Some(n))]))];
        let with = |n, more: Vec<Object>| limit(n).into_iter().chain(more).collect::<Vec<_>>();
        let class = StorageClass {
            name: "s".into(),
            provisioner: "csi".into(),
            volume_binding_mode: VolumeBindingMode::WaitForFirstConsumer,
            allowed_topologies: [].into(),
            annotations: Labels::default(),
        };
        let one = |name: &str| pod("new", &[claimed(name)]);
        let on = |name: &str| pod(&format!("old-{name}"), &[claimed(name)]);
        let migrated = |n| vec![Object::from(csi_node(&[("ebs.csi.aws.com", Some(n))]))];
        let cases: Vec<(&str, Pod, Vec<Pod>, Vec<Object>, Option<FilterStatus>)> = vec![
            ("no volumes", pod("new", &[]), vec![], limit(0), None),
            ("no volume that counts", pod("new", &[VolumeSource::Other]), vec![], limit(0), None),
            ("below the limit", one("a"), vec![on("b")], limit(2), yes),
            ("above it", one("a"), vec![on("b")], limit(1), no),
            ("a volume that is there already", one("a"), vec![on("a")], limit(1), yes),
            ("attached, but no pod has it", one("a"), vec![], with(1, vec![attachment("b")]), no),
            ("attached and mounted counts once", one("a"), vec![on("b")], with(2, vec![attachment("b")]), yes),
            ("no limit is published", one("a"), vec![on("b")], vec![csi_node(&[("csi", None)]).into()], yes),
            ("no CSINode", one("a"), vec![on("b")], vec![], yes),
            ("another driver's limit", one("a"), vec![], vec![csi_node(&[("other", Some(0))]).into()], yes),
            ("to be made by a class that is unknown", one("late"), vec![on("b")], limit(1), yes),
            ("to be made by the driver", one("late"), vec![on("b")], with(1, vec![class.into()]), no),
            ("the pod's own two volumes", pod("new", &[claimed("a"), claimed("b")]), vec![], limit(1), no),
            ("one volume twice", pod("new", &[claimed("a"), claimed("a")]), vec![], limit(1), yes),
            ("a migrated type", pod("new", &[ebs("v1")]), vec![pod("old", &[ebs("v2")])], migrated(1), no),
            ("where no CSINode is known", pod("new", &[ebs("v1")]), vec![pod("old", &[ebs("v2")])], vec![], yes),
            ("a missing claim", one("gone"), vec![], limit(1), Some(FilterStatus::UnschedulableAndUnresolvable)),
            ("another pod's missing claim", one("a"), vec![on("gone")], limit(1), yes),
        ];
        for (name, new, existing, objects, want) in cases {
            assert_eq!(verdict(&new, &existing, objects), want, "{name}");
        }
    }

    #[test]
    fn events_that_may_help() {
        let cases: Vec<(&str, Option<Object>, Option<Object>, Hint)> = vec![
            ("a CSINode", None, Some(csi_node(&[]).into()), Hint::Queue),
            (
                "a higher limit",
                Some(csi_node(&[("csi", Some(1))]).into()),
                Some(csi_node(&[("csi", Some(2))]).into()),
                Hint::Queue,
            ),
            (
                "a lower limit",
                Some(csi_node(&[("csi", Some(2))]).into()),
                Some(csi_node(&[("csi", Some(1))]).into()),
                Hint::Skip,
            ),
            (
                "a placed pod with a claim ends",
                Some(Pod { node_name: Some("n".into()), ..pod("x", &[claimed("b")]) }.into()),
                None,
                Hint::Queue,
            ),
            ("a waiting one ends", Some(pod("x", &[claimed("b")]).into()), None, Hint::Skip),
            (
                "a pod without volumes ends",
                Some(Pod { node_name: Some("n".into()), ..pod("x", &[]) }.into()),
                None,
                Hint::Skip,
            ),
            ("its claim", None, Some(claim("a", true)[0].clone()), Hint::Queue),
            ("another claim", None, Some(claim("b", true)[0].clone()), Hint::Skip),
            ("something is detached", Some(attachment("b")), None, Hint::Queue),
        ];
        let (cache, objects) = (Cache::new(), Objects::default());
        let world = ClusterView { snapshot: cache.snapshot(), objects: &objects, now: Timestamp::ZERO };
        for (name, old, new, want) in cases {
            let event = ClusterEvent { resource: EventResource::WildCard, action: ActionType::ADD, old, new };
            let hint = NodeVolumeLimits.hint(&pod("new", &[claimed("a")]), &event, world).unwrap();
            assert_eq!(hint, want, "{name}");
        }
        let event = ClusterEvent {
            resource: EventResource::VolumeAttachment,
            action: ActionType::DELETE,
            old: Some(attachment("b")),
            new: None,
        };
        assert_eq!(
            NodeVolumeLimits.hint(&pod("new", &[ebs("v")]), &event, world).unwrap(),
            Hint::Skip,
            "another driver"
        );
    }
}
