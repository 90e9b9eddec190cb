//! Where a pod may run: node selectors, affinity, tolerations, topology spread.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` validateAffinity, ValidateTolerations, validateTopologySpreadConstraints.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{validate_label_name, validate_label_selector};
use crate::apiserver::validation::names::{dns_label, dns_subdomain, label_value};
use crate::apiserver::validation::{FieldError, Path};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `spec.affinity`.
pub(super) fn validate_affinity(affinity: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let node = affinity.at("nodeAffinity");
    let node_path = path.child("nodeAffinity");
    if node.has(REQUIRED) {
        validate_node_selector(node.at(REQUIRED), &node_path.child(REQUIRED), out);
    }
    let preferred = node_path.child(PREFERRED);
    for (index, term) in node.items(PREFERRED).iter().enumerate() {
        let item = preferred.index(index);
        validate_weight(term, &item, out);
        validate_term(term.at("preference"), false, &item.child("preference"), out);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(key);
        let pods_path = path.child(key);
        let required = pods_path.child(REQUIRED);
        for (index, term) in pods.items(REQUIRED).iter().enumerate() {
            validate_pod_term(term, &required.index(index), out);
        }
        let preferred = pods_path.child(PREFERRED);
        for (index, term) in pods.items(PREFERRED).iter().enumerate() {
            let item = preferred.index(index);
            validate_weight(term, &item, out);
            validate_pod_term(term.at("podAffinityTerm"), &item.child("podAffinityTerm"), out);
        }
    }
}

fn validate_weight(term: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        out.push(FieldError::invalid(&path.child("weight"), weight, "must be in the range 1-100"));
    }
}

/// A node selector with at least one term.
pub(in crate::apiserver::resources) fn validate_node_selector(
    selector: &Value,
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    let terms = path.child("nodeSelectorTerms");
    if selector.items("nodeSelectorTerms").is_empty() {
        out.push(FieldError::required(&terms, "must have at least one node selector term"));
    }
    for (index, term) in selector.items("nodeSelectorTerms").iter().enumerate() {
        validate_term(term, true, &terms.index(index), out);
    }
}

fn validate_term(term: &Value, check_values: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let expressions = path.child("matchExpressions");
    for (index, requirement) in term.items("matchExpressions").iter().enumerate() {
        validate_requirement(requirement, check_values, &expressions.index(index), out);
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term.items("matchFields").iter().enumerate() {
        validate_field_requirement(requirement, &fields.index(index), out);
    }
}

fn validate_requirement(requirement: &Value, check_values: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let values = requirement.texts("values");
    let values_path = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            out.push(FieldError::required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            out.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            out.push(FieldError::required(
                &values_path,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => out.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    validate_label_name(requirement.text("key"), &path.child("key"), out);
    if check_values {
        for (index, value) in values.into_iter().enumerate() {
            let field = values_path.index(index);
            out.extend(label_value(value).into_iter().map(|fault| FieldError::invalid(&field, value, fault)));
        }
    }
}

fn validate_field_requirement(requirement: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let values = requirement.texts("values");
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                out.push(FieldError::required(&path.child("values"), why));
            }
        }
        other => out.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = requirement.text("key");
    if key != "metadata.name" {
        out.push(FieldError::invalid(&path.child("key"), key, "not a valid field selector key"));
        return;
    }
    let list = path.child("values");
    for (index, value) in values.into_iter().enumerate() {
        let field = list.index(index);
        out.extend(dns_subdomain(value).into_iter().map(|fault| FieldError::invalid(&field, value, fault)));
    }
}

fn validate_pod_term(term: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_label_selector(term.at("labelSelector"), &path.child("labelSelector"), out);
    validate_label_selector(term.at("namespaceSelector"), &path.child("namespaceSelector"), out);
    let field = path.child("namespace");
    for name in term.texts("namespaces") {
        out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    validate_label_keys(term, path, out);
    let key = term.text("topologyKey");
    let field = path.child("topologyKey");
    if key.is_empty() {
        out.push(FieldError::required(&field, "can not be empty"));
    }
    validate_label_name(key, &field, out);
}

/// `matchLabelKeys` and `mismatchLabelKeys` beside a label selector.
fn validate_label_keys(holder: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let selector = holder.at("labelSelector");
    for key in ["matchLabelKeys", "mismatchLabelKeys"] {
        let field = path.child(key);
        let names = holder.texts(key);
        if !names.is_empty() && selector.is_null() {
            out.push(FieldError::forbidden(&field, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (index, name) in names.into_iter().enumerate() {
            validate_label_name(name, &field.index(index), out);
        }
    }
    let matching = holder.texts("matchLabelKeys");
    let mut seen: BTreeSet<&str> =
        selector.entries("matchLabels").into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        if let Some(index) = matching.iter().position(|name| *name == key)
            && seen.contains(key)
        {
            out.push(FieldError::invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector"));
        }
        seen.insert(key);
    }
    let mismatching = holder.texts("mismatchLabelKeys");
    let list = path.child("matchLabelKeys");
    for (index, key) in matching.iter().enumerate() {
        if mismatching.contains(key) {
            out.push(FieldError::invalid(
                &list.index(index),
                *key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            ));
        }
    }
}

/// `spec.tolerations`.
pub(in crate::apiserver) fn validate_tolerations(tolerations: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let item = path.index(index);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        let field = item.child("operator");
        if !key.is_empty() {
            validate_label_name(key, &item.child("key"), out);
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            out.push(FieldError::invalid(&field, operator, why));
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            out.push(FieldError::invalid(&item.child("effect"), effect, why));
        }
        match operator {
            "Equal" | "" => {
                let faults = label_value(value);
                if !faults.is_empty() {
                    out.push(FieldError::invalid(&field, value, faults.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    out.push(FieldError::invalid(&field, value, "value must be empty when `operator` is 'Exists'"));
                }
            }
            // Known, but behind a feature gate that is off.
            "Lt" | "Gt" => out.push(FieldError::not_supported(&field, operator, &["Equal", "Exists", "Lt", "Gt"])),
            other => out.push(FieldError::not_supported(&field, other, &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            out.push(FieldError::not_supported(&item.child("effect"), effect, &EFFECTS));
        }
    }
}

/// `spec.topologySpreadConstraints`.
pub(super) fn validate_spread(constraints: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (index, constraint) in constraints.iter().enumerate() {
        let item = path.index(index);
        let skew = constraint.int("maxSkew").unwrap_or(0);
        if skew <= 0 {
            out.push(FieldError::invalid(&item.child("maxSkew"), skew, "must be greater than 0"));
        }
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            out.push(FieldError::required(&item.child("topologyKey"), "can not be empty"));
        }
        let action = constraint.text("whenUnsatisfiable");
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            out.push(FieldError::not_supported(
                &item.child("whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        let same = |other: &Value| other.text("topologyKey") == key && other.text("whenUnsatisfiable") == action;
        if constraints[index + 1..].iter().any(same) {
            let field = item.child("{topologyKey, whenUnsatisfiable}");
            out.push(FieldError::duplicate(&field, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint.int("minDomains") {
            let field = item.child("minDomains");
            if domains <= 0 {
                out.push(FieldError::invalid(&field, domains, "must be greater than 0"));
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                out.push(FieldError::invalid(&field, domains, why));
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if constraint.has(key) && !matches!(constraint.text(key), "Honor" | "Ignore") {
                out.push(FieldError::not_supported(&item.child(key), constraint.text(key), &["Honor", "Ignore"]));
            }
        }
        validate_label_keys(constraint, &item, out);
        validate_label_selector(constraint.at("labelSelector"), &item.child("labelSelector"), out);
    }
}

/// Turns `matchLabelKeys` and `mismatchLabelKeys` into requirements of the selectors beside them, with the pod's own label values.
pub(super) fn merge_label_keys(pod: &mut Value) {
    let labels = pod.at("metadata").at("labels").clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    for constraint in spec.items_mut("topologySpreadConstraints") {
        merge(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = spec.get_mut("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get_mut(kind) else { continue };
        for term in pods.items_mut(REQUIRED) {
            merge(term, "matchLabelKeys", "In", &labels);
            merge(term, "mismatchLabelKeys", "NotIn", &labels);
        }
        for weighted in pods.items_mut(PREFERRED) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                merge(term, "matchLabelKeys", "In", &labels);
                merge(term, "mismatchLabelKeys", "NotIn", &labels);
            }
        }
    }
}

fn merge(holder: &mut Value, keys: &str, operator: &str, labels: &Value) {
    if !holder.has("labelSelector") {
        return;
    }
    let requirements: Vec<Value> = holder
        .texts(keys)
        .into_iter()
        .filter_map(|key| Some(serde_json::json!({"key": key, "operator": operator, "values": [labels.get(key)?]})))
        .collect();
    if requirements.is_empty() {
        return;
    }
    let selector = holder.object_mut("labelSelector");
    let mut expressions = selector.items("matchExpressions").to_vec();
    expressions.extend(requirements);
    selector.put("matchExpressions", Value::Array(expressions));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(rule: impl Fn(&mut Vec<FieldError>)) -> Vec<String> {
        let mut errors = Vec::new();
        rule(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tolerations_have_fitting_operators_and_effects() {
        let faults = |toleration: Value| {
            texts(|out| validate_tolerations(std::slice::from_ref(&toleration), &Path::root("t"), out))
        };
        assert_eq!(faults(json!({"operator": "Exists"})), Vec::<String>::new());
        assert_eq!(
            faults(json!({"key": "a", "operator": "Exists", "value": "b"})),
            ["t[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"]
        );
        assert_eq!(
            faults(json!({"key": "a", "operator": "Gt", "value": "5"})),
            ["t[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\""]
        );
    }

    #[test]
    fn match_label_keys_become_requirements() {
        let mut pod = json!({"metadata": {"labels": {"h": "1"}}, "spec": {"topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["h", "absent"]}, {"matchLabelKeys": ["h"]}]}});
        merge_label_keys(&mut pod);
        assert_eq!(
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
            json!([{"key": "h", "operator": "In", "values": ["1"]}])
        );
        assert!(pod["spec"]["topologySpreadConstraints"][1].get("labelSelector").is_none());
    }
}
