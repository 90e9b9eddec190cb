//! The seam for subresources that act on an object: POST of a body of another kind (binding, eviction, token).

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use super::objects::Objects;
use super::strategy::WriteContext;
use crate::apiserver::codec::binding::Usual;
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

/// One POST whose body was not decoded, since it is a usual one that admission has nothing to do with.
pub struct UsualRequest<'a> {
    /// Namespace in the path.
    pub namespace: &'a str,
    /// What the body says; its name is the one in the path.
    pub body: Usual<'a>,
    /// Who asks, and when.
    pub context: WriteContext<'a>,
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

    /// Reads a usual body without decoding it; `None` for one that takes decoding. Whatever is read here, decoding finds no
    /// fault with, and nothing else in.
    fn usual<'b>(&self, _body: &'b [u8]) -> Option<Usual<'b>> {
        None
    }

    /// Does what [`Action::run`] does for a usual body, and answers the same, encoded. `None`: nothing was done, it takes the
    /// decoded body.
    ///
    /// # Errors
    /// The Status that the client gets.
    fn run_usual<'a>(&'a self, _request: UsualRequest<'a>) -> BoxFuture<'a, Result<Option<(u16, Bytes)>, ApiError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
