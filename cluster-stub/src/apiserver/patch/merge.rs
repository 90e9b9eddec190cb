//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// Applies a patch.
pub fn apply(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (key, change) in patch {
        if change.is_null() {
            target.remove(key);
        } else {
            let present = target.remove(key).unwrap_or(Value::Null);
            target.insert(key.clone(), apply(present, change));
        }
    }
    Value::Object(target)
}

/// The patch that leads from `from` to `to`. Members that are null in `to` cannot be expressed; API objects have none.
pub fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old @ Value::Object(_)) if value.is_object() => {
                patch.insert(key.clone(), diff(old, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn members_are_set_removed_and_merged() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": 1}), json!({"a": null}), json!({"b": 1})),
            (json!({"a": [1]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": 1}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!("x"), json!({"a": {"b": null}}), json!({"a": {}})),
        ];
        for (target, patch, want) in cases {
            assert_eq!(apply(target, &patch), want, "{patch}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..5_i64).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]", value(), 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn the_diff_leads_from_one_object_to_the_other(from in object(), to in object()) {
            let patch = diff(&from, &to);
            prop_assert_eq!(apply(from, &patch), to);
        }
    }
}
