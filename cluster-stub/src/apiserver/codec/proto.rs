//! Reads request bodies in Kubernetes' protobuf form into the JSON that the rest of the server knows. Some clients write this
//! form and take JSON back; nothing here writes it.
//!
//! Field numbers stand in `proto.txt`, one type a line: `<type> <number>=<JSON name>[*] …`, where `*` marks a Go pointer
//! (its zero value is a value), and `<number>=:<type>` an embedded struct whose fields are the type's own in JSON. Types of
//! values come from the schema. Upstream: v1.36.2 `staging/src/k8s.io/api/*/generated.proto`,
//! apimachinery `pkg/runtime/serializer/protobuf`.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::proto_wire::{Fields, Wire};
use crate::apiserver::schema::{Schema, TypeIdx, TypeRef};

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may be nested.
const MAX_DEPTH: usize = 64;

/// A body without its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion`; may be empty.
    pub api_version: &'a str,
    /// `kind`; may be empty.
    pub kind: &'a str,
    /// The encoded object.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens the envelope (`runtime.Unknown`).
    ///
    /// # Errors
    /// What is malformed.
    pub fn open(body: &'a [u8]) -> Result<Envelope<'a>, String> {
        let rest = body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
        let mut envelope = Envelope { api_version: "", kind: "", raw: &[] };
        for field in Fields::of(rest) {
            match field? {
                (1, Wire::Bytes(meta)) => {
                    for field in Fields::of(meta) {
                        match field? {
                            (1, Wire::Bytes(text)) => envelope.api_version = utf8(text)?,
                            (2, Wire::Bytes(text)) => envelope.kind = utf8(text)?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// Decodes an encoded object of the type at `root`. Zero values that Go's JSON leaves out are left out.
///
/// # Errors
/// What is malformed, or a type whose numbers are not known.
pub fn decode(schema: &Schema, root: TypeIdx, raw: &[u8]) -> Result<Value, String> {
    let name = schema.get(root).name.as_ref();
    let mut object = Map::new();
    Decoder { schema }.message(name, root, raw, &mut object, 0)?;
    Ok(Value::Object(object))
}

/// One field of a type.
enum Number {
    Named { name: &'static str, pointer: bool },
    Embedded(&'static str),
}

type Numbers = HashMap<&'static str, HashMap<u32, Number>>;

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| read_table(include_str!("proto.txt")));

fn read_table(table: &'static str) -> Numbers {
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or("");
            let fields = words.filter_map(|word| {
                let (number, field) = word.split_once('=')?;
                let number = number.parse().ok()?;
                Some((
                    number,
                    match field.strip_prefix(':') {
                        Some(embedded) => Number::Embedded(embedded),
                        None => Number::Named { name: field.trim_end_matches('*'), pointer: field.ends_with('*') },
                    },
                ))
            });
            (name, fields.collect())
        })
        .collect()
}

struct Decoder<'s> {
    schema: &'s Schema,
}

impl Decoder<'_> {
    /// Reads the fields of a message numbered as `numbered` into the members of the type at `idx`.
    fn message(
        &self,
        numbered: &str,
        idx: TypeIdx,
        raw: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("the protobuf message is nested too deep".to_string());
        }
        let numbers = NUMBERS.get(numbered).ok_or_else(|| format!("protobuf is not known for {numbered}"))?;
        for field in Fields::of(raw) {
            let (number, wire) = field?;
            match (numbers.get(&number), wire) {
                (Some(Number::Embedded(inner)), Wire::Bytes(raw)) => {
                    self.message(inner, idx, raw, object, depth + 1)?
                }
                (Some(Number::Named { name, pointer }), wire) => {
                    let Some(field) = self.schema.get(idx).field(name) else {
                        continue;
                    };
                    let keep_zero = *pointer || field.required;
                    self.member(name, &field.ty, keep_zero, wire, object, depth)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn member(
        &self,
        name: &str,
        ty: &TypeRef,
        keep_zero: bool,
        wire: Wire<'_>,
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        match ty {
            TypeRef::List(item) => {
                let values = match wire {
                    // Numbers may come packed.
                    Wire::Bytes(raw) if matches!(**item, TypeRef::Int32 | TypeRef::Int64 | TypeRef::Bool) => {
                        Fields::packed(raw).map(|wire| self.value(item, wire?, depth)).collect::<Result<Vec<_>, _>>()?
                    }
                    wire => vec![self.value(item, wire, depth)?],
                };
                if let Value::Array(list) = object.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                    list.extend(values);
                }
            }
            TypeRef::Map(inner) => {
                let Wire::Bytes(raw) = wire else {
                    return Err(format!("field {name} is no protobuf map"));
                };
                let (mut key, mut value) = (String::new(), None);
                for field in Fields::of(raw) {
                    match field? {
                        (1, Wire::Bytes(text)) => key = utf8(text)?.to_string(),
                        (2, wire) => value = Some(self.map_value(inner, wire, depth)?),
                        _ => {}
                    }
                }
                if let Value::Object(map) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) {
                    map.insert(key, value.unwrap_or_else(|| Value::String(String::new())));
                }
            }
            ty => {
                let value = self.value(ty, wire, depth)?;
                let zero = match &value {
                    Value::Null => true,
                    Value::String(text) => text.is_empty() && !keep_zero,
                    Value::Number(number) => number.as_f64() == Some(0.0) && !keep_zero,
                    Value::Bool(value) => !value && !keep_zero,
                    _ => false,
                };
                if !zero {
                    object.insert(name.to_string(), value);
                }
            }
        }
        Ok(())
    }

    /// The value of a map entry; a list as a map's value is a message of its own (`ExtraValue`).
    fn map_value(&self, ty: &TypeRef, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
        let (TypeRef::List(item), Wire::Bytes(raw)) = (ty, wire) else {
            return self.value(ty, wire, depth);
        };
        let items = Fields::of(raw).map(|field| self.value(item, field?.1, depth));
        Ok(Value::Array(items.collect::<Result<_, _>>()?))
    }

    fn value(&self, ty: &TypeRef, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
        Ok(match (ty, wire) {
            (TypeRef::String, Wire::Bytes(text)) => utf8(text)?.into(),
            (TypeRef::Int32 | TypeRef::Int64, Wire::Varint(number)) => number.cast_signed().into(),
            (TypeRef::Bool, Wire::Varint(number)) => (number != 0).into(),
            (TypeRef::Double, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
            (TypeRef::Bytes, Wire::Bytes(raw)) => STANDARD.encode(raw).into(),
            (TypeRef::Object(idx), Wire::Bytes(raw)) => {
                let mut object = Map::new();
                self.message(&self.schema.get(*idx).name, *idx, raw, &mut object, depth + 1)?;
                Value::Object(object)
            }
            (TypeRef::Quantity, Wire::Bytes(raw)) => text_at(raw, 1)?.into(),
            (TypeRef::IntOrString, Wire::Bytes(raw)) => {
                if number_at(raw, 1)? == 1 {
                    text_at(raw, 3)?.into()
                } else {
                    number_at(raw, 2)?.into()
                }
            }
            (TypeRef::Time | TypeRef::MicroTime, Wire::Bytes(raw)) => time(raw, matches!(ty, TypeRef::MicroTime))?,
            (TypeRef::Duration, Wire::Bytes(raw)) => format!("{}ns", number_at(raw, 1)?).into(),
            (TypeRef::Any | TypeRef::FieldsV1, Wire::Bytes(raw)) => {
                let inner = Fields::of(raw).find_map(|field| match field {
                    Ok((1, Wire::Bytes(inner))) => Some(inner),
                    _ => None,
                });
                inner.map_or(Ok(Value::Null), serde_json::from_slice).map_err(|error| error.to_string())?
            }
            (ty, _) => return Err(format!("wrong protobuf wire type for {}", self.schema.go_type(ty))),
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("a protobuf string is not UTF-8: {error}"))
}

fn text_at(raw: &[u8], wanted: u32) -> Result<String, String> {
    for field in Fields::of(raw) {
        if let (number, Wire::Bytes(text)) = field?
            && number == wanted
        {
            return utf8(text).map(ToString::to_string);
        }
    }
    Ok(String::new())
}

fn number_at(raw: &[u8], wanted: u32) -> Result<i64, String> {
    for field in Fields::of(raw) {
        if let (number, Wire::Varint(value)) = field?
            && number == wanted
        {
            return Ok(value.cast_signed());
        }
    }
    Ok(0)
}

/// Seconds and nanoseconds since the epoch; no fields at all is no time.
fn time(raw: &[u8], micro: bool) -> Result<Value, String> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let (seconds, nanos) = (number_at(raw, 1)?, number_at(raw, 2)?);
    let time = i32::try_from(nanos).ok().and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    let time = time.ok_or_else(|| format!("{seconds} seconds and {nanos} nanoseconds are no time"))?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(format).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, wire: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | wire];
        if wire == 2 {
            out.push(u8::try_from(body.len()).expect("short test messages"));
        }
        out.extend_from_slice(body);
        out
    }

    fn message(parts: &[Vec<u8>]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn a_body_becomes_the_json_that_go_would_write() {
        let meta = message(&[field(1, 2, b"a"), field(2, 2, b""), field(7, 0, &[0]), field(8, 2, b"")]);
        let entry = message(&[field(1, 2, b"k"), field(2, 2, b"v")]);
        let map = message(&[field(1, 2, &meta), field(2, 2, &entry)]);
        let unknown = message(&[
            field(1, 2, &message(&[field(1, 2, b"v1"), field(2, 2, b"ConfigMap")])),
            field(2, 2, &map),
            field(3, 2, b""),
        ]);
        let body = [MAGIC, &unknown].concat();
        let envelope = Envelope::open(&body).expect("an envelope");
        assert_eq!((envelope.api_version, envelope.kind), ("v1", "ConfigMap"));
        let schema = Schema::builtin();
        let ty = schema.find("io.k8s.api.core.v1.ConfigMap").expect("it is in the table");
        assert_eq!(decode(&schema, ty, envelope.raw), Ok(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})));
    }

    #[test]
    fn pointers_keep_their_zero_and_embedded_structs_dissolve() {
        let schema = Schema::builtin();
        let spec = schema.find("io.k8s.api.apps.v1.DeploymentSpec").expect("it is in the table");
        assert_eq!(decode(&schema, spec, &field(1, 0, &[0])), Ok(json!({"replicas": 0})));
        let volume = schema.find("io.k8s.api.core.v1.Volume").expect("it is in the table");
        let source = field(2, 2, &field(2, 2, &field(1, 2, b"Memory")));
        let raw = message(&[field(1, 2, b"v"), source]);
        assert_eq!(decode(&schema, volume, &raw), Ok(json!({"name": "v", "emptyDir": {"medium": "Memory"}})));
    }

    #[test]
    fn broken_bodies_are_refused() {
        assert!(Envelope::open(b"{}").is_err());
        let schema = Schema::builtin();
        let ty = schema.find("io.k8s.api.core.v1.ConfigMap").expect("it is in the table");
        for raw in [&[0x0a, 0x05, 0x00][..], &[0xff; 12], &[0x0b]] {
            assert!(decode(&schema, ty, raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn every_named_number_is_a_field_of_the_schema() {
        let schema = Schema::builtin();
        for (name, numbers) in NUMBERS.iter() {
            let Some(idx) = schema.find(name) else {
                continue;
            };
            for number in numbers.values() {
                if let Number::Named { name: field, .. } = number {
                    assert!(schema.get(idx).field(field).is_some(), "{name} has no field {field}");
                }
            }
        }
    }
}
