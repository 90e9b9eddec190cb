//! The types that expressions are checked against.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A type, as far as it is known before evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Anything: nothing can be said before evaluation.
    Dyn,
    /// `null`.
    Null,
    /// A boolean.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A floating-point number.
    Double,
    /// A text.
    String,
    /// Bytes.
    Bytes,
    /// A list of one type.
    List(Box<Type>),
    /// A map from texts to one type.
    Map(Box<Type>),
    /// An object with known fields.
    Object(Arc<ObjectType>),
    /// A span of time.
    Duration,
    /// A moment.
    Timestamp,
}

/// An object type: which fields there are.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectType {
    /// Name in messages.
    pub name: String,
    /// Types by field name, escaped as expressions write them.
    pub fields: BTreeMap<String, Type>,
}

impl Type {
    /// Whether values of one type can stand where the other is wanted.
    pub(super) fn agrees(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(a), Type::List(b)) | (Type::Map(a), Type::Map(b)) => a.agrees(b),
            // A literal map can stand for an object; null for whatever a Go program keeps behind a pointer.
            (Type::Map(_), Type::Object(_)) | (Type::Object(_), Type::Map(_)) => true,
            (Type::Null, other) | (other, Type::Null) => {
                matches!(other, Type::Null | Type::Object(_) | Type::Duration | Type::Timestamp)
            }
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (a, b) => a == b,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(value) => write!(f, "map(string, {value})"),
            Type::Object(object) => f.write_str(&object.name),
            Type::Duration => f.write_str("google.protobuf.Duration"),
            Type::Timestamp => f.write_str("google.protobuf.Timestamp"),
        }
    }
}
