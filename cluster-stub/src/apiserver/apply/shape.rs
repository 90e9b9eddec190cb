//! How server-side apply sees a value of the schema: a leaf, a struct, a map, or a list of one of three kinds.

use serde_json::{Map, Value};

use crate::apiserver::schema::{Schema, Structure, TypeIdx, TypeRef};

/// The view of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'s> {
    /// Owned as a whole.
    Leaf,
    /// Fields of a type.
    Struct(TypeIdx),
    /// Free keys.
    Map(&'s TypeRef),
    /// Items told apart by keys.
    ListMap(&'s [Box<str>], &'s TypeRef),
    /// Items that are their own keys.
    ListSet(&'s TypeRef),
    /// No schema: objects by member, everything else whole.
    Deduced,
}

/// The shape of a type reference with the structure that its field states.
pub(super) fn shape<'s>(schema: &'s Schema, ty: &'s TypeRef, structure: &'s Structure) -> Shape<'s> {
    match (ty, structure) {
        (_, Structure::Atomic) => Shape::Leaf,
        (TypeRef::Object(idx), _) if schema.get(*idx).atomic => Shape::Leaf,
        (TypeRef::Object(idx), _) => Shape::Struct(*idx),
        (TypeRef::Map(value), _) => Shape::Map(value),
        (TypeRef::List(item), Structure::Map(keys)) => Shape::ListMap(keys, item),
        (TypeRef::List(item), Structure::Set) => Shape::ListSet(item),
        _ => Shape::Leaf,
    }
}

/// The shape of a list item or map value.
pub(super) fn inner_shape<'s>(schema: &'s Schema, ty: &'s TypeRef) -> Shape<'s> {
    const PLAIN: &Structure = &Structure::Default;
    shape(schema, ty, PLAIN)
}

impl<'s> Shape<'s> {
    /// The shape of a whole object; `None` has no schema.
    pub(super) fn root(ty: Option<TypeIdx>) -> Shape<'s> {
        ty.map_or(Shape::Deduced, Shape::Struct)
    }

    /// The shape of a member.
    pub(super) fn member(self, schema: &'s Schema, name: &str) -> Shape<'s> {
        match self {
            Shape::Struct(idx) => {
                schema.get(idx).field(name).map_or(Shape::Leaf, |field| shape(schema, &field.ty, &field.structure))
            }
            Shape::Map(value) => inner_shape(schema, value),
            Shape::Deduced => Shape::Deduced,
            Shape::Leaf | Shape::ListMap(..) | Shape::ListSet(_) => Shape::Leaf,
        }
    }

    /// The shape of an item.
    pub(super) fn item(self, schema: &'s Schema) -> Shape<'s> {
        match self {
            Shape::ListMap(_, item) | Shape::ListSet(item) => inner_shape(schema, item),
            _ => Shape::Leaf,
        }
    }

    /// Whether a member of this name is a declared field rather than a free key.
    pub(super) fn declares(self, schema: &Schema, name: &str) -> bool {
        matches!(self, Shape::Struct(idx) if schema.get(idx).field(name).is_some())
    }

    /// What an item is called: `k:{…}` or `v:…`. `None` when it has none of its keys.
    pub(super) fn element(self, schema: &Schema, item: &Value) -> Option<Box<str>> {
        match self {
            Shape::ListSet(_) => Some(format!("v:{item}").into()),
            Shape::ListMap(keys, ty) => {
                let mut map = Map::new();
                for key in keys {
                    let default = || match ty {
                        TypeRef::Object(idx) => schema.get(*idx).field(key).and_then(|field| field.default.clone()),
                        _ => None,
                    };
                    let value = item.get(key.as_ref()).filter(|value| !value.is_null()).cloned().or_else(default);
                    if let Some(value) = value {
                        map.insert(key.to_string(), value);
                    }
                }
                (!map.is_empty()).then(|| format!("k:{}", Value::Object(map)).into())
            }
            _ => None,
        }
    }
}
