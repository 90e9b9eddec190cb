//! The group admissionregistration: webhooks and policies as objects. What they do to requests lives in `admission`.
//!
//! Upstream: v1.36.2 `pkg/apis/admissionregistration/v1/defaults.go`, `pkg/apis/admissionregistration/validation/validation.go`.

mod policy;
mod webhook;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column};
use super::kind::Kind;
use super::resource::Resource;
use crate::apiserver::admission::expression_names;
use crate::apiserver::cel::{Program, Type};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{path_segment, qualified_name};
use crate::apiserver::validation::{FieldError, Path};

/// Every resource of the group.
pub(super) fn resources() -> Vec<Resource> {
    let kind = |plural, kind| {
        Kind::new("admissionregistration.k8s.io", "v1", plural, kind)
            .cluster_scoped()
            .categories(&["api-extensions"])
            .generation()
            .conditional_update_only()
    };
    let webhooks = const { &[columns::NAME, Column::integer("Webhooks"), columns::AGE] };
    let webhook_cells = |object: &Value, now: Timestamp| {
        vec![columns::name(object), json!(object.items("webhooks").len()), columns::age(object, now)]
    };
    let binding = const { &[columns::NAME, Column::text("PolicyName"), Column::text("ParamRef"), columns::AGE] };
    vec![
        kind("mutatingadmissionpolicies", "MutatingAdmissionPolicy")
            .defaults(|object| apply_policy_defaults(object.object_mut("spec")))
            .validate(policy::validate_mutating)
            .columns(
                const { &[columns::NAME, Column::integer("Mutations"), Column::text("ParamKind"), columns::AGE] },
                |object, now| policy_cells(object, "mutations", now),
            )
            .build(),
        kind("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding")
            .defaults(apply_binding_defaults)
            .validate(|object, out| policy::validate_binding(object, false, out))
            .columns(binding, binding_cells)
            .build(),
        kind("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
            .status()
            .defaults(|object| apply_policy_defaults(object.object_mut("spec")))
            .validate(policy::validate)
            .columns(
                const { &[columns::NAME, Column::integer("Validations"), Column::text("ParamKind"), columns::AGE] },
                |object, now| policy_cells(object, "validations", now),
            )
            .build(),
        kind("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
            .defaults(apply_binding_defaults)
            .validate(|object, out| policy::validate_binding(object, true, out))
            .columns(binding, binding_cells)
            .build(),
        kind("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
            .defaults(|object| apply_webhook_defaults(object, true))
            .validate(|object, out| webhook::validate(object, true, out))
            .columns(webhooks, webhook_cells)
            .build(),
        kind("validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
            .defaults(|object| apply_webhook_defaults(object, false))
            .validate(|object, out| webhook::validate(object, false, out))
            .columns(webhooks, webhook_cells)
            .build(),
    ]
}

fn apply_policy_defaults(spec: &mut Value) {
    spec.default_to("failurePolicy", "Fail");
    apply_match_defaults(spec.get_mut("matchConstraints"));
}

fn apply_binding_defaults(object: &mut Value) {
    apply_match_defaults(object.object_mut("spec").get_mut("matchResources"));
}

fn apply_match_defaults(resources: Option<&mut Value>) {
    if let Some(constraints) = resources.filter(|resources| resources.is_object()) {
        constraints.default_to("matchPolicy", "Equivalent");
        constraints.default_to("namespaceSelector", json!({}));
        constraints.default_to("objectSelector", json!({}));
        for list in ["resourceRules", "excludeResourceRules"] {
            for rule in constraints.items_mut(list) {
                rule.default_to("scope", "*");
            }
        }
    }
}

fn apply_webhook_defaults(object: &mut Value, mutating: bool) {
    for webhook in object.items_mut("webhooks") {
        webhook.default_to("failurePolicy", "Fail");
        webhook.default_to("matchPolicy", "Equivalent");
        webhook.default_to("namespaceSelector", json!({}));
        webhook.default_to("objectSelector", json!({}));
        webhook.default_to("timeoutSeconds", 10);
        if mutating {
            webhook.default_to("reinvocationPolicy", "Never");
        }
        for rule in webhook.items_mut("rules") {
            rule.default_to("scope", "*");
        }
        if let Some(service) = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service")) {
            service.default_to("port", 443);
        }
    }
}

fn policy_cells(object: &Value, list: &str, now: Timestamp) -> Vec<Value> {
    let spec = object.at("spec");
    let kind = spec.at("paramKind");
    let shown = if kind.is_null() {
        "<unset>".to_owned()
    } else {
        format!("{}/{}", kind.text("apiVersion"), kind.text("kind"))
    };
    vec![columns::name(object), json!(spec.items(list).len()), json!(shown), columns::age(object, now)]
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = object.at("spec");
    let reference = spec.at("paramRef");
    let shown = match (reference.text("namespace"), reference.text("name")) {
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![columns::name(object), json!(spec.text("policyName")), json!(shown), columns::age(object, now)]
}

/// A member that is one of a few words, if it is there.
fn validate_word(holder: &Value, key: &str, words: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    let word = holder.text(key);
    if holder.has(key) && !words.contains(&word) {
        out.push(FieldError::not_supported(&path.child(key), word, words));
    }
}

/// One rule of a webhook or policy.
fn validate_rule(rule: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations = rule.texts("operations");
    let field = path.child("operations");
    if operations.is_empty() {
        out.push(FieldError::required(&field, ""));
    }
    let alone = |key: &str, what: &str, out: &mut Vec<FieldError>| {
        if rule.texts(key).len() > 1 && rule.texts(key).contains(&"*") {
            let why = format!("if '*' is present, must not specify other {what}");
            out.push(FieldError::invalid(&path.child(key), rule.at(key).clone(), why));
        }
    };
    alone("operations", "operations", out);
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            out.push(FieldError::not_supported(&field.index(index), *operation, &OPERATIONS));
        }
    }
    for (key, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        if rule.texts(key).is_empty() {
            out.push(FieldError::required(&path.child(key), ""));
        }
        alone(key, what, out);
    }
    for (index, version) in rule.texts("apiVersions").into_iter().enumerate() {
        if version.is_empty() {
            out.push(FieldError::required(&path.child("apiVersions").index(index), ""));
        }
    }
    validate_rule_resources(rule, &path.child("resources"), out);
    validate_word(rule, "scope", &["*", "Cluster", "Namespaced"], path, out);
}

fn validate_rule_resources(rule: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let resources = rule.texts("resources");
    if resources.is_empty() {
        out.push(FieldError::required(path, ""));
    }
    let (mut all_parts, mut all_resources) = (BTreeSet::new(), BTreeSet::new());
    for (index, text) in resources.iter().enumerate() {
        if text.is_empty() {
            out.push(FieldError::required(&path.index(index), ""));
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else { continue };
        let mut say = |present: String| {
            let why = format!("if '{present}' is present, must not specify {text}");
            out.push(FieldError::invalid(&path.index(index), *text, why));
        };
        if all_parts.contains(resource) {
            say(format!("{resource}/*"));
        }
        if all_resources.contains(part) {
            say(format!("*/{part}"));
        }
        if part == "*" {
            all_parts.insert(resource);
        }
        if resource == "*" {
            all_resources.insert(part);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        out.push(FieldError::invalid(path, rule.at("resources").clone(), why));
    }
    let plain = resources.last().is_some_and(|text| !text.contains('/') && *text != "*");
    if resources.contains(&"*") && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        out.push(FieldError::invalid(path, rule.at("resources").clone(), why));
    }
}

/// `matchConditions`: named expressions that give a boolean.
fn validate_conditions(holder: &Value, has_params: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let conditions = holder.items("matchConditions");
    let path = path.child("matchConditions");
    if conditions.len() > 64 {
        out.push(FieldError::too_many(&path, conditions.len(), 64));
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let item = path.index(index);
        let expression = condition.text("expression").trim();
        let field = item.child("expression");
        if expression.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            validate_expression(expression, &[Type::Bool], (has_params, true, None), &field, out);
        }
        let (name, field) = (condition.text("name"), item.child("name"));
        if name.is_empty() {
            out.push(FieldError::required(&field, ""));
            continue;
        }
        out.extend(qualified_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&field, name));
        }
    }
}

/// An expression that compiles and gives one of these types. `names` says which variables it has: parameters, the authorizer, its own.
fn validate_expression(
    expression: &str,
    wanted: &[Type],
    names: (bool, bool, Option<Type>),
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    let (has_params, has_authorizer, variables) = names;
    let names = expression_names(has_params, has_authorizer, variables);
    let why = match Program::compile_typed(expression, &names) {
        Ok((_, Type::Dyn)) => return,
        Ok((_, ty)) if wanted.contains(&ty) || wanted.is_empty() => return,
        Ok(_) if wanted.len() == 1 => format!("must evaluate to {}", wanted[0]),
        Ok(_) => {
            let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            format!("must evaluate to one of {}", names.join(", "))
        }
        Err(error) => format!("compilation failed: {error}"),
    };
    out.push(FieldError::invalid(path, expression, why));
}

/// `resourceNames` of a rule of a policy.
fn validate_resource_names(rule: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let field = path.child("resourceNames");
    let names = rule.texts("resourceNames");
    for (index, name) in names.iter().enumerate() {
        let faults = path_segment(name, false);
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(&field.index(index), *name, fault)));
        if names[..index].contains(name) {
            out.push(FieldError::duplicate(&field.index(index), *name));
        }
    }
}
