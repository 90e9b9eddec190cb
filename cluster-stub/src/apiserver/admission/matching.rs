//! Which requests a webhook or a policy is for: rules, selectors, and conditions in CEL.
//!
//! Upstream: apiserver v1.36.2 `pkg/admission/plugin/webhook/predicates`, `pkg/admission/plugin/policy/matching/matching.go`.

use serde_json::Value;

use super::AdmissionRequest;
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::selector_matches;

const NAMESPACES: GroupResource = GroupResource::of("", "namespaces");

/// Whether the request is about an object that configures admission itself: those are admitted by nobody else.
pub(super) fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group == "admissionregistration.k8s.io"
}

/// Whether one of the rules is for the request.
pub(super) fn rules_match(rules: &[Value], request: &AdmissionRequest<'_>) -> bool {
    rules.iter().any(|rule| rule_matches(rule, request))
}

fn rule_matches(rule: &Value, request: &AdmissionRequest<'_>) -> bool {
    let has = |key: &str, value: &str| rule.texts(key).iter().any(|item| *item == "*" || *item == value);
    // A Namespace stands inside itself only for admission.
    let is_namespace = request.is_resource("", "namespaces");
    let in_namespace = request.resource.namespaced && !is_namespace;
    let scope = match rule.text("scope") {
        "Namespaced" => in_namespace,
        "Cluster" => !in_namespace,
        _ => true,
    };
    let names = rule.texts("resourceNames");
    let (plural, part) = (request.resource.plural.as_ref(), request.subresource);
    let resource = rule.texts("resources").into_iter().any(|wanted| {
        let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
        (resource == "*" || resource == plural) && (subresource == "*" || subresource == part)
    });
    scope
        && has("operations", request.operation.name())
        && has("apiGroups", &request.resource.group)
        && has("apiVersions", &request.resource.version)
        && resource
        && (names.is_empty() || names.contains(&request.name.as_str()))
}

/// Whether the selectors of namespaces and objects select the request. An absent selector selects everything.
///
/// # Errors
/// 404 when the namespace is not known.
pub(super) fn selectors_match(holder: &Value, request: &AdmissionRequest<'_>) -> Result<bool, ApiError> {
    let (namespaces, objects) = (holder.at("namespaceSelector"), holder.at("objectSelector"));
    Ok(namespace_matches(namespaces, request)? && object_matches(objects, request))
}

fn namespace_matches(selector: &Value, request: &AdmissionRequest<'_>) -> Result<bool, ApiError> {
    if selector.is_null() || selector.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(true);
    }
    if request.is_resource("", "namespaces") {
        let object =
            if request.object.is_object() { &request.object } else { request.old_object.unwrap_or(&Value::Null) };
        return Ok(selector_matches(selector, object.at("metadata").at("labels")));
    }
    if !request.resource.namespaced {
        return Ok(true);
    }
    let namespace = request.objects.get(&NAMESPACES, "", request.namespace).ok_or_else(|| {
        let qualified = crate::apiserver::status::Qualified { group: "", name: "namespaces" };
        ApiError::not_found(qualified, request.namespace)
    })?;
    Ok(selector_matches(selector, namespace.at("metadata").at("labels")))
}

fn object_matches(selector: &Value, request: &AdmissionRequest<'_>) -> bool {
    if selector.is_null() || selector.as_object().is_some_and(serde_json::Map::is_empty) {
        return true;
    }
    let fits = |object: &Value| object.is_object() && selector_matches(selector, object.at("metadata").at("labels"));
    fits(&request.object) || request.old_object.is_some_and(fits)
}
