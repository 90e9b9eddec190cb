//! ReplicaSets.
//!
//! Upstream: v1.36.2 `pkg/apis/apps/validation/validation.go` ValidateReplicaSet.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, immutable_selector, restore_labels};
use super::super::pod::template;
use super::super::resource::Resource;
use super::{validate_at_most, validate_counts};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::format_selector;
use crate::apiserver::validation::meta::validate_nonnegative;

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::integer("Desired"),
    Column::integer("Current"),
    Column::integer("Ready"),
    columns::AGE,
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// ReplicaSet.
pub(super) fn resource() -> Resource {
    Kind::new("apps", "v1", "replicasets", "ReplicaSet")
        .short_names(&["rs"])
        .categories(&["all"])
        .generation()
        .status()
        .field_labels(&["status.replicas"], |object| vec![object.at("status").int("replicas").unwrap_or(0).to_string()])
        .defaults(|object| {
            let spec = object.object_mut("spec");
            spec.default_to("replicas", 1);
            template::apply_defaults(spec.object_mut("template"));
        })
        .validate(validate)
        .validate_change(immutable_selector)
        .prepare_status(|_context, object, old| restore_labels(object, old))
        .validate_status(|object, _old, out| {
            let counts = [
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ];
            validate_counts(object, &counts, out);
            let pairs = [
                ("fullyLabeledReplicas", "replicas", "status.replicas"),
                ("readyReplicas", "replicas", "status.replicas"),
                ("availableReplicas", "replicas", "status.replicas"),
                ("availableReplicas", "readyReplicas", "readyReplicas"),
            ];
            validate_at_most(object, &pairs, out);
        })
        .columns(COLUMNS, cells)
        .build()
        .with_scale()
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_nonnegative(spec.int("replicas"), &SPEC.child("replicas"), out);
    validate_nonnegative(spec.int("minReadySeconds"), &SPEC.child("minReadySeconds"), out);
    super::validate_selector(spec, "deployment", out);
    super::validate_template(spec, spec.at("template"), "ReplicaSet", out);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let [names, images] = columns::containers(spec.at("template").at("spec"));
    vec![
        columns::name(object),
        json!(spec.int("replicas").unwrap_or(0)),
        json!(status.int("replicas").unwrap_or(0)),
        json!(status.int("readyReplicas").unwrap_or(0)),
        columns::age(object, now),
        names,
        images,
        json!(format_selector(spec.at("selector"))),
    ]
}
