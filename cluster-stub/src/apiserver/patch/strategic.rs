//! Strategic merge patch: merge patch that knows which lists are merged by key, with directives.
//!
//! Directives: `$patch: replace|delete` in an object, `$retainKeys`, `$deleteFromPrimitiveList/<list>`,
//! `$setElementOrder/<list>`. Upstream: apimachinery v1.36.2 `pkg/util/strategicpatch/patch.go`.

use serde_json::{Map, Value};

use super::PatchError;
use crate::apiserver::schema::{Field, Schema, TypeIdx, TypeRef};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Applies a patch to an object of the type; without a type every list is replaced.
///
/// # Errors
/// [`PatchError::Strategic`] for a malformed directive or a list item without its merge key.
pub fn apply(schema: &Schema, ty: Option<TypeIdx>, target: Value, patch: &Value) -> Result<Value, PatchError> {
    let ty = ty.map(TypeRef::Object);
    let (Value::Object(target), Value::Object(patch)) = (target, patch.clone()) else {
        return Err(fault("a strategic merge patch and its target must be JSON objects"));
    };
    merge_map(schema, ty.as_ref(), target, patch).map(Value::Object)
}

fn fault(text: impl Into<String>) -> PatchError {
    PatchError::Strategic(text.into())
}

fn field<'a>(schema: &'a Schema, ty: Option<&TypeRef>, name: &str) -> Option<&'a Field> {
    match ty? {
        TypeRef::Object(idx) => schema.get(*idx).field(name),
        _ => None,
    }
}

/// The type of a member's value.
fn member_type<'a>(schema: &'a Schema, ty: Option<&'a TypeRef>, name: &str) -> Option<&'a TypeRef> {
    match ty? {
        TypeRef::Object(idx) => schema.get(*idx).field(name).map(|field| &field.ty),
        TypeRef::Map(value) => Some(value),
        _ => None,
    }
}

fn item_type(ty: Option<&TypeRef>) -> Option<&TypeRef> {
    match ty? {
        TypeRef::List(item) => Some(item),
        _ => None,
    }
}

fn merge_map(
    schema: &Schema,
    ty: Option<&TypeRef>,
    mut target: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(other) => return Err(fault(format!("unknown patch type: {other} in map: {}", Value::Object(patch)))),
    }
    retain_keys(&mut target, &mut patch)?;
    merge_ordered_lists(schema, ty, &mut target, &mut patch)?;
    for (key, change) in patch {
        let (name, deletes) = match key.strip_prefix(DELETE_FROM_LIST) {
            Some(name) => (name.to_string(), true),
            None => (key, false),
        };
        if change.is_null() {
            target.remove(&name);
            continue;
        }
        let present = target.remove(&name);
        let member = member_type(schema, ty, &name);
        let strategy = field(schema, ty, &name).map(|field| &field.patch);
        let merged = match (present, change) {
            (present, Value::Array(gone)) if deletes => present.map(|present| delete_items(present, &gone)),
            (present, _) if deletes => present,
            (Some(Value::Object(present)), Value::Object(change)) => {
                Some(Value::Object(merge_map(schema, member, present, change)?))
            }
            (Some(Value::Array(present)), Value::Array(change)) if strategy.is_some_and(|strategy| strategy.merge) => {
                let key = strategy.and_then(|strategy| strategy.merge_key.as_deref());
                Some(Value::Array(merge_list(schema, item_type(member), key, present, change)?))
            }
            (_, change) => remove_directives(change),
        };
        if let Some(merged) = merged {
            target.insert(name, merged);
        }
    }
    Ok(target)
}

fn delete_items(list: Value, gone: &[Value]) -> Value {
    match list {
        Value::Array(items) => Value::Array(items.into_iter().filter(|item| !gone.contains(item)).collect()),
        other => other,
    }
}

/// Drops what the patch does not want to keep.
fn retain_keys(target: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || fault("invalid patch format of retainKeys");
    let keep = keep.as_array().ok_or_else(bad)?;
    let kept = |key: &str| keep.iter().any(|kept| kept == key);
    let foreign = patch.iter().any(|(key, value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM_LIST) && !key.starts_with(SET_ORDER) && !kept(key)
    });
    if foreign {
        return Err(bad());
    }
    target.retain(|key, _| kept(key));
    Ok(())
}

/// Deals with the lists that have a `$setElementOrder`.
fn merge_ordered_lists(
    schema: &Schema,
    ty: Option<&TypeRef>,
    target: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let name = directive[SET_ORDER.len()..].to_string();
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(fault(format!("expected a list in {directive}")));
        };
        let list_of = |value: Option<Value>| match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(fault(format!("expected a list in {name}"))),
        };
        // A null in the patch deletes the list; that is left to the plain merge.
        if patch.get(&name).is_some_and(Value::is_null) {
            continue;
        }
        let change = list_of(patch.remove(&name))?;
        let present = list_of(target.remove(&name))?;
        let strategy = field(schema, ty, &name).map(|field| &field.patch);
        let key = strategy.and_then(|strategy| strategy.merge_key.as_deref());
        let server_order = present.clone().unwrap_or_default();
        let merged = match (present, change) {
            (None, None) => continue,
            (Some(present), None) => present,
            (None, Some(change)) => change.into_iter().filter_map(remove_directives).collect(),
            (Some(present), Some(change)) => {
                check_order(&change, &order, key)?;
                if strategy.is_some_and(|strategy| strategy.merge) {
                    let member = member_type(schema, ty, &name);
                    merge_list(schema, item_type(member), key, present, change)?
                } else {
                    change
                }
            }
        };
        target.insert(name, Value::Array(in_order(merged, &order, &server_order, key)));
    }
    Ok(())
}

/// Whether two items are the same by key, or equal where there is no key.
fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    }
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    list.iter().position(|other| same(other, item, key))
}

/// The items of a patch must come in the order that the patch sets.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    let plain = change.iter().filter(|item| item.get(PATCH).is_none());
    let mut from = 0;
    for item in plain {
        match position(&order[from..], item, key) {
            Some(at) => from += at + 1,
            None => {
                return Err(fault(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    Value::from(change.to_vec()),
                    Value::from(order.to_vec())
                )));
            }
        }
    }
    Ok(())
}

/// Items of the patch in the patch's order, woven into the others, which keep the server's order.
fn in_order(items: Vec<Value>, order: &[Value], server_order: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut ordered, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(order, item, key).is_some());
    ordered.sort_by_key(|item| position(order, item, key));
    others.sort_by_key(|item| position(server_order, item, key).unwrap_or(usize::MAX));
    let mut merged = Vec::with_capacity(ordered.len() + others.len());
    let (mut ordered, mut others) = (ordered.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), ordered.peek()) {
            (Some(other), Some(item)) => {
                let places = (position(server_order, other, key), position(server_order, item, key));
                matches!(places, (Some(other), Some(item)) if other < item)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return merged,
        };
        merged.extend(if other_first { others.next() } else { ordered.next() });
    }
}

fn merge_list(
    schema: &Schema,
    item: Option<&TypeRef>,
    key: Option<&str>,
    present: Vec<Value>,
    change: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    let objects = present.iter().chain(&change).any(Value::is_object);
    if !objects {
        let server_order = present.clone();
        let mut both: Vec<Value> = Vec::with_capacity(present.len() + change.len());
        for value in present.into_iter().chain(change.iter().cloned()) {
            if !both.contains(&value) {
                both.push(value);
            }
        }
        return Ok(in_order(both, &change, &server_order, None));
    }
    let name = || match item {
        Some(TypeRef::Object(idx)) => schema.get(*idx).short_name().to_string(),
        _ => "list".to_string(),
    };
    let key = key.ok_or_else(|| fault(format!("cannot merge lists without merge key for {}", name())))?;
    let (mut items, change, server_order) = special_items(present, change, key)?;
    for value in &change {
        let wanted = value.get(key).ok_or_else(|| without_key(value, key))?;
        match items.iter().position(|item| item.get(key) == Some(wanted)) {
            Some(at) => {
                let old = std::mem::take(&mut items[at]);
                if let (Value::Object(old), Value::Object(new)) = (old, value.clone()) {
                    items[at] = Value::Object(merge_map(schema, item, old, new)?);
                }
            }
            None => items.extend(remove_directives(value.clone())),
        }
    }
    Ok(in_order(items, &change, &server_order, Some(key)))
}

fn without_key(value: &Value, key: &str) -> PatchError {
    fault(format!("map: {value} does not contain declared merge key: {key}"))
}

/// Performs `$patch` items; gives what is left of the list, of the patch, and the order of the server.
#[expect(clippy::type_complexity, reason = "three lists that only the caller names")]
fn special_items(
    mut present: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut replace = false;
    for value in change {
        match value.get(PATCH).map(|directive| directive.as_str().unwrap_or("").to_string()) {
            None => plain.push(value),
            Some(directive) if directive == "delete" => {
                let gone = value.get(key).ok_or_else(|| without_key(&value, key))?;
                present.retain(|item| item.get(key) != Some(gone));
            }
            Some(directive) if directive == "replace" => replace = true,
            Some(directive) if directive == "merge" => {
                return Err(fault("merging lists cannot yet be specified in the patch"));
            }
            Some(directive) => return Err(fault(format!("unknown patch type: {directive} in map: {value}"))),
        }
    }
    if replace {
        return Ok((plain.clone(), Vec::new(), plain));
    }
    let server_order = present.clone();
    Ok((present, plain, server_order))
}

/// A value that is new as a whole, without what only steers the merge. `None` when a directive says that it is not to be.
fn remove_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) => {
            if members.contains_key(PATCH) {
                return match members.get(PATCH).and_then(Value::as_str) {
                    Some("replace") => {
                        let kept = members.into_iter().filter(|(key, _)| key != PATCH);
                        Some(Value::Object(kept.collect()))
                    }
                    _ => None,
                };
            }
            let kept = members.into_iter().filter(|(key, value)| {
                !value.is_null()
                    && key != RETAIN_KEYS
                    && !key.starts_with(SET_ORDER)
                    && !key.starts_with(DELETE_FROM_LIST)
            });
            Some(Value::Object(kept.filter_map(|(key, value)| Some((key, remove_directives(value)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(remove_directives).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const TABLE: &str = "type t.v1.Root\n spec t.v1.Spec\n data map<string>\n\
        type t.v1.Spec\n finalizers list<string> patch=merge\n args list<string>\n strategy t.v1.Strategy patch=retainKeys\n\
        \x20containers list<t.v1.Container> patch=merge key=name\n\
        type t.v1.Strategy\n type string\n rolling map<string>\n\
        type t.v1.Container\n name string\n image string\n env list<t.v1.Env> patch=merge key=name\n\
        type t.v1.Env\n name string\n value string\n";

    fn run(target: Value, patch: &Value) -> Result<Value, PatchError> {
        let schema = Schema::parse(TABLE).expect("the table is right");
        apply(&schema, schema.find("t.v1.Root"), target, patch)
    }

    #[test]
    fn lists_are_merged_by_key_or_replaced() {
        let target = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "x", "value": "1"}]}, {"name": "b"}], "args": ["p"]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "2", "env": [{"name": "y", "value": "2"}]}, {"name": "c"}], "args": ["q"]}});
        // Patched items come first unless the server's order says otherwise; that is upstream's way.
        let want = json!({"spec": {"containers": [
            {"name": "a", "image": "2", "env": [{"name": "y", "value": "2"}, {"name": "x", "value": "1"}]}, {"name": "c"}, {"name": "b"}], "args": ["q"]}});
        assert_eq!(run(target, &patch), Ok(want));
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let target = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "finalizers": ["x", "y"], "strategy": {"type": "R", "rolling": {"a": "1"}}}});
        let cases = [
            (
                json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
                "/spec/containers",
                json!([{"name": "b"}]),
            ),
            (
                json!({"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}}),
                "/spec/containers",
                json!([{"name": "c"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
                "/spec/containers",
                json!([{"name": "b"}, {"name": "a"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}], "containers": [{"name": "c"}]}}),
                "/spec/containers",
                json!([{"name": "c"}, {"name": "a"}, {"name": "b"}]),
            ),
            (json!({"spec": {"$deleteFromPrimitiveList/finalizers": ["x"]}}), "/spec/finalizers", json!(["y"])),
            (json!({"spec": {"finalizers": ["z"]}}), "/spec/finalizers", json!(["z", "x", "y"])),
            (
                json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "C"}}}),
                "/spec/strategy",
                json!({"type": "C"}),
            ),
            (json!({"spec": {"strategy": {"$patch": "replace", "type": "C"}}}), "/spec/strategy", json!({"type": "C"})),
            (json!({"spec": {"strategy": {"$patch": "delete"}}}), "/spec/strategy", json!({})),
            (json!({"spec": {"strategy": null}}), "/spec/strategy", Value::Null),
        ];
        for (patch, pointer, want) in cases {
            let got = run(target.clone(), &patch).expect("the patch fits");
            assert_eq!(got.pointer(pointer).cloned().unwrap_or(Value::Null), want, "{patch}");
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        let target = json!({"spec": {"containers": [{"name": "a"}], "strategy": {"type": "R"}}});
        for patch in [
            json!({"spec": {"containers": [{"image": "x"}]}}),
            json!({"spec": {"strategy": {"$patch": "odd"}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "rolling": {"a": "b"}}}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "y"}]}}),
        ] {
            assert!(matches!(run(target.clone(), &patch), Err(PatchError::Strategic(_))), "{patch}");
        }
    }

    #[test]
    fn new_members_lose_their_directives() {
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a"}], "strategy": {"$retainKeys": ["type"], "type": "R"}}});
        let want = json!({"spec": {"containers": [{"name": "a"}], "strategy": {"type": "R"}}});
        assert_eq!(run(json!({}), &patch), Ok(want));
    }

    fn spec() -> impl Strategy<Value = Value> {
        let container = ("[a-e]", "[xy]").prop_map(|(name, image)| json!({"name": name, "image": image}));
        let data = prop::collection::btree_map("[a-c]", "[0-9]", 0..3);
        (prop::collection::vec(container, 0..5), data).prop_map(|(containers, data)| {
            let mut unique: Vec<Value> = Vec::new();
            for container in containers {
                if !unique.iter().any(|other| other["name"] == container["name"]) {
                    unique.push(container);
                }
            }
            json!({"spec": {"containers": unique}, "data": data})
        })
    }

    /// The patch that a client makes to get from one object of the test's type to another.
    fn diff(from: &Value, to: &Value) -> Value {
        let list = |value: &Value| value["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let (old, new) = (list(from), list(to));
        let changed = new.iter().filter(|item| !old.contains(item)).cloned();
        let gone = old.iter().filter(|item| !new.iter().any(|other| other["name"] == item["name"]));
        let gone = gone.map(|item| json!({"name": item["name"], "$patch": "delete"}));
        let order: Vec<Value> = new.iter().map(|item| json!({"name": item["name"]})).collect();
        let containers: Vec<Value> = changed.chain(gone).collect();
        json!({
            "spec": {"$setElementOrder/containers": order, "containers": containers},
            "data": super::super::merge::diff(&from["data"], &to["data"]),
        })
    }

    proptest! {
        #[test]
        fn the_diff_leads_from_one_object_to_the_other(from in spec(), to in spec()) {
            let patch = diff(&from, &to);
            prop_assert_eq!(run(from, &patch), Ok(to));
        }
    }
}
