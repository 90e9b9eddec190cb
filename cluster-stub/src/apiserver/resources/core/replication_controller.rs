//! ReplicationControllers.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateReplicationController, `pkg/apis/core/v1/defaults.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, STATUS};
use super::super::pod::template;
use super::super::resource::Resource;
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{format_labels, map_selector_matches};
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

/// ReplicationController.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "replicationcontrollers", "ReplicationController")
        .short_names(&["rc"])
        .categories(&["all"])
        .storage("controllers")
        .generation()
        .status()
        .orphan_by_default()
        .defaults(apply_defaults)
        .validate(validate)
        .validate_status(|object, _old, out| validate_replica_status(object, out))
        .columns(COLUMNS, cells)
        .build()
        .with_scale()
}

fn apply_defaults(object: &mut Value) {
    let labels = object.at("spec").at("template").at("metadata").at("labels").clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        let spec = object.object_mut("spec");
        if spec.entries("selector").is_none_or(serde_json::Map::is_empty) {
            spec.put("selector", labels.clone());
        }
        let metadata = object.object_mut("metadata");
        if metadata.entries("labels").is_none_or(serde_json::Map::is_empty) {
            metadata.put("labels", labels);
        }
    }
    let spec = object.object_mut("spec");
    spec.default_to("replicas", 1);
    if spec.has("template") {
        template::apply_defaults(spec.object_mut("template"));
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_nonnegative(spec.int("minReadySeconds"), &SPEC.child("minReadySeconds"), out);
    let selector = spec.at("selector");
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        out.push(FieldError::required(&SPEC.child("selector"), ""));
    }
    validate_nonnegative(spec.int("replicas"), &SPEC.child("replicas"), out);
    let path = SPEC.child("template");
    let pod = spec.at("template");
    if pod.is_null() {
        out.push(FieldError::required(&path, ""));
        return;
    }
    let labels = pod.at("metadata").at("labels");
    if selector.as_object().is_some_and(|selector| !selector.is_empty()) && !map_selector_matches(selector, labels) {
        let why = "`selector` does not match template `labels`";
        let meta = path.child("metadata");
        out.push(FieldError::invalid(&meta.child("labels"), labels.clone(), why));
    }
    template::validate(pod, &path, out);
    template::validate_restart_always(pod, &path, out);
}

/// Counts that fit together in the status of kinds with replicas.
pub(in crate::apiserver::resources) fn validate_replica_status(object: &Value, out: &mut Vec<FieldError>) {
    let status = object.at("status");
    let count = |key: &str| status.int(key).unwrap_or(0);
    for key in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"] {
        validate_nonnegative(status.int(key), &STATUS.child(key), out);
    }
    let mut at_most = |key: &str, limit: &str, why: &str| {
        if count(key) > count(limit) {
            out.push(FieldError::invalid(&STATUS.child(key), count(key), why));
        }
    };
    at_most("fullyLabeledReplicas", "replicas", "cannot be greater than status.replicas");
    at_most("readyReplicas", "replicas", "cannot be greater than status.replicas");
    at_most("availableReplicas", "replicas", "cannot be greater than status.replicas");
    at_most("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas");
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
        json!(format_labels(spec.at("selector"))),
    ]
}
