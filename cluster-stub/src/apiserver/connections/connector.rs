//! Picks who answers, by resource and subresource.

use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{access_review, logs, rules_review, user_review};
use crate::apiserver::authn::Authenticator;
use crate::apiserver::authz::{Authorizer, Rbac};
use crate::apiserver::registry::{ConnectRequest, Connector, Response};
use crate::apiserver::status::ApiError;
use crate::kubelet::logs::SharedLogSource;

/// Answers requests that touch no stored object of their own.
pub struct Connections {
    /// Checks tokens.
    pub authenticator: Arc<Authenticator>,
    /// Decides about access.
    pub authorizer: Arc<dyn Authorizer>,
    /// Lists rules.
    pub rbac: Arc<Rbac>,
    /// Reads logs; set once kubelets run.
    pub logs: OnceLock<SharedLogSource>,
}

impl Connections {
    async fn review(&self, request: ConnectRequest<'_>) -> Result<(u16, Value), ApiError> {
        let ConnectRequest { ctx, resource, object, .. } = request;
        let authorizer = self.authorizer.as_ref();
        let answer = match (&*resource.group, &*resource.plural) {
            ("authentication.k8s.io", "tokenreviews") => {
                user_review::token_review(object, &self.authenticator, ctx.now).await?
            }
            ("authentication.k8s.io", "selfsubjectreviews") => user_review::self_subject_review(object, &ctx.user),
            ("authorization.k8s.io", "selfsubjectaccessreviews") => {
                access_review::self_subject_access_review(object, &ctx.user, authorizer)?
            }
            ("authorization.k8s.io", "subjectaccessreviews") => {
                access_review::subject_access_review(object, authorizer)?
            }
            ("authorization.k8s.io", "localsubjectaccessreviews") => {
                access_review::local_subject_access_review(object, &ctx.info.namespace, authorizer)?
            }
            ("authorization.k8s.io", "selfsubjectrulesreviews") => {
                rules_review::self_subject_rules_review(object, &ctx.user, &self.rbac)?
            }
            ("", "componentstatuses") => return component_statuses(&ctx.info.verb, &ctx.info.name),
            ("", "bindings") => return Err(ApiError::method_not_allowed()),
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok((201, answer))
    }
}

impl Connector for Connections {
    fn connect<'a>(&'a self, request: ConnectRequest<'a>) -> BoxFuture<'a, Result<Response, ApiError>> {
        async move {
            match (&*request.resource.plural, request.ctx.info.subresource.as_str()) {
                ("pods", "log") => logs::log(&request, self.logs.get()).await,
                _ => Err(logs::no_connection(&request)),
            }
        }
        .boxed()
    }

    fn answer<'a>(&'a self, request: ConnectRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>> {
        self.review(request).boxed()
    }
}

/// The components that this process is. The kind is deprecated and says no more than that they run.
fn component_statuses(verb: &str, name: &str) -> Result<(u16, Value), ApiError> {
    use crate::apiserver::status::Qualified;
    use serde_json::json;

    let component = |name: &str| {
        json!({
            "metadata": {"name": name},
            "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
        })
    };
    let names = ["controller-manager", "etcd-0", "scheduler"];
    if verb == "get" {
        if !names.contains(&name) {
            return Err(ApiError::not_found(Qualified { group: "", name: "componentstatuses" }, name));
        }
        let mut one = component(name);
        one["kind"] = json!("ComponentStatus");
        one["apiVersion"] = json!("v1");
        return Ok((200, one));
    }
    let items: Vec<Value> = names.iter().map(|name| component(name)).collect();
    Ok((200, json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items})))
}
