//! managedFields.

use jiff::Timestamp;
use serde_json::Value;

use crate::apiserver::schema::{Schema, TypeIdx};

/// Who writes.
pub struct Writer<'a> {
    /// Schema.
    pub schema: &'a Schema,
    /// Type.
    pub ty: Option<TypeIdx>,
    /// Manager.
    pub manager: String,
    /// Subresource.
    pub subresource: &'a str,
    /// Version.
    pub api_version: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// Track.
pub fn track_update(_writer: &Writer<'_>, _live: Option<&Value>, _object: &mut Value, _reset: &[&str]) {}

/// Keep.
pub fn keep_times_if_unchanged(_object: &mut Value, _old: &Value) {}
