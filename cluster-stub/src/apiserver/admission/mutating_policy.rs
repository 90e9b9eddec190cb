//! MutatingAdmissionPolicy: changes in CEL to the requests that a policy is bound to.
//!
//! Upstream: apiserver v1.36.2 `pkg/admission/plugin/policy/mutating/dispatcher.go`, `patch/smd.go`, `patch/json_patch.go`.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::attributes::{Conditions, Values, conditions};
use super::matching::is_exempt;
use super::validating_policy::{Variables, definition_matches, params};
use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::apply;
use crate::apiserver::authz::Authorizer;
use crate::apiserver::patch::json_patch::JsonPatch;
use crate::apiserver::resources::GroupResource;
use crate::apiserver::schema::Schema;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: GroupResource = GroupResource::of(GROUP, "mutatingadmissionpolicies");
const BINDINGS: GroupResource = GroupResource::of(GROUP, "mutatingadmissionpolicybindings");

/// Changes requests as the policies that are bound to them say.
#[derive(Debug)]
pub(super) struct MutatingAdmissionPolicy {
    authorizer: Arc<dyn Authorizer>,
}

impl MutatingAdmissionPolicy {
    /// Policies whose expressions may ask `authorizer`.
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        MutatingAdmissionPolicy { authorizer }
    }

    fn change(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let bindings = request.objects.list(&BINDINGS, None);
        if !writes || bindings.is_empty() || is_exempt(request) {
            return Ok(());
        }
        let mut failures = Vec::new();
        for policy in request.objects.list(&POLICIES, None) {
            let spec = policy.at("spec");
            let name = policy.at("metadata").text("name");
            if !definition_matches(spec.at("matchConstraints"), request)? {
                continue;
            }
            for binding in bindings.iter().filter(|binding| binding.at("spec").text("policyName") == name) {
                let resources = binding.at("spec").at("matchResources");
                if !resources.is_null() && !definition_matches(resources, request)? {
                    continue;
                }
                let outcome = params(spec, binding.at("spec"), request)
                    .map_err(|why| format!("failed to configure binding: {why}"))
                    .and_then(|all| all.into_iter().try_for_each(|one| self.run(spec, &one, request)));
                if let Err(why) = outcome
                    && spec.text("failurePolicy") != "Ignore"
                {
                    let binding = binding.at("metadata").text("name");
                    failures.push(format!("policy '{name}' with binding '{binding}' denied request: {why}"));
                }
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        let refused = request.forbidden("admission request denied by policy");
        Err(failures.iter().fold(refused, |refused, why| refused.with_cause("", why, "")))
    }

    /// Runs the mutations of one policy with one parameter; each sees what the one before it made.
    fn run(
        &self,
        spec: &Value,
        parameter: &crate::apiserver::cel::Value,
        request: &mut AdmissionRequest<'_>,
    ) -> Result<(), String> {
        for mutation in spec.items("mutations") {
            let mut values = Values::of(request, &self.authorizer);
            values.params = parameter.clone();
            match conditions(spec.items("matchConditions"), &values) {
                Conditions::Match => {}
                Conditions::Miss => return Ok(()),
                Conditions::Failed(why) => return Err(why),
            }
            let variables = Variables::of(spec, &values);
            let evaluate = |holder: &str| {
                let value = variables.run(mutation.at(holder).text("expression"))?;
                value.to_json().ok_or_else(|| format!("unsupported return type: {}", value.type_name()))
            };
            request.object = if mutation.text("patchType") == "JSONPatch" {
                json_patched(&request.object, &evaluate("jsonPatch")?)?
            } else {
                merged(request, evaluate("applyConfiguration")?)?
            };
            request.resource.strategy.apply_defaults(&mut request.object);
        }
        Ok(())
    }
}

fn json_patched(object: &Value, operations: &Value) -> Result<Value, String> {
    if !operations.is_array() {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    }
    let patch = JsonPatch::parse(operations.to_string().as_bytes()).map_err(|error| format!("JSON Patch: {error}"))?;
    patch.apply(object).map_err(|error| format!("JSON Patch: {error}"))
}

/// Lays a configuration over the object as server-side apply does, without anybody owning anything.
fn merged(request: &AdmissionRequest<'_>, mut configuration: Value) -> Result<Value, String> {
    if !configuration.is_object() {
        return Err("type mismatch: ApplyConfiguration expression should evaluate to an object".to_owned());
    }
    for key in ["apiVersion", "kind"] {
        configuration[key] = request.object.at(key).clone();
    }
    let resource = request.resource;
    let builtin = Schema::builtin();
    let (schema, ty) = match &resource.custom {
        Some(custom) => {
            let (schema, ty) = custom.types();
            (schema, Some(ty))
        }
        None => (&*builtin, builtin.find(&resource.type_name)),
    };
    Ok(apply::overlay(schema, ty, &request.object, &configuration))
}

impl AdmissionPlugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        request.objects.list(&BINDINGS, None).is_empty()
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(self.change(request)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_a_list_of_operations() {
        let object = json!({"spec": {"a": 1}});
        let patch = json!([{"op": "add", "path": "/spec/b", "value": 2}]);
        assert_eq!(json_patched(&object, &patch), Ok(json!({"spec": {"a": 1, "b": 2}})));
        let why = json_patched(&object, &json!({})).expect_err("no list");
        assert_eq!(why, "type mismatch: JSONPatchType.expression should evaluate to array");
    }
}
