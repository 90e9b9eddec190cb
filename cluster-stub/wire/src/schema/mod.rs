//! The shape of every API type: fields, types, list kinds, patch strategies. Built once from a text table; no object is touched here.

pub mod descriptions;
pub mod parse;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use descriptions::Descriptions;
pub use parse::ParseError;

/// Index of a type in its [`Schema`]; valid only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeIdx(pub u32);

/// The type of a field, list item or map value.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeRef {
    /// Text.
    String,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// A boolean.
    Bool,
    /// A resource quantity: text or number.
    Quantity,
    /// An integer or a text.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Go duration text such as `1m30s`.
    Duration,
    /// Base64 text.
    Bytes,
    /// Any JSON, kept as it comes (`RawExtension`, `JSON`).
    Any,
    /// The field set of a `managedFields` entry.
    FieldsV1,
    /// A JSON object with free keys.
    Map(Box<TypeRef>),
    /// A JSON array.
    List(Box<TypeRef>),
    /// A type of the table.
    Object(TypeIdx),
}

/// How server-side apply and validation see the items of a list, or the members of a map or object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Structure {
    /// Nothing said: lists are atomic, maps and objects granular.
    #[default]
    Default,
    /// One value, owned as a whole.
    Atomic,
    /// A list of scalars, each once.
    Set,
    /// A list of objects that are told apart by these members.
    Map(Vec<Box<str>>),
}

/// What strategic merge patch does with a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Items of a list are merged instead of replaced.
    pub merge: bool,
    /// The patch may name the members to keep (`$retainKeys`).
    pub retain_keys: bool,
    /// The member that tells the items of a merged list of objects apart.
    pub merge_key: Option<Box<str>>,
}

/// One field of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name in JSON.
    pub name: Box<str>,
    /// Its type.
    pub ty: TypeRef,
    /// Whether the OpenAPI schema lists it as required.
    pub required: bool,
    /// List or map structure for server-side apply.
    pub structure: Structure,
    /// Strategic merge patch.
    pub patch: PatchStrategy,
    /// The documented values, empty if free.
    pub values: Vec<Box<str>>,
    /// The default that the OpenAPI schema states.
    pub default: Option<Value>,
}

/// One object type.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// OpenAPI name, e.g. `io.k8s.api.core.v1.Pod`.
    pub name: Box<str>,
    /// Whether server-side apply takes it as one value.
    pub atomic: bool,
    /// Its fields, sorted by name.
    pub fields: Vec<Field>,
}

impl Field {
    /// Whether the field is a Go struct and no pointer, so that it is always there.
    pub fn is_struct(&self) -> bool {
        self.default.as_ref().and_then(Value::as_object).is_some_and(Map::is_empty)
    }
}

impl Type {
    /// The field of this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|field| field.name.as_ref().cmp(name)).ok().map(|at| &self.fields[at])
    }

    /// Go's short name: `Pod`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Go's name with package: `v1.Pod`.
    pub fn go_name(&self) -> &str {
        self.name.rmatch_indices('.').nth(1).map_or(&self.name, |(at, _)| &self.name[at + 1..])
    }
}

/// All types of the API.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    types: Vec<Type>,
    by_name: HashMap<Box<str>, TypeIdx>,
}

impl Schema {
    /// The types of the built-in API, read from the table that is part of the program.
    pub fn builtin() -> Arc<Schema> {
        static BUILTIN: std::sync::LazyLock<Arc<Schema>> = std::sync::LazyLock::new(|| {
            let schema = Schema::parse(include_str!("types.txt"));
            Arc::new(schema.expect("the table is part of the program and a test reads it"))
        });
        BUILTIN.clone()
    }

    /// A schema of these types; references are indices into them.
    pub fn of(types: Vec<Type>) -> Schema {
        let place = |at: usize| TypeIdx(u32::try_from(at).unwrap_or(u32::MAX));
        let by_name = types.iter().enumerate().map(|(at, ty)| (ty.name.clone(), place(at))).collect();
        Schema { types, by_name }
    }

    /// The index of a type by its OpenAPI name.
    pub fn find(&self, name: &str) -> Option<TypeIdx> {
        self.by_name.get(name).copied()
    }

    /// A type by index.
    pub fn get(&self, idx: TypeIdx) -> &Type {
        &self.types[idx.0 as usize]
    }

    /// All types, in table order.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// What Go's zero value of a type looks like in JSON: structs that are no pointers are there, as are numbers and booleans that
    /// are never left out; lists and maps that are never left out are null.
    pub fn zero(&self, idx: TypeIdx) -> Value {
        let mut object = Map::new();
        for field in &self.get(idx).fields {
            let value = match &field.ty {
                TypeRef::Object(inner) if field.is_struct() => self.zero(*inner),
                TypeRef::List(_) | TypeRef::Map(_) if field.required => Value::Null,
                TypeRef::Int32 | TypeRef::Int64 if field.required => 0.into(),
                TypeRef::Bool if field.required => false.into(),
                _ => continue,
            };
            object.insert(field.name.to_string(), value);
        }
        Value::Object(object)
    }

    /// Puts in the structs that Go never leaves out.
    pub fn fill_structs(&self, idx: TypeIdx, object: &mut Map<String, Value>) {
        for field in &self.get(idx).fields {
            if let TypeRef::Object(inner) = &field.ty
                && field.is_struct()
                && !object.contains_key(field.name.as_ref())
            {
                let mut value = self.zero(*inner);
                if let Some(members) = value.as_object_mut() {
                    members.retain(|_, value| !value.is_null());
                }
                object.insert(field.name.to_string(), value);
            }
        }
    }

    /// How Go names the type of a reference: `int32`, `[]v1.Container`, `map[string]string`.
    pub fn go_type(&self, ty: &TypeRef) -> String {
        match ty {
            TypeRef::String => "string".to_string(),
            TypeRef::Int32 => "int32".to_string(),
            TypeRef::Int64 => "int64".to_string(),
            TypeRef::Double => "float64".to_string(),
            TypeRef::Bool => "bool".to_string(),
            TypeRef::Quantity => "resource.Quantity".to_string(),
            TypeRef::IntOrString => "intstr.IntOrString".to_string(),
            TypeRef::Time => "v1.Time".to_string(),
            TypeRef::MicroTime => "v1.MicroTime".to_string(),
            TypeRef::Duration => "v1.Duration".to_string(),
            TypeRef::Bytes => "[]uint8".to_string(),
            TypeRef::Any => "runtime.RawExtension".to_string(),
            TypeRef::FieldsV1 => "v1.FieldsV1".to_string(),
            TypeRef::Map(value) => format!("map[string]{}", self.go_type(value)),
            TypeRef::List(item) => format!("[]{}", self.go_type(item)),
            TypeRef::Object(idx) => self.get(*idx).go_name().to_string(),
        }
    }
}
