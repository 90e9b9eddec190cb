//! Which volume fits a claim. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};

use crate::runtime::selector::Selector;
use cluster_stub_base::quantity::Quantity;

/// Annotation of what this controller bound.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of a claim whose binding is complete.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Old annotation with the storage class.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The storage class that `claim` asks for, empty for none.
pub(super) fn claim_class(claim: &PersistentVolumeClaim) -> String {
    let annotation = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS)).cloned();
    annotation.or_else(|| claim.spec.as_ref()?.storage_class_name.clone()).unwrap_or_default()
}

fn volume_class(volume: &PersistentVolume) -> String {
    let annotation = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS)).cloned();
    annotation.or_else(|| volume.spec.as_ref()?.storage_class_name.clone()).unwrap_or_default()
}

/// The claim that `volume` is for.
pub(super) fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether `volume` is reserved for `claim`. Upstream: pv_helpers.go v1.36.2 `IsVolumeBoundToClaim`.
pub(super) fn is_reserved_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

fn storage(
    of: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Option<Quantity> {
    Quantity::parse(&of?.get("storage")?.0).ok()
}

/// Whether `volume` has what `claim` asks for. Upstream: pv_controller.go v1.36.2 `checkVolumeSatisfyClaim`.
pub(super) fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let (Some(spec), Some(wanted)) = (&volume.spec, &claim.spec) else { return Err("incomplete object".to_owned()) };
    let requested = storage(wanted.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let capacity = storage(spec.capacity.as_ref());
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    if requested.is_some_and(|requested| capacity.is_none_or(|capacity| capacity.minus(requested).sign() < 0)) {
        return Err("requested PV is too small".to_owned());
    }
    if volume_class(volume) != claim_class(claim) {
        return Err("storageClassName does not match".to_owned());
    }
    if mode(&spec.volume_mode) != mode(&wanted.volume_mode) {
        return Err("incompatible volumeMode".to_owned());
    }
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if !wanted.access_modes.iter().flatten().all(|mode| modes.contains(mode)) {
        return Err("incompatible accessMode".to_owned());
    }
    Ok(())
}

/// The volume for `claim`: the one reserved for it, or else the smallest that fits. With `delayed`, only a reserved one.
/// Upstream: pv_helpers.go v1.36.2 `FindMatchingVolume`.
pub(super) fn find(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    delayed: bool,
) -> Option<Arc<PersistentVolume>> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.map(|selector| Selector::from_label_selector(Some(selector)));
    let attributes = |name: Option<&String>| name.cloned().unwrap_or_default();
    let fits = |volume: &&Arc<PersistentVolume>| {
        let spec = volume.spec.clone().unwrap_or_default();
        volume.metadata.deletion_timestamp.is_none()
            && (claim_ref(volume).is_none() || is_reserved_for(volume, claim))
            && satisfies(volume, claim).is_ok()
            && attributes(spec.volume_attributes_class_name.as_ref())
                == attributes(claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref()))
    };
    if let Some(reserved) = volumes.iter().filter(fits).find(|volume| is_reserved_for(volume, claim)) {
        return Some(Arc::clone(reserved));
    }
    if delayed {
        return None;
    }
    let available = volumes.iter().filter(fits).filter(|volume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let selected = selector.as_ref().is_none_or(|selector| {
            selector.as_ref().is_some_and(|selector| selector.matches(volume.metadata.labels.as_ref()))
        });
        phase == Some("Available") && selected
    });
    let mut best: Option<(&Arc<PersistentVolume>, Option<Quantity>)> = None;
    for volume in available {
        let size = storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
        let smaller = match (&best, size) {
            (Some((_, Some(best))), Some(size)) => size.minus(*best).sign() < 0,
            (Some(_), _) => false,
            (None, _) => true,
        };
        if smaller {
            best = Some((volume, size));
        }
    }
    best.map(|(volume, _)| Arc::clone(volume))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        PersistentVolumeClaimSpec, PersistentVolumeSpec, PersistentVolumeStatus, VolumeResourceRequirements,
    };
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    use super::*;

    fn volume(name: &str, size: &str, class: &str) -> PersistentVolume {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Some(name.to_owned());
        volume.spec = Some(PersistentVolumeSpec {
            capacity: Some([("storage".to_owned(), ApiQuantity(size.to_owned()))].into()),
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class.to_owned()),
            ..PersistentVolumeSpec::default()
        });
        volume.status =
            Some(PersistentVolumeStatus { phase: Some("Available".to_owned()), ..PersistentVolumeStatus::default() });
        volume
    }

    fn claim(size: &str, mode: &str) -> PersistentVolumeClaim {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some("c".to_owned());
        claim.spec = Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.to_owned()]),
            storage_class_name: Some("x".to_owned()),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), ApiQuantity(size.to_owned()))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        });
        claim
    }

    #[test]
    fn the_smallest_volume_that_fits_is_taken() {
        let volumes = [
            volume("big", "5Gi", "x"),
            volume("fits", "2Gi", "x"),
            volume("small", "512Mi", "x"),
            volume("other", "2Gi", "y"),
        ]
        .map(Arc::new);
        let name = |claim: &PersistentVolumeClaim, delayed| {
            find(claim, &volumes, delayed).and_then(|found| found.metadata.name.clone())
        };
        assert_eq!(name(&claim("1Gi", "ReadWriteOnce"), false).as_deref(), Some("fits"));
        assert_eq!(name(&claim("9Gi", "ReadWriteOnce"), false), None);
        assert_eq!(name(&claim("1Gi", "ReadWriteMany"), false), None);
        assert_eq!(name(&claim("1Gi", "ReadWriteOnce"), true), None, "binding waits for a consumer");
    }

    #[test]
    fn a_reserved_volume_goes_before_a_smaller_one_and_to_nobody_else() {
        let mut reserved = volume("big", "5Gi", "x");
        let reference = ObjectReference { name: Some("c".to_owned()), ..ObjectReference::default() };
        reserved.spec.get_or_insert_default().claim_ref = Some(reference);
        let volumes = [volume("fits", "2Gi", "x"), reserved].map(Arc::new);
        let name =
            |claim: &PersistentVolumeClaim| find(claim, &volumes, true).and_then(|found| found.metadata.name.clone());
        assert_eq!(name(&claim("1Gi", "ReadWriteOnce")).as_deref(), Some("big"));
        let mut other = claim("1Gi", "ReadWriteOnce");
        other.metadata.name = Some("d".to_owned());
        assert_eq!(name(&other), None);
    }
}
