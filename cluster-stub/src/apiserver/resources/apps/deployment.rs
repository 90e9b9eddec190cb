//! Deployments.
//!
//! Upstream: v1.36.2 `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation/validation.go` ValidateDeployment,
//! `pkg/registry/apps/deployment/strategy.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, restore_labels, same};
use super::super::pod::template;
use super::super::resource::Resource;
use super::{
    int_or_percent, validate_at_most, validate_at_most_100_percent, validate_collisions, validate_counts,
    validate_int_or_percent,
};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::format_selector;
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::{FieldError, go_struct};

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Ready"),
    Column::text("Up-to-date"),
    Column::text("Available"),
    columns::AGE,
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// Deployment.
pub(super) fn resource() -> Resource {
    Kind::new("apps", "v1", "deployments", "Deployment")
        .short_names(&["deploy"])
        .categories(&["all"])
        .generation()
        .status()
        .defaults(apply_defaults)
        .counts_metadata_changes()
        .prepare_update(count_annotations)
        .validate(validate)
        .validate_change(super::super::kind::immutable_selector)
        .prepare_status(|_context, object, old| restore_labels(object, old))
        .validate_status(validate_status)
        .columns(COLUMNS, cells)
        .build()
        .with_scale()
}

fn apply_defaults(object: &mut Value) {
    let spec = object.object_mut("spec");
    spec.default_to("replicas", 1);
    let strategy = spec.object_mut("strategy");
    if strategy.text("type").is_empty() {
        strategy.put("type", json!("RollingUpdate"));
    }
    if strategy.text("type") == "RollingUpdate" {
        let update = strategy.object_mut("rollingUpdate");
        update.default_to("maxUnavailable", "25%");
        update.default_to("maxSurge", "25%");
    }
    spec.default_to("revisionHistoryLimit", 10);
    spec.default_to("progressDeadlineSeconds", 600);
    template::apply_defaults(spec.object_mut("template"));
}

/// Changed annotations count as a change of the Deployment, too: the generic rule sees only what is outside the metadata.
fn count_annotations(_context: &super::super::strategy::WriteContext<'_>, object: &mut Value, old: &Value) {
    let annotations = |object: &Value| object.at("metadata").at("annotations").clone();
    let changed = !same(&annotations(object), &annotations(old)) && same(object.at("spec"), old.at("spec"));
    if changed {
        let generation = old.at("metadata").int("generation").unwrap_or(0);
        object.object_mut("metadata").put("generation", json!(generation + 1));
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_nonnegative(spec.int("replicas"), &SPEC.child("replicas"), out);
    super::validate_selector(spec, "deployment", out);
    super::validate_template(spec, spec.at("template"), "ReplicaSet", out);
    validate_strategy(spec, out);
    validate_nonnegative(spec.int("minReadySeconds"), &SPEC.child("minReadySeconds"), out);
    validate_nonnegative(spec.int("revisionHistoryLimit"), &SPEC.child("revisionHistoryLimit"), out);
    if let Some(deadline) = spec.int("progressDeadlineSeconds") {
        let field = SPEC.child("progressDeadlineSeconds");
        validate_nonnegative(Some(deadline), &field, out);
        if deadline <= spec.int("minReadySeconds").unwrap_or(0) {
            out.push(FieldError::invalid(&field, deadline, "must be greater than minReadySeconds"));
        }
    }
}

fn validate_strategy(spec: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("strategy");
    let strategy = spec.at("strategy");
    let update = strategy.at("rollingUpdate");
    let field = path.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if !update.is_null() {
                out.push(FieldError::forbidden(&field, "may not be specified when strategy `type` is 'Recreate'"));
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (update.at("maxUnavailable"), update.at("maxSurge"));
            let unavailable_field = field.child("maxUnavailable");
            validate_int_or_percent(unavailable, &unavailable_field, out);
            validate_int_or_percent(surge, &field.child("maxSurge"), out);
            if int_or_percent(unavailable) == 0 && int_or_percent(surge) == 0 {
                out.push(FieldError::invalid(
                    &unavailable_field,
                    unavailable.clone(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
            validate_at_most_100_percent(unavailable, &unavailable_field, out);
        }
        kind => {
            let shown = go_struct(&[("Type", json!(kind).to_string()), ("RollingUpdate", go_rolling_update(update))]);
            out.push(FieldError::not_supported(&path, kind, &["Recreate", "RollingUpdate"]).showing(shown));
        }
    }
}

/// A rolling update as upstream prints its internal type, which has no JSON names.
fn go_rolling_update(update: &Value) -> String {
    if update.is_null() {
        return "null".to_owned();
    }
    let member = |key: &str| if update.has(key) { update.at(key).to_string() } else { "0".to_owned() };
    go_struct(&[("MaxUnavailable", member("maxUnavailable")), ("MaxSurge", member("maxSurge"))])
}

fn validate_status(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    validate_counts(object, &counts, out);
    let pairs = [
        ("updatedReplicas", "replicas", "status.replicas"),
        ("readyReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "readyReplicas"),
    ];
    validate_at_most(object, &pairs, out);
    validate_collisions(object, old, out);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let count = |key: &str| status.int(key).unwrap_or(0);
    let [names, images] = columns::containers(spec.at("template").at("spec"));
    let selector = format_selector(spec.at("selector"));
    vec![
        columns::name(object),
        json!(format!("{}/{}", count("readyReplicas"), spec.int("replicas").unwrap_or(0))),
        json!(count("updatedReplicas")),
        json!(count("availableReplicas")),
        columns::age(object, now),
        names,
        images,
        json!(if selector == "<none>" { "" } else { &selector }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        let mut object = json!({"metadata": {"name": "d", "namespace": "n", "resourceVersion": "1"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
        apply_defaults(&mut object);
        object
    }

    fn faults(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut object = deployment();
        change(&mut object);
        let mut errors = Vec::new();
        validate(&object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_make_a_valid_rolling_update() {
        let object = deployment();
        assert_eq!(
            object["spec"]["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(faults(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn a_change_of_the_selector_is_reported_after_what_it_breaks() {
        let old = deployment();
        let mut object = old.clone();
        object["spec"]["selector"] = json!({"matchLabels": {"x": "y"}});
        let errors = resource().strategy.validate_update(&object, &old);
        let fields: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(fields, ["spec.template.metadata.labels", "spec.selector"]);
        assert_eq!(resource().strategy.validate_update(&old, &old), []);
    }

    #[test]
    fn selector_and_template_must_fit() {
        assert_eq!(
            faults(|object| object["spec"]["template"]["metadata"]["labels"] = json!({"x": "y"})),
            [
                "spec.template.metadata.labels: Invalid value: {\"x\":\"y\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            faults(|object| object["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 0})),
            ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]
        );
    }
}
