//! JSON patch, RFC 6902.

use serde_json::Value;

use super::PatchError;

/// Operations in one patch at most. Upstream: `maxJSONPatchOperations`.
const MAX_OPERATIONS: usize = 10_000;

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
        json_patch::patch(&mut object, &self.0).map_err(|error| PatchError::Operation(error.to_string()))?;
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
