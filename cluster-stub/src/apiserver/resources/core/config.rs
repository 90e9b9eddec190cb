//! ConfigMaps, ComponentStatuses and PodTemplates: core kinds with few rules.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::Kind;
use super::super::pod::template;
use super::super::resource::{Resource, Verbs};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::format_labels;
use crate::apiserver::validation::names::config_map_key;
use crate::apiserver::validation::{FieldError, Path};

const MAX_BYTES: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// ConfigMap.
pub(super) fn config_map() -> Resource {
    Kind::new("", "v1", "configmaps", "ConfigMap")
        .short_names(&["cm"])
        .validate(validate_config_map)
        .validate_update(|object, old, out| validate_immutable_data(object, old, &["data", "binaryData"], out))
        .columns(const { &[columns::NAME, Column::text("Data"), columns::AGE] }, |object, now| {
            let count = ["data", "binaryData"]
                .iter()
                .map(|key| object.entries(key).map_or(0, serde_json::Map::len))
                .sum::<usize>();
            vec![columns::name(object), json!(count), columns::age(object, now)]
        })
        .build()
}

fn validate_config_map(object: &Value, out: &mut Vec<FieldError>) {
    let mut bytes = 0;
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    for (key, value) in object.entries("data").into_iter().flatten() {
        let field = data.key(key);
        out.extend(config_map_key(key).into_iter().map(|error| FieldError::invalid(&field, key.as_str(), error)));
        if object.at("binaryData").has(key) {
            out.push(FieldError::invalid(&field, key.as_str(), "duplicate of key present in binaryData"));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in object.entries("binaryData").into_iter().flatten() {
        let field = binary.key(key);
        out.extend(config_map_key(key).into_iter().map(|error| FieldError::invalid(&field, key.as_str(), error)));
        bytes += value.as_str().map_or(0, |text| text.len() / 4 * 3);
    }
    if bytes > MAX_BYTES {
        out.push(FieldError::too_long(&Path::root(""), MAX_BYTES));
    }
}

/// What may not change once `immutable` is set.
pub(super) fn validate_immutable_data(object: &Value, old: &Value, members: &[&str], out: &mut Vec<FieldError>) {
    if !old.flag("immutable") {
        return;
    }
    if !object.flag("immutable") {
        out.push(FieldError::forbidden(&Path::root("immutable"), IMMUTABLE));
    }
    for member in members {
        if !super::super::kind::same(object.at(member), old.at(member)) {
            out.push(FieldError::forbidden(&Path::root(member), IMMUTABLE));
        }
    }
}

/// ComponentStatus: read-only, made up when asked for.
pub(super) fn component_status() -> Resource {
    Kind::new("", "v1", "componentstatuses", "ComponentStatus")
        .deprecated("v1 ComponentStatus is deprecated in v1.19+")
        .short_names(&["cs"])
        .cluster_scoped()
        .verbs(Verbs::GET.and(Verbs::LIST))
        .columns(
            const { &[columns::NAME, Column::text("Status"), Column::text("Message"), Column::text("Error")] },
            |object, _now| {
                let healthy = object.items("conditions").iter().find(|condition| condition.text("type") == "Healthy");
                let (status, message, error) = healthy.map_or(("Unknown", "", ""), |condition| {
                    let status = if condition.text("status") == "True" { "Healthy" } else { "Unhealthy" };
                    (status, condition.text("message"), condition.text("error"))
                });
                vec![columns::name(object), json!(status), json!(message), json!(error)]
            },
        )
        .build()
}

/// PodTemplate.
pub(super) fn pod_template() -> Resource {
    Kind::new("", "v1", "podtemplates", "PodTemplate")
        .returns_deleted()
        .generation()
        .defaults(|object| template::apply_defaults(object.object_mut("template")))
        .validate(|object, out| template::validate(object.at("template"), &Path::root("template"), out))
        .columns(
            const { &[columns::NAME, Column::text("Containers"), Column::text("Images"), Column::text("Pod Labels")] },
            pod_template_cells,
        )
        .build()
}

fn pod_template_cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let template = object.at("template");
    let [names, images] = columns::containers(template.at("spec"));
    vec![columns::name(object), names, images, json!(format_labels(template.at("metadata").at("labels")))]
}
