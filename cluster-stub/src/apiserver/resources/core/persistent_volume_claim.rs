//! PersistentVolumeClaims: defaults, validation, columns.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePersistentVolumeClaim, `pkg/apis/core/v1/defaults.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, SPEC, same_but};
use super::super::resource::Resource;
use super::super::resource_list::{self, quantity};
use super::persistent_volume::{access_modes, class_of, validate_access_modes, validate_class, validate_positive};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_label_selector;
use crate::apiserver::validation::{FieldError, Path};

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Status"),
    Column::text("Volume"),
    Column::text("Capacity"),
    Column::text("Access Modes"),
    Column::text("StorageClass"),
    Column::text("VolumeAttributesClass"),
    columns::AGE,
    Column::wide("VolumeMode"),
];

/// PersistentVolumeClaim.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
        .returns_deleted()
        .short_names(&["pvc"])
        .status()
        .defaults(|object| {
            object.object_mut("status").default_to("phase", "Pending");
            apply_spec_defaults(object.object_mut("spec"));
        })
        .prepare_create(|_context, object| object.put("status", json!({"phase": "Pending"})))
        .validate(|object, out| validate_spec(object.at("spec"), &SPEC, out))
        .validate_update(validate_update)
        .columns(COLUMNS, cells)
        .build()
}

/// Defaults of a claim's spec, also in templates.
pub(in crate::apiserver::resources) fn apply_spec_defaults(spec: &mut Value) {
    spec.default_to("volumeMode", "Filesystem");
    if spec.has("resources") {
        for key in ["limits", "requests"] {
            resource_list::round_up(spec["resources"].get_mut(key));
        }
    }
    // The old and the new way to name a source are kept the same.
    if spec.has("dataSource") && !spec.has("dataSourceRef") {
        let source = spec.at("dataSource").clone();
        let known = matches!(source.text("kind"), "PersistentVolumeClaim" | "VolumeSnapshot");
        if known {
            spec.put("dataSourceRef", source);
        }
    }
}

/// Faults of a claim's spec.
pub(in crate::apiserver::resources) fn validate_spec(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if spec.has("selector") {
        validate_label_selector(spec.at("selector"), &path.child("selector"), out);
    }
    validate_access_modes(spec, path, out);
    let resources = path.child("resources");
    let field = resources.key("storage");
    let size = spec.at("resources").at("requests").at("storage");
    if size.is_null() {
        out.push(FieldError::required(&field, ""));
    } else {
        let requests = resources.child("requests");
        validate_positive(size, &requests.key("storage"), out);
    }
    validate_class(spec.text("storageClassName"), &path.child("storageClassName"), out);
    let mode = spec.text("volumeMode");
    if !matches!(mode, "" | "Block" | "Filesystem") {
        out.push(FieldError::not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    for key in ["dataSource", "dataSourceRef"] {
        let source = spec.at(key);
        if source.is_null() {
            continue;
        }
        let path = path.child(key);
        for key in ["name", "kind"] {
            if source.text(key).is_empty() {
                out.push(FieldError::required(&path.child(key), ""));
            }
        }
        if source.text("apiGroup").is_empty() && source.text("kind") != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            out.push(FieldError::invalid(&path, source.text("kind"), why));
        }
    }
}

fn validate_update(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, old_spec) = (object.at("spec"), old.at("spec"));
    let mut ignored = vec!["resources", "volumeAttributesClassName"];
    if old_spec.text("volumeName").is_empty() {
        ignored.push("volumeName");
    }
    if old_spec.text("storageClassName").is_empty() && !old_spec.has("storageClassName") {
        ignored.push("storageClassName");
    }
    let bound = old.at("status").text("phase") == "Bound";
    let resources_changed = {
        let (new, old) = (spec.at("resources"), old_spec.at("resources"));
        let (mut new, mut old) = (new.clone(), old.clone());
        if bound {
            for resources in [&mut new, &mut old] {
                resources.object_mut("requests").take_member("storage");
            }
        }
        !super::super::kind::same(&new, &old)
    };
    if !same_but(spec, old_spec, &ignored) || resources_changed {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        out.push(FieldError::forbidden(&SPEC, why));
    }
    let requests = |spec: &Value| quantity(spec.at("resources").at("requests"), "storage");
    if bound
        && requests(spec) < requests(old_spec)
        && requests(spec) < quantity(old.at("status").at("capacity"), "storage")
    {
        let path = SPEC.child("resources");
        out.push(FieldError::forbidden(
            &path.child("requests").child("storage"),
            "field can not be less than status.capacity",
        ));
    } else if bound && requests(spec) < requests(old_spec) && !old.at("status").has("capacity") {
        let path = SPEC.child("resources");
        out.push(FieldError::forbidden(
            &path.child("requests").child("storage"),
            "field can not be less than previous value",
        ));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let bound = !spec.text("volumeName").is_empty();
    let deleted = object.at("metadata").has("deletionTimestamp");
    vec![
        columns::name(object),
        json!(if deleted { "Terminating" } else { status.text("phase") }),
        json!(spec.text("volumeName")),
        json!(if bound { quantity(status.at("capacity"), "storage").to_string() } else { String::new() }),
        json!(if bound { access_modes(&status.texts("accessModes")) } else { String::new() }),
        json!(class_of(object)),
        json!(or_else(spec.text("volumeAttributesClassName"), "<unset>")),
        columns::age(object, now),
        json!(or_else(spec.text("volumeMode"), "<unset>")),
    ]
}
