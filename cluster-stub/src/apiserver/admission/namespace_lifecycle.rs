//! NamespaceLifecycle: nothing is created in a namespace that is missing or going away, and some namespaces stay.
//!
//! Upstream: v1.36.2 apiserver `pkg/admission/plugin/namespace/lifecycle/admission.go`.

use futures::future::BoxFuture;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::json::JsonExt;

const NAMESPACES: GroupResource = GroupResource::of("", "namespaces");
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// See the module.
pub(super) struct NamespaceLifecycle;

impl AdmissionPlugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if request.is_resource("", "namespaces") {
                let immortal = request.operation == Operation::Delete && IMMORTAL.contains(&request.name.as_str());
                return if immortal { Err(request.forbidden("this namespace may not be deleted")) } else { Ok(()) };
            }
            let namespace = request.namespace;
            let review = request.is_resource("authorization.k8s.io", "localsubjectaccessreviews");
            if namespace.is_empty() || request.operation == Operation::Delete || review {
                return Ok(());
            }
            let phase = match request.objects.get(&NAMESPACES, "", namespace) {
                Some(object) => object.at("status").text("phase").to_owned(),
                // The cache may be a moment behind a namespace that was just made.
                None => match request.objects.read(&NAMESPACES, "", namespace).await? {
                    Some(object) => object.at("status").text("phase").to_owned(),
                    None => return Err(ApiError::not_found(Qualified { group: "", name: "namespaces" }, namespace)),
                },
            };
            if request.operation != Operation::Create || phase != "Terminating" {
                return Ok(());
            }
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let cause = format!("namespace {namespace} is being terminated");
            Err(request.forbidden(why).with_cause("NamespaceTerminating", &cause, "metadata.namespace"))
        })
    }
}
