//! Pod templates inside workloads.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePodTemplateSpec.

use serde_json::Value;

use super::{defaults, spec};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{validate_annotations, validate_labels};
use crate::apiserver::validation::{FieldError, Path};

/// Defaults of a template.
pub(in crate::apiserver::resources) fn apply_defaults(template: &mut Value) {
    defaults::apply_spec(template.object_mut("spec"));
}

/// Faults of a template.
pub(in crate::apiserver::resources) fn validate(template: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_labels(template.at("metadata").at("labels"), &path.child("labels"), out);
    validate_annotations(template.at("metadata").at("annotations"), &path.child("annotations"), out);
    super::annotations::validate(template.at("metadata").at("annotations"), &path.child("annotations"), out);
    let spec_path = path.child("spec");
    spec::validate(template.at("spec"), None, false, &spec_path, out);
    if !template.at("spec").items("ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        out.push(FieldError::forbidden(&spec_path.child("ephemeralContainers"), why));
    }
}

/// Workloads whose pods run for ever: restart policy Always, no deadline.
pub(in crate::apiserver::resources) fn validate_restart_always(
    template: &Value,
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    let spec_path = path.child("spec");
    let policy = template.at("spec").text("restartPolicy");
    if policy != "Always" {
        out.push(FieldError::not_supported(&spec_path.child("restartPolicy"), policy, &["Always"]));
    }
    if template.at("spec").has("activeDeadlineSeconds") {
        out.push(FieldError::forbidden(
            &spec_path.child("activeDeadlineSeconds"),
            "activeDeadlineSeconds in ReplicaSet is not Supported",
        ));
    }
}
