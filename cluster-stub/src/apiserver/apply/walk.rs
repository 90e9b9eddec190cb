//! Walks values along the schema: the field set of a value, and what differs between two values.
//!
//! Upstream: structured-merge-diff v6 `typed/tofieldset.go`, `typed/compare.go`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::shape::Shape;
use crate::apiserver::schema::Schema;

/// What differs between two values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// In the new value only.
    pub added: FieldSet,
    /// In the old value only.
    pub removed: FieldSet,
    /// In both, with another value.
    pub modified: FieldSet,
}

impl Comparison {
    /// Whether nothing differs.
    pub(super) fn is_same(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.modified.is_empty()
    }

    /// Takes members of the root out.
    pub(super) fn without(mut self, members: &[&str]) -> Comparison {
        for member in members {
            let element = format!("f:{member}");
            for set in [&mut self.added, &mut self.removed, &mut self.modified] {
                set.remove_tree(&element);
            }
        }
        self
    }

    fn insert(&mut self, element: &str, child: Comparison) {
        self.added.insert(element, child.added);
        self.removed.insert(element, child.removed);
        self.modified.insert(element, child.modified);
    }
}

/// The fields that a configuration states.
pub(super) fn field_set(schema: &Schema, shape: Shape<'_>, value: &Value) -> FieldSet {
    match (shape, value) {
        (Shape::Struct(_) | Shape::Map(_) | Shape::Deduced, Value::Object(members)) => {
            let mut set = FieldSet::default();
            for (name, member) in members {
                let mut child = field_set(schema, shape.member(schema, name), member);
                let empty = member.is_null() || member.as_object().is_some_and(Map::is_empty);
                child.member |= empty || !shape.declares(schema, name);
                set.insert(format!("f:{name}"), child);
            }
            set
        }
        (Shape::ListMap(..) | Shape::ListSet(_), Value::Array(items)) => {
            let mut set = FieldSet::default();
            for item in items {
                if let Some(element) = shape.element(schema, item) {
                    let mut child = field_set(schema, shape.item(schema), item);
                    child.member = true;
                    set.insert(element, child);
                }
            }
            set
        }
        (Shape::Struct(_) | Shape::Map(_) | Shape::ListMap(..) | Shape::ListSet(_), Value::Null) => FieldSet::default(),
        _ => FieldSet::leaf(),
    }
}

/// What differs between two values, of which at least one is there.
pub(super) fn compare(schema: &Schema, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut comparison = match shape {
        Shape::Struct(_) | Shape::Map(_) | Shape::Deduced if !is_leaf_pair(shape, old, new) => {
            compare_members(schema, shape, old.and_then(Value::as_object), new.and_then(Value::as_object))
        }
        Shape::ListMap(..) | Shape::ListSet(_) if !is_leaf_pair(shape, old, new) => {
            compare_items(schema, shape, old.and_then(Value::as_array), new.and_then(Value::as_array))
        }
        _ => {
            let mut leaf = Comparison::default();
            match (old, new) {
                (None, _) => leaf.added.member = true,
                (_, None) => leaf.removed.member = true,
                (Some(old), Some(new)) => leaf.modified.member = old != new,
            }
            return leaf;
        }
    };
    match (old, new) {
        (None, _) => comparison.added.member = true,
        (_, None) => comparison.removed.member = true,
        _ => {}
    }
    comparison
}

/// Whether both sides are empty, or are something else than the shape says: then they are compared whole.
fn is_leaf_pair(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    let list = matches!(shape, Shape::ListMap(..) | Shape::ListSet(_));
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => !list && members.is_empty(),
        Some(Value::Array(items)) => list && items.is_empty(),
        Some(_) => false,
    };
    let fits = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(_)) => !list,
        Some(Value::Array(_)) => list,
        Some(_) => false,
    };
    (empty(old) && empty(new)) || !fits(old) || !fits(new)
}

fn compare_members(
    schema: &Schema,
    shape: Shape<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> Comparison {
    let mut comparison = Comparison::default();
    let names: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
    for name in names {
        let (old, new) = (old.and_then(|map| map.get(name)), new.and_then(|map| map.get(name)));
        if old == new {
            continue;
        }
        let child = compare(schema, shape.member(schema, name), old, new);
        comparison.insert(&format!("f:{name}"), child);
    }
    comparison
}

fn compare_items(schema: &Schema, shape: Shape<'_>, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>) -> Comparison {
    let named = |items: Option<&Vec<Value>>| {
        let mut map: BTreeMap<Box<str>, Value> = BTreeMap::new();
        for item in items.into_iter().flatten() {
            if let Some(element) = shape.element(schema, item) {
                map.insert(element, item.clone());
            }
        }
        map
    };
    let (old, new) = (named(old), named(new));
    let mut comparison = Comparison::default();
    let elements: BTreeSet<&Box<str>> = old.keys().chain(new.keys()).collect();
    for element in elements {
        let (old, new) = (old.get(element), new.get(element));
        if old == new {
            continue;
        }
        let child = compare(schema, shape.item(schema), old, new);
        comparison.insert(element, child);
    }
    comparison
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TABLE, root};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_states_its_leaves_items_and_free_keys() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let value = json!({"data": {"a": "1"}, "spec": {"args": ["x"], "empty": {}, "items": [{"name": "n", "image": "i"}], "tags": ["t"]}});
        let set = field_set(&schema, root(&schema), &value);
        assert_eq!(
            set.to_value(),
            json!({"f:data": {"f:a": {}}, "f:spec": {"f:args": {}, "f:empty": {},
                "f:items": {"k:{\"name\":\"n\"}": {".": {}, "f:image": {}, "f:name": {}}}, "f:tags": {"v:\"t\"": {}}}})
        );
    }

    #[test]
    fn a_comparison_knows_added_removed_and_modified() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let old =
            json!({"data": {"a": "1", "b": "2"}, "spec": {"items": [{"name": "n", "image": "i"}], "args": ["x"]}});
        let new = json!({"data": {"a": "9", "c": "3"}, "spec": {"items": [{"name": "n"}, {"name": "m"}], "args": ["x", "y"]}, "kind": "A"});
        let comparison = compare(&schema, root(&schema), Some(&old), Some(&new));
        assert_eq!(
            comparison.added.to_value(),
            json!({"f:data": {"f:c": {}}, "f:kind": {}, "f:spec": {"f:items": {"k:{\"name\":\"m\"}": {".": {}, "f:name": {}}}}})
        );
        assert_eq!(
            comparison.removed.to_value(),
            json!({"f:data": {"f:b": {}}, "f:spec": {"f:items": {"k:{\"name\":\"n\"}": {"f:image": {}}}}})
        );
        assert_eq!(comparison.modified.to_value(), json!({"f:data": {"f:a": {}}, "f:spec": {"f:args": {}}}));
        assert!(compare(&schema, root(&schema), Some(&old), Some(&old)).is_same());
    }

    #[test]
    fn a_new_map_is_a_member_itself() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let comparison = compare(&schema, root(&schema), Some(&json!({})), Some(&json!({"data": {"a": "1"}})));
        assert_eq!(comparison.added.to_value(), json!({"f:data": {".": {}, "f:a": {}}}));
    }
}
