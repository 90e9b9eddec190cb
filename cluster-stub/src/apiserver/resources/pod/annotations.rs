//! Annotations that change how a pod is treated.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePodSpecificAnnotations.

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Faults of annotations that have a meaning.
pub(super) fn validate(annotations: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if let Some(cost) = annotations.get(DELETION_COST).and_then(Value::as_str) {
        // Zero, or an integer without leading zeros or plus sign.
        let canonical = cost.parse::<i32>().is_ok_and(|number| number.to_string() == cost);
        if !canonical {
            out.push(FieldError::invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer"));
        }
    }
    for (key, profile) in annotations.as_object().into_iter().flatten() {
        if !key.starts_with("container.apparmor.security.beta.kubernetes.io/") {
            continue;
        }
        let profile = profile.as_str().unwrap_or("");
        let known = matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
        if !known {
            out.push(FieldError::invalid(
                &path.key(key),
                profile,
                format!("invalid AppArmor profile name: \"{profile}\""),
            ));
        }
    }
}

/// Faults of changed annotations: some never change.
pub(super) fn validate_update(annotations: &Value, old: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (key, value) in annotations.as_object().into_iter().flatten() {
        if key.starts_with("container.apparmor.security.beta.kubernetes.io/") && old.at(key) != value {
            out.push(FieldError::forbidden(&path.key(key), "may not remove or update AppArmor annotations"));
        }
    }
    const MIRROR: &str = "kubernetes.io/config.mirror";
    if annotations.at(MIRROR) != old.at(MIRROR) {
        out.push(FieldError::forbidden(&path.key(MIRROR), "may not remove or update mirror pod annotation"));
    }
}
