//! Structured merge: a configuration laid over an object, and fields taken out of one.
//!
//! Upstream: structured-merge-diff v6 `typed/merge.go`, `typed/remove.go`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::shape::Shape;
use crate::apiserver::schema::Schema;

/// Lays `config` over `live`: leaves are replaced, structs and maps merged, lists merged by key, nulls take fields out.
pub(super) fn merge(schema: &Schema, shape: Shape<'_>, live: Option<&Value>, config: &Value) -> Value {
    match (shape, live, config) {
        (Shape::Struct(_) | Shape::Map(_) | Shape::Deduced, Some(Value::Object(live)), Value::Object(config)) => {
            let mut merged = live.clone();
            for (name, value) in config {
                let inner = shape.member(schema, name);
                let value = merge(schema, inner, live.get(name), value);
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Shape::ListMap(..) | Shape::ListSet(_), Some(Value::Array(live)), Value::Array(config)) => {
            Value::Array(merge_items(schema, shape, live, config))
        }
        (_, _, config) => config.clone(),
    }
}

/// Items of the configuration keep its order, the others keep theirs, shared items are where the orders meet.
fn merge_items(schema: &Schema, shape: Shape<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let names =
        |items: &[Value]| -> Vec<Option<Box<str>>> { items.iter().map(|item| shape.element(schema, item)).collect() };
    let (left, right) = (names(live), names(config));
    let find = |list: &[Option<Box<str>>], name: &Option<Box<str>>| {
        list.iter().position(|other| other == name && name.is_some())
    };
    let mut shared = right.iter().filter(|name| find(&left, name).is_some());
    let mut next_shared = shared.next();
    let mut merged_right: BTreeSet<&Option<Box<str>>> = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len() + config.len());
    let item = shape.item(schema);
    let combine = |at: Option<usize>, value: &Value| merge(schema, item, at.map(|at| &live[at]), value);
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left[l] == right[r] {
                merged_right.insert(&right[r]);
                merged.push(combine(Some(l), &config[r]));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if find(&right, &left[l]).is_some() && next_shared.is_some_and(|next| *next != left[l]) {
                // A shared item whose turn comes later.
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if find(&right, &left[l]).is_none() {
                merged.push(live[l].clone());
                l += 1;
                continue;
            }
            if merged_right.contains(&left[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            merged_right.insert(&right[r]);
            merged.push(combine(find(&left, &right[r]), &config[r]));
            if next_shared == Some(&right[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    merged
}

/// Takes the members of the set out of a value; `None` when the value itself is one.
pub(super) fn remove(schema: &Schema, shape: Shape<'_>, value: &Value, set: &FieldSet) -> Option<Value> {
    if set.member {
        return None;
    }
    match (shape, value) {
        (Shape::Struct(_) | Shape::Map(_) | Shape::Deduced, Value::Object(members)) => {
            let mut kept = Map::new();
            for (name, member) in members {
                match set.child(&format!("f:{name}")) {
                    None => {
                        kept.insert(name.clone(), member.clone());
                    }
                    Some(gone) => {
                        if let Some(member) = remove(schema, shape.member(schema, name), member, gone) {
                            kept.insert(name.clone(), member);
                        }
                    }
                }
            }
            Some(Value::Object(kept))
        }
        (Shape::ListMap(..) | Shape::ListSet(_), Value::Array(items)) => {
            let kept = items.iter().filter_map(|item| {
                let element = shape.element(schema, item);
                match element.as_deref().and_then(|element| set.child(element)) {
                    None => Some(item.clone()),
                    Some(gone) => remove(schema, shape.item(schema), item, gone),
                }
            });
            Some(Value::Array(kept.collect()))
        }
        _ => Some(value.clone()),
    }
}

/// The set with every declared field that has something below it as a member too.
pub(super) fn with_named_fields(schema: &Schema, shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    let mut all = FieldSet::default();
    all.member = set.member;
    for (element, child) in set.children() {
        let (inner, declared) = match element.strip_prefix("f:") {
            Some(name) => (shape.member(schema, name), shape.declares(schema, name)),
            None => (shape.item(schema), false),
        };
        let mut child = with_named_fields(schema, inner, child);
        child.member |= declared;
        all.insert(element, child);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TABLE, root};
    use super::super::walk::{compare, field_set};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_configuration_is_laid_over_an_object() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let live = json!({"data": {"a": "1"}, "spec": {"items": [{"name": "a", "image": "1"}, {"name": "b"}], "args": ["x"], "tags": ["p"]}});
        let config = json!({"data": {"b": "2"}, "spec": {"items": [{"name": "c"}, {"name": "a", "image": "2"}], "args": ["y"], "tags": ["q", "p"]}});
        assert_eq!(
            merge(&schema, root(&schema), Some(&live), &config),
            json!({"data": {"a": "1", "b": "2"}, "spec": {"items": [{"name": "c"}, {"name": "a", "image": "2"}, {"name": "b"}],
                "args": ["y"], "tags": ["q", "p"]}})
        );
    }

    #[test]
    fn fields_are_taken_out_by_path() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let value =
            json!({"data": {"a": "1", "b": "2"}, "spec": {"items": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let set = json!({"f:data": {"f:a": {}}, "f:spec": {"f:items": {"k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"b\"}": {}}}});
        let set = FieldSet::from_value(&set).expect("a field set");
        assert_eq!(
            remove(&schema, root(&schema), &value, &set),
            Some(json!({"data": {"b": "2"}, "spec": {"items": [{"name": "a"}]}}))
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let data = prop::collection::btree_map("[a-c]", "[0-2]", 0..3);
        let items = prop::collection::btree_map("[a-d]", prop::option::of("[xy]"), 0..4);
        (data, items).prop_map(|(data, items)| {
            let items: Vec<Value> = items
                .into_iter()
                .map(|(name, image)| image.map_or(json!({"name": name}), |image| json!({"name": name, "image": image})))
                .collect();
            json!({"data": data, "spec": {"items": items}})
        })
    }

    proptest! {
        #[test]
        fn what_was_laid_over_is_there_and_nothing_else_changed(live in value(), config in value()) {
            let schema = Schema::parse(TABLE).expect("the table is right");
            let shape = root(&schema);
            let merged = merge(&schema, shape, Some(&live), &config);
            let stated = field_set(&schema, shape, &config);
            let difference = compare(&schema, shape, Some(&live), Some(&merged));
            prop_assert!(difference.removed.is_empty());
            prop_assert!(difference.modified.difference(&stated).is_empty());
            // Laying it over once more changes nothing.
            prop_assert_eq!(merge(&schema, shape, Some(&merged), &config), merged.clone());
        }
    }
}
