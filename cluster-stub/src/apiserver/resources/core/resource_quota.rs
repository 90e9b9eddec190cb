//! ResourceQuotas: validation and columns. Counting and enforcing is admission's and the controller's work.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateResourceQuota, `pkg/registry/core/resourcequota/strategy.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, STATUS};
use super::super::resource::Resource;
use super::super::resource_list::{self, quantity};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, go_struct};

const STANDARD: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resources that scopes about whole pods may limit.
const POD_RESOURCES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// ResourceQuota.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "resourcequotas", "ResourceQuota")
        .returns_deleted()
        .short_names(&["quota"])
        .status()
        .defaults(|object| {
            for (part, keys) in [("spec", &["hard"][..]), ("status", &["hard", "used"][..])] {
                for key in keys {
                    resource_list::round_up(object.get_mut(part).and_then(|part| part.get_mut(key)));
                }
            }
        })
        .validate(validate)
        .validate_update(|object, old, out| {
            let scopes = |object: &Value| -> BTreeSet<String> {
                object.at("spec").texts("scopes").into_iter().map(str::to_owned).collect()
            };
            if scopes(object) != scopes(old) {
                let value = object.at("spec").at("scopes").clone();
                out.push(FieldError::invalid(&SPEC.child("scopes"), value, "field is immutable"));
            }
        })
        .validate_status(validate_status)
        .columns(const { &[columns::NAME, Column::text("Request"), Column::text("Limit"), columns::AGE] }, cells)
        .build()
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

fn validate_entry(name: &str, quantity: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    resource_list::validate_name(name, path, out);
    if !name.contains('/') && !is_standard(name) {
        out.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
    resource_list::validate_quantity(name, quantity.as_str().unwrap_or(""), path, out);
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let hard = SPEC.child("hard");
    for (name, quantity) in spec.entries("hard").into_iter().flatten() {
        validate_entry(name, quantity, &hard.key(name), out);
    }
    let names: Vec<&str> = spec.entries("hard").into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    validate_scopes(spec, &names, out);
    validate_scope_selector(spec, &names, out);
}

fn validate_status(object: &Value, _old: &Value, out: &mut Vec<FieldError>) {
    for key in ["hard", "used"] {
        let path = STATUS.child(key);
        for (name, quantity) in object.at("status").entries(key).into_iter().flatten() {
            validate_entry(name, quantity, &path.key(name), out);
        }
    }
}

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity"
            | "VolumeAttributesClass"
    )
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            POD_RESOURCES.contains(&resource) || resource.contains("hugepages-")
        }
        "BestEffort" => resource == "pods",
        _ => true,
    }
}

fn conflict(scopes: &BTreeSet<&str>) -> bool {
    [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")]
        .iter()
        .any(|(left, right)| scopes.contains(left) && scopes.contains(right))
}

fn validate_scopes(spec: &Value, names: &[&str], out: &mut Vec<FieldError>) {
    let path = SPEC.child("scopes");
    let mut seen = BTreeSet::new();
    let value = || spec.at("scopes").clone();
    for scope in spec.texts("scopes") {
        if !is_scope(scope) {
            out.push(FieldError::invalid(&path, value(), "unsupported scope"));
        }
        for _ in names.iter().filter(|name| is_standard(name) && !scope_fits(scope, name)) {
            out.push(FieldError::invalid(&path, value(), "unsupported scope applied to resource"));
        }
        seen.insert(scope);
    }
    if conflict(&seen) {
        out.push(FieldError::invalid(&path, value(), "conflicting scopes"));
    }
}

fn validate_scope_selector(spec: &Value, names: &[&str], out: &mut Vec<FieldError>) {
    let selector = SPEC.child("scopeSelector");
    let path = selector.child("matchExpressions");
    let mut seen = BTreeSet::new();
    for requirement in spec.at("scopeSelector").items("matchExpressions") {
        let scope = requirement.text("scopeName");
        if !is_scope(scope) {
            out.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        for _ in names.iter().filter(|name| is_standard(name) && !scope_fits(scope, name)) {
            let selector = spec.at("scopeSelector");
            let error = FieldError::invalid(&path, selector.clone(), "unsupported scope applied to resource");
            out.push(error.showing(go_selector(selector)));
        }
        let operator = requirement.text("operator");
        let pod_scope = matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        );
        if pod_scope && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            out.push(FieldError::invalid(&path.child("operator"), operator, why));
        }
        let values = requirement.items("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                out.push(FieldError::required(&path.child("values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                out.push(FieldError::invalid(&path.child("values"), requirement.at("values").clone(), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => out.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        seen.insert(scope);
    }
    if conflict(&seen) {
        out.push(FieldError::invalid(&SPEC.child("scopes"), spec.at("scopes").clone(), "conflicting scopes"));
    }
}

/// A scope selector as upstream prints its internal type, which has no JSON names.
fn go_selector(selector: &Value) -> String {
    let expressions: Vec<String> = selector
        .items("matchExpressions")
        .iter()
        .map(|item| {
            go_struct(&[
                ("ScopeName", json!(item.text("scopeName")).to_string()),
                ("Operator", json!(item.text("operator")).to_string()),
                ("Values", item.at("values").to_string()),
            ])
        })
        .collect();
    go_struct(&[("MatchExpressions", format!("[{}]", expressions.join(",")))])
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let status = object.at("status");
    let none = Map::new();
    for name in status.entries("hard").unwrap_or(&none).keys() {
        let text = format!("{name}: {}/{}", quantity(status.at("used"), name), quantity(status.at("hard"), name));
        if name.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![columns::name(object), json!(requests.join(", ")), json!(limits.join(", ")), columns::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_or_qualified_resources_are_limited() {
        let mut errors = Vec::new();
        validate(&json!({"spec": {"hard": {"bogus": "1", "pods": "2", "count/jobs.batch": "1"}}}), &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified",
                "spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource for quota",
            ]
        );
    }

    #[test]
    fn columns_split_requests_from_limits() {
        let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "2", "limits.cpu": "1"}, "used": {"pods": "1"}}});
        let row = cells(&quota, Timestamp::UNIX_EPOCH);
        assert_eq!((&row[1], &row[2]), (&json!("pods: 1/2"), &json!("limits.cpu: 0/1")));
    }
}
