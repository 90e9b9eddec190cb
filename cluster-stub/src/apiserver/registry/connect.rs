//! The seam for what the registry cannot answer itself: connections to a container, node or service, and kinds that are asked
//! but never stored.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use super::context::RequestContext;
use super::response::Response;
use super::{Registry, media::Accept};
use crate::apiserver::resources::Resource;
use crate::apiserver::status::ApiError;

/// A request that somebody else answers.
pub struct ConnectRequest<'a> {
    /// The request: path, query, headers, user.
    pub ctx: &'a RequestContext,
    /// The resource in the path.
    pub resource: &'a Arc<Resource>,
    /// The HTTP method.
    pub method: &'a http::Method,
    /// The request's extensions, where a connection upgrade can be found.
    pub extensions: http::Extensions,
    /// The raw body.
    pub body: &'a Bytes,
    /// The body as an object of the resource's kind, defaulted; `Null` for connections and requests without a body.
    pub object: Value,
    /// The form of answer that the client wants.
    pub accept: Accept,
    /// The stored objects.
    pub registry: &'a Registry,
}

/// Answers such requests.
pub trait Connector: Send + Sync + 'static {
    /// Answers a connection to a subresource of behaviour `Connect`: log, exec, attach, portforward, proxy.
    fn connect<'a>(&'a self, request: ConnectRequest<'a>) -> BoxFuture<'a, Result<Response, ApiError>>;

    /// Answers a request for a kind that is not stored: the code and the body.
    fn answer<'a>(&'a self, request: ConnectRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>>;
}
