//! What answers a request once it may go on.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http::request::Parts;
use jiff::Timestamp;

use super::Body;
use crate::apiserver::authn::UserInfo;
use crate::apiserver::request::RequestInfo;

/// A request that was authenticated and authorized, with its body read whole.
#[derive(Debug)]
pub struct AuthorizedRequest {
    /// What method and path ask for.
    pub info: Arc<RequestInfo>,
    /// On whose behalf.
    pub user: Arc<UserInfo>,
    /// Method, URI, headers (without credentials and impersonation) and extensions.
    pub parts: Parts,
    /// The body, at most 3 MiB; empty if there is none.
    pub body: Bytes,
    /// When the request came in.
    pub received: Timestamp,
}

/// Answers requests. Failures are answers too, so there is no error.
pub trait Handler: Send + Sync + 'static {
    /// Answers `request`. The future may be dropped when the client goes away.
    fn handle(&self, request: AuthorizedRequest) -> BoxFuture<'_, Response<Body>>;
}
