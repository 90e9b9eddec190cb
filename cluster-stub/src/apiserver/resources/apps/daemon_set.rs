//! DaemonSets.
//!
//! Upstream: v1.36.2 `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation/validation.go` ValidateDaemonSet,
//! `pkg/registry/apps/daemonset/strategy.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, immutable_selector, same};
use super::super::pod::template;
use super::super::resource::Resource;
use super::super::strategy::WriteContext;
use super::{
    int_or_percent, validate_at_most_100_percent, validate_collisions, validate_counts, validate_int_or_percent,
};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{format_labels, format_selector, is_empty_selector};
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::{FieldError, go_struct};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::integer("Desired"),
    Column::integer("Current"),
    Column::integer("Ready"),
    Column::integer("Up-to-date"),
    Column::integer("Available"),
    Column::text("Node Selector"),
    columns::AGE,
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];
const COUNTS: [&str; 9] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
];

/// DaemonSet.
pub(super) fn resource() -> Resource {
    Kind::new("apps", "v1", "daemonsets", "DaemonSet")
        .short_names(&["ds"])
        .categories(&["all"])
        .generation()
        .status()
        .defaults(apply_defaults)
        .prepare_create(|_context, object| set_template_generation(object, 1))
        .prepare_update(prepare_update)
        .validate(validate)
        .validate_change(immutable_selector)
        .validate_status(|object, old, out| {
            validate_counts(object, &COUNTS, out);
            validate_collisions(object, old, out);
        })
        .columns(COLUMNS, cells)
        .build()
}

fn apply_defaults(object: &mut Value) {
    let spec = object.object_mut("spec");
    let strategy = spec.object_mut("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.put("type", json!("RollingUpdate"));
    }
    if strategy.text("type") == "RollingUpdate" {
        let update = strategy.object_mut("rollingUpdate");
        update.default_to("maxUnavailable", 1);
        update.default_to("maxSurge", 0);
    }
    spec.default_to("revisionHistoryLimit", 10);
    template::apply_defaults(spec.object_mut("template"));
    // The status of a DaemonSet always has these counts.
    let status = object.object_mut("status");
    for key in ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"] {
        status.default_to(key, 0);
    }
}

/// The generation of the template lives in an annotation.
fn set_template_generation(object: &mut Value, generation: i64) {
    object.object_mut("metadata").object_mut("annotations").put(TEMPLATE_GENERATION, json!(generation.to_string()));
    apply_defaults(object);
}

fn prepare_update(_context: &WriteContext<'_>, object: &mut Value, old: &Value) {
    let before = old.at("metadata").at("annotations").text(TEMPLATE_GENERATION).parse().unwrap_or(0);
    let changed = !same(object.at("spec").at("template"), old.at("spec").at("template"));
    set_template_generation(object, before + i64::from(changed));
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let selector = spec.at("selector");
    if !selector.is_null() {
        super::validate_label_selector(selector, &SPEC.child("selector"), out);
        if is_empty_selector(selector) {
            let why = "empty selector is invalid for daemonset";
            out.push(FieldError::invalid(&SPEC.child("selector"), selector.clone(), why));
        }
    }
    super::validate_template(spec, spec.at("template"), "DaemonSet", out);
    validate_nonnegative(spec.int("minReadySeconds"), &SPEC.child("minReadySeconds"), out);
    validate_strategy(spec, out);
    validate_nonnegative(spec.int("revisionHistoryLimit"), &SPEC.child("revisionHistoryLimit"), out);
}

fn validate_strategy(spec: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("updateStrategy");
    let strategy = spec.at("updateStrategy");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let field = path.child("rollingUpdate");
            let (unavailable, surge) =
                (strategy.at("rollingUpdate").at("maxUnavailable"), strategy.at("rollingUpdate").at("maxSurge"));
            let (unavailable_field, surge_field) = (field.child("maxUnavailable"), field.child("maxSurge"));
            validate_int_or_percent(unavailable, &unavailable_field, out);
            validate_int_or_percent(surge, &surge_field, out);
            validate_at_most_100_percent(unavailable, &unavailable_field, out);
            validate_at_most_100_percent(surge, &surge_field, out);
            match (int_or_percent(unavailable) != 0, int_or_percent(surge) != 0) {
                (true, true) => {
                    out.push(FieldError::invalid(
                        &surge_field,
                        surge.clone(),
                        "may not be set when maxUnavailable is non-zero",
                    ));
                }
                (false, false) => out.push(FieldError::required(&unavailable_field, "cannot be 0 when maxSurge is 0")),
                _ => {}
            }
        }
        kind => {
            let shown = go_struct(&[("Type", json!(kind).to_string()), ("RollingUpdate", "null".to_owned())]);
            out.push(FieldError::not_supported(&path, kind, &["RollingUpdate", "OnDelete"]).showing(shown));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let count = |key: &str| json!(status.int(key).unwrap_or(0));
    let pod = spec.at("template").at("spec");
    let [names, images] = columns::containers(pod);
    vec![
        columns::name(object),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        json!(format_labels(pod.at("nodeSelector"))),
        columns::age(object, now),
        names,
        images,
        json!(format_selector(spec.at("selector"))),
    ]
}
