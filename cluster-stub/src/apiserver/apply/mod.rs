//! Server-side apply: who owns which field.

pub mod managed;

use serde_json::Value;

use crate::apiserver::status::ApiError;
use managed::Writer;

/// Applies.
pub fn apply(
    _writer: &Writer<'_>,
    _live: Option<&Value>,
    applied: &Value,
    _reset: &[&str],
    _force: bool,
) -> Result<Value, ApiError> {
    Ok(applied.clone())
}
