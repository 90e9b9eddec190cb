//! SelfSubjectRulesReview: all that the user may do in a namespace.

use serde_json::{Value, json};

use crate::apiserver::authn::UserInfo;
use crate::apiserver::authn::user::SYSTEM_PRIVILEGED_GROUP;
use crate::apiserver::authz::{Rbac, full_authority};
use crate::apiserver::status::{ApiError, aggregate};

/// Upstream v1.36.2: pkg/registry/authorization/selfsubjectrulesreview/rest.go.
pub(super) fn self_subject_rules_review(mut review: Value, user: &UserInfo, rbac: &Rbac) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (found, mut errors) = rbac.rules_for(user, namespace);
    let mut rules = if user.in_group(SYSTEM_PRIVILEGED_GROUP) { full_authority().to_vec() } else { Vec::new() };
    rules.extend(found);
    let incomplete = user.as_node().is_some();
    if incomplete {
        errors.insert(0, "node authorizer does not support user rule resolution".into());
    }
    let (mut resources, mut paths): (Vec<Value>, Vec<Value>) = Default::default();
    for rule in rules {
        if !rule.resources.is_empty() {
            let mut entry = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                entry["resourceNames"] = json!(rule.resource_names);
            }
            resources.push(entry);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    review["status"] = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if !errors.is_empty() {
        review["status"]["evaluationError"] = json!(aggregate(&errors));
    }
    Ok(review)
}
