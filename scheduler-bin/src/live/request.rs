//! Requests over bytes: bodies are written by the caller, and answers decoded by it or, when they only mean success, not at all.

use bytes::Bytes;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use scheduler_transport::{Sender, refusal};
use serde_json::Value;

/// Asks for `path` (with its query); the body of the answer is JSON.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Response<Body>, kube::Error> {
    let request = Request::get(path).header(http::header::ACCEPT, "application/json").body(Body::empty());
    let response = client.send(request.map_err(kube::Error::HttpError)?).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(refusal(status, &response.into_body().collect_bytes().await?))
}

/// Sends `body` (JSON) to `path`.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn post(sender: &Sender, path: &str, body: impl Into<Bytes>) -> Result<(), kube::Error> {
    send(sender, Method::POST, path, "application/json", body.into()).await
}

/// Merges `patch` into the object at `path`, as its kind merges lists.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn patch(sender: &Sender, path: &str, patch: &Value) -> Result<(), kube::Error> {
    let body = patch.to_string().into_bytes().into();
    send(sender, Method::PATCH, path, "application/strategic-merge-patch+json", body).await
}

async fn send(
    sender: &Sender,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: Bytes,
) -> Result<(), kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(kube::Error::HttpError)?;
    sender.send(request).await
}
