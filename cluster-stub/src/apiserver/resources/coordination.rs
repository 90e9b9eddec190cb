//! Leases.
//!
//! Upstream: v1.36.2 `pkg/apis/coordination/validation/validation.go`.

use serde_json::{Value, json};

use super::columns::{self, Column};
use super::kind::{Kind, SPEC};
use super::resource::Resource;
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_nonnegative;

/// Lease.
pub(super) fn resources() -> Vec<Resource> {
    let lease = Kind::new("coordination.k8s.io", "v1", "leases", "Lease")
        .create_on_update()
        .conditional_update_only()
        .validate(validate)
        .columns(const { &[columns::NAME, Column::text("Holder"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.at("spec").text("holderIdentity")), columns::age(object, now)]
        })
        .build();
    vec![lease]
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    if let Some(seconds) = spec.int("leaseDurationSeconds")
        && seconds <= 0
    {
        out.push(FieldError::invalid(&SPEC.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    validate_nonnegative(spec.int("leaseTransitions"), &SPEC.child("leaseTransitions"), out);
}
