//! The stored form of an object, and how its resource version gets in and out. Lists and watches copy these bytes; they never
//! encode an object again.
//!
//! An object is stored as compact JSON that begins with `kind`, `apiVersion` and `metadata`, in this order, and has no
//! `metadata.resourceVersion`: the version is the store's revision, known only after the write. It is spliced in as the first
//! member of `metadata`.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{";

/// The bytes to store: no `metadata.resourceVersion`.
pub fn encode(object: &Value) -> Vec<u8> {
    write_object(object, false).into_bytes()
}

/// The bytes to serve for an object that is not stored as it is: `metadata.resourceVersion` stays.
pub fn encode_served(object: &Value) -> Vec<u8> {
    write_object(object, true).into_bytes()
}

fn write_object(object: &Value, with_version: bool) -> String {
    let mut out = String::with_capacity(1024);
    let Value::Object(members) = object else {
        write_value(&mut out, object);
        return out;
    };
    out.push('{');
    for key in ["kind", "apiVersion"] {
        if let Some(value) = members.get(key) {
            write_member(&mut out, key, value);
        }
    }
    if let Some(metadata) = members.get("metadata") {
        match metadata {
            Value::Object(metadata) if !with_version => {
                write_key(&mut out, "metadata");
                out.push('{');
                for (key, value) in metadata {
                    if key != "resourceVersion" {
                        write_member(&mut out, key, value);
                    }
                }
                out.push('}');
            }
            other => write_member(&mut out, "metadata", other),
        }
    }
    for (key, value) in members {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            write_member(&mut out, key, value);
        }
    }
    out.push('}');
    out
}

pub(crate) fn write_member(out: &mut String, key: &str, value: &Value) {
    write_key(out, key);
    write_value(out, value);
}

fn write_key(out: &mut String, key: &str) {
    if !out.ends_with('{') {
        out.push(',');
    }
    if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        out.extend(["\"", key, "\""]);
    } else {
        write_value(out, &Value::from(key));
    }
    out.push(':');
}

/// By way of the value's own `Display` and `FromStr`: these are compiled, and optimised, with the JSON library, where
/// `to_writer` and `from_slice` are compiled anew for whoever calls them.
fn write_value(out: &mut String, value: &Value) {
    write!(out, "{value}").expect("writing a JSON value to memory cannot fail");
}

/// The value that a JSON text stands for.
///
/// # Errors
/// Why the bytes are no JSON.
pub fn parse(json: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(json).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: serde_json::Error| error.to_string())
}

/// The stored bytes with a resource version put in: what clients get.
pub fn splice(stored: &[u8], revision: i64) -> Bytes {
    let mut out = Vec::with_capacity(stored.len() + 44);
    match find(stored, METADATA) {
        Some(at) => {
            let at = at + METADATA.len();
            out.extend_from_slice(&stored[..at]);
            out.extend_from_slice(b"\"resourceVersion\":\"");
            out.extend_from_slice(revision.to_string().as_bytes());
            out.push(b'"');
            if stored.get(at) != Some(&b'}') {
                out.push(b',');
            }
            out.extend_from_slice(&stored[at..]);
        }
        None => out.extend_from_slice(stored),
    }
    out.into()
}

/// Spliced bytes with another resource version: the last state of a deleted object carries the version of its deletion.
pub fn resplice(served: &[u8], revision: i64) -> Bytes {
    const VERSION: &[u8] = b"\"resourceVersion\":\"";
    let Some(start) =
        find(served, METADATA).map(|at| at + METADATA.len()).filter(|at| served[*at..].starts_with(VERSION))
    else {
        return splice(served, revision);
    };
    let start = start + VERSION.len();
    let length = served[start..].iter().position(|byte| *byte == b'"').unwrap_or(0);
    let mut out = Vec::with_capacity(served.len() + 8);
    out.extend_from_slice(&served[..start]);
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(&served[start + length..]);
    out.into()
}

/// Whether bytes are of this kind and `apiVersion`, so that they can be served as they are.
pub fn is_of(stored: &[u8], kind: &str, api_version: &str) -> bool {
    let head = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",");
    stored.starts_with(head.as_bytes())
}

/// The object of stored bytes, with its resource version.
///
/// # Errors
/// Why the bytes are no JSON object.
pub fn decode(stored: &[u8], revision: i64) -> Result<Value, String> {
    let mut object = parse(stored)?;
    set_resource_version(&mut object, revision)?;
    Ok(object)
}

/// Writes `metadata.resourceVersion`.
///
/// # Errors
/// When the value is no object.
pub fn set_resource_version(object: &mut Value, revision: i64) -> Result<(), String> {
    let members = object.as_object_mut().ok_or("a stored value is no JSON object")?;
    let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let metadata = metadata.as_object_mut().ok_or("the metadata of a stored object is no JSON object")?;
    metadata.insert("resourceVersion".to_string(), revision.to_string().into());
    Ok(())
}

/// Indented JSON with `kind`, `apiVersion` and `metadata` in front, as `?pretty=true` prints it.
pub fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut escaped = false;
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for (at, byte) in compact.iter().copied().enumerate() {
        if in_text {
            out.push(byte);
            in_text = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b'"' => {
                in_text = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                if !matches!(compact.get(at + 1), Some(b'}' | b']')) {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            b'}' | b']' => {
                if !matches!(at.checked_sub(1).map(|at| compact[at]), Some(b'{' | b'[')) {
                    depth = depth.saturating_sub(1);
                    newline(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                newline(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
    out
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // The member is within the first few dozen bytes, behind kind and apiVersion.
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_head_is_fixed_and_the_version_is_spliced() {
        let object = json!({"apiVersion": "v1", "data": {"a": "b"}, "kind": "ConfigMap",
            "metadata": {"name": "m", "resourceVersion": "5", "uid": "u"}});
        let stored = encode(&object);
        assert_eq!(
            String::from_utf8_lossy(&stored),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","uid":"u"},"data":{"a":"b"}}"#
        );
        let served = splice(&stored, 42);
        assert_eq!(
            String::from_utf8_lossy(&served),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"42","name":"m","uid":"u"},"data":{"a":"b"}}"#
        );
        assert!(is_of(&served, "ConfigMap", "v1"));
        assert!(!is_of(&served, "ConfigMap", "v2"));
        assert_eq!(resplice(&served, 7), splice(&stored, 7));
        assert_eq!(decode(&stored, 5), Ok(object));
    }

    #[test]
    fn empty_metadata_takes_a_version_too() {
        let served = splice(&encode(&json!({"kind": "A", "metadata": {}})), 1);
        assert_eq!(String::from_utf8_lossy(&served), r#"{"kind":"A","metadata":{"resourceVersion":"1"}}"#);
    }

    #[test]
    fn pretty_indents_and_leaves_texts_alone() {
        let printed = pretty(br#"{"kind":"A","list":[],"map":{"a{\"":[1,2]}}"#);
        let want =
            "{\n  \"kind\": \"A\",\n  \"list\": [],\n  \"map\": {\n    \"a{\\\"\": [\n      1,\n      2\n    ]\n  }\n}";
        assert_eq!(String::from_utf8_lossy(&printed), want);
    }
}
