//! Namespaces: finalizers in the spec, phase, the `finalize` subresource.
//!
//! Upstream: v1.36.2 `pkg/registry/core/namespace/strategy.go`, `pkg/registry/core/namespace/storage/storage.go`.

use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, restore_all_but};
use super::super::resource::{Resource, Verbs};
use super::super::strategy::{Strategy, UpdateStrategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_object_meta, validate_object_meta_update};
use crate::apiserver::validation::names::{name_is_dns_label, qualified_name};
use crate::apiserver::validation::{FieldError, Path};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Namespace.
pub(super) fn resource() -> Resource {
    let kind = Kind::new("", "v1", "namespaces", "Namespace")
        .short_names(&["ns"])
        .cluster_scoped()
        .name_rule(name_is_dns_label)
        .verbs(Verbs::ALL.without(Verbs::DELETE_COLLECTION))
        .status()
        .defaults(apply_defaults)
        .validate_status(validate_status)
        .columns(const { &[columns::NAME, Column::text("Status"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.at("status").text("phase")), columns::age(object, now)]
        });
    let strategy = Namespace(kind.clone());
    kind.build().with_strategy(strategy).with_part("finalize", Verbs::UPDATE, Finalize)
}

fn apply_defaults(object: &mut Value) {
    object.object_mut("status").default_to("phase", "Active");
    let name = object.at("metadata").at("name").clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        object.object_mut("metadata").object_mut("labels").put(NAME_LABEL, name);
    }
}

/// The generic rules, and that spec.finalizers belong to the server and keep a deleted namespace.
struct Namespace(Kind);

impl Strategy for Namespace {
    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn apply_defaults(&self, object: &mut Value) {
        self.0.apply_defaults(object);
    }

    fn prepare_for_create(&self, _context: &WriteContext<'_>, object: &mut Value) {
        // Names of generateName come after the defaults.
        apply_defaults(object);
        object.put("status", json!({"phase": "Active"}));
        let spec = object.object_mut("spec");
        let mut finalizers: Vec<Value> = spec.items("finalizers").to_vec();
        if !finalizers.contains(&json!("kubernetes")) {
            finalizers.push(json!("kubernetes"));
        }
        spec.put("finalizers", Value::Array(finalizers));
    }

    fn prepare_for_update(&self, _context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object.put("spec", old.at("spec").clone());
        object.put("status", old.at("status").clone());
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, false, name_is_dns_label);
        validate_finalizers(object, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, false, name_is_dns_label);
        errors.extend(validate_object_meta_update(object, old));
        super::super::kind::dedup(errors)
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        vec![object.at("status").text("phase").to_owned()]
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn keeps_deleted(&self, object: &Value) -> bool {
        !object.at("spec").items("finalizers").is_empty()
    }

    fn prepare_for_delete(&self, object: &mut Value) {
        object.object_mut("status").put("phase", json!("Terminating"));
    }
}

fn validate_finalizers(object: &Value, out: &mut Vec<FieldError>) {
    let path = Path::root("spec");
    let field = path.child("finalizers");
    for name in object.at("spec").texts("finalizers") {
        out.extend(qualified_name(name).into_iter().map(|error| FieldError::invalid(&field, name, error)));
        if !name.contains('/') && name != "kubernetes" {
            out.push(FieldError::invalid(
                &field,
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn validate_status(object: &Value, _old: &Value, out: &mut Vec<FieldError>) {
    let path = Path::root("status");
    let phase = object.at("status").text("phase");
    if object.at("metadata").has("deletionTimestamp") {
        if phase != "Terminating" {
            let why = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            out.push(FieldError::invalid(&path.child("phase"), phase, why));
        }
    } else if phase == "Terminating" {
        let why = "may not be 'Terminating' if `deletionTimestamp` is empty";
        out.push(FieldError::invalid(&path.child("phase"), phase, why));
    }
}

/// PUT of `finalize` changes `spec.finalizers` alone.
struct Finalize;

impl UpdateStrategy for Finalize {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        restore_all_but(object, old, &["metadata", "spec"]);
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, false, name_is_dns_label);
        errors.extend(validate_object_meta_update(object, old));
        validate_finalizers(object, &mut errors);
        super::super::kind::dedup(errors)
    }

    fn reset_fields(&self) -> std::borrow::Cow<'static, [&'static str]> {
        std::borrow::Cow::Borrowed(&["status"])
    }
}
