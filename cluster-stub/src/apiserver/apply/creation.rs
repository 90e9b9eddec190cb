//! The fields that the creator of an object owns, worked out once for all objects that state the same members. Most objects
//! are one of thousands that differ in nothing but values, and values do not matter here.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::managed::{Writer, difference, stripped};
use super::shape::Shape;
use crate::apiserver::schema::{Schema, TypeIdx};

/// Outlines that are remembered; when they are as many, all are forgotten.
const MAX_KNOWN: usize = 1024;
/// Longer outlines are not remembered, bytes.
const MAX_OUTLINE: usize = 8 * 1024;

/// FieldsV1 of what the creator of `object` owns; `None` when that is nothing.
pub(super) fn fields(writer: &Writer<'_>, object: &Value, reset: &[&str]) -> Option<Arc<Value>> {
    let taken = difference(writer, None, object, reset);
    let all = if taken.modified.is_empty() { taken.added } else { taken.modified.union(&taken.added) };
    let mine = stripped(all);
    (!mine.is_empty()).then(|| Arc::new(mine.to_value()))
}

/// What [`fields`] answered, by type and outline. Good for one schema.
#[derive(Debug, Default)]
pub(super) struct Known {
    zeros: RwLock<HashMap<TypeIdx, Arc<Value>>>,
    fields: RwLock<HashMap<Vec<u8>, Option<Arc<Value>>>>,
}

impl Known {
    /// The same as [`fields`] for a writer of this schema.
    pub(super) fn fields(&self, writer: &Writer<'_>, object: &Value, reset: &[&str]) -> Option<Arc<Value>> {
        let Some(ty) = writer.ty else {
            return fields(writer, object, reset);
        };
        let zero = self.zero(writer.schema, ty);
        let mut outline = Vec::with_capacity(1024);
        outline.extend_from_slice(&ty.0.to_le_bytes());
        for member in reset {
            text(&mut outline, member);
        }
        outline.push(b'|');
        outline_of(writer.schema, Shape::Struct(ty), Some(&zero), object, &mut outline);
        if let Some(known) = self.fields.read().unwrap_or_else(PoisonError::into_inner).get(&outline) {
            return known.clone();
        }
        let found = fields(writer, object, reset);
        if outline.len() <= MAX_OUTLINE {
            let mut known = self.fields.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(outline, found.clone());
        }
        found
    }

    fn zero(&self, schema: &Schema, ty: TypeIdx) -> Arc<Value> {
        if let Some(zero) = self.zeros.read().unwrap_or_else(PoisonError::into_inner).get(&ty) {
            return zero.clone();
        }
        let zero = Arc::new(schema.zero(ty));
        self.zeros.write().unwrap_or_else(PoisonError::into_inner).insert(ty, zero.clone());
        zero
    }
}

/// Appends everything of a value that a comparison with `old` depends on: its members, what its items are called, and of
/// everything that is compared whole whether it is the same.
fn outline_of(schema: &Schema, shape: Shape<'_>, old: Option<&Value>, new: &Value, out: &mut Vec<u8>) {
    match (shape, new) {
        (Shape::Struct(_) | Shape::Map(_) | Shape::Deduced, Value::Object(members)) => {
            out.push(b'{');
            for (name, member) in members {
                text(out, name);
                outline_of(schema, shape.member(schema, name), old.and_then(|old| old.get(name)), member, out);
            }
            out.push(b'}');
        }
        (Shape::ListMap(..) | Shape::ListSet(_), Value::Array(items)) => {
            out.push(b'[');
            for item in items {
                text(out, shape.element(schema, item).as_deref().unwrap_or_default());
                outline_of(schema, shape.item(schema), None, item, out);
            }
            out.push(b']');
        }
        _ => {
            out.push(match new {
                Value::Null => b'n',
                _ => b'x',
            });
            out.push(if old == Some(new) { b'=' } else { b'!' });
        }
    }
}

/// Appends a text with its length, so that no two outlines read alike.
fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::{TABLE, writer};
    use super::*;

    fn any_object() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            Just(json!(0)),
            Just(json!(false)),
            Just(json!({})),
            Just(json!([])),
            "[ab]{0,1}".prop_map(Value::from),
            (0..3).prop_map(Value::from),
        ];
        let name = "kind|metadata|data|spec|status|args|empty|items|tags|name|image|labels|a|b";
        scalar.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_would_be_found(objects in prop::collection::vec(any_object(), 1..24)) {
            let schema = Schema::parse(TABLE).expect("the table is right");
            let writer = writer(&schema, "me");
            let known = Known::default();
            for object in &objects {
                for reset in [&[][..], &["status"]] {
                    prop_assert_eq!(known.fields(&writer, object, reset), fields(&writer, object, reset), "{}", object);
                    prop_assert_eq!(known.fields(&writer, object, reset), fields(&writer, object, reset), "{}", object);
                }
            }
        }
    }

    #[test]
    fn values_do_not_matter_and_members_do() {
        let schema = Schema::builtin();
        let known = Known::default();
        let ty = schema.find("io.k8s.api.core.v1.Pod");
        let writer = Writer { ty, ..writer(&schema, "me") };
        let pod = |name: &str, container: &str, extra: bool| {
            let mut container =
                json!({"name": container, "image": name, "ports": [{"containerPort": 80, "protocol": "TCP"}]});
            if extra {
                container["tty"] = json!(true);
            }
            json!({"metadata": {"name": name, "labels": {"a": name}}, "spec": {"containers": [container]}})
        };
        for (object, n_known) in
            [(pod("a", "c", false), 1), (pod("b", "c", false), 1), (pod("a", "d", false), 2), (pod("a", "c", true), 3)]
        {
            assert_eq!(known.fields(&writer, &object, &["status"]), fields(&writer, &object, &["status"]), "{object}");
            assert_eq!(known.fields.read().expect("no panic").len(), n_known, "{object}");
        }
    }
}
