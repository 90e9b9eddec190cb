//! Makes `wire/src/schema/types.txt` from the OpenAPI v3 documents of a kube-apiserver. A tool for developers; nothing calls it.
//!
//! ```text
//! kubectl get --raw /openapi/v3/api/v1 > docs/api__v1.json      # and so on, one file a group version
//! cargo run -p cluster-stub --example schema_table -- docs > cluster-stub/wire/src/schema/types.txt
//! ```

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

const REFERENCE: &str = "#/components/schemas/";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: schema_table FOLDER-OF-OPENAPI-V3-DOCUMENTS")?;
    let mut types = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let document: Value = serde_json::from_slice(&std::fs::read(entry?.path())?)?;
        let Some(schemas) = document["components"]["schemas"].as_object() else { continue };
        types.extend(schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "# The types of the API. Made by examples/schema_table.rs; the format is described in parse.rs.")?;
    for (name, schema) in &types {
        if scalar(name).is_some() || !is_object(schema) {
            continue;
        }
        let atomic = if schema["x-kubernetes-map-type"] == "atomic" { " atomic" } else { "" };
        writeln!(out, "type {name}{atomic}")?;
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let ty = type_of(property, &types);
            writeln!(out, " {field} {ty}{}", attributes(property, &ty, required.contains(&field.as_str())))?;
        }
    }
    Ok(())
}

/// Types that the table names by a word instead of their fields.
fn scalar(name: &str) -> Option<&'static str> {
    let (package, short) = name.rsplit_once('.')?;
    match (package.rsplit('.').next()?, short) {
        ("resource", "Quantity") => Some("quantity"),
        ("intstr", "IntOrString") => Some("int-or-string"),
        (_, "Time") => Some("time"),
        (_, "MicroTime") => Some("micro-time"),
        (_, "FieldsV1") => Some("fields-v1"),
        (
            _,
            "RawExtension"
            | "JSON"
            | "JSONSchemaPropsOrArray"
            | "JSONSchemaPropsOrBool"
            | "JSONSchemaPropsOrStringArray",
        ) => Some("any"),
        _ => None,
    }
}

fn is_object(schema: &Value) -> bool {
    schema["type"] == "object" && (schema.get("properties").is_some() || schema.get("additionalProperties").is_none())
}

fn type_of(property: &Value, types: &BTreeMap<String, Value>) -> String {
    let reference = property["$ref"].as_str().or_else(|| property["allOf"][0]["$ref"].as_str());
    if let Some(name) = reference.and_then(|reference| reference.strip_prefix(REFERENCE)) {
        return match scalar(name) {
            Some(word) => word.to_owned(),
            None if types.get(name).is_some_and(is_object) => name.to_owned(),
            // A named map, list or scalar: what it stands for.
            None => types.get(name).map_or("any".to_owned(), |schema| type_of(schema, types)),
        };
    }
    match (property["type"].as_str(), property["format"].as_str()) {
        (Some("array"), _) => format!("list<{}>", type_of(&property["items"], types)),
        (Some("object"), _) if property["additionalProperties"].is_object() => {
            format!("map<{}>", type_of(&property["additionalProperties"], types))
        }
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("string"), Some("date-time")) => "time".to_owned(),
        (Some("string"), _) => "string".to_owned(),
        (Some("boolean"), _) => "bool".to_owned(),
        (Some("integer"), Some("int32")) => "int32".to_owned(),
        (Some("integer"), _) => "int64".to_owned(),
        (Some("number"), _) => "double".to_owned(),
        _ => "any".to_owned(),
    }
}

fn attributes(property: &Value, ty: &str, required: bool) -> String {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut out = String::new();
    if required {
        out.push_str(" required");
    }
    match property["x-kubernetes-list-type"].as_str().or_else(|| property["x-kubernetes-map-type"].as_str()) {
        Some("map") => out.push_str(&format!(" map={}", words(&property["x-kubernetes-list-map-keys"]).join(","))),
        Some(kind @ ("atomic" | "set")) => out.push_str(&format!(" {kind}")),
        _ => {}
    }
    if let Some(strategy) = property["x-kubernetes-patch-strategy"].as_str() {
        out.push_str(&format!(" patch={strategy}"));
    }
    if let Some(key) = property["x-kubernetes-patch-merge-key"].as_str() {
        out.push_str(&format!(" key={key}"));
    }
    let values = words(&property["enum"]);
    if !values.is_empty() {
        out.push_str(&format!(" enum={}", values.join("|")));
    }
    match &property["default"] {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Number(number) if number.as_i64() == Some(0) => {}
        Value::Bool(false) => {}
        // Of a struct member: written even when empty. Of a time: Go's zero value, which is never written.
        Value::Object(_) if !ty.contains('.') => {}
        default => out.push_str(&format!(" default={default}")),
    }
    out
}
