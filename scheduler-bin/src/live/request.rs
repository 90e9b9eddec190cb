//! Requests whose answer matters only if they fail: written as bytes, and not decoded when they succeed.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use kube::core::Status;

/// Sends `body` (JSON) to `path`.
///
/// # Errors
/// The server refuses with its own status, or does not answer.
pub(crate) async fn post(client: &Client, path: &str, body: Vec<u8>) -> Result<(), kube::Error> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect_bytes().await?;
    if status.is_success() {
        return Ok(());
    }
    let answer = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
        code: status.as_u16(),
        reason: status.canonical_reason().unwrap_or_default().to_owned(),
        message: String::from_utf8_lossy(&body).into_owned(),
        ..Status::default()
    });
    Err(kube::Error::Api(Box::new(answer)))
}
