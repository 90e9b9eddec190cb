//! Requests over bytes: bodies are written by the caller, and answers decoded by it or, when they only mean success, not at all.

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;

/// Asks for `path` (with its query); the body of the answer is JSON.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Response<Body>, kube::Error> {
    let request = Request::get(path).header(http::header::ACCEPT, "application/json").body(Body::empty());
    let response = client.send(request.map_err(kube::Error::HttpError)?).await?;
    if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
}

/// Sends `body` (JSON) to `path`.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn post(client: &Client, path: &str, body: impl Into<Body>) -> Result<(), kube::Error> {
    send(client, Method::POST, path, "application/json", body.into()).await
}

/// Merges `patch` into the object at `path`, as its kind merges lists.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn patch(client: &Client, path: &str, patch: &Value) -> Result<(), kube::Error> {
    let body = patch.to_string().into_bytes().into();
    send(client, Method::PATCH, path, "application/strategic-merge-patch+json", body).await
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: Body,
) -> Result<(), kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    // An answer that was not read to its end would hold the connection.
    response.into_body().collect_bytes().await.map(drop)
}

/// What the server said instead.
async fn refusal(response: Response<Body>) -> kube::Error {
    let status = response.status();
    let body = match response.into_body().collect_bytes().await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let answer = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
        code: status.as_u16(),
        reason: status.canonical_reason().unwrap_or_default().to_owned(),
        message: String::from_utf8_lossy(&body).into_owned(),
        ..Status::default()
    });
    kube::Error::Api(Box::new(answer))
}
