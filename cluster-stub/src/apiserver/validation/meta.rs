//! Object metadata: what holds for `metadata` of every kind on create and on update.
//!
//! Upstream: apimachinery v1.36.2 `pkg/api/validation/objectmeta.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field::{FieldError, Path};
use super::json::JsonExt;
use super::labels::{validate_annotations, validate_labels};
use super::names::{self, NameRule};

const METADATA: Path<'static> = Path::root("metadata");

/// Faults of an object's metadata, whatever the request.
pub fn validate_object_meta(object: &Value, namespaced: bool, name_rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_meta(object.at("metadata"), namespaced, name_rule, &METADATA, &mut errors);
    validate_own_finalizers(object.at("metadata"), &METADATA.child("finalizers"), &mut errors);
    errors
}

/// The same for a custom resource, whose finalizers may have any name.
pub fn validate_custom_meta(object: &Value, namespaced: bool, name_rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_meta(object.at("metadata"), namespaced, name_rule, &METADATA, &mut errors);
    errors
}

/// Finalizers without a domain are Kubernetes' own; other people's kinds are free of this rule.
///
/// Upstream: `pkg/apis/core/validation/validation.go` validateKubeFinalizerName.
fn validate_own_finalizers(meta: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const OWN: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    for (index, name) in meta.texts("finalizers").into_iter().enumerate() {
        if !name.contains('/') && !OWN.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            out.push(FieldError::invalid(&path.index(index), name, why));
        }
    }
}

/// Faults of metadata at any path, such as that of a template.
pub fn validate_meta(meta: &Value, namespaced: bool, name_rule: NameRule, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let prefix = meta.text("generateName");
    if !prefix.is_empty() {
        let field = path.child("generateName");
        out.extend(name_rule(prefix, true).into_iter().map(|error| FieldError::invalid(&field, prefix, error)));
    }
    let name = meta.text("name");
    let field = path.child("name");
    if name.is_empty() {
        out.push(FieldError::required(&field, "name or generateName is required"));
    } else {
        out.extend(name_rule(name, false).into_iter().map(|error| FieldError::invalid(&field, name, error)));
    }
    validate_meta_rest(meta, namespaced, path, out);
}

fn validate_meta_rest(meta: &Value, namespaced: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let namespace = meta.text("namespace");
    let field = path.child("namespace");
    if !namespaced {
        if !namespace.is_empty() {
            out.push(FieldError::forbidden(&field, "not allowed on this type"));
        }
    } else if namespace.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        out.extend(names::dns_label(namespace).into_iter().map(|error| FieldError::invalid(&field, namespace, error)));
    }
    let generation = meta.int("generation").unwrap_or(0);
    if generation < 0 {
        out.push(FieldError::invalid(&path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    validate_labels(meta.at("labels"), &path.child("labels"), out);
    validate_annotations(meta.at("annotations"), &path.child("annotations"), out);
    validate_owner_references(meta.items("ownerReferences"), &path.child("ownerReferences"), out);
    validate_finalizers(meta, &path.child("finalizers"), out);
}

/// Faults of changed metadata against the old one: what may never change.
pub fn validate_object_meta_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (meta, old) = (object.at("metadata"), old.at("metadata"));
    if old.has("deletionTimestamp") {
        let before: BTreeSet<&str> = old.texts("finalizers").into_iter().collect();
        let added: BTreeSet<&str> =
            meta.texts("finalizers").into_iter().filter(|name| !before.contains(name)).collect();
        if !added.is_empty() {
            let names: Vec<String> = added.iter().map(|name| format!("\"{name}\"")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                names.join(", ")
            );
            errors.push(FieldError::forbidden(&METADATA.child("finalizers"), why));
        }
    }
    if meta.text("resourceVersion").is_empty() {
        errors.push(FieldError::invalid(&METADATA.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = meta.int("generation").unwrap_or(0);
    if generation < old.int("generation").unwrap_or(0) {
        errors.push(FieldError::invalid(&METADATA.child("generation"), generation, "must not be decremented"));
    }
    for key in ["name", "namespace", "uid"] {
        if meta.text(key) != old.text(key) {
            errors.push(FieldError::invalid(&METADATA.child(key), meta.text(key), IMMUTABLE));
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta.at(key) != old.at(key) {
            errors.push(FieldError::invalid(&METADATA.child(key), meta.at(key).clone(), IMMUTABLE));
        }
    }
    validate_labels(meta.at("labels"), &METADATA.child("labels"), &mut errors);
    validate_annotations(meta.at("annotations"), &METADATA.child("annotations"), &mut errors);
    validate_owner_references(meta.items("ownerReferences"), &METADATA.child("ownerReferences"), &mut errors);
    errors
}

/// `field is immutable`.
pub const IMMUTABLE: &str = "field is immutable";

/// Adds `field is immutable` when the values differ.
pub fn validate_immutable(value: &Value, old: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if value != old {
        out.push(FieldError::invalid(path, value.clone(), IMMUTABLE));
    }
}

/// Adds a fault when the number is below zero; an absent one is zero.
pub fn validate_nonnegative(value: Option<i64>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if let Some(value) = value
        && value < 0
    {
        out.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
    }
}

fn validate_owner_references(references: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut first_controller: Option<String> = None;
    for reference in references {
        let api_version = reference.text("apiVersion");
        if api_version.is_empty() || api_version.ends_with('/') {
            out.push(FieldError::invalid(&path.child("apiVersion"), api_version, "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if reference.text(key).is_empty() {
                out.push(FieldError::invalid(&path.child(key), "", "must not be empty"));
            }
        }
        if api_version == "v1" && reference.text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            out.push(FieldError::invalid(path, reference.clone(), why));
        }
        if reference.flag("controller") {
            let name = format!("{}/{}", reference.text("kind"), reference.text("name"));
            match &first_controller {
                None => first_controller = Some(name),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    out.push(FieldError::invalid(path, Value::Array(references.to_vec()), why));
                }
            }
        }
    }
}

fn validate_finalizers(meta: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let finalizers = meta.texts("finalizers");
    for name in &finalizers {
        out.extend(names::qualified_name(name).into_iter().map(|error| FieldError::invalid(path, *name, error)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        out.push(FieldError::invalid(path, meta.at("finalizers").clone(), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn name_and_namespace_must_fit_the_scope() {
        let errors =
            validate_object_meta(&json!({"metadata": {"namespace": "n"}}), false, names::name_is_dns_subdomain);
        assert_eq!(
            texts(&errors),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Forbidden: not allowed on this type"
            ]
        );
        let fits = json!({"metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(validate_object_meta(&fits, true, names::name_is_dns_subdomain), []);
    }

    #[test]
    fn finalizers_are_kubernetes_own_or_have_a_domain() {
        let faults = |name: &str| {
            let object = json!({"metadata": {"name": "a", "finalizers": [name]}});
            texts(&validate_object_meta(&object, false, names::name_is_dns_subdomain)).len()
        };
        for fits in ["kubernetes", "orphan", "foregroundDeletion", "example.com/hold"] {
            assert_eq!(faults(fits), 0, "{fits}");
        }
        assert_eq!(faults("bad"), 1);
        assert_eq!(validate_object_meta(&json!({"metadata": {"name": "a"}}), false, names::name_is_dns_subdomain), []);
    }

    #[test]
    fn update_may_not_change_identity() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2}});
        let new = json!({"metadata": {"name": "a", "uid": "2", "resourceVersion": "5", "generation": 1}});
        assert_eq!(validate_object_meta_update(&old, &old), []);
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old)),
            [
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"2\": field is immutable"
            ]
        );
    }

    #[test]
    fn finalizers_may_not_grow_while_deleting() {
        let old = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"], "resourceVersion": "1"}});
        let new = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b", "a/c"], "resourceVersion": "1"}});
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a/c\"}"
            ]
        );
    }
}
