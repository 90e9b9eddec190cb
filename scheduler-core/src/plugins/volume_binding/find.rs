//! Which volumes a pod would get on a node: those it is bound to, free ones that match, or new ones. Decides nothing.
//! Upstream v1.36.2: volumebinding/binder.go FindPodVolumes, component-helpers/storage/volume FindMatchingVolume.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::assume::Assumptions;
use crate::cache::Objects;
use crate::framework::{PluginError, Result};
use crate::model::{
    ANNOTATION_SELECTED_NODE, CsiStorageCapacity, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    VolumeBindingMode,
};

/// A provisioner that makes no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The pod's claims, and the volumes that may serve those without one.
#[derive(Debug, Default)]
pub struct PodClaims {
    bound: Vec<Arc<PersistentVolumeClaim>>,
    /// Claims that are bound when their first pod is placed, smallest first.
    unbound: Vec<Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<Box<str>, Vec<Arc<PersistentVolume>>>,
}

/// Why the pod cannot be placed at all.
pub(super) enum Refusal {
    /// Text for the message.
    Reason(String),
    /// A claim that should have been bound already is not.
    UnboundImmediate,
}

/// A claim with the free volume that it gets.
#[derive(Debug)]
pub(super) struct StaticBinding {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) volume: Arc<PersistentVolume>,
}

/// What the pod would get on a node.
#[derive(Debug, Default)]
pub(super) struct PodVolumes {
    pub(super) bindings: Vec<StaticBinding>,
    pub(super) provisions: Vec<Arc<PersistentVolumeClaim>>,
}

/// Why a node does not do; the texts are in this order in messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Conflicts {
    pub(super) node_conflict: bool,
    pub(super) bind_conflict: bool,
    pub(super) not_enough_space: bool,
    pub(super) volume_missing: bool,
}

impl PodClaims {
    /// Sorts the pod's claims; `None` if it has none.
    pub(super) fn of(
        pod: &Pod,
        objects: &Objects,
        assumptions: &Assumptions,
    ) -> std::result::Result<Option<Self>, Refusal> {
        let mut claims = Self::default();
        let mut has_claim = false;
        let mut is_unbound_immediate = false;
        for volume in &pod.volumes {
            let Some((name, is_ephemeral)) = volume.claim_name(pod) else { continue };
            has_claim = true;
            let Some(claim) = objects.claim(&pod.namespace, &name) else {
                return Err(Refusal::Reason(if is_ephemeral {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                }));
            };
            if *claim.phase == *"Lost" {
                let volume = &claim.volume_name;
                let text = format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}");
                return Err(Refusal::Reason(text));
            }
            if claim.is_terminating {
                return Err(Refusal::Reason(format!("persistentvolumeclaim {name:?} is being deleted")));
            }
            if is_ephemeral && !claim.is_made_for(pod) {
                let (namespace, pod) = (&pod.namespace, &pod.name);
                let text =
                    format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)");
                return Err(Refusal::Reason(text));
            }
            let claim = assumptions.claim(claim);
            if claim.is_fully_bound() {
                claims.bound.push(claim);
            } else if is_delayed(&claim, objects) && claim.volume_name.is_empty() {
                claims.unbound.push(claim);
            } else {
                // A claim that names its volume itself is bound by the volume controller alone.
                is_unbound_immediate = true;
            }
        }
        if is_unbound_immediate {
            return Err(Refusal::UnboundImmediate);
        }
        claims.unbound.sort_by_key(|claim| claim.request);
        for claim in &claims.unbound {
            let of_class = |volume: &&Arc<PersistentVolume>| volume.class_name() == claim.class_name();
            claims.volumes.entry(claim.class_name().into()).or_insert_with(|| {
                objects.persistent_volumes().filter(of_class).map(|volume| assumptions.volume(volume)).collect()
            });
        }
        Ok(has_claim.then_some(claims))
    }

    /// Whether nothing is left to bind.
    pub(super) fn is_all_bound(&self) -> bool {
        self.unbound.is_empty()
    }

    /// What the pod would get on the node, or why the node does not do.
    pub(super) fn find_on(&self, node: &Node, objects: &Objects) -> Result<std::result::Result<PodVolumes, Conflicts>> {
        let mut conflicts = Conflicts::default();
        let csi_node = objects.csi_node(&node.name).map(|node| &**node);
        for claim in &self.bound {
            match objects.persistent_volume(&claim.volume_name) {
                None => conflicts.volume_missing = true,
                Some(volume) if !volume.is_reachable_with(&node.labels, csi_node) => conflicts.node_conflict = true,
                Some(_) => continue,
            }
            break;
        }
        let mut found = PodVolumes::default();
        self.find_unbound_on(node, objects, &mut found, &mut conflicts)?;
        Ok(if conflicts == Conflicts::default() { Ok(found) } else { Err(conflicts) })
    }

    fn find_unbound_on(
        &self,
        node: &Node,
        objects: &Objects,
        found: &mut PodVolumes,
        conflicts: &mut Conflicts,
    ) -> Result<()> {
        let selected = |claim: &PersistentVolumeClaim| claim.annotations.get(ANNOTATION_SELECTED_NODE).cloned();
        if self.unbound.iter().filter_map(|claim| selected(claim)).any(|name| name != node.name) {
            conflicts.bind_conflict = true;
            return Ok(());
        }
        let (mut to_provision, to_match): (Vec<_>, Vec<_>) =
            self.unbound.iter().partition(|claim| selected(claim).is_some());
        for claim in to_match {
            let candidates = self.volumes.get(claim.class_name()).map_or(&[][..], Vec::as_slice);
            match matching_volume(claim, candidates, node, &found.bindings) {
                Some(volume) => {
                    let (claim, volume) = (Arc::clone(claim), Arc::clone(volume));
                    found.bindings.push(StaticBinding { claim, volume });
                }
                None => to_provision.push(claim),
            }
        }
        for claim in to_provision {
            let class_name = claim.class_name();
            let class = objects
                .storage_class(class_name)
                .ok_or_else(|| PluginError::new(format!("failed to find storage class {class_name:?}")))?;
            let makes_volumes = !class.provisioner.is_empty() && *class.provisioner != *NO_PROVISIONER;
            if !makes_volumes || !allows(class, node) {
                conflicts.bind_conflict = true;
                return Ok(());
            }
            if !has_capacity(claim, class, node, objects) {
                conflicts.not_enough_space = true;
                return Ok(());
            }
            found.provisions.push(Arc::clone(claim));
        }
        Ok(())
    }
}

/// Whether the claim waits for its first pod. Upstream: IsDelayBindingMode.
fn is_delayed(claim: &PersistentVolumeClaim, objects: &Objects) -> bool {
    let class = Some(claim.class_name()).filter(|name| !name.is_empty()).and_then(|name| objects.storage_class(name));
    class.is_some_and(|class| class.volume_binding_mode == VolumeBindingMode::WaitForFirstConsumer)
}

/// The volume that is reserved for the claim, or else the smallest free one that matches.
fn matching_volume<'v>(
    claim: &PersistentVolumeClaim,
    candidates: &'v [Arc<PersistentVolume>],
    node: &Node,
    chosen: &[StaticBinding],
) -> Option<&'v Arc<PersistentVolume>> {
    let attributes = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
    let mut smallest: Option<&Arc<PersistentVolume>> = None;
    for volume in candidates {
        let is_reserved = volume.is_bound_to(claim);
        let fits = (volume.claim_ref.is_none() || is_reserved)
            && !chosen.iter().any(|binding| binding.volume.name == volume.name)
            && volume.capacity >= claim.request
            && volume.volume_mode == claim.volume_mode
            && attributes(&volume.volume_attributes_class_name) == attributes(&claim.volume_attributes_class_name)
            && !volume.is_terminating;
        if !fits {
            continue;
        }
        if is_reserved {
            // Reserved but out of reach: no other volume will do, either.
            return volume.is_reachable_from(&node.labels).then_some(volume);
        }
        let matches = *volume.phase == *"Available"
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
            && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
            && volume.is_reachable_from(&node.labels);
        if matches && smallest.is_none_or(|smallest| volume.capacity < smallest.capacity) {
            smallest = Some(volume);
        }
    }
    smallest
}

/// Whether volumes of the class can be made for the node. Upstream: MatchTopologySelectorTerms.
fn allows(class: &StorageClass, node: &Node) -> bool {
    let terms = &class.allowed_topologies;
    terms.is_empty() || terms.iter().any(|term| term.matches(&node.name, &node.labels))
}

/// Whether the driver says that it has room for the claim near the node; drivers that publish nothing have.
fn has_capacity(claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node, objects: &Objects) -> bool {
    if !objects.csi_driver(&class.provisioner).is_some_and(|driver| driver.storage_capacity) {
        return true;
    }
    let serves = |capacity: &&Arc<CsiStorageCapacity>| {
        capacity.storage_class_name == class.name
            && capacity.limit().is_some_and(|limit| limit.value() >= claim.request.value())
            && capacity.node_topology.as_ref().is_some_and(|topology| topology.matches(&node.labels))
    };
    objects.csi_storage_capacities().any(|capacity| serves(&capacity))
}
