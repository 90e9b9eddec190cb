//! HorizontalPodAutoscalers, stored as autoscaling/v2 and served as v1 too.
//!
//! Upstream: v1.36.2 `pkg/apis/autoscaling/validation/validation.go`, `pkg/apis/autoscaling/v1/conversion.go`,
//! `pkg/apis/autoscaling/v2/defaults.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column};
use super::kind::{Kind, SPEC};
use super::resource::Resource;
use super::strategy::{Strategy, UpdateStrategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::path_segment;
use crate::apiserver::validation::{FieldError, Path};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Reference"),
    Column::text("Targets"),
    Column::text("MinPods"),
    Column::text("MaxPods"),
    Column::text("Replicas"),
    columns::AGE,
];

/// HorizontalPodAutoscaler in both versions.
pub(super) fn resources() -> Vec<Resource> {
    vec![version("v2"), version("v1")]
}

fn version(version: &'static str) -> Resource {
    let kind = Kind::new("autoscaling", version, "horizontalpodautoscalers", "HorizontalPodAutoscaler")
        .short_names(&["hpa"])
        .categories(&["all"])
        .generation()
        .status()
        .defaults(|object| {
            let spec = object.object_mut("spec");
            spec.default_to("minReplicas", 1);
            apply_behavior_defaults(spec);
        })
        .columns(COLUMNS, cells);
    if version == "v2" {
        return kind.validate(validate).build();
    }
    let resource = kind.clone().build().with_strategy(Version1(kind.clone().validate(validate)));
    resource.with_part("status", super::resource::Verbs::SUBOBJECT, Version1Status(kind))
}

fn apply_behavior_defaults(spec: &mut Value) {
    let Some(behavior) = spec.get_mut("behavior").filter(|behavior| behavior.is_object()) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = behavior.object_mut("scaleUp");
    up.default_to("stabilizationWindowSeconds", 0);
    up.default_to("selectPolicy", "Max");
    up.default_to("policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    let down = behavior.object_mut("scaleDown");
    down.default_to("selectPolicy", "Max");
    down.default_to("policies", json!([percent]));
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let (min, max) = (spec.int("minReplicas"), spec.int("maxReplicas").unwrap_or(0));
    if let Some(min) = min
        && min < 1
    {
        out.push(FieldError::invalid(&SPEC.child("minReplicas"), min, "must be greater than or equal to 1"));
    }
    let field = SPEC.child("maxReplicas");
    if max < 1 {
        out.push(FieldError::invalid(&field, max, "must be greater than 0"));
    }
    if min.is_some_and(|min| max < min) {
        out.push(FieldError::invalid(&field, max, "must be greater than or equal to `minReplicas`"));
    }
    validate_target(spec.at("scaleTargetRef"), &SPEC.child("scaleTargetRef"), out);
    let list = SPEC.child("metrics");
    for (index, metric) in spec.items("metrics").iter().enumerate() {
        validate_metric(metric, &list.index(index), out);
    }
}

fn validate_target(target: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["kind", "name"] {
        let (text, field) = (target.text(key), path.child(key));
        if text.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(path_segment(text, false).into_iter().map(|fault| FieldError::invalid(&field, text, fault)));
        }
    }
    let version = target.text("apiVersion");
    let core = matches!(target.text("kind"), "ReplicationController");
    if !core && !version.contains('/') {
        out.push(FieldError::invalid(&path.child("apiVersion"), version, "apiVersion must specify API group"));
    }
}

fn validate_metric(metric: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let kinds = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = metric.text("type");
    if kind.is_empty() {
        out.push(FieldError::required(&path.child("type"), "must specify a metric source type"));
        return;
    }
    if !kinds.contains(&kind) {
        out.push(FieldError::not_supported(&path.child("type"), kind, &kinds));
        return;
    }
    let member = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
    let source = metric.at(&member);
    let field = path.child(&member);
    if source.is_null() {
        out.push(FieldError::required(&field, "must populate information for the given metric source"));
        return;
    }
    let target = source.at("target");
    let target_path = field.child("target");
    match target.text("type") {
        "" => out.push(FieldError::required(&target_path.child("type"), "must specify a metric target type")),
        "Utilization" | "Value" | "AverageValue" => {}
        other => {
            let why = "must be either Utilization, Value, or AverageValue";
            out.push(FieldError::invalid(&target_path.child("type"), other, why));
        }
    }
    if matches!(kind, "Resource" | "ContainerResource") {
        if source.text("name").is_empty() {
            out.push(FieldError::required(&field.child("name"), "must specify a resource name"));
        }
        if !target.has("averageUtilization") && !target.has("averageValue") {
            let why = "must set either a target raw value or a target utilization";
            out.push(FieldError::required(&target_path.child("averageUtilization"), why));
        }
        if target.int("averageUtilization").is_some_and(|percent| percent < 1) {
            let value = target.at("averageUtilization").clone();
            out.push(FieldError::invalid(&target_path.child("averageUtilization"), value, "must be greater than 0"));
        }
    }
}

/// autoscaling/v1: what it has no members for lives in annotations.
struct Version1(Kind);

fn to_storage(object: &mut Value) {
    let spec = object.object_mut("spec");
    let percent = spec.take_member("targetCPUUtilizationPercentage");
    let mut metrics = Vec::new();
    if !percent.is_null() {
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percent}}}));
    }
    let mut annotations = object.at("metadata").at("annotations").clone();
    let parsed = |text: &Value| text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(Value::Array(more)) = parsed(&annotations.take_member(METRICS)) {
        metrics.extend(more);
    }
    let behavior = parsed(&annotations.take_member(BEHAVIOR));
    let conditions = parsed(&annotations.take_member(CONDITIONS));
    let current = parsed(&annotations.take_member(CURRENT));
    let spec = object.object_mut("spec");
    if !metrics.is_empty() {
        spec.put("metrics", Value::Array(metrics));
    }
    spec.put("behavior", behavior.unwrap_or_else(|| spec.at("behavior").clone()));
    let empty = annotations.as_object().is_none_or(serde_json::Map::is_empty);
    object.object_mut("metadata").put("annotations", if empty { Value::Null } else { annotations });
    let status = object.object_mut("status");
    status.put("conditions", conditions.unwrap_or_else(|| status.at("conditions").clone()));
    status.take_member("currentCPUUtilizationPercentage");
    status.put("currentMetrics", current.unwrap_or_else(|| status.at("currentMetrics").clone()));
    object.put("apiVersion", json!("autoscaling/v2"));
}

fn from_storage(object: &mut Value) {
    let is_cpu = |metric: &Value| {
        metric.at("resource").text("name") == "cpu" && metric.at("resource").at("target").has("averageUtilization")
    };
    let spec = object.object_mut("spec");
    let mut metrics = spec.take_member("metrics");
    let behavior = spec.take_member("behavior");
    if let Some(list) = metrics.as_array_mut()
        && let Some(at) = list.iter().position(is_cpu)
    {
        let metric = list.remove(at);
        spec.put("targetCPUUtilizationPercentage", metric["resource"]["target"]["averageUtilization"].clone());
    }
    let status = object.object_mut("status");
    let (conditions, current) = (status.take_member("conditions"), status.take_member("currentMetrics"));
    let kept = [(METRICS, metrics), (BEHAVIOR, behavior), (CONDITIONS, conditions), (CURRENT, current)];
    for (key, value) in kept {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !empty {
            object.object_mut("metadata").object_mut("annotations").put(key, json!(value.to_string()));
        }
    }
    object.put("apiVersion", json!("autoscaling/v1"));
}

fn stored(object: &Value) -> Value {
    let mut object = object.clone();
    to_storage(&mut object);
    object
}

impl Strategy for Version1 {
    fn apply_defaults(&self, object: &mut Value) {
        self.0.apply_defaults(object);
    }

    fn prepare_for_create(&self, context: &WriteContext<'_>, object: &mut Value) {
        self.0.prepare_for_create(context, object);
    }

    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        self.0.prepare_for_update(context, object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        Strategy::validate(&self.0, &stored(object))
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        Strategy::validate_update(&self.0, &stored(object), &stored(old))
    }

    fn convert_to_storage(&self, object: &mut Value) {
        to_storage(object);
    }

    fn convert_from_storage(&self, object: &mut Value) {
        from_storage(object);
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

struct Version1Status(Kind);

impl UpdateStrategy for Version1Status {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        super::kind::restore_all_but(object, old, &["metadata", "status"]);
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        Strategy::validate_update(&self.0, object, old)
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let object = if object.text("apiVersion") == "autoscaling/v1" { stored(object) } else { object.clone() };
    let (spec, status) = (object.at("spec"), object.at("status"));
    let target = spec.at("scaleTargetRef");
    let min = spec.int("minReplicas").map_or_else(|| "<unset>".to_owned(), |min| min.to_string());
    vec![
        columns::name(&object),
        json!(format!("{}/{}", target.text("kind"), target.text("name"))),
        json!(metrics(spec.items("metrics"), status.items("currentMetrics"))),
        json!(min),
        json!(spec.int("maxReplicas").unwrap_or(0)),
        json!(status.int("currentReplicas").unwrap_or(0)),
        columns::age(&object, now),
    ]
}

/// Current and wanted value of each metric, at most two of them.
fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let texts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    let shown = texts.iter().take(2).cloned().collect::<Vec<_>>().join(", ");
    if texts.len() > 2 { format!("{shown} + {} more...", texts.len() - 2) } else { shown }
}

fn metric(spec: &Value, status: &Value) -> String {
    let kind = spec.text("type");
    if kind.is_empty() {
        return "<unknown type>".to_owned();
    }
    let member = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
    let (source, current) = (spec.at(&member), status.at(&member).at("current"));
    let target = source.at("target");
    let known = |key: &str| if current.has(key) { current.text(key).to_owned() } else { "<unknown>".to_owned() };
    match kind {
        "Resource" | "ContainerResource" => {
            let name = source.text("name");
            if target.has("averageValue") {
                return format!("{name}: {}/{}", known("averageValue"), target.text("averageValue"));
            }
            let percent =
                |value: Option<i64>, otherwise: &str| value.map_or(otherwise.to_owned(), |value| format!("{value}%"));
            let now = percent(current.int("averageUtilization"), "<unknown>");
            format!("{name}: {now}/{}", percent(target.int("averageUtilization"), "<auto>"))
        }
        "Pods" => format!("{}/{}", known("averageValue"), target.text("averageValue")),
        "Object" | "External" if target.has("averageValue") => {
            format!("{}/{} (avg)", known("averageValue"), target.text("averageValue"))
        }
        "Object" | "External" => format!("{}/{}", known("value"), target.text("value")),
        _ => "<unknown type>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_keeps_what_it_has_no_members_for() {
        let stored = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}]}, "status": {}});
        let mut object = stored.clone();
        from_storage(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 60);
        to_storage(&mut object);
        assert_eq!(object, stored);
    }

    #[test]
    fn limits_and_target_are_checked() {
        let mut errors = Vec::new();
        let object = json!({"spec": {"minReplicas": 3, "maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        validate(&object, &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
                "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
            ]
        );
    }
}
