//! A structural schema as types of the schema table, so that server-side apply sees lists and maps as the definition says.

use serde_json::Value;

use super::structural::{ListType, Structural};
use crate::apiserver::schema::{Field, PatchStrategy, Schema, Structure, Type, TypeIdx, TypeRef};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Types of the metadata of every object; each uses only the ones behind it.
const META_TYPES: [&str; 3] = [
    META,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// The types of a schema, and that of the whole object.
pub(super) fn types(root: &Structural) -> (Schema, TypeIdx) {
    let mut builder = Builder::default();
    let meta = builder.metadata();
    let whole = builder.object(root, "object", meta.as_ref());
    (Schema::of(builder.types), whole)
}

#[derive(Default)]
struct Builder {
    types: Vec<Type>,
}

impl Builder {
    /// Copies the types of metadata from the built-in table.
    fn metadata(&mut self) -> Option<TypeRef> {
        let builtin = Schema::builtin();
        let found: Vec<TypeIdx> = META_TYPES.iter().filter_map(|name| builtin.find(name)).collect();
        let place = |idx: TypeIdx| found.iter().position(|other| *other == idx).and_then(|at| u32::try_from(at).ok());
        for idx in &found {
            let mut ty = builtin.get(*idx).clone();
            for field in &mut ty.fields {
                if let TypeRef::List(item) = &mut field.ty
                    && let TypeRef::Object(inner) = **item
                {
                    **item = place(inner).map_or(TypeRef::Any, |at| TypeRef::Object(TypeIdx(at)));
                }
                // Requirements and defaults would be put into what is applied.
                field.required = false;
                field.default = None;
            }
            self.types.push(ty);
        }
        (!found.is_empty()).then_some(TypeRef::Object(TypeIdx(0)))
    }

    fn object(&mut self, schema: &Structural, name: &str, metadata: Option<&TypeRef>) -> TypeIdx {
        let at = self.types.len();
        self.types.push(Type { name: format!("{name}#{at}").into(), atomic: false, fields: Vec::new() });
        let mut fields: Vec<Field> = schema
            .properties
            .iter()
            .map(|(name, inner)| {
                let ty = match metadata {
                    Some(metadata) if name == "metadata" => metadata.clone(),
                    _ => self.reference(inner, name),
                };
                Field {
                    name: name.as_str().into(),
                    ty,
                    required: false,
                    structure: structure(inner),
                    patch: PatchStrategy::default(),
                    values: Vec::new(),
                    default: inner
                        .default
                        .clone()
                        .filter(|default| !matches!(default, Value::Object(_) | Value::Array(_))),
                }
            })
            .collect();
        fields.sort_by(|left, right| left.name.cmp(&right.name));
        self.types[at].fields = fields;
        self.types[at].atomic = schema.atomic;
        TypeIdx(u32::try_from(at).expect("a schema has fewer objects than u32 counts"))
    }

    fn reference(&mut self, schema: &Structural, name: &str) -> TypeRef {
        if schema.int_or_string {
            return TypeRef::IntOrString;
        }
        match schema.ty.as_str() {
            "boolean" => TypeRef::Bool,
            "integer" => TypeRef::Int64,
            "number" => TypeRef::Double,
            "string" => TypeRef::String,
            "array" => {
                let item = schema.items.as_ref().map_or(TypeRef::Any, |items| self.reference(items, name));
                TypeRef::List(Box::new(item))
            }
            "object" => match &schema.additional {
                Some(Some(inner)) => TypeRef::Map(Box::new(self.reference(inner, name))),
                Some(None) => TypeRef::Map(Box::new(TypeRef::Any)),
                None if schema.properties.is_empty() => TypeRef::Map(Box::new(TypeRef::Any)),
                None => TypeRef::Object(self.object(schema, name, None)),
            },
            _ => TypeRef::Any,
        }
    }
}

fn structure(schema: &Structural) -> Structure {
    match &schema.list_type {
        _ if schema.atomic => Structure::Atomic,
        ListType::Atomic => Structure::Default,
        ListType::Set => Structure::Set,
        ListType::Map(keys) => Structure::Map(keys.iter().map(|key| key.as_str().into()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_keep_what_tells_their_items_apart() {
        let root =
            Structural::root(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}}}));
        let (schema, whole) = types(&root);
        let spec = match &schema.get(whole).field("spec").expect("it is declared").ty {
            TypeRef::Object(idx) => schema.get(*idx),
            other => panic!("{other:?}"),
        };
        assert_eq!(spec.field("items").expect("it is declared").structure, Structure::Map(vec!["name".into()]));
        assert_eq!(spec.field("set").expect("it is declared").structure, Structure::Set);
        assert_eq!(spec.field("free").expect("it is declared").ty, TypeRef::Map(Box::new(TypeRef::Any)));
        let meta = match &schema.get(whole).field("metadata").expect("every object has it").ty {
            TypeRef::Object(idx) => schema.get(*idx),
            other => panic!("{other:?}"),
        };
        assert!(meta.field("labels").is_some() && meta.field("ownerReferences").is_some());
    }
}
