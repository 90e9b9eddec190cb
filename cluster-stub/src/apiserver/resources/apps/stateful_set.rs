//! StatefulSets.
//!
//! Upstream: v1.36.2 `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation/validation.go` ValidateStatefulSet.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::core::persistent_volume_claim as claim;
use super::super::kind::{Kind, SPEC, same_but};
use super::super::pod::template;
use super::super::resource::Resource;
use super::{
    int_or_percent, validate_at_most, validate_at_most_100_percent, validate_collisions, validate_counts,
    validate_int_or_percent,
};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::names::{dns_label, name_is_dns_label};
use crate::apiserver::validation::{FieldError, go_struct};

const COLUMNS: &[Column] =
    &[columns::NAME, Column::text("Ready"), columns::AGE, Column::wide("Containers"), Column::wide("Images")];

/// StatefulSet.
pub(super) fn resource() -> Resource {
    Kind::new("apps", "v1", "statefulsets", "StatefulSet")
        .short_names(&["sts"])
        .categories(&["all"])
        .name_rule(name_is_dns_label)
        .generation()
        .status()
        .defaults(apply_defaults)
        .validate(validate)
        .validate_update(validate_update)
        .validate_status(|object, old, out| {
            let counts = [
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ];
            validate_counts(object, &counts, out);
            let pairs = [
                ("readyReplicas", "replicas", "status.replicas"),
                ("currentReplicas", "replicas", "status.replicas"),
                ("updatedReplicas", "replicas", "status.replicas"),
                ("availableReplicas", "replicas", "status.replicas"),
                ("availableReplicas", "readyReplicas", "status.readyReplicas"),
            ];
            validate_at_most(object, &pairs, out);
            validate_collisions(object, old, out);
        })
        .columns(COLUMNS, cells)
        .build()
        .with_scale()
}

fn apply_defaults(object: &mut Value) {
    let spec = object.object_mut("spec");
    if spec.text("podManagementPolicy").is_empty() {
        spec.put("podManagementPolicy", json!("OrderedReady"));
    }
    let strategy = spec.object_mut("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.put("type", json!("RollingUpdate"));
        strategy.default_to("rollingUpdate", json!({}));
    }
    if strategy.text("type") == "RollingUpdate" && strategy.has("rollingUpdate") {
        strategy.object_mut("rollingUpdate").default_to("partition", 0);
    }
    let retention = spec.object_mut("persistentVolumeClaimRetentionPolicy");
    retention.default_to("whenDeleted", "Retain");
    retention.default_to("whenScaled", "Retain");
    spec.default_to("replicas", 1);
    spec.default_to("revisionHistoryLimit", 10);
    template::apply_defaults(spec.object_mut("template"));
    for template in spec.items_mut("volumeClaimTemplates") {
        claim::apply_spec_defaults(template.object_mut("spec"));
        template.object_mut("status").default_to("phase", "Pending");
        template.default_to("apiVersion", "v1");
        template.default_to("kind", "PersistentVolumeClaim");
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    match spec.text("podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        other => out.push(FieldError::invalid(
            &SPEC.child("podManagementPolicy"),
            other,
            "must be 'OrderedReady' or 'Parallel'",
        )),
    }
    validate_strategy(spec, out);
    let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy").text(key);
        if !matches!(policy, "Retain" | "Delete") {
            out.push(FieldError::not_supported(&path.child(key), policy, &["Retain", "Delete"]));
        }
    }
    let path = SPEC.child("volumeClaimTemplates");
    for (index, template) in spec.items("volumeClaimTemplates").iter().enumerate() {
        claim::validate_spec(template.at("spec"), &path.index(index).child("spec"), out);
    }
    validate_nonnegative(spec.int("replicas"), &SPEC.child("replicas"), out);
    validate_nonnegative(spec.int("minReadySeconds"), &SPEC.child("minReadySeconds"), out);
    validate_nonnegative(spec.at("ordinals").int("start"), &SPEC.child("ordinals.start"), out);
    let service = spec.text("serviceName");
    if !service.is_empty() {
        let field = SPEC.child("serviceName");
        out.extend(dns_label(service).into_iter().map(|fault| FieldError::invalid(&field, service, fault)));
    }
    super::validate_selector(spec, "statefulset", out);
    super::validate_template(spec, &template_with_claims(spec), "StatefulSet", out);
}

/// The template as the controller makes pods of it: claims are volumes, host name and subdomain are the controller's.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let names: Vec<&str> =
        spec.items("volumeClaimTemplates").iter().map(|template| template.at("metadata").text("name")).collect();
    let pod = template.object_mut("spec");
    pod.take_member("subdomain");
    pod.take_member("hostname");
    if !names.is_empty() {
        let mut volumes: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
        volumes.extend(pod.items("volumes").iter().filter(|volume| !names.contains(&volume.text("name"))).cloned());
        pod.put("volumes", Value::Array(volumes));
    }
    template
}

fn validate_strategy(spec: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("updateStrategy");
    let strategy = spec.at("updateStrategy");
    let update = strategy.at("rollingUpdate");
    let field = path.child("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {
            if !update.is_null() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                out.push(FieldError::invalid(&field, update.clone(), why).showing(go_rolling_update(update)));
            }
        }
        "RollingUpdate" => {
            validate_nonnegative(update.int("partition"), &field.child("partition"), out);
            if update.has("maxUnavailable") {
                let (value, field) = (update.at("maxUnavailable"), field.child("maxUnavailable"));
                validate_int_or_percent(value, &field, out);
                if int_or_percent(value) == 0 {
                    out.push(FieldError::invalid(&field, value.clone(), "cannot be 0"));
                }
                validate_at_most_100_percent(value, &field, out);
            }
        }
        kind => {
            let shown = go_struct(&[("Type", json!(kind).to_string()), ("RollingUpdate", go_rolling_update(update))]);
            out.push(FieldError::invalid(&path, kind, "must be 'RollingUpdate' or 'OnDelete'").showing(shown));
        }
    }
}

/// A rolling update as upstream prints its internal type, which has no JSON names.
fn go_rolling_update(update: &Value) -> String {
    if update.is_null() {
        return "null".to_owned();
    }
    let partition = update.int("partition").unwrap_or(0).to_string();
    go_struct(&[("Partition", partition), ("MaxUnavailable", update.at("maxUnavailable").to_string())])
}

fn validate_update(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let changeable = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    if !same_but(object.at("spec"), old.at("spec"), &changeable) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        out.push(FieldError::forbidden(&SPEC, why));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let [names, images] = columns::containers(spec.at("template").at("spec"));
    let ready = format!("{}/{}", status.int("readyReplicas").unwrap_or(0), spec.int("replicas").unwrap_or(0));
    vec![columns::name(object), json!(ready), columns::age(object, now), names, images]
}
