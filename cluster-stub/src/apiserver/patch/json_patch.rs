//! JSON patch, RFC 6902.

use std::io;

use json_patch::PatchOperation;
use serde_json::Value;

use super::PatchError;

/// Operations in one patch at most. Upstream: `maxJSONPatchOperations`.
const MAX_OPERATIONS: usize = 10_000;

/// Bytes that the copies of one patch may add to the object. Upstream: `JSONPatchMaxCopyBytes` (v1.36.2 apiserver server/config.go).
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// A JSON patch that was read.
#[derive(Clone, Debug)]
pub struct JsonPatch(json_patch::Patch);

impl JsonPatch {
    /// Reads a patch.
    ///
    /// # Errors
    /// [`PatchError::Malformed`], [`PatchError::TooMany`].
    pub fn parse(body: &[u8]) -> Result<JsonPatch, PatchError> {
        let operations: Vec<Value> = serde_json::from_slice(body)
            .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
        if operations.len() > MAX_OPERATIONS {
            return Err(PatchError::TooMany(operations.len()));
        }
        serde_json::from_value(Value::Array(operations))
            .map(JsonPatch)
            .map_err(|error| PatchError::Malformed(error.to_string()))
    }

    /// Applies it; either all operations or none.
    ///
    /// # Errors
    /// [`PatchError::Operation`] for the first operation that does not fit.
    pub fn apply(&self, target: &Value) -> Result<Value, PatchError> {
        let mut object = target.clone();
        let mut copied = 0;
        for (at, operation) in self.0.iter().enumerate() {
            if let PatchOperation::Copy(copy) = operation
                && let Ok(value) = copy.from.resolve(&object)
            {
                copied += size(value);
                if copied > MAX_COPIED {
                    return Err(PatchError::Operation(format!(
                        "operation '/{at}': the copies of the patch add {copied} bytes, more than the limit of {MAX_COPIED}"
                    )));
                }
            }
            json_patch::patch(&mut object, std::slice::from_ref(operation)).map_err(|mut error| {
                error.operation = at;
                PatchError::Operation(error.to_string())
            })?;
        }
        Ok(object)
    }
}

/// Bytes of the value as JSON.
fn size(value: &Value) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // Neither a value nor counting can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn copies_that_double_the_object_are_stopped() {
        let mut operations = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(1000)}})];
        operations.extend((0..40).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/n{at}")})));
        let patch = JsonPatch::parse(json!(operations).to_string().as_bytes()).expect("it is a patch");
        let error = patch.apply(&json!({})).expect_err("2^40 kB").to_string();
        assert!(error.starts_with("operation '/12': the copies of the patch add "), "{error}");
        let patch = JsonPatch::parse(json!(operations[..8]).to_string().as_bytes()).expect("it is a patch");
        assert!(patch.apply(&json!({})).is_ok());
    }

    #[test]
    fn operations_apply_in_order_or_not_at_all() {
        let object = json!({"a": [1, 2], "b": {"c": "d"}});
        let apply = |patch: Value| JsonPatch::parse(patch.to_string().as_bytes())?.apply(&object);
        let fits = [
            (json!([{"op": "add", "path": "/a/-", "value": 3}]), json!({"a": [1, 2, 3], "b": {"c": "d"}})),
            (json!([{"op": "replace", "path": "/b/c", "value": "x"}]), json!({"a": [1, 2], "b": {"c": "x"}})),
            (json!([{"op": "move", "from": "/b", "path": "/e"}]), json!({"a": [1, 2], "e": {"c": "d"}})),
            (
                json!([{"op": "test", "path": "/a/0", "value": 1}, {"op": "remove", "path": "/a/0"}]),
                json!({"a": [2], "b": {"c": "d"}}),
            ),
        ];
        for (patch, want) in fits {
            assert_eq!(apply(patch.clone()), Ok(want), "{patch}");
        }
        for patch in [
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "remove", "path": "/x"}]),
            json!([{"op": "replace", "path": "/x/y", "value": 1}]),
        ] {
            assert!(matches!(apply(patch.clone()), Err(PatchError::Operation(_))), "{patch}");
        }
        for patch in [json!({}), json!([{"op": "bogus", "path": "/a"}])] {
            assert!(matches!(apply(patch.clone()), Err(PatchError::Malformed(_))), "{patch}");
        }
    }
}
