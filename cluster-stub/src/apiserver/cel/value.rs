//! The values of CEL: equality, order, and the way from and to JSON. No function lives here.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Number};

use super::authorizer::{Answer, Check};
use super::url::Url;
use crate::apiserver::validation::quantity::Quantity;

/// A value. Clones are cheap: what is large is shared.
#[derive(Clone)]
pub enum Value {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer of 64 bits.
    Int(i64),
    /// An unsigned integer of 64 bits.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<[Value]>),
    /// A map or an object.
    Map(Arc<BTreeMap<Key, Value>>),
    /// A span of time.
    Duration(SignedDuration),
    /// A moment.
    Timestamp(Timestamp),
    /// A type, by name.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Value>>),
    /// A Kubernetes resource quantity.
    Quantity(Quantity),
    /// An IP address.
    Ip(IpAddr),
    /// A range of IP addresses: its address and the length of its prefix.
    Cidr(IpAddr, u8),
    /// A URL.
    Url(Arc<Url>),
    /// The authorizer, or a question to it that is being put together.
    Authorizer(Arc<Check>),
    /// The authorizer's answer.
    Decision(Arc<Answer>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A number that is too large for `Int`.
    Uint(u64),
    /// A text.
    String(Arc<str>),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<Arc<str>>) -> Value {
        Value::String(text.into())
    }

    /// A list.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Value {
        Value::List(items.into_iter().collect())
    }

    /// A map with texts as keys.
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        Value::Map(Arc::new(entries.into_iter().map(|(key, value)| (Key::String(key.into()), value)).collect()))
    }

    /// A span of time from Go's duration text; `None` if it is none.
    pub fn duration(text: &str) -> Option<Value> {
        super::time::parse_duration(text).map(Value::Duration)
    }

    /// The member of a map with texts as keys.
    pub fn member(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(map) => map.get(&Key::String(name.into())),
            _ => None,
        }
    }

    /// JSON as it is: whole numbers are integers, texts stay texts.
    pub fn of_json(json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => of_number(number),
            serde_json::Value::String(text) => Value::text(text.as_str()),
            serde_json::Value::Array(items) => Value::list(items.iter().map(Value::of_json)),
            serde_json::Value::Object(map) => {
                Value::map(map.iter().map(|(key, value)| (key.as_str(), Value::of_json(value))))
            }
        }
    }

    /// The value as JSON; `None` for what JSON has no form of.
    pub fn to_json(&self) -> Option<serde_json::Value> {
        Some(match self {
            Value::Null | Value::Optional(None) => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => Number::from_f64(*value)?.into(),
            Value::String(text) => (&**text).into(),
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.encode(bytes).into()
            }
            Value::List(items) => serde_json::Value::Array(items.iter().map(Value::to_json).collect::<Option<_>>()?),
            Value::Map(map) => {
                let mut object = Map::new();
                for (key, value) in map.iter() {
                    object.insert(key.to_string(), value.to_json()?);
                }
                serde_json::Value::Object(object)
            }
            Value::Duration(_) | Value::Timestamp(_) | Value::Quantity(_) | Value::Ip(_) | Value::Cidr(..) => {
                self.to_string().into()
            }
            Value::Optional(Some(value)) => value.to_json()?,
            Value::Type(_) | Value::Url(_) | Value::Authorizer(_) | Value::Decision(_) => return None,
        })
    }

    /// The name of the type, as `type()` gives it and messages show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(..) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Value::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// The order of two values of types that have one; numbers of different types compare by value.
    pub fn order(&self, other: &Value) -> Option<Ordering> {
        Some(match (self, other) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => return a.partial_cmp(b),
            (Value::Int(a), Value::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Value::Uint(a), Value::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Value::Double(a), Value::Int(b)) => return a.partial_cmp(&(*b as f64)),
            (Value::Int(a), Value::Double(b)) => return (*a as f64).partial_cmp(b),
            (Value::Double(a), Value::Uint(b)) => return a.partial_cmp(&(*b as f64)),
            (Value::Uint(a), Value::Double(b)) => return (*a as f64).partial_cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::Quantity(a), Value::Quantity(b)) => a.cmp(b),
            _ => return None,
        })
    }

    fn is_number(&self) -> bool {
        matches!(self, Value::Int(_) | Value::Uint(_) | Value::Double(_))
    }
}

fn of_number(number: &Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(value), _) => Value::Int(value),
        (None, Some(value)) => Value::Uint(value),
        (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Map(a), Value::Map(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a == b,
            (Value::Optional(a), Value::Optional(b)) => a == b,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a, length), Value::Cidr(b, other)) => a == b && length == other,
            (Value::Url(a), Value::Url(b)) => a == b,
            (a, b) if a.is_number() && b.is_number() => a.order(b) == Some(Ordering::Equal),
            (a, b) => a.type_name() == b.type_name() && a.order(b) == Some(Ordering::Equal),
        }
    }
}

impl Key {
    /// The key that a value is, if it can be one. Numbers that are equal are the same key.
    pub fn of(value: &Value) -> Option<Key> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => i64::try_from(*value).map_or(Key::Uint(*value), Key::Int),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Key::Int(*value as i64),
            Value::String(text) => Key::String(text.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Bool(value) => write!(f, "{value}"),
            Key::Int(value) => write!(f, "{value}"),
            Key::Uint(value) => write!(f, "{value}"),
            Key::String(text) => f.write_str(text),
        }
    }
}

/// As `string()` writes it, as far as it does.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[String], open: &str, close: &str| {
            write!(f, "{open}{}{close}", items.join(", "))
        };
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}"),
            Value::Double(value) => write!(f, "{value}"),
            Value::String(text) => f.write_str(text),
            Value::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                list(f, &items, "[", "]")
            }
            Value::Map(map) => {
                let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                list(f, &entries, "{", "}")
            }
            Value::Duration(duration) => f.write_str(&super::time::format_duration(*duration)),
            Value::Timestamp(moment) => write!(f, "{moment}"),
            Value::Type(name) => f.write_str(name),
            Value::Optional(None) => f.write_str("optional.none()"),
            Value::Optional(Some(value)) => write!(f, "optional({value})"),
            Value::Quantity(quantity) => write!(f, "{quantity}"),
            Value::Ip(address) => write!(f, "{address}"),
            Value::Cidr(address, length) => write!(f, "{address}/{length}"),
            Value::Url(url) => write!(f, "{url}"),
            Value::Authorizer(_) => f.write_str("authorizer"),
            Value::Decision(_) => f.write_str("decision"),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(value) => write!(f, "Int({value})"),
            Value::Uint(value) => write!(f, "Uint({value})"),
            Value::Double(value) => write!(f, "Double({value})"),
            Value::String(text) => write!(f, "{text:?}"),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_equal_across_their_types() {
        assert_eq!(Value::Int(1), Value::Double(1.0));
        assert_eq!(Value::Int(1), Value::Uint(1));
        assert_ne!(Value::Int(-1), Value::Uint(u64::MAX));
        assert_ne!(Value::Int(1), Value::text("1"));
        assert_ne!(Value::Null, Value::Bool(false));
    }

    #[test]
    fn json_goes_in_and_out() {
        let json = json!({"a": [1, 2.5, "x", null, true], "b": {"c": {}}});
        assert_eq!(Value::of_json(&json).to_json(), Some(json));
        assert_eq!(Value::Type("int".into()).to_json(), None);
    }
}
