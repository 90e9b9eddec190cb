//! PriorityClasses.
//!
//! Upstream: v1.36.2 `pkg/apis/scheduling/validation/validation.go`.

use serde_json::{Value, json};

use super::columns::{self, Column};
use super::kind::Kind;
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_immutable;
use crate::apiserver::validation::{FieldError, Path};

const MAX_USER_PRIORITY: i64 = 1_000_000_000;

/// PriorityClass.
pub(super) fn resources() -> Vec<Resource> {
    let class = Kind::new("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
        .cluster_scoped()
        .short_names(&["pc"])
        .generation()
        .defaults(|object| {
            object.default_to("preemptionPolicy", "PreemptLowerPriority");
            object.default_to("value", 0);
        })
        .validate(validate)
        .validate_update(|object, old, out| {
            // An absent value is zero.
            if object.int("value").unwrap_or(0) != old.int("value").unwrap_or(0) {
                out.push(FieldError::forbidden(&Path::root("value"), "may not be changed in an update."));
            }
            validate_immutable(
                object.at("preemptionPolicy"),
                old.at("preemptionPolicy"),
                &Path::root("preemptionPolicy"),
                out,
            );
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::integer("Value"),
                    Column::boolean("Global-Default"),
                    columns::AGE,
                    Column::text("PreemptionPolicy"),
                ]
            },
            |object, now| {
                vec![
                    columns::name(object),
                    json!(object.int("value").unwrap_or(0)),
                    json!(object.flag("globalDefault")),
                    columns::age(object, now),
                    json!(object.text("preemptionPolicy")),
                ]
            },
        )
        .build();
    vec![class]
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let name = object.at("metadata").text("name");
    let value = object.int("value").unwrap_or(0);
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            let metadata = Path::root("metadata");
            let why = if matches!(name, "system-cluster-critical" | "system-node-critical") {
                let want = if name == "system-cluster-critical" { 2_000_000_000 } else { 2_000_001_000 };
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: value of {name} PriorityClass must be {want}"
                )
            } else {
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                )
            };
            out.push(FieldError::forbidden(&metadata.child("name"), why));
        }
    } else if value > MAX_USER_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
        out.push(FieldError::forbidden(&Path::root("value"), why));
    }
    let policy = object.text("preemptionPolicy");
    if object.has("preemptionPolicy") && !matches!(policy, "PreemptLowerPriority" | "Never") {
        out.push(FieldError::not_supported(
            &Path::root("preemptionPolicy"),
            policy,
            &["PreemptLowerPriority", "Never"],
        ));
    }
}
