//! The request as webhooks (`AdmissionReview.request`) and expressions (`request`) see it.
//!
//! Upstream: apiserver v1.36.2 `pkg/admission/plugin/webhook/request/admissionreview.go`, `pkg/admission/plugin/cel`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{AdmissionRequest, Operation};
use crate::apiserver::authz::Authorizer;
use crate::apiserver::cel::authorizer::Check;
use crate::apiserver::cel::{EvalError, Program, Type, Value as Cel};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::validation::json::JsonExt;

/// The members that both have.
pub(super) fn request_of(request: &AdmissionRequest<'_>) -> Value {
    let resource = request.resource;
    let part = resource.subresource(request.subresource);
    let (group, version, kind) = match part {
        Some(part) if !part.version.is_empty() => (&part.group, &part.version, &part.kind),
        Some(part) => (&resource.group, &resource.version, &part.kind),
        None => (&resource.group, &resource.version, &resource.kind),
    };
    let kind = json!({"group": group, "version": version, "kind": kind});
    let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let mut value = json!({
        "kind": kind,
        "resource": plural,
        "requestKind": kind,
        "requestResource": plural,
        "operation": request.operation.name(),
        "userInfo": user_info(request),
        "dryRun": request.dry_run,
        "options": request.options,
    });
    if !request.name.is_empty() {
        value["name"] = request.name.as_str().into();
    }
    if !request.namespace.is_empty() {
        value["namespace"] = request.namespace.into();
    }
    if !request.subresource.is_empty() {
        value["subResource"] = request.subresource.into();
        value["requestSubResource"] = request.subresource.into();
    }
    value
}

fn user_info(request: &AdmissionRequest<'_>) -> Value {
    let user = request.user;
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// The object, `null` on a delete.
pub(super) fn object_of(request: &AdmissionRequest<'_>) -> Value {
    if request.operation == Operation::Delete { Value::Null } else { request.object.clone() }
}

/// The values that expressions of one request see; made once, used by all of them.
pub(super) struct Values {
    object: Cel,
    old_object: Cel,
    request: Cel,
    namespace: Cel,
    authorizer: Cel,
    /// `params`, for expressions of a policy that has some.
    pub(super) params: Cel,
}

impl Values {
    pub(super) fn of(request: &AdmissionRequest<'_>, authorizer: &Arc<dyn Authorizer>) -> Values {
        let namespaces = GroupResource::of("", "namespaces");
        let inside = request.resource.namespaced && !request.is_resource("", "namespaces");
        let namespace = inside.then(|| request.objects.get(&namespaces, "", request.namespace)).flatten();
        let resource = request.resource;
        let about = [&*resource.group, &*resource.plural, request.subresource, request.namespace, &request.name];
        let check = Check::new(authorizer.clone(), Arc::new(request.user.clone()));
        Values {
            object: Cel::of_json(&object_of(request)),
            old_object: request.old_object.map_or(Cel::Null, Cel::of_json),
            request: Cel::of_json(&request_of(request)),
            namespace: namespace.map_or(Cel::Null, |namespace| Cel::of_json(&shown_namespace(&namespace))),
            authorizer: Cel::Authorizer(Arc::new(Check::about(about, check))),
            params: Cel::Null,
        }
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<Result<Cel, EvalError>> {
        Some(Ok(match name {
            "object" => self.object.clone(),
            "oldObject" => self.old_object.clone(),
            "request" => self.request.clone(),
            "namespaceObject" => self.namespace.clone(),
            "authorizer" => self.authorizer.clone(),
            "params" => self.params.clone(),
            _ => return None,
        }))
    }
}

/// The part of a Namespace that expressions see.
fn shown_namespace(namespace: &Value) -> Value {
    let mut shown = json!({"metadata": {}, "spec": namespace.at("spec"), "status": namespace.at("status")});
    for key in ["name", "generateName", "namespace", "labels", "annotations", "uid", "creationTimestamp"] {
        let value = namespace.at("metadata").at(key);
        if !value.is_null() {
            shown["metadata"][key] = value.clone();
        }
    }
    shown
}

/// The names that expressions of webhooks and policies may use, all of any type but `variables`.
pub(crate) fn names(has_params: bool, has_authorizer: bool, variables: Option<Type>) -> impl Fn(&str) -> Option<Type> {
    move |name| match name {
        "object" | "oldObject" | "request" | "namespaceObject" => Some(Type::Dyn),
        "authorizer" if has_authorizer => Some(Type::Dyn),
        "params" if has_params => Some(Type::Dyn),
        "variables" => variables.clone(),
        _ => None,
    }
}

/// What the conditions of a webhook or policy say of a request.
pub(super) enum Conditions {
    /// All of them hold.
    Match,
    /// One does not hold.
    Miss,
    /// None is false, and one could not be evaluated.
    Failed(String),
}

/// Evaluates `matchConditions`.
///
/// Upstream: `pkg/admission/plugin/webhook/matchconditions/matcher.go`.
pub(super) fn conditions(list: &[Value], values: &Values) -> Conditions {
    let mut failures = Vec::new();
    for condition in list {
        let expression = condition.text("expression");
        let outcome =
            Program::compile(expression).map_err(|error| format!("compilation failed: {error}")).and_then(|program| {
                program
                    .evaluate(&|name| values.get(name))
                    .map_err(|error| format!("expression '{expression}' resulted in error: {error}"))
            });
        match outcome {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => return Conditions::Miss,
            Ok(other) => failures.push(format!("expression '{expression}' gave {other}, want a bool")),
            Err(error) => failures.push(error),
        }
    }
    if failures.is_empty() { Conditions::Match } else { Conditions::Failed(failures.join(", ")) }
}
