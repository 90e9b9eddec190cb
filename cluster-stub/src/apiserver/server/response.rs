//! Small answers: a Status, a JSON value, a line of text.

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, Response, StatusCode};
use serde_json::Value;

use super::Body;
use crate::apiserver::status::ApiError;

const NO_SNIFF: (HeaderName, HeaderValue) = (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// The answer to a request that failed: the error's code and its `Status` object.
pub fn status(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &error.to_status());
    response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// A JSON value with a newline after it, as upstream's encoder writes it.
pub fn json(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Plain text.
pub fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
    response
}
