//! The seam for subresources that act on an object: POST of a body of another kind (binding, eviction, token).

use futures::future::BoxFuture;
use serde_json::Value;

use super::objects::Objects;
use super::strategy::WriteContext;
use crate::apiserver::status::ApiError;

/// One POST to an acting subresource, after admission.
pub struct ActionRequest<'a> {
    /// Namespace in the path.
    pub namespace: &'a str,
    /// Name of the object in the path.
    pub name: &'a str,
    /// The decoded, defaulted body.
    pub body: Value,
    /// Who asks, and when.
    pub context: WriteContext<'a>,
    /// Whether nothing may be changed.
    pub dry_run: bool,
    /// The stored objects.
    pub objects: &'a dyn Objects,
}

/// Answers a POST to a subresource.
pub trait Action: Send + Sync {
    /// Fills in what the client left out of the body.
    fn apply_defaults(&self, _body: &mut Value) {}

    /// Acts; answers with the HTTP status code and the body of the answer.
    ///
    /// # Errors
    /// The Status that the client gets.
    fn run<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>>;
}
