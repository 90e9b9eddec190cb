//! VolumeRestrictions: disks that two pods cannot mount at once, and claims for a single pod (ReadWriteOncePod).
//! Upstream v1.36.2: plugins/volumerestrictions.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::cache::NodeView;
use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result,
    Reuse, Sharing, Signature,
};
use crate::model::{Object, Pod, VolumeSource};

/// Name of the plugin.
pub const NAME: &str = "VolumeRestrictions";

/// Where the plugin runs.
pub const POINTS: &[ExtensionPoint] = &[ExtensionPoint::PreFilter, ExtensionPoint::Filter];

const DISK_CONFLICT: &str = "node(s) had no available disk";
const CLAIM_CONFLICT: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The plugin.
#[derive(Debug)]
pub struct VolumeRestrictions;

/// Claims of the pod that one pod alone may use, and how many uses of them there are on nodes.
#[derive(Clone, Debug)]
pub struct State {
    claims: Arc<BTreeSet<Arc<str>>>,
    n_conflicts: i64,
}

impl State {
    fn n_conflicts_with(&self, pod: &Pod) -> i64 {
        let uses = pod.named_claims().filter(|name| self.claims.contains(*name)).count();
        i64::try_from(uses).unwrap_or(i64::MAX)
    }
}

impl VolumeRestrictions {
    /// Builds the plugin for the registry.
    ///
    /// # Errors
    /// Never; arguments are ignored.
    pub fn build(_: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
        let plugin = Arc::new(Self);
        Ok(Extensions::new().pre_filter(&plugin).filter(&plugin).enqueue(&plugin))
    }
}

impl Plugin for VolumeRestrictions {
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

impl FilterPlugin for VolumeRestrictions {
    type State = State;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<State>> {
        let pod = cycle.pod;
        let mut claims = BTreeSet::new();
        for name in pod.named_claims() {
            let Some(claim) = cycle.objects.claim(&pod.namespace, name) else {
                return Ok(PreFilterStatus::unresolvable(format!("persistentvolumeclaim {name:?} not found")));
            };
            if claim.access_modes.iter().any(|mode| **mode == *"ReadWriteOncePod") {
                claims.insert(Arc::clone(name));
            }
        }
        let n_conflicts = n_claims_in_use(cycle, &claims);
        if n_conflicts == 0 && !pod.volumes.iter().any(|volume| is_restricted(&volume.source)) {
            return Ok(PreFilterStatus::Skip);
        }
        Ok(PreFilterStatus::success(State { claims: Arc::new(claims), n_conflicts }))
    }

    fn filter(&self, state: Option<&State>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        if has_disk_conflict(cycle.pod, node.pods().iter().map(|pod| &**pod)) {
            return Ok(FilterStatus::Unschedulable);
        }
        let state =
            state.ok_or_else(|| PluginError::new("cannot read \"PreFilterVolumeRestrictions\" from cycleState"))?;
        Ok(FilterStatus::fits_if(state.n_conflicts <= 0))
    }

    fn reasons(&self, _: Option<&State>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        let is_disk = has_disk_conflict(cycle.pod, node.pods().iter().map(|pod| &**pod));
        out.push(if is_disk { DISK_CONFLICT } else { CLAIM_CONFLICT }.into());
    }

    fn add_pod(&self, state: &mut State, _: Cycle<'_>, pod: &Pod, _: NodeView<'_>) -> Result<()> {
        state.n_conflicts += state.n_conflicts_with(pod);
        Ok(())
    }

    fn remove_pod(&self, state: &mut State, _: Cycle<'_>, pod: &Pod, _: NodeView<'_>) -> Result<()> {
        state.n_conflicts -= state.n_conflicts_with(pod);
        Ok(())
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Pod, ActionType::DELETE),
            EventFilter::new(EventResource::Node, ActionType::ADD),
            EventFilter::new(EventResource::PersistentVolumeClaim, ActionType::ADD),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::Pod(deleted)), None) => {
                let same_claim = || deleted.named_claims().any(|name| pod.named_claims().any(|own| own == name));
                deleted.namespace == pod.namespace && (has_disk_conflict(pod, [&**deleted]) || same_claim())
            }
            (_, Some(Object::PersistentVolumeClaim(claim))) => {
                claim.namespace == pod.namespace && pod.named_claims().any(|name| *name == claim.name)
            }
            _ => true,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

/// How many of the claims some pod on a node mounts.
fn n_claims_in_use(cycle: Cycle<'_>, claims: &BTreeSet<Arc<str>>) -> i64 {
    if claims.is_empty() {
        return 0;
    }
    let pods = cycle.snapshot.iter().flat_map(|node| cycle.snapshot.pods(node));
    let neighbours = pods.filter(|pod| pod.namespace == cycle.pod.namespace);
    let in_use: BTreeSet<&Arc<str>> =
        neighbours.flat_map(|pod| pod.named_claims()).filter(|n| claims.contains(*n)).collect();
    i64::try_from(in_use.len()).unwrap_or(i64::MAX)
}

fn is_restricted(source: &VolumeSource) -> bool {
    use VolumeSource::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
    matches!(source, GcePersistentDisk { .. } | AwsElasticBlockStore { .. } | Rbd { .. } | Iscsi { .. })
}

fn has_disk_conflict<'p>(pod: &Pod, others: impl IntoIterator<Item = &'p Pod>) -> bool {
    let own: Vec<_> = pod.volumes.iter().map(|volume| &volume.source).filter(|source| is_restricted(source)).collect();
    !own.is_empty()
        && others.into_iter().any(|other| other.volumes.iter().any(|v| own.iter().any(|o| conflicts(o, &v.source))))
}

/// Whether two pods cannot mount both on one node. A block store cannot be shared even read-only, the others can.
fn conflicts(a: &VolumeSource, b: &VolumeSource) -> bool {
    use VolumeSource::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
    match (a, b) {
        (GcePersistentDisk { pd_name: a, read_only: ro_a }, GcePersistentDisk { pd_name: b, read_only: ro_b }) => {
            a == b && !(*ro_a && *ro_b)
        }
        (AwsElasticBlockStore { volume_id: a, .. }, AwsElasticBlockStore { volume_id: b, .. }) => a == b,
        (Iscsi { iqn: a, read_only: ro_a, .. }, Iscsi { iqn: b, read_only: ro_b, .. }) => a == b && !(*ro_a && *ro_b),
        (
            Rbd { monitors: monitors_a, pool: pool_a, image: image_a, read_only: ro_a },
            Rbd { monitors: monitors_b, pool: pool_b, image: image_b, read_only: ro_b },
        ) => {
            let same_image = pool_a == pool_b && image_a == image_b;
            same_image && !(*ro_a && *ro_b) && monitors_a.iter().any(|monitor| monitors_b.contains(monitor))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{VolumeRestrictions, conflicts};
    use crate::cache::{Cache, Objects};
    use crate::framework::{ActionType, ClusterEvent, ClusterView, EnqueueExtensions, EventResource, Hint};
    use crate::model::{Node, Object, Pod, PodTemplate, Timestamp, Volume, VolumeSource};

    #[test]
    fn events_that_may_help() {
        let pod = |namespace: &str, source: VolumeSource| -> Pod {
            let volumes = [Volume { name: "v".into(), source }].into();
            PodTemplate { namespace: namespace.into(), volumes, ..PodTemplate::default() }.into()
        };
        let claim = |name: &str| VolumeSource::PersistentVolumeClaim { claim_name: name.into(), read_only: false };
        let disk = |name: &str| VolumeSource::GcePersistentDisk { pd_name: name.into(), read_only: false };
        let cases: Vec<(&str, Pod, Option<Object>, Option<Object>, Hint)> = vec![
            ("a pod of its claim ends", pod("d", claim("c")), Some(pod("d", claim("c")).into()), None, Hint::Queue),
            ("of another claim", pod("d", claim("c")), Some(pod("d", claim("x")).into()), None, Hint::Skip),
            ("elsewhere", pod("d", claim("c")), Some(pod("e", claim("c")).into()), None, Hint::Skip),
            ("a pod of its disk ends", pod("d", disk("a")), Some(pod("d", disk("a")).into()), None, Hint::Queue),
            ("of another disk", pod("d", disk("a")), Some(pod("d", disk("b")).into()), None, Hint::Skip),
            ("a node comes", pod("d", disk("a")), None, Some(Node::default().into()), Hint::Queue),
        ];
        let (cache, objects) = (Cache::new(), Objects::default());
        let world = ClusterView { snapshot: cache.snapshot(), objects: &objects, now: Timestamp::ZERO };
        for (name, waiting, old, new, want) in cases {
            let event = ClusterEvent { resource: EventResource::WildCard, action: ActionType::DELETE, old, new };
            assert_eq!(VolumeRestrictions.hint(&waiting, &event, world).unwrap(), want, "{name}");
        }
    }

    #[test]
    fn which_disks_two_pods_may_share() {
        let gce = |name: &str, read_only| VolumeSource::GcePersistentDisk { pd_name: name.into(), read_only };
        let ebs = |id: &str, read_only| VolumeSource::AwsElasticBlockStore { volume_id: id.into(), read_only };
        let iscsi = |portal: &str, iqn: &str, lun, read_only| VolumeSource::Iscsi {
            target_portal: portal.into(),
            iqn: iqn.into(),
            lun,
            read_only,
        };
        let rbd = |monitor: &str, image: &str, read_only| VolumeSource::Rbd {
            monitors: [monitor.into(), "m9".into()].into(),
            pool: "rbd".into(),
            image: image.into(),
            read_only,
        };
        let cases = [
            ("the same disk, written", gce("a", false), gce("a", true), true),
            ("the same disk, read by both", gce("a", true), gce("a", true), false),
            ("another disk", gce("a", false), gce("b", false), false),
            ("a block store, even read by both", ebs("a", true), ebs("a", true), true),
            ("another block store", ebs("a", false), ebs("b", false), false),
            ("the same target, whatever portal and unit", iscsi("p", "i", 0, false), iscsi("q", "i", 1, false), true),
            ("the same target, read by both", iscsi("p", "i", 0, true), iscsi("p", "i", 0, true), false),
            ("the same image by one common monitor", rbd("m1", "i", false), rbd("m2", "i", false), true),
            ("another image", rbd("m1", "i", false), rbd("m1", "j", false), false),
            ("other kinds", gce("a", false), ebs("a", false), false),
            ("nothing restricted", VolumeSource::Other, VolumeSource::Other, false),
        ];
        for (name, a, b, want) in cases {
            assert_eq!(conflicts(&a, &b), want, "{name}");
            assert_eq!(conflicts(&b, &a), want, "{name}, the other way round");
        }
    }
}
