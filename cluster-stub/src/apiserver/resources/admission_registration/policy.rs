//! Validation of admission policies and their bindings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::{validate_conditions, validate_expression, validate_resource_names, validate_rule, validate_word};
use crate::apiserver::cel::{ObjectType, Type};
use crate::apiserver::resources::kind::SPEC;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_label_selector;
use crate::apiserver::validation::names::{dns_1035_label, dns_subdomain, qualified_name};
use crate::apiserver::validation::{FieldError, Path};

/// Every fault of a ValidatingAdmissionPolicy.
pub(super) fn validate(object: &Value, out: &mut Vec<FieldError>) {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let spec = object.at("spec");
    let has_params = spec.has("paramKind");
    let variables = validate_common(spec, out);
    let (validations, annotations) = (spec.items("validations"), spec.items("auditAnnotations"));
    let path = SPEC.child("validations");
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        out.push(FieldError::required(&path, why));
        out.push(FieldError::required(&SPEC.child("auditAnnotations"), why));
    }
    for (index, validation) in validations.iter().enumerate() {
        let path = path.index(index);
        let (expression, field) = (validation.text("expression"), path.child("expression"));
        if expression.trim().is_empty() {
            out.push(FieldError::required(&field, "expression is not specified"));
        } else {
            validate_expression(expression, &[Type::Bool], (has_params, true, variables.clone()), &field, out);
        }
        let (expression, field) = (validation.text("messageExpression"), path.child("messageExpression"));
        if !expression.is_empty() && expression.trim().is_empty() {
            out.push(FieldError::invalid(&field, expression, "must be non-empty if specified"));
        } else if !expression.is_empty() {
            validate_expression(expression, &[Type::String], (has_params, false, variables.clone()), &field, out);
        }
        let (message, field) = (validation.text("message"), path.child("message"));
        if !message.is_empty() && message.trim().is_empty() {
            out.push(FieldError::invalid(&field, message, "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            out.push(FieldError::invalid(&field, message, "must not contain line breaks"));
        }
        validate_word(validation, "reason", &REASONS, &path, out);
    }
    let name = object.at("metadata").text("name");
    validate_annotations(spec, name, has_params, &variables, out);
}

fn validate_annotations(
    spec: &Value,
    name: &str,
    has_params: bool,
    variables: &Option<Type>,
    out: &mut Vec<FieldError>,
) {
    let path = SPEC.child("auditAnnotations");
    let mut keys = BTreeSet::new();
    for (index, annotation) in spec.items("auditAnnotations").iter().enumerate() {
        let path = path.index(index);
        let (key, field) = (annotation.text("key"), path.child("key"));
        let full = format!("{name}/{key}");
        out.extend(qualified_name(&full).into_iter().map(|fault| FieldError::invalid(&field, full.as_str(), fault)));
        let (expression, at) = (annotation.text("valueExpression"), path.child("valueExpression"));
        if expression.trim().is_empty() {
            out.push(FieldError::required(&at, "valueExpression is not specified"));
        } else {
            let wanted = [Type::String, Type::Null];
            validate_expression(expression.trim(), &wanted, (has_params, true, variables.clone()), &at, out);
        }
        if !keys.insert(key) {
            out.push(FieldError::duplicate(&field, key));
        }
    }
}

/// Every fault of a MutatingAdmissionPolicy.
pub(super) fn validate_mutating(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let has_params = spec.has("paramKind");
    let variables = validate_common(spec, out);
    let path = SPEC.child("mutations");
    if spec.items("mutations").is_empty() {
        out.push(FieldError::required(&path, "mutations must contain at least one item"));
    }
    for (index, mutation) in spec.items("mutations").iter().enumerate() {
        let path = path.index(index);
        let kinds = ["ApplyConfiguration", "JSONPatch"];
        if !mutation.has("patchType") {
            out.push(FieldError::required(&path.child("patchType"), ""));
        }
        validate_word(mutation, "patchType", &kinds, &path, out);
        for (kind, key) in kinds.into_iter().zip(["applyConfiguration", "jsonPatch"]) {
            let (inner, field) = (mutation.at(key), path.child(key));
            if mutation.text("patchType") != kind {
                if !inner.is_null() {
                    let why = format!("must not be set if patchType is {}", mutation.text("patchType"));
                    out.push(FieldError::forbidden(&field, why));
                }
                continue;
            }
            let expression = inner.text("expression");
            if inner.is_null() {
                out.push(FieldError::required(&field, format!("must be specified when patchType is {kind}")));
            } else if expression.trim().is_empty() {
                out.push(FieldError::required(&field.child("expression"), "expression is not specified"));
            } else {
                let names = (has_params, true, variables.clone());
                validate_expression(expression, &[], names, &field.child("expression"), out);
            }
        }
    }
}

/// What both kinds of policies have; gives the type of their variables.
fn validate_common(spec: &Value, out: &mut Vec<FieldError>) -> Option<Type> {
    validate_word(spec, "failurePolicy", &["Fail", "Ignore"], &SPEC, out);
    if spec.has("paramKind") {
        validate_param_kind(spec.at("paramKind"), &SPEC.child("paramKind"), out);
    }
    let (constraints, path) = (spec.at("matchConstraints"), SPEC.child("matchConstraints"));
    if constraints.is_null() {
        out.push(FieldError::required(&path, ""));
    } else {
        validate_match(constraints, &path, out);
        if constraints.items("resourceRules").is_empty() {
            out.push(FieldError::required(&path.child("resourceRules"), ""));
        }
    }
    let has_params = spec.has("paramKind");
    validate_conditions(spec, has_params, &SPEC, out);
    let path = SPEC.child("variables");
    let mut fields: BTreeMap<String, Type> = BTreeMap::new();
    let of = |fields: &BTreeMap<String, Type>| {
        let ty = ObjectType { name: "kubernetes.variables".to_owned(), fields: fields.clone() };
        Some(Type::Object(Arc::new(ty)))
    };
    for (index, variable) in spec.items("variables").iter().enumerate() {
        let path = path.index(index);
        let (name, field) = (variable.text("name"), path.child("name"));
        let is_identifier = name.starts_with(|letter: char| letter == '_' || letter.is_ascii_alphabetic())
            && name.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric());
        if name.trim().is_empty() {
            out.push(FieldError::required(&field, "name is not specified"));
        } else if !is_identifier {
            out.push(FieldError::invalid(&field, name, "must be a valid CEL identifier"));
        }
        let (expression, field) = (variable.text("expression"), path.child("expression"));
        if expression.trim().is_empty() {
            out.push(FieldError::required(&field, "expression is not specified"));
        } else {
            // A variable sees those before it.
            validate_expression(expression, &[], (has_params, true, of(&fields)), &field, out);
        }
        fields.insert(name.to_owned(), Type::Dyn);
    }
    of(&fields)
}

fn validate_param_kind(kind: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let (text, field) = (kind.text("apiVersion"), path.child("apiVersion"));
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    if text.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if version.contains('/') {
        out.push(FieldError::invalid(&field, text, format!("unexpected GroupVersion string: {text}")));
    } else {
        let faults = if group.is_empty() { Vec::new() } else { dns_subdomain(group) };
        if !faults.is_empty() {
            out.push(FieldError::invalid(&field, group, faults.join(",")));
        }
        let faults = dns_1035_label(version);
        if !faults.is_empty() {
            out.push(FieldError::invalid(&field, version, faults.join(",")));
        }
    }
    let (text, field) = (kind.text("kind"), path.child("kind"));
    let faults = dns_1035_label(&text.to_lowercase());
    if text.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if !faults.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        out.push(FieldError::invalid(&field, text, why));
    }
}

fn validate_match(resources: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_word(resources, "matchPolicy", &["Equivalent", "Exact"], path, out);
    for key in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(resources.at(key), &path.child(key), out);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in resources.items(key).iter().enumerate() {
            let path = path.child(key);
            let path = path.index(index);
            validate_resource_names(rule, &path, out);
            validate_rule(rule, &path, out);
        }
    }
}

/// Every fault of a binding; those of validating policies say what a broken rule leads to.
pub(super) fn validate_binding(object: &Value, validating: bool, out: &mut Vec<FieldError>) {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    let spec = object.at("spec");
    let (name, field) = (spec.text("policyName"), SPEC.child("policyName"));
    if name.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    if spec.has("paramRef") {
        validate_param_ref(spec.at("paramRef"), &SPEC.child("paramRef"), out);
    }
    if spec.has("matchResources") {
        validate_match(spec.at("matchResources"), &SPEC.child("matchResources"), out);
    }
    if !validating {
        return;
    }
    let actions = spec.texts("validationActions");
    let path = SPEC.child("validationActions");
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            out.push(FieldError::not_supported(&path.index(index), *action, &ACTIONS));
        }
        if actions[..index].contains(action) {
            out.push(FieldError::duplicate(&path.index(index), *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
            and headers serves no purpose)";
        out.push(FieldError::invalid(&path, spec.at("validationActions").clone(), why));
    }
    if actions.is_empty() {
        out.push(FieldError::required(&path, "at least one validation action is required"));
    }
}

fn validate_param_ref(reference: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let (named, selected) = (!reference.text("name").is_empty(), reference.has("selector"));
    if named && selected {
        let why = "name and selector are mutually exclusive";
        out.push(FieldError::forbidden(&path.child("name"), why));
        out.push(FieldError::forbidden(&path.child("selector"), why));
    }
    if !named && !selected {
        out.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    if selected {
        validate_label_selector(reference.at("selector"), &path.child("selector"), out);
    }
    if !reference.has("parameterNotFoundAction") {
        out.push(FieldError::required(&path.child("parameterNotFoundAction"), ""));
    }
    validate_word(reference, "parameterNotFoundAction", &["Allow", "Deny"], path, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(validation: &Value) -> Vec<String> {
        let mut out = Vec::new();
        let spec = json!({
            "failurePolicy": "Fail", "validations": [validation], "variables": [{"name": "n", "expression": "object.spec"}],
            "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
        });
        validate(&json!({"metadata": {"name": "p"}, "spec": spec}), &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expressions_must_compile_to_their_type() {
        let none: [&str; 0] = [];
        assert_eq!(faults(&json!({"expression": "variables.n.x == 1 && object.metadata.name != ''"})), none);
        let broken = faults(&json!({"expression": "object.spec ==="}));
        assert!(
            broken[0].starts_with(
                r#"spec.validations[0].expression: Invalid value: "object.spec ===": compilation failed: ERROR: <input>:1:15: Syntax error"#
            ),
            "{broken:?}"
        );
        assert_eq!(
            faults(&json!({"expression": "1 + 1"})),
            [r#"spec.validations[0].expression: Invalid value: "1 + 1": must evaluate to bool"#]
        );
        assert!(faults(&json!({"expression": "params.x"}))[0].contains("undeclared reference to 'params'"));
        assert!(faults(&json!({"expression": "variables.m"}))[0].contains("undefined field 'm'"));
        assert_eq!(faults(&json!({"expression": "true", "reason": "Maybe"})).len(), 1);
    }
}
