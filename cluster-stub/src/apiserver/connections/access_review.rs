//! SubjectAccessReview and its kin: may somebody do something.

use serde_json::{Value, json};

use crate::apiserver::authn::UserInfo;
use crate::apiserver::authz::{Attributes, Authorizer, Decision};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::field::Path;

const GROUP: &str = "authorization.k8s.io";
const SPEC: Path<'static> = Path::root("spec");

/// About the user who asks.
pub(super) fn self_subject_access_review(
    mut review: Value,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
) -> Result<Value, ApiError> {
    let faults = spec_faults(&review["spec"]);
    reject("SelfSubjectAccessReview", &faults)?;
    review["status"] = status(&review["spec"], user, authorizer);
    Ok(review)
}

/// About any user.
pub(super) fn subject_access_review(mut review: Value, authorizer: &dyn Authorizer) -> Result<Value, ApiError> {
    let mut faults = spec_faults(&review["spec"]);
    faults.extend(subject_faults(&review["spec"]));
    reject("SubjectAccessReview", &faults)?;
    review["status"] = status(&review["spec"], &subject(&review["spec"]), authorizer);
    Ok(review)
}

/// About any user in one namespace.
pub(super) fn local_subject_access_review(
    mut review: Value,
    namespace: &str,
    authorizer: &dyn Authorizer,
) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let mut faults = spec_faults(spec);
    faults.extend(subject_faults(spec));
    let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if spec["resourceAttributes"].is_object() && asked != namespace {
        let path = SPEC.child("resourceAttributes");
        faults.push(FieldError::invalid(&path.child("namespace"), asked, "must match metadata.namespace"));
    }
    if spec["nonResourceAttributes"].is_object() {
        let path = SPEC.child("nonResourceAttributes");
        let value = spec["nonResourceAttributes"].clone();
        faults.push(FieldError::invalid(&path, value, "disallowed on this kind of request"));
    }
    reject("LocalSubjectAccessReview", &faults)?;
    review["status"] = status(&review["spec"], &subject(&review["spec"]), authorizer);
    Ok(review)
}

/// Upstream v1.36.2: pkg/apis/authorization/validation/validation.go.
fn spec_faults(spec: &Value) -> Vec<FieldError> {
    match (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object()) {
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            let value = spec["nonResourceAttributes"].clone();
            vec![FieldError::invalid(&SPEC.child("nonResourceAttributes"), value, why)]
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid(&SPEC.child("resourceAttributes"), Value::Null, why)]
        }
        _ => Vec::new(),
    }
}

fn subject_faults(spec: &Value) -> Vec<FieldError> {
    let named = spec["user"].as_str().is_some_and(|user| !user.is_empty());
    if named || spec["groups"].as_array().is_some_and(|groups| !groups.is_empty()) {
        return Vec::new();
    }
    vec![FieldError::invalid(&SPEC.child("user"), "", "at least one of user or group must be specified")]
}

fn reject(kind: &str, faults: &[FieldError]) -> Result<(), ApiError> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(Qualified { group: GROUP, name: kind }, "", faults))
}

fn subject(spec: &Value) -> UserInfo {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    UserInfo {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&spec["groups"]),
        extra: spec["extra"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), texts(v))).collect(),
    }
}

fn status(spec: &Value, user: &UserInfo, authorizer: &dyn Authorizer) -> Value {
    let text = |value: &'_ Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let (source, is_resource) = if resource.is_object() { (resource, true) } else { (path, false) };
    let names = ["verb", "group", "version", "resource", "subresource", "namespace", "name", "path"];
    let [verb, group, version, plural, subresource, namespace, name, path] = names.map(|key| text(source, key));
    let field_selector = selector(&source["fieldSelector"]);
    let question = if is_resource {
        Attributes {
            subresource: &subresource,
            namespace: &namespace,
            name: &name,
            field_selector: &field_selector,
            ..Attributes::resource(user, &verb, &group, &version, &plural)
        }
    } else {
        Attributes::path(user, &verb, &path)
    };
    let (allowed, reason) = match authorizer.authorize(&question) {
        Decision::Allow(grant) => (true, grant.to_string()),
        Decision::NoOpinion { reason } => (false, reason),
    };
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    status
}

/// A field selector given as text or as requirements, as text. Of the operators only one value of `In` can be told.
fn selector(attributes: &Value) -> String {
    if let Some(raw) = attributes["rawSelector"].as_str() {
        return raw.to_owned();
    }
    let requirements = attributes["requirements"].as_array().into_iter().flatten().filter_map(|requirement| {
        let values = requirement["values"].as_array()?;
        match (requirement["operator"].as_str()?, values.as_slice()) {
            ("In", [value]) => Some(format!("{}={}", requirement["key"].as_str()?, value.as_str()?)),
            _ => None,
        }
    });
    requirements.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authz::PrivilegedGroups;

    fn review(spec: &Value) -> Result<Value, String> {
        let answer = subject_access_review(json!({"spec": spec}), &PrivilegedGroups);
        answer.map(|review| review["status"].clone()).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_subject_in_the_spec_is_asked_about() {
        let pods = json!({"verb": "get", "resource": "pods"});
        assert_eq!(review(&json!({"user": "a", "resourceAttributes": pods})), Ok(json!({"allowed": false})));
        let masters = json!({"user": "a", "groups": ["system:masters"], "resourceAttributes": pods});
        assert_eq!(review(&masters), Ok(json!({"allowed": true})));
        let path = json!({"groups": ["system:masters"], "nonResourceAttributes": {"verb": "get", "path": "/x"}});
        assert_eq!(review(&path), Ok(json!({"allowed": true})));
    }

    #[test]
    fn a_spec_needs_one_subject_and_one_kind_of_attributes() {
        let error = review(&json!({})).unwrap_err();
        assert!(
            error.contains("exactly one of nonResourceAttributes or resourceAttributes must be specified"),
            "{error}"
        );
        assert!(error.contains("at least one of user or group must be specified"), "{error}");
        let both = json!({"user": "a", "resourceAttributes": {}, "nonResourceAttributes": {}});
        assert!(review(&both).unwrap_err().contains("cannot be specified in combination"));
    }

    #[test]
    fn a_local_review_stays_in_its_namespace() {
        let spec = json!({"user": "a", "resourceAttributes": {"namespace": "b", "verb": "get", "resource": "pods"}});
        assert!(local_subject_access_review(json!({"spec": spec}), "b", &PrivilegedGroups).is_ok());
        let error = local_subject_access_review(json!({"spec": spec}), "c", &PrivilegedGroups).unwrap_err();
        assert!(error.message().contains("must match metadata.namespace"), "{error}");
    }
}
