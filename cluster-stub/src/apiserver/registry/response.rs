//! Answers as HTTP: encoding, compression, headers.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING};
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use super::media::{Accept, Encoding};
use crate::apiserver::codec::{stored, yaml};
use crate::apiserver::server::Body;
use crate::apiserver::status::ApiError;

/// A finished answer.
pub type Response = http::Response<Body>;

/// Answers above this are compressed, bytes. Upstream: `defaultGzipThresholdBytes`.
const GZIP_THRESHOLD: usize = 128 * 1024;

/// An answer of encoded JSON, in the encoding that the client asked for.
pub(super) fn encoded(code: u16, json: Bytes, accept: Accept) -> Response {
    let (body, media_type) = match accept.encoding {
        Encoding::Json if accept.pretty => {
            let mut pretty = stored::pretty(&json);
            pretty.push(b'\n');
            (Bytes::from(pretty), "application/json")
        }
        Encoding::Json | Encoding::Protobuf => (json, "application/json"),
        Encoding::Yaml => {
            let value: Value = serde_json::from_slice(&json).unwrap_or(Value::Null);
            (Bytes::from(yaml::write(&value).unwrap_or_default()), "application/yaml")
        }
    };
    let compress = accept.gzip && body.len() > GZIP_THRESHOLD;
    let body = if compress { gzip(&body).unwrap_or(body) } else { body };
    let mut response = http::Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    if compress {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// An answer of an object.
pub(super) fn object(code: u16, object: &Value, accept: Accept) -> Response {
    encoded(code, stored::encode_served(object).into(), accept)
}

/// A failure. Its body is JSON unless YAML was asked for.
pub(super) fn failure(error: &ApiError, accept: Option<Accept>) -> Response {
    let plain = Accept { encoding: Encoding::Json, view: super::media::View::Object, pretty: false, gzip: false };
    let mut response = object(error.code(), &error.to_status(), accept.unwrap_or(plain));
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds `Warning: 299 - "…"` headers.
pub(super) fn add_warnings(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let mut text = String::from("299 - \"");
        for character in warning.chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                character if character.is_control() => text.push(' '),
                character => text.push(character),
            }
        }
        text.push('"');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
