//! Which claims a pod uses, and what claims and volumes say of class, binding and place. No search for volumes here.

use std::sync::Arc;

use super::{CsiStorageCapacity, Labels, PersistentVolume, PersistentVolumeClaim, Pod, Quantity, Volume, VolumeSource};

/// Marks a claim whose binding is complete, by being there.
pub const ANNOTATION_BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node for which a volume is to be provisioned.
pub const ANNOTATION_SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The class, in the form that preceded the field; it wins.
const ANNOTATION_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

impl Volume {
    /// The claim behind the volume and whether it is made for the pod; `None` if there is no claim.
    /// Upstream: component-helpers ephemeral `VolumeClaimName` (v1.36.2).
    #[must_use]
    pub fn claim_name(&self, pod: &Pod) -> Option<(Arc<str>, bool)> {
        match &self.source {
            VolumeSource::PersistentVolumeClaim { claim_name, .. } => Some((Arc::clone(claim_name), false)),
            VolumeSource::Ephemeral => Some((format!("{}-{}", pod.name, self.name).into(), true)),
            _ => None,
        }
    }
}

impl Pod {
    /// Names of the claims that the pod mounts by name, in order; claims of ephemeral volumes are not among them.
    pub fn named_claims(&self) -> impl Iterator<Item = &Arc<str>> {
        self.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeSource::PersistentVolumeClaim { claim_name, .. } => Some(claim_name),
            _ => None,
        })
    }

    /// Whether no volume of the pod bears on where it may run.
    #[must_use]
    pub fn mounts_anywhere(&self) -> bool {
        self.volumes.iter().all(|volume| matches!(volume.source, VolumeSource::Other | VolumeSource::Image { .. }))
    }

    /// Whether the pod mounts this claim, by name or as an ephemeral volume.
    #[must_use]
    pub fn mounts(&self, claim: &PersistentVolumeClaim) -> bool {
        self.namespace == claim.namespace
            && self.volumes.iter().filter_map(|volume| volume.claim_name(self)).any(|(name, _)| name == claim.name)
    }
}

impl PersistentVolumeClaim {
    /// Name of the class; empty when none. Upstream: component-helpers `GetPersistentVolumeClaimClass` (v1.36.2).
    #[must_use]
    pub fn class_name(&self) -> &str {
        match self.annotations.get(ANNOTATION_CLASS) {
            Some(class) => class,
            None => self.storage_class_name.as_deref().unwrap_or_default(),
        }
    }

    /// Whether the claim has a volume and the volume controller is done with it.
    #[must_use]
    pub fn is_fully_bound(&self) -> bool {
        !self.volume_name.is_empty() && self.annotations.contains_key(ANNOTATION_BIND_COMPLETED)
    }

    /// Whether the claim was made for the pod. Upstream: component-helpers ephemeral `VolumeIsForPod` (v1.36.2).
    #[must_use]
    pub fn is_made_for(&self, pod: &Pod) -> bool {
        self.namespace == pod.namespace && self.controller_uid.as_ref() == Some(&pod.uid)
    }
}

impl PersistentVolume {
    /// Name of the class; empty when none.
    #[must_use]
    pub fn class_name(&self) -> &str {
        self.annotations.get(ANNOTATION_CLASS).map_or(&*self.storage_class_name, |class| class)
    }

    /// Whether a node with these labels can reach the volume. A term on the node's name matches no node.
    /// Upstream: component-helpers `CheckNodeAffinity` (v1.36.2).
    #[must_use]
    pub fn is_reachable_from(&self, labels: &Labels) -> bool {
        self.node_affinity.as_ref().is_none_or(|affinity| affinity.matches("", labels))
    }

    /// Whether the volume is reserved for the claim, or bound to it. A reservation without UID is for any claim of the name.
    /// Upstream: component-helpers `IsVolumeBoundToClaim` (v1.36.2).
    #[must_use]
    pub fn is_bound_to(&self, claim: &PersistentVolumeClaim) -> bool {
        self.claim_ref.as_ref().is_some_and(|reference| {
            reference.name == claim.name
                && reference.namespace == claim.namespace
                && (reference.uid.is_empty() || reference.uid == claim.uid)
        })
    }
}

impl CsiStorageCapacity {
    /// The largest volume that can still be made; `None` when unknown, which means none.
    #[must_use]
    pub fn limit(&self) -> Option<Quantity> {
        self.maximum_volume_size.or(self.capacity)
    }
}
