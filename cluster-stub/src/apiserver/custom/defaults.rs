//! Puts the defaults of a schema into a value.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/schema/defaulting/algorithm.go`, `prune.go`.

use serde_json::Value;

use super::structural::Structural;

/// Puts defaults in, from the outside in; nulls that are no values and have no default go.
pub(super) fn apply(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(map) => {
            map.retain(|name, member| {
                let inner = schema.member(name);
                !(member.is_null() && inner.is_some_and(|inner| !inner.nullable && inner.default.is_none()))
            });
            for (name, inner) in &schema.properties {
                let Some(default) = &inner.default else { continue };
                if map.get(name).is_none_or(|member| member.is_null() && !inner.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, member) in map.iter_mut() {
                if let Some(inner) = schema.member(name) {
                    if member.is_null()
                        && !inner.nullable
                        && let Some(default) = &inner.default
                    {
                        *member = default.clone();
                    }
                    apply(member, inner);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for item in items {
                if item.is_null()
                    && !inner.nullable
                    && let Some(default) = &inner.default
                {
                    *item = default.clone();
                }
                apply(item, inner);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_go_in_where_nothing_is() {
        let schema = Structural::root(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "replicas": {"type": "integer", "default": 1},
                "maybe": {"type": "string", "default": "x", "nullable": true},
                "plain": {"type": "string"},
                "items": {"type": "array", "items": {"type": "object", "properties": {"v": {"type": "string", "default": "dv"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 7}},
            }},
        }}));
        let cases = [
            (json!({}), json!({"spec": {"maybe": "x", "replicas": 1}})),
            (json!({"spec": {"replicas": 2}}), json!({"spec": {"maybe": "x", "replicas": 2}})),
            (
                json!({"spec": {"replicas": null, "maybe": null, "plain": null}}),
                json!({"spec": {"maybe": null, "replicas": 1}}),
            ),
            (
                json!({"spec": {"items": [{"v": "a"}, {}], "map": {"k": null}}}),
                json!({"spec": {"items": [{"v": "a"}, {"v": "dv"}], "map": {"k": 7}, "maybe": "x", "replicas": 1}}),
            ),
        ];
        for (mut value, want) in cases {
            apply(&mut value, &schema);
            assert_eq!(value, want);
        }
    }
}
