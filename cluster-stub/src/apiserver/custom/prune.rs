//! Takes out what a schema does not declare, and says what it was.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/schema/pruning/algorithm.go`.

use serde_json::Value;

use super::structural::Structural;

/// Members of the metadata that everybody has; at the root they are checked apart.
const EMBEDDED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole object; gives the paths of what went, sorted.
pub(super) fn prune(object: &mut Value, schema: &Structural) -> Vec<String> {
    let mut gone = Vec::new();
    walk(object, schema, true, schema.preserve_unknown, &mut String::new(), &mut gone);
    gone.sort();
    gone
}

fn walk(
    value: &mut Value,
    schema: &Structural,
    is_resource: bool,
    keep: bool,
    path: &mut String,
    gone: &mut Vec<String>,
) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            let known = |name: &str| {
                keep || schema.member(name).is_some()
                    || schema.additional.is_some()
                    || (is_resource && EMBEDDED.contains(&name))
            };
            let dot = if path.is_empty() { "" } else { "." };
            map.retain(|name, _| {
                let known = known(name);
                if !known {
                    gone.push(format!("{path}{dot}{name}"));
                }
                known
            });
            for (name, member) in map.iter_mut() {
                if is_resource && EMBEDDED.contains(&name.as_str()) {
                    continue;
                }
                let Some(inner) = schema.member(name) else { continue };
                path.push_str(dot);
                path.push_str(name);
                let keep = inner.preserve_unknown || (keep && !declares(inner));
                walk(member, inner, inner.embedded, keep, path, gone);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (at, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{at}]"));
                let keep = inner.preserve_unknown || (keep && !declares(inner));
                walk(item, inner, inner.embedded, keep, path, gone);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Whether a schema says which members it has, so that below it unknown ones go again.
fn declares(schema: &Structural) -> bool {
    !schema.properties.is_empty() || schema.additional.is_some() || schema.items.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_declared_goes() {
        let schema = Structural::root(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "strict": {"type": "object", "properties": {"x": {"type": "string"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {"type": "string"}}}},
                "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
            }},
        }}));
        let mut object = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "extra": 1,
            "spec": {"a": "b", "bogus": 1, "free": {"any": {"thing": 1}, "strict": {"x": "y", "z": 1}},
                "map": {"m": {"k": "v", "l": 1}}, "items": [{"n": "a", "o": 1}]},
        });
        let gone = prune(&mut object, &schema);
        assert_eq!(gone, ["extra", "spec.bogus", "spec.free.strict.z", "spec.items[0].o", "spec.map.m.l"]);
        let want = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"},
            "spec": {"a": "b", "free": {"any": {"thing": 1}, "strict": {"x": "y"}}, "map": {"m": {"k": "v"}}, "items": [{"n": "a"}]},
        });
        assert_eq!(object, want);
    }
}
