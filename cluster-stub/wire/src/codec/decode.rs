//! Decodes JSON against a type of the schema as the Go decoder of a real API server does: unknown fields are dropped and
//! reported, duplicates reported, nulls dropped, and a value of the wrong type fails in Go's words. No defaults are set here.
//!
//! Upstream: sigs.k8s.io/json as used by apimachinery v1.36.2 `pkg/runtime/serializer/json`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{scalar, syntax};
use crate::schema::{Field, Schema, TypeIdx, TypeRef};

/// What strict decoding has to say beside the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object without unknown fields; of a duplicate the last one.
    pub object: Value,
    /// `unknown field "…"` and `duplicate field "…"`, in the order of the input, at most 100.
    pub strict_errors: Vec<String>,
}

/// Why a body is no object of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON.
    #[error("{0}")]
    Syntax(String),
    /// A value has the wrong type; the text is Go's.
    #[error("{0}")]
    Type(String),
}

const MAX_STRICT_ERRORS: usize = 100;

/// Decodes `json` as the type at `root`.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(schema: &Schema, root: TypeIdx, json: &[u8]) -> Result<Decoded, DecodeError> {
    decode_type(schema, &TypeRef::Object(root), json)
}

/// Decodes `json` as the type at `root` without putting structs in that it does not name: what a client states and no more.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_stated(schema: &Schema, root: TypeIdx, json: &[u8]) -> Result<Decoded, DecodeError> {
    run(schema, &TypeRef::Object(root), json, false)
}

/// Decodes `json` as any type reference.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_type(schema: &Schema, ty: &TypeRef, json: &[u8]) -> Result<Decoded, DecodeError> {
    run(schema, ty, json, true)
}

fn run(schema: &Schema, ty: &TypeRef, json: &[u8], fill: bool) -> Result<Decoded, DecodeError> {
    let mut state = State::new(schema, fill);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Seed { state: &mut state, ty, owner: None }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|_| DecodeError::Syntax(syntax::fault(json)))?;
    state.finish(value)
}

/// Checks and prunes a value that is JSON already, such as the result of a patch.
///
/// # Errors
/// [`DecodeError::Type`] in Go's words.
pub fn conform(schema: &Schema, root: TypeIdx, value: &Value) -> Result<Decoded, DecodeError> {
    conform_as(root, value, State::new(schema, true))
}

/// The same with the words of the converter that upstream uses for strategic merge patches.
///
/// # Errors
/// [`DecodeError::Type`]. Upstream: apimachinery v1.36.2 `pkg/runtime/converter.go` fromUnstructured.
pub fn conform_unstructured(schema: &Schema, root: TypeIdx, value: &Value) -> Result<Decoded, DecodeError> {
    let state = State { unstructured: true, ..State::new(schema, true) };
    conform_as(root, value, state)
}

/// The same for what a client states, without putting structs in.
///
/// # Errors
/// [`DecodeError::Type`] in Go's words.
pub fn conform_stated(schema: &Schema, root: TypeIdx, value: &Value) -> Result<Decoded, DecodeError> {
    conform_as(root, value, State::new(schema, false))
}

fn conform_as<'s>(root: TypeIdx, value: &Value, mut state: State<'s>) -> Result<Decoded, DecodeError> {
    let ty = TypeRef::Object(root);
    let value = Seed { state: &mut state, ty: &ty, owner: None }
        .deserialize(value)
        .map_err(|error| DecodeError::Syntax(error.to_string()))?;
    state.finish(value)
}

struct State<'s> {
    schema: &'s Schema,
    /// Names of the struct fields from the root, without list indices and map keys, as Go's type errors show them.
    fields: Vec<&'s str>,
    /// The whole path, as strict errors show it.
    path: String,
    strict: Vec<String>,
    failure: Option<String>,
    /// Whether structs that Go never leaves out are put in.
    fill: bool,
    /// Whether type errors have the converter's words instead of the decoder's.
    unstructured: bool,
}

impl<'s> State<'s> {
    fn new(schema: &'s Schema, fill: bool) -> State<'s> {
        State {
            schema,
            fields: Vec::new(),
            path: String::new(),
            strict: Vec::new(),
            failure: None,
            fill,
            unstructured: false,
        }
    }

    fn finish(self, value: Option<Value>) -> Result<Decoded, DecodeError> {
        match self.failure {
            Some(failure) => Err(DecodeError::Type(failure)),
            None => Ok(Decoded { object: value.unwrap_or(Value::Null), strict_errors: self.strict }),
        }
    }

    fn report(&mut self, what: &str, key: &str) {
        if self.strict.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let text = format!("{what} field \"{}{dot}{key}\"", self.path);
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    fn fail(&mut self, text: String) {
        self.failure.get_or_insert(text);
    }

    fn enter(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }
}

/// Decodes one value. `owner` is the Go name of the struct that holds the field, for error texts. `None` means that the value
/// was null or did not fit.
struct Seed<'a, 's> {
    state: &'a mut State<'s>,
    ty: &'a TypeRef,
    owner: Option<&'a str>,
}

impl Seed<'_, '_> {
    fn mismatch(&mut self, found: &str) {
        if self.state.unstructured
            && let Some(text) = self.unconvertible(found)
        {
            return self.state.fail(text);
        }
        let wanted = match self.ty {
            // These decode themselves: Go's error does not know the field.
            TypeRef::IntOrString => {
                return self.state.fail(format!("json: cannot unmarshal {found} into Go value of type int32"));
            }
            TypeRef::Time | TypeRef::MicroTime | TypeRef::Duration => {
                return self.state.fail(format!("json: cannot unmarshal {found} into Go value of type string"));
            }
            TypeRef::Quantity => return self.state.fail(scalar::QUANTITY_ERROR.to_string()),
            other => self.state.schema.go_type(other),
        };
        let text = match self.owner {
            Some(owner) => {
                let path = self.state.fields.join(".");
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        };
        self.state.fail(text);
    }

    /// What upstream's converter says to a value of a wrong type; `None` where the type decodes itself.
    fn unconvertible(&self, found: &str) -> Option<String> {
        let found = match found.split_once(' ') {
            _ if found == "array" => "slice",
            _ if found == "object" => "map",
            Some(("number", digits)) if digits.contains(['.', 'e', 'E']) => "float64",
            _ if found.starts_with("number") => "int64",
            _ => found,
        };
        let scalar = |name: &str, convertible: &str| {
            if found == convertible {
                format!("cannot convert {found} to {name}")
            } else {
                format!("unrecognized type: {name}")
            }
        };
        Some(match self.ty {
            TypeRef::Map(_) => format!("cannot restore map from {found}"),
            TypeRef::List(_) => format!("cannot restore slice from {found}"),
            TypeRef::Object(_) => format!("cannot restore struct from: {found}"),
            TypeRef::String => scalar("string", "int64"),
            TypeRef::Int32 => scalar("int32", "float64"),
            TypeRef::Int64 => scalar("int64", "float64"),
            TypeRef::Bool => scalar("bool", ""),
            TypeRef::Double => scalar("float64", ""),
            _ => return None,
        })
    }

    fn number(&mut self, number: Number) -> Option<Value> {
        let whole = number.as_i64().is_some();
        let fits = match self.ty {
            TypeRef::Int32 => number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
            TypeRef::Int64 => whole,
            TypeRef::Double | TypeRef::Any => true,
            TypeRef::IntOrString => {
                if number.as_i64().is_none_or(|value| i32::try_from(value).is_err()) {
                    self.mismatch(&format!("number {number}"));
                    return None;
                }
                true
            }
            TypeRef::Quantity => return self.quantity(&number.to_string()),
            _ => {
                self.mismatch("number");
                return None;
            }
        };
        if fits {
            return Some(Value::Number(number));
        }
        self.mismatch(&format!("number {number}"));
        None
    }

    fn quantity(&mut self, text: &str) -> Option<Value> {
        match scalar::quantity(text) {
            Ok(canonical) => Some(Value::String(canonical)),
            Err(error) => {
                self.state.fail(error);
                None
            }
        }
    }

    fn text(&mut self, text: String) -> Option<Value> {
        let checked = match self.ty {
            TypeRef::String | TypeRef::IntOrString | TypeRef::Any => return Some(Value::String(text)),
            TypeRef::Quantity => return self.quantity(&text),
            TypeRef::Time => scalar::time(&text),
            TypeRef::MicroTime => scalar::micro_time(&text),
            TypeRef::Duration => scalar::duration(&text).map(Some),
            TypeRef::Bytes => scalar::bytes(&text).map(Some),
            _ => {
                self.mismatch("string");
                return None;
            }
        };
        match checked {
            Ok(text) => text.map(Value::String),
            Err(error) => {
                self.state.fail(error);
                None
            }
        }
    }

    fn object<'de, A: MapAccess<'de>>(self, idx: TypeIdx, mut map: A) -> Result<Option<Value>, A::Error> {
        let state = self.state;
        let schema = state.schema;
        let ty = schema.get(idx);
        let mut object = Map::new();
        let mut seen: Vec<&str> = Vec::new();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Some(field) = ty.field(&key) else {
                state.report("unknown", &key);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&&*field.name) {
                state.report("duplicate", &key);
            }
            seen.push(&field.name);
            let length = state.enter(&key);
            state.fields.push(&field.name);
            let value = map.next_value_seed(Seed { state, ty: &field.ty, owner: Some(ty.short_name()) })?;
            state.fields.pop();
            state.path.truncate(length);
            match value {
                Some(value) if !is_omitted(field, &value) => object.insert(key.into_owned(), value),
                _ => object.remove(&*key),
            };
        }
        if state.fill {
            schema.fill_structs(idx, &mut object);
        }
        Ok(Some(Value::Object(object)))
    }

    fn map<'de, A: MapAccess<'de>>(self, value: &TypeRef, mut map: A) -> Result<Option<Value>, A::Error> {
        let state = self.state;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                state.report("duplicate", &key);
            }
            let length = state.enter(&key);
            let decoded = map.next_value_seed(Seed { state, ty: value, owner: self.owner })?;
            state.path.truncate(length);
            object.insert(key, decoded.unwrap_or_else(|| zero(value)));
        }
        Ok(Some(Value::Object(object)))
    }

    fn list<'de, A: SeqAccess<'de>>(self, item: &TypeRef, mut seq: A) -> Result<Option<Value>, A::Error> {
        let state = self.state;
        let mut list = Vec::new();
        let length = state.path.len();
        loop {
            fmt::Write::write_fmt(&mut state.path, format_args!("[{}]", list.len()))
                .expect("writing to a String cannot fail");
            let next = seq.next_element_seed(Seed { state, ty: item, owner: self.owner })?;
            state.path.truncate(length);
            match next {
                Some(value) => list.push(value.unwrap_or_else(|| zero(item))),
                None => return Ok(Some(Value::Array(list))),
            }
        }
    }
}

/// Whether Go's encoder leaves the value out: an empty list or map of a field that may be absent.
fn is_omitted(field: &Field, value: &Value) -> bool {
    match (&field.ty, value) {
        (TypeRef::Map(_), Value::Object(map)) => map.is_empty() && !field.required,
        // An empty list of managers has a meaning: it resets them.
        (TypeRef::List(_), Value::Array(list)) => list.is_empty() && !field.required && &*field.name != "managedFields",
        _ => false,
    }
}

/// Go's zero value, which a null in a list or map becomes.
fn zero(ty: &TypeRef) -> Value {
    match ty {
        TypeRef::String | TypeRef::Bytes | TypeRef::Duration => Value::String(String::new()),
        TypeRef::Int32 | TypeRef::Int64 | TypeRef::Double | TypeRef::IntOrString => 0.into(),
        TypeRef::Bool => false.into(),
        TypeRef::Quantity => Value::String("0".to_string()),
        TypeRef::Object(_) => Value::Object(Map::new()),
        TypeRef::Time | TypeRef::MicroTime | TypeRef::Any | TypeRef::FieldsV1 | TypeRef::Map(_) | TypeRef::List(_) => {
            Value::Null
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if matches!(self.ty, TypeRef::Any | TypeRef::FieldsV1) {
            return <Value as serde::Deserialize>::deserialize(deserializer)
                .map(|value| Some(value).filter(|value| !value.is_null()));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<Self::Value, E> {
        if matches!(self.ty, TypeRef::Bool) {
            return Ok(Some(Value::Bool(value)));
        }
        self.mismatch("bool");
        Ok(None)
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<Self::Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<Self::Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(value).and_then(|number| self.number(number)))
    }

    fn visit_str<E>(mut self, value: &str) -> Result<Self::Value, E> {
        Ok(self.text(value.to_string()))
    }

    fn visit_string<E>(mut self, value: String) -> Result<Self::Value, E> {
        Ok(self.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        if let TypeRef::List(item) = self.ty {
            return self.list(item, seq);
        }
        self.mismatch("array");
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        match self.ty {
            TypeRef::Object(idx) => self.object(*idx, map),
            TypeRef::Map(value) => self.map(value, map),
            _ => {
                self.mismatch("object");
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "type k.v1.Thing\n apiVersion string\n kind string\n metadata k.v1.ObjectMeta\n spec k.v1.ThingSpec\n data map<bytes>\n\
        type k.v1.ObjectMeta\n name string\n labels map<string>\n creationTimestamp time\n\
        type k.v1.ThingSpec\n replicas int32\n ports list<k.v1.Port>\n port int-or-string\n limits map<quantity>\n raw any\n paused bool\n\
        type k.v1.Port\n name string\n number int32\n";

    fn run(json: &str) -> Result<Decoded, DecodeError> {
        let schema = Schema::parse(TABLE).expect("the table is right");
        decode(&schema, schema.find("k.v1.Thing").expect("it is in the table"), json.as_bytes())
    }

    #[test]
    fn unknown_and_duplicate_fields_are_reported_with_their_path_and_dropped() {
        let decoded = run(r#"{"bogus":1,"metadata":{"name":"a","name":"b","x":2},"spec":{"ports":[{"name":"p"},{"nam":"q","number":1}]}}"#)
            .expect("the types are right");
        assert_eq!(
            decoded.strict_errors,
            [
                "unknown field \"bogus\"",
                "duplicate field \"metadata.name\"",
                "unknown field \"metadata.x\"",
                "unknown field \"spec.ports[1].nam\""
            ]
        );
        assert_eq!(
            decoded.object,
            json!({"metadata": {"name": "b"}, "spec": {"ports": [{"name": "p"}, {"number": 1}]}})
        );
    }

    #[test]
    fn nulls_are_dropped_in_objects_and_zero_in_maps_and_lists() {
        let decoded =
            run(r#"{"metadata":{"name":null,"labels":{"a":null},"creationTimestamp":null},"spec":{"ports":[null]}}"#);
        assert_eq!(
            decoded.expect("the types are right").object,
            json!({"metadata": {"labels": {"a": ""}}, "spec": {"ports": [{}]}})
        );
    }

    #[test]
    fn a_wrong_type_fails_in_gos_words() {
        let cases = [
            (
                r#"{"metadata":{"labels":{"a":1}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                r#"{"spec":{"replicas":"3"}}"#,
                "json: cannot unmarshal string into Go struct field ThingSpec.spec.replicas of type int32",
            ),
            (
                r#"{"spec":{"replicas":1.5}}"#,
                "json: cannot unmarshal number 1.5 into Go struct field ThingSpec.spec.replicas of type int32",
            ),
            (
                r#"{"spec":{"replicas":3000000000}}"#,
                "json: cannot unmarshal number 3000000000 into Go struct field ThingSpec.spec.replicas of type int32",
            ),
            (
                r#"{"spec":{"ports":{}}}"#,
                "json: cannot unmarshal object into Go struct field ThingSpec.spec.ports of type []v1.Port",
            ),
            (
                r#"{"spec":{"ports":[{"name":true}]}}"#,
                "json: cannot unmarshal bool into Go struct field Port.spec.ports.name of type string",
            ),
            (r#"{"spec":[]}"#, "json: cannot unmarshal array into Go struct field Thing.spec of type v1.ThingSpec"),
            (r#"[]"#, "json: cannot unmarshal array into Go value of type v1.Thing"),
            (r#"{"spec":{"port":true}}"#, "json: cannot unmarshal bool into Go value of type int32"),
            (r#"{"data":{"a":"%"}}"#, "illegal base64 data at input byte 0"),
        ];
        for (json, want) in cases {
            assert_eq!(run(json), Err(DecodeError::Type(want.to_string())), "{json}");
        }
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let decoded =
            run(r#"{"spec":{"replicas":3,"port":"http","raw":{"any":[1,null]},"paused":true},"data":{"k":"aGk="}}"#);
        let decoded = decoded.expect("the types are right");
        assert!(decoded.strict_errors.is_empty());
        assert_eq!(
            decoded.object,
            json!({"spec": {"replicas": 3, "port": "http", "raw": {"any": [1, null]}, "paused": true}, "data": {"k": "aGk="}})
        );
    }

    #[test]
    fn broken_json_is_a_syntax_error() {
        for json in ["", "{", "{bad", "{} {}"] {
            assert!(matches!(run(json), Err(DecodeError::Syntax(_))), "{json}");
        }
    }
}
