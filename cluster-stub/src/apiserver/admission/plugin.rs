//! The seam for admission plugins. No plugin lives here.

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::apiserver::authn::UserInfo;
use crate::apiserver::resources::{Objects, Resource};
use crate::apiserver::status::{ApiError, Qualified};

/// What is done to the object. Upstream: `admission.Operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// POST, also to acting subresources, and server-side apply of a new object.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE.
    Delete,
    /// A connection to a container, node or service.
    Connect,
}

impl Operation {
    /// The name in messages and webhooks.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// One write on its way through the admission chain. Upstream: `admission.Attributes`.
pub struct AdmissionRequest<'a> {
    /// What is done.
    pub operation: Operation,
    /// The resource in the path.
    pub resource: &'a Resource,
    /// The subresource in the path, `""` for the object itself.
    pub subresource: &'a str,
    /// The namespace in the path, `""` for cluster-scoped resources.
    pub namespace: &'a str,
    /// The object's name; `""` on a create whose name is still to be generated.
    pub name: String,
    /// Who asks.
    pub user: &'a UserInfo,
    /// The moment of the request.
    pub now: Timestamp,
    /// Whether nothing may be changed.
    pub dry_run: bool,
    /// The body: the new object, for acting subresources their own kind; `Null` on delete.
    pub object: Value,
    /// The stored object on update and delete.
    pub old_object: Option<&'a Value>,
    /// CreateOptions, UpdateOptions or DeleteOptions.
    pub options: &'a Value,
    /// The stored objects.
    pub objects: &'a dyn Objects,
    /// Texts for `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// A text of the new object's spec that a plugin drew: it ends in random characters, as generated names do.
    pub drawn: Option<String>,
}

impl AdmissionRequest<'_> {
    /// Whether the request is about that resource itself, not a subresource.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.is_resource(group, plural)
    }

    /// Whether the request is about that resource or one of its subresources.
    pub fn is_resource(&self, group: &str, plural: &str) -> bool {
        self.resource.group == group && self.resource.plural == plural
    }

    /// 403 in the words of the chain: `pods "x" is forbidden: <why>`. Upstream: `admission.NewForbidden`.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> ApiError {
        ApiError::forbidden(self.qualified(), &self.display_name(), why)
    }

    /// 404 for the object of the request. Upstream: `admission.NewNotFound`.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(self.qualified(), &self.display_name())
    }

    /// The resource as messages spell it.
    pub fn qualified(&self) -> Qualified<'_> {
        Qualified { group: &self.resource.group, name: &self.resource.plural }
    }

    /// The object's name as messages have it.
    pub fn display_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let metadata = &self.object["metadata"];
        match (metadata["name"].as_str().unwrap_or(""), metadata["generateName"].as_str().unwrap_or("")) {
            ("", "") => "Unknown".to_owned(),
            ("", prefix) => prefix.to_owned(),
            (name, _) => name.to_owned(),
        }
    }
}

/// A plugin of the chain. Mutating methods run before defaults are final and validation, validating ones after.
pub trait AdmissionPlugin: Send + Sync {
    /// Upstream's name, e.g. `NamespaceLifecycle`.
    fn name(&self) -> &'static str;

    /// Whether what the plugin did on this create, and that it let it pass, follows from the user, from the object without its
    /// name, uid and times, and from what was read of [`AdmissionRequest::objects`], and is the same the next time. Asked when
    /// all of the chain let it pass. The node of a binding is no part of the object here: [`AdmissionPlugin::lets_bind`] asks.
    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        false
    }

    /// Whether a plugin that is determined, and that neither changed nor refused a binding that asks for nothing but a node, does
    /// the same when it is this one.
    fn lets_bind(&self, _node: &str, _objects: &dyn Objects) -> bool {
        true
    }

    /// Changes or refuses the object.
    ///
    /// # Errors
    /// The Status that the client gets.
    fn mutate<'a>(&'a self, _request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Refuses the object.
    ///
    /// # Errors
    /// The Status that the client gets.
    fn validate<'a>(&'a self, _request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
