//! Secrets: types, their required keys, immutability.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateSecret, `pkg/registry/core/secret/strategy.go`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::Kind;
use super::super::resource::Resource;
use super::config::validate_immutable_data;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_immutable;
use crate::apiserver::validation::names::config_map_key;
use crate::apiserver::validation::{FieldError, Path};

const MAX_BYTES: usize = 1024 * 1024;
const DATA: Path<'static> = Path::root("data");

/// Secret.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "secrets", "Secret")
        .defaults(apply_defaults)
        .prepare_update(|_context, object, old| {
            // A PUT without a type means the old one.
            if object.text("type").is_empty() {
                object.put("type", old.at("type").clone());
            }
        })
        .validate(validate)
        .validate_update(|object, old, out| {
            validate_immutable(object.at("type"), old.at("type"), &Path::root("type"), out);
            validate_immutable_data(object, old, &["data"], out);
        })
        .columns(const { &[columns::NAME, Column::text("Type"), Column::text("Data"), columns::AGE] }, |object, now| {
            let count = object.entries("data").map_or(0, serde_json::Map::len);
            vec![columns::name(object), json!(object.text("type")), json!(count), columns::age(object, now)]
        })
        .build()
}

/// `stringData` moves into `data`; it is never read back.
fn apply_defaults(object: &mut Value) {
    if let Value::Object(texts) = object.take_member("stringData") {
        let data = object.object_mut("data");
        for (key, text) in texts {
            data.put(&key, json!(STANDARD.encode(text.as_str().unwrap_or(""))));
        }
    }
    if object.text("type").is_empty() {
        object.put("type", json!("Opaque"));
    }
}

fn decoded(object: &Value, key: &str) -> Option<Vec<u8>> {
    object.at("data").get(key)?.as_str().and_then(|text| STANDARD.decode(text).ok())
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in object.entries("data").into_iter().flatten() {
        let field = DATA.key(key);
        out.extend(config_map_key(key).into_iter().map(|error| FieldError::invalid(&field, key.as_str(), error)));
        bytes += value.as_str().map_or(0, |text| text.len() / 4 * 3);
    }
    if bytes > MAX_BYTES {
        out.push(FieldError::too_long(&DATA, MAX_BYTES));
    }
    let require = |key: &str, out: &mut Vec<FieldError>| {
        let present = object.at("data").get(key).is_some();
        if !present {
            out.push(FieldError::required(&DATA.key(key), ""));
        }
        present
    };
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let path = Path::root("metadata");
            let annotations = path.child("annotations");
            if object.at("metadata").at("annotations").text("kubernetes.io/service-account.name").is_empty() {
                out.push(FieldError::required(&annotations.key("kubernetes.io/service-account.name"), ""));
            }
        }
        "kubernetes.io/dockercfg" => require_json(object, ".dockercfg", out),
        "kubernetes.io/dockerconfigjson" => require_json(object, ".dockerconfigjson", out),
        "kubernetes.io/basic-auth" => {
            let data = object.at("data");
            if data.get("username").is_none() && data.get("password").is_none() {
                out.push(FieldError::required(&DATA.key("username"), ""));
                out.push(FieldError::required(&DATA.key("password"), ""));
            }
        }
        "kubernetes.io/ssh-auth" if object.at("data").text("ssh-privatekey").is_empty() => {
            out.push(FieldError::required(&DATA.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            require("tls.crt", out);
            require("tls.key", out);
        }
        _ => {}
    }
}

fn require_json(object: &Value, key: &str, out: &mut Vec<FieldError>) {
    let field = DATA.key(key);
    match decoded(object, key) {
        None => out.push(FieldError::required(&field, "")),
        Some(bytes) => {
            if let Some(why) = json_fault(&bytes) {
                out.push(FieldError::invalid(&field, "<secret contents redacted>", why));
            }
        }
    }
}

/// What is wrong with a JSON object, in the words of Go's decoder.
fn json_fault(bytes: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => {
            let kind = match other {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                _ => "array",
            };
            Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(error) if error.is_eof() => Some("unexpected end of JSON input".to_owned()),
        Err(error) => {
            let at = bytes.get(error.column().saturating_sub(1)).copied().map_or(' ', char::from);
            Some(format!("invalid character '{at}' looking for beginning of value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_moves_into_data() {
        let mut secret = json!({"stringData": {"a": "1"}, "data": {"b": "Mg=="}});
        apply_defaults(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "MQ==", "b": "Mg=="}, "type": "Opaque"}));
    }

    #[test]
    fn types_demand_their_keys() {
        let faults = |secret: Value| {
            let mut errors = Vec::new();
            validate(&secret, &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            faults(json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}})),
            ["data[tls.key]: Required value"]
        );
        assert_eq!(
            faults(json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "ew=="}})),
            ["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input"]
        );
        assert_eq!(faults(json!({"type": "Opaque"})), Vec::<String>::new());
    }
}
