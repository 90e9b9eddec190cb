//! Refuses roles and bindings that grant more than their writer holds. Upstream checks this in the storage of RBAC kinds
//! (v1.36.2, pkg/registry/rbac/*/policybased), that is after mutating admission and before validation: so it stands last
//! among the mutating plugins here.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize as _;
use serde_json::Value;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::authn::user::SYSTEM_PRIVILEGED_GROUP;
use crate::apiserver::authz::{
    Attributes, Authorizer, PolicyRule, Rbac, RoleRef, confirm_no_escalation, full_authority,
};
use crate::apiserver::status::{ApiError, Qualified};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks writes of Roles, ClusterRoles and their bindings.
#[derive(Debug)]
pub struct RbacEscalation {
    rbac: Arc<Rbac>,
    authorizer: Arc<dyn Authorizer>,
}

impl RbacEscalation {
    /// A check against the rules in `rbac`; `authorizer` knows who may `escalate` and `bind`.
    pub fn new(rbac: Arc<Rbac>, authorizer: Arc<dyn Authorizer>) -> Self {
        RbacEscalation { rbac, authorizer }
    }

    fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if !writes || request.resource.group != GROUP || request.user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return Ok(());
        }
        let old = request.old_object.unwrap_or(&Value::Null);
        if old.is_object() && only_garbage_collection_differs(&request.object, old) {
            return Ok(());
        }
        match &*request.resource.plural {
            "roles" | "clusterroles" => self.check_role(request, old),
            "rolebindings" | "clusterrolebindings" => self.check_binding(request),
            _ => Ok(()),
        }
    }

    fn check_role(&self, request: &AdmissionRequest<'_>, old: &Value) -> Result<(), ApiError> {
        let escalate = Attributes {
            name: &request.name,
            namespace: request.namespace,
            ..Attributes::resource(request.user, "escalate", GROUP, "*", &request.resource.plural)
        };
        if self.authorizer.authorize(&escalate).is_allowed() {
            return Ok(());
        }
        self.confirm(request, &rules(&request.object))?;
        let aggregates = |object: &Value| {
            object["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
        };
        if (aggregates(&request.object) || aggregates(old)) && self.confirm(request, &full_authority()).is_err() {
            return Err(refuse(request, "must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn check_binding(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let role = RoleRef::deserialize(&request.object["roleRef"]).unwrap_or_default();
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            // Validation says what is wrong with it.
            _ => return Ok(()),
        };
        let bind = Attributes {
            name: &role.name,
            namespace: request.namespace,
            ..Attributes::resource(request.user, "bind", &role.api_group, "*", resource)
        };
        if self.authorizer.authorize(&bind).is_allowed() {
            return Ok(());
        }
        match self.rbac.role_rules(&role, request.namespace) {
            Ok(rules) => self.confirm(request, &rules),
            Err(_) => Err(ApiError::not_found(Qualified { group: GROUP, name: resource }, &role.name)),
        }
    }

    fn confirm(&self, request: &AdmissionRequest<'_>, rules: &[PolicyRule]) -> Result<(), ApiError> {
        confirm_no_escalation(&self.rbac, request.user, request.namespace, rules)
            .map_err(|message| refuse(request, message))
    }
}

impl AdmissionPlugin for RbacEscalation {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        request.resource.group != GROUP
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        std::future::ready(self.check(request)).boxed()
    }
}

fn refuse(request: &AdmissionRequest<'_>, why: impl std::fmt::Display) -> ApiError {
    let name = request.object["metadata"]["name"].as_str().unwrap_or(&request.name);
    ApiError::forbidden(request.qualified(), name, why)
}

fn rules(role: &Value) -> Vec<PolicyRule> {
    Vec::deserialize(&role["rules"]).unwrap_or_default()
}

/// Whether only owner references and finalizers differ, which the garbage collector must be able to change.
/// Upstream v1.36.2: pkg/registry/rbac/helpers.go IsOnlyMutatingGCFields.
fn only_garbage_collection_differs(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for member in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(member);
            }
        }
        object
    };
    without(new) == without(old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_owners_and_finalizers_are_the_collectors() {
        let old = json!({"metadata": {"name": "r", "finalizers": ["a"], "resourceVersion": "1"}, "rules": []});
        let collected = json!({"metadata": {"name": "r", "resourceVersion": "2"}, "rules": []});
        let changed = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]});
        assert!(only_garbage_collection_differs(&collected, &old));
        assert!(!only_garbage_collection_differs(&changed, &old));
    }
}
