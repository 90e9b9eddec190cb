//! Whether the schema of a definition is structural, its defaults fit, and its rules compile.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/schema/validation.go`, `pkg/apiserver/schema/defaulting/validation.go`,
//! `pkg/apis/apiextensions/validation/validation.go` ValidateCustomResourceDefinitionOpenAPISchema.

use serde_json::Value;

use crate::apiserver::cel::{Program, Type};
use crate::apiserver::custom::{Structural, field_path, validate_value, variables_of};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, go_json, go_struct};

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Every fault of the schema of a version.
pub(super) fn validate(version: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let schema = version.at("schema").at("openAPIV3Schema");
    if schema.is_null() {
        return;
    }
    let path = path.child("openAPIV3Schema");
    if schema.flag("nullable") {
        let at = format!("{path}.nullable");
        out.push(FieldError { path: at, ..FieldError::forbidden(&path, "nullable cannot be true at the root") });
    }
    let mut faults = Vec::new();
    structure(schema, Level::Root, &path, &mut faults);
    faults.sort_by_key(ToString::to_string);
    let structural = faults.is_empty();
    out.append(&mut faults);
    general(schema, &path, out);
    if structural {
        defaults(schema, &path, out);
        rules(schema, Level::Root, &path, out);
    }
}

/// Upstream: validateStructuralInvariants.
fn structure(schema: &Value, level: Level, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let ty = schema.text("type");
    if ty == "array" && !schema.has("items") {
        out.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if schema.has("items") {
        structure(schema.at("items"), Level::Item, &path.child("items"), out);
    }
    for (name, inner) in schema.entries("properties").into_iter().flatten() {
        structure(inner, Level::Field, &path.child("properties").key(name), out);
    }
    let additional = schema.at("additionalProperties");
    if !additional.is_null() && level == Level::Root {
        out.push(FieldError::forbidden(&path.child("additionalProperties"), "must not be used at the root"));
    }
    if additional.is_object() {
        structure(additional, Level::Field, &path.child("additionalProperties"), out);
    }
    let (preserve, embedded, either) = (
        schema.flag("x-kubernetes-preserve-unknown-fields"),
        schema.flag("x-kubernetes-embedded-resource"),
        schema.flag("x-kubernetes-int-or-string"),
    );
    if either && preserve {
        let field = path.child("x-kubernetes-preserve-unknown-fields");
        out.push(FieldError::invalid(&field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if either && embedded {
        let field = path.child("x-kubernetes-embedded-resource");
        out.push(FieldError::invalid(&field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    combinations(schema, either, path, out);
    let field = path.child("type");
    if embedded && ty != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        out.push(if ty.is_empty() { FieldError::required(&field, why) } else { FieldError::invalid(&field, ty, why) });
    } else if ty.is_empty() && !either && !preserve {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        out.push(FieldError::required(&field, why));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        out.push(FieldError::invalid(&field, ty, "must be object at the root"));
    }
    if level == Level::Root || embedded {
        meta(schema, level, path, out);
    }
    if embedded && !preserve && schema.entries("properties").is_none_or(serde_json::Map::is_empty) {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        out.push(FieldError::required(&path.child("properties"), why));
    }
}

/// What a schema may say of what every object has.
fn meta(schema: &Value, level: Level, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        let inner = schema.at("properties").at(name);
        if !inner.is_null() && inner.text("type") != "string" {
            let field = properties.key(name);
            out.push(FieldError::invalid(&field.child("type"), inner.text("type"), "must be string"));
        }
    }
    let metadata = schema.at("properties").at("metadata");
    if metadata.is_null() {
        return;
    }
    let field = properties.key("metadata");
    if metadata.text("type") != "object" {
        out.push(FieldError::invalid(&field.child("type"), metadata.text("type"), "must be object"));
    }
    let inner = metadata.entries("properties");
    let plain =
        metadata.as_object().into_iter().flatten().all(|(key, _)| matches!(key.as_str(), "type" | "properties"));
    let names = inner.into_iter().flatten().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    if level == Level::Root && !(plain && names) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        out.push(FieldError::forbidden(&field, why));
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not` say of values what they must fulfil, and nothing of what they are.
fn combinations(schema: &Value, either: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["anyOf", "allOf", "oneOf"] {
        for (index, inner) in schema.items(key).iter().enumerate() {
            let words = serde_json::json!([{"type": "integer"}, {"type": "string"}]);
            let allowed = either && (*schema.at(key) == words || *inner.at("anyOf") == words);
            if !allowed {
                nested(inner, &path.child(key).index(index), out);
            }
        }
    }
    if schema.has("not") {
        nested(schema.at("not"), &path.child("not"), out);
    }
    let pattern = schema.text("pattern");
    if !pattern.is_empty()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        out.push(FieldError::invalid(&path.child("pattern"), pattern, why));
    }
}

fn nested(schema: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const EMPTY: [(&str, &str); 11] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    combinations(schema, false, path, out);
    if schema.has("items") {
        nested(schema.at("items"), &path.child("items"), out);
    }
    for (name, inner) in schema.entries("properties").into_iter().flatten() {
        nested(inner, &path.child("properties").key(name), out);
    }
    for (key, why) in EMPTY {
        if schema.has(key) && *schema.at(key) != Value::Bool(false) {
            out.push(FieldError::forbidden(&path.child(key), why));
        }
    }
    if schema.at("properties").has("metadata") {
        let properties = path.child("properties");
        out.push(FieldError::forbidden(&properties.key("metadata"), "must not be specified in a nested context"));
    }
}

/// What holds for every schema, structural or not.
fn general(schema: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let ty = schema.text("type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        out.push(FieldError::not_supported(&path.child("type"), ty, &TYPES));
    }
    if schema.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        out.push(FieldError::forbidden(&path.child("uniqueItems"), why));
    }
    let (additional, properties) = (schema.at("additionalProperties"), schema.entries("properties"));
    if (additional.is_object() || *additional == Value::Bool(false)) && properties.is_some_and(|map| !map.is_empty()) {
        let why = "additionalProperties and properties are mutual exclusive";
        out.push(FieldError::forbidden(&path.child("additionalProperties"), why));
    }
    if additional.is_object() {
        general(additional, &path.child("additionalProperties"), out);
    }
    for (name, inner) in properties.into_iter().flatten() {
        general(inner, &path.child("properties").key(name), out);
    }
    if schema.at("x-kubernetes-preserve-unknown-fields") == &Value::Bool(false) {
        let field = path.child("x-kubernetes-preserve-unknown-fields");
        out.push(FieldError::invalid(&field, false, "must be true or undefined"));
    }
    let (list, map) = (schema.text("x-kubernetes-list-type"), schema.text("x-kubernetes-map-type"));
    let wrong = |wanted: &str, what: &str| {
        let why = format!("must be {wanted} if {what} is specified");
        let field = path.child("type");
        if ty.is_empty() { FieldError::required(&field, why) } else { FieldError::invalid(&field, ty, why) }
    };
    if !map.is_empty() && ty != "object" {
        out.push(wrong("object", "x-kubernetes-map-type"));
    }
    if !map.is_empty() && !["atomic", "granular"].contains(&map) {
        out.push(FieldError::not_supported(&path.child("x-kubernetes-map-type"), map, &["atomic", "granular"]));
    }
    if !list.is_empty() && ty != "array" {
        out.push(wrong("array", "x-kubernetes-list-type"));
    }
    if !list.is_empty() && !["atomic", "set", "map"].contains(&list) {
        out.push(FieldError::not_supported(&path.child("x-kubernetes-list-type"), list, &["atomic", "set", "map"]));
    }
    list_keys(schema, list, path, out);
    if schema.has("items") {
        general(schema.at("items"), &path.child("items"), out);
    }
}

/// The keys of a map list are scalars that its items have.
fn list_keys(schema: &Value, list: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let keys = schema.texts("x-kubernetes-list-map-keys");
    let field = path.child("x-kubernetes-list-map-keys");
    if list != "map" {
        if !keys.is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            let of = path.child("x-kubernetes-list-type");
            out.push(if list.is_empty() {
                FieldError::required(&of, why)
            } else {
                FieldError::invalid(&of, list, why)
            });
        }
        return;
    }
    if keys.is_empty() {
        out.push(FieldError::required(&field, "must not be empty if x-kubernetes-list-type is map"));
    }
    let (items, at) = (schema.at("items"), path.child("items"));
    if items.is_null() {
        return;
    }
    if items.text("type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        out.push(FieldError::invalid(&at.child("type"), items.text("type"), why));
    }
    for (index, key) in keys.iter().enumerate() {
        let inner = items.at("properties").at(key);
        if inner.is_null() {
            out.push(FieldError::invalid(&field.index(index), *key, "must be the name of an item property"));
            continue;
        }
        let properties = at.child("properties");
        let property = properties.key(key);
        if matches!(inner.text("type"), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            out.push(FieldError::invalid(&property.child("type"), inner.text("type"), why));
        }
        if !inner.has("default") && !items.texts("required").contains(key) {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            out.push(FieldError::required(&property.child("default"), why));
        }
    }
}

/// Defaults have the type that they are a default of.
fn defaults(schema: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let default = schema.at("default");
    if !default.is_null() {
        let holder = serde_json::json!({"type": "object", "properties": {"default": schema}});
        let structural = Structural::root(&holder);
        let mut faults = Vec::new();
        validate_value(&serde_json::json!({"default": default}), &structural, &mut faults);
        let prefix = path.to_string();
        out.extend(faults.into_iter().map(|fault| FieldError { path: format!("{prefix}.{}", fault.path), ..fault }));
    }
    for (name, inner) in schema.entries("properties").into_iter().flatten() {
        defaults(inner, &path.child("properties").key(name), out);
    }
    for key in ["items", "additionalProperties"] {
        if schema.at(key).is_object() {
            defaults(schema.at(key), &path.child(key), out);
        }
    }
}

/// The rules compile, their messages are texts, and what they point to is there.
fn rules(schema: &Value, level: Level, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let list = schema.items("x-kubernetes-validations");
    if !list.is_empty() {
        let structural = Structural::root(schema);
        let ty = if level == Level::Root { structural.cel_type(true) } else { of_field(schema) };
        for (index, rule) in list.iter().enumerate() {
            one_rule(rule, &ty, &path.child("x-kubernetes-validations").index(index), out);
        }
    }
    for (name, inner) in schema.entries("properties").into_iter().flatten() {
        rules(inner, Level::Field, &path.child("properties").key(name), out);
    }
    for key in ["items", "additionalProperties"] {
        if schema.at(key).is_object() {
            rules(schema.at(key), Level::Item, &path.child(key), out);
        }
    }
}

/// The type of a schema that stands inside another one.
fn of_field(schema: &Value) -> Type {
    let holder = serde_json::json!({"type": "object", "properties": {"self": schema}});
    let structural = Structural::root(&holder);
    structural.properties.get("self").map_or(Type::Dyn, |inner| inner.cel_type(inner.embedded))
}

fn one_rule(rule: &Value, ty: &Type, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let text = rule.text("rule");
    let field = path.child("rule");
    if text.trim().is_empty() {
        out.push(FieldError::required(&field, "rule is not specified"));
        return;
    }
    let message = rule.text("message");
    if message.contains('\n') {
        out.push(FieldError::invalid(&path.child("message"), message, "message must not contain line breaks"));
    }
    if text.contains('\n') && message.is_empty() {
        out.push(FieldError::required(
            &path.child("message"),
            "message must be specified if rule contains line breaks",
        ));
    }
    let reason = rule.text("reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        out.push(FieldError::not_supported(&path.child("reason"), reason, &REASONS));
    }
    let variables = variables_of(ty.clone(), rule.flag("optionalOldSelf"));
    match Program::compile_typed(text, &variables) {
        Err(error) => out
            .push(shown_rule(FieldError::invalid(&field, rule.clone(), format!("compilation failed: {error}")), rule)),
        Ok((_, Type::Bool | Type::Dyn)) => {}
        Ok(_) => out.push(shown_rule(
            FieldError::invalid(&field, rule.clone(), "cel expression must evaluate to a bool"),
            rule,
        )),
    }
    let expression = rule.text("messageExpression");
    let field = path.child("messageExpression");
    if !expression.is_empty() {
        match Program::compile_typed(expression, &variables) {
            Err(error) => {
                let why = format!("messageExpression compilation failed: {error}");
                out.push(shown_rule(FieldError::invalid(&field, rule.clone(), why), rule));
            }
            Ok((_, Type::String | Type::Dyn)) => {}
            Ok(_) => {
                let error = FieldError::invalid(&field, rule.clone(), "messageExpression must evaluate to a string");
                out.push(shown_rule(error, rule));
            }
        }
    }
    let to = rule.text("fieldPath");
    if !to.is_empty() && field_path(to).is_none() {
        let why = format!("fieldPath must be a valid path: expected [ or . but got: {to}");
        out.push(FieldError::invalid(&path.child("fieldPath"), to, why));
    }
}

/// A rule as upstream prints its internal type, which has no JSON names.
fn shown_rule(error: FieldError, rule: &Value) -> FieldError {
    let text = |key: &str| go_json(&rule.text(key).into());
    let optional = |key: &str| go_json(rule.at(key));
    error.showing(go_struct(&[
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", optional("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", optional("optionalOldSelf")),
    ]))
}

/// Selectable fields are scalars that the schema declares.
pub(super) fn validate_selectable(version: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let schema = version.at("schema").at("openAPIV3Schema");
    let fields = version.items("selectableFields");
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let text = field.text("jsonPath");
        let item = path.index(index);
        let at = item.child("jsonPath");
        if text.is_empty() {
            out.push(FieldError::required(&at, ""));
            continue;
        }
        let mut found = Some(schema);
        let names = text.strip_prefix('.').map(|rest| rest.split('.').collect::<Vec<_>>());
        let Some(names) = names else {
            let why = format!("is an invalid path: expected [ or . but got: {text}");
            out.push(FieldError::invalid(&at, text, why));
            continue;
        };
        for name in &names {
            found = found.map(|inner| inner.at("properties").at(name)).filter(|inner| !inner.is_null());
        }
        if names[0] == "metadata" {
            out.push(FieldError::invalid(&at, text, "must not point to fields in metadata"));
        } else if found.is_none() {
            out.push(FieldError::invalid(&at, text, "is an invalid path: does not refer to a valid field"));
        } else if !found.is_some_and(|inner| matches!(inner.text("type"), "string" | "boolean" | "integer")) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            out.push(FieldError::invalid(&at, text, why));
        }
        if seen.contains(&text) {
            out.push(FieldError::duplicate(&at, text));
        }
        seen.push(text);
    }
    if seen.len() > 8 {
        out.push(FieldError::too_many(path, seen.len(), 8));
    }
}
