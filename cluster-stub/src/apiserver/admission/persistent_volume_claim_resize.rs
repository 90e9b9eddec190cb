//! PersistentVolumeClaimResize: a bound claim grows only if its StorageClass allows it. How volumes grow is somebody else's work.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/storage/persistentvolume/resize/admission.go`.

use futures::future::BoxFuture;
use serde_json::Value;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::quantity::Quantity;

pub(super) struct PersistentVolumeClaimResize;

impl AdmissionPlugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(check(request)))
    }
}

fn check(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if !request.is("", "persistentvolumeclaims") || request.operation != Operation::Update {
        return Ok(());
    }
    let Some(old) = request.old_object else { return Ok(()) };
    let claim = &request.object;
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old.at("status").text("phase") != "Bound" {
        return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim);
    let known = request.objects.get(&GroupResource::of("storage.k8s.io", "storageclasses"), "", class);
    let allowed =
        !class.is_empty() && class == class_of(old) && known.is_some_and(|class| class.flag("allowVolumeExpansion"));
    if allowed {
        return Ok(());
    }
    Err(request.forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

fn size(claim: &Value) -> Quantity {
    let text = claim.way(&["spec", "resources", "requests"]).text("storage");
    Quantity::parse(text).unwrap_or(Quantity::ZERO)
}

/// The old annotation goes before the field.
fn class_of(claim: &Value) -> &str {
    match claim.way(&["metadata", "annotations"]).text("volume.beta.kubernetes.io/storage-class") {
        "" => claim.at("spec").text("storageClassName"),
        class => class,
    }
}
