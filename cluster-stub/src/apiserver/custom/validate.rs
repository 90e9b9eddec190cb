//! Holds a value against a schema, in the words of upstream's validator. Values that an update leaves as they were are not checked again.
//!
//! Upstream: kube-openapi `pkg/validation/validate`, apiextensions-apiserver v1.36.2 `pkg/apiserver/validation/validation.go`,
//! `ratcheting.go`, `pkg/apiserver/schema/listtype/validation.go`.

use serde_json::Value;

use super::formats;
use super::structural::{ListType, Structural, ValueRules};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{ErrorKind, FieldError};

/// Every fault of a value that is no whole object.
pub fn validate_value(value: &Value, schema: &Structural, out: &mut Vec<FieldError>) {
    validate(value, None, schema, "", out);
}

/// Every fault of `value` at `path` (`""` is the root). `old` is the value that an update replaces.
pub(super) fn validate(value: &Value, old: Option<&Value>, schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    if value.is_null() && (schema.nullable || schema.ty.is_empty()) {
        return;
    }
    check_type(value, schema, path, out);
    check_combinations(value, &schema.values, path, out);
    check_values(value, &schema.values, path, out);
    match value {
        Value::Object(map) => {
            for name in &schema.values.required {
                if !map.contains_key(name) {
                    out.push(fault(ErrorKind::Required, &joined(path, name), None, ""));
                }
            }
            for (name, member) in map {
                if let Some(inner) = schema.member(name) {
                    validate(member, old.and_then(|old| old.get(name)), inner, &joined(path, name), out);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                let old = old.and_then(|old| correlated(item, old, &schema.list_type));
                validate(item, old, inner, &format!("{path}[{at}]"), out);
            }
        }
        _ => {}
    }
}

/// The old item that is the same one as `item`: by its keys in a map list, else there is none.
pub(super) fn correlated<'a>(item: &Value, old: &'a Value, list_type: &ListType) -> Option<&'a Value> {
    match list_type {
        ListType::Map(keys) => {
            old.as_array()?.iter().find(|other| keys.iter().all(|key| other.at(key) == item.at(key)))
        }
        ListType::Set | ListType::Atomic => old.as_array()?.iter().find(|other| *other == item),
    }
}

/// Every item of a set or map list that is there twice.
pub(super) fn validate_lists(value: &Value, schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, member) in map {
                if let Some(inner) = schema.member(name) {
                    validate_lists(member, inner, &joined(path, name), out);
                }
            }
        }
        Value::Array(items) => {
            let name_of = |item: &Value| match &schema.list_type {
                ListType::Atomic => None,
                ListType::Set => Some(item.clone()),
                ListType::Map(keys) => {
                    let defaults = schema.items.as_ref();
                    let of = |key: &String| match item.at(key) {
                        Value::Null => {
                            let field = defaults.and_then(|inner| inner.properties.get(key));
                            field.and_then(|field| field.default.clone()).unwrap_or(Value::Null)
                        }
                        value => value.clone(),
                    };
                    let named: serde_json::Map<String, Value> =
                        keys.iter().map(|key| (key.clone(), of(key))).filter(|(_, value)| !value.is_null()).collect();
                    Some(Value::Object(named))
                }
            };
            let names: Vec<Option<Value>> = items.iter().map(name_of).collect();
            for (at, name) in names.iter().enumerate() {
                let Some(name) = name else { break };
                if names[..at].iter().flatten().any(|earlier| earlier == name) {
                    out.push(fault(ErrorKind::Duplicate, &format!("{path}[{at}]"), Some(name.clone()), ""));
                }
            }
            if let Some(inner) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    validate_lists(item, inner, &format!("{path}[{at}]"), out);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn fault(kind: ErrorKind, path: &str, value: Option<Value>, detail: impl Into<String>) -> FieldError {
    let path = if path.is_empty() { "<nil>" } else { path };
    FieldError { kind, path: path.to_owned(), value, detail: detail.into(), shown: None }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What upstream calls the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(value: &Value, schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let found = type_of(value);
    let wanted = if schema.int_or_string { "integer,string" } else { &schema.ty };
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = wanted.is_empty()
        || wanted.split(',').any(|wanted| {
            wanted == found
                || (wanted == "number" && found == "integer")
                || (wanted == "integer" && found == "number" && whole)
        });
    if !fits {
        let detail = format!("{} in body must be of type {wanted}: \"{found}\"", path);
        out.push(fault(ErrorKind::TypeInvalid, path, Some(found.into()), detail));
        return;
    }
    let format = &schema.values.format;
    if let Value::String(text) = value
        && !format.is_empty()
        && !formats::holds(format, text)
    {
        let detail = format!("{} in body must be of type {format}: {}", path, Value::String(text.clone()));
        out.push(fault(ErrorKind::TypeInvalid, path, Some(value.clone()), detail));
    }
}

fn check_combinations(value: &Value, rules: &ValueRules, path: &str, out: &mut Vec<FieldError>) {
    let faults = |schema: &Structural| {
        let mut inner = Vec::new();
        validate(value, None, schema, path, &mut inner);
        inner
    };
    let say = |what: &str, out: &mut Vec<FieldError>| {
        out.push(fault(ErrorKind::Invalid, "", Some("".into()), format!("\"{path}\" {what}")));
    };
    if !rules.any_of.is_empty() {
        let all: Vec<Vec<FieldError>> = rules.any_of.iter().map(faults).collect();
        if all.iter().all(|inner| !inner.is_empty()) {
            say("must validate at least one schema (anyOf)", out);
            out.extend(all.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !rules.one_of.is_empty() {
        let all: Vec<Vec<FieldError>> = rules.one_of.iter().map(faults).collect();
        let valid = all.iter().filter(|inner| inner.is_empty()).count();
        if valid == 0 {
            say("must validate one and only one schema (oneOf). Found none valid", out);
            out.extend(all.into_iter().min_by_key(Vec::len).unwrap_or_default());
        } else if valid > 1 {
            say(&format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives"), out);
        }
    }
    if !rules.all_of.is_empty() {
        let all: Vec<Vec<FieldError>> = rules.all_of.iter().map(faults).collect();
        if all.iter().any(|inner| !inner.is_empty()) {
            let none = if all.iter().all(|inner| !inner.is_empty()) { ". None validated" } else { "" };
            out.extend(all.into_iter().flatten());
            say(&format!("must validate all the schemas (allOf){none}"), out);
        }
    }
    if let Some(not) = &rules.not
        && faults(not).is_empty()
    {
        say("must not validate the schema (not)", out);
    }
}

fn check_values(value: &Value, rules: &ValueRules, path: &str, out: &mut Vec<FieldError>) {
    let mut say = |kind: ErrorKind, value: Option<Value>, detail: String| out.push(fault(kind, path, value, detail));
    let invalid = |what: String| format!("{} in body {what}", path);
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            if rules.max_length.is_some_and(|max| length > max) {
                let max = rules.max_length.unwrap_or_default();
                let unit = if max == 1 { "byte" } else { "bytes" };
                say(ErrorKind::TooLong, None, format!("may not be more than {max} {unit}"));
                // What is too long is not looked at any further.
                return check_allowed(value, rules, path, out);
            }
            if let Some(min) = rules.min_length.filter(|min| length < *min) {
                say(ErrorKind::Invalid, Some(value.clone()), invalid(format!("should be at least {min} chars long")));
                return check_allowed(value, rules, path, out);
            }
            if let Some((pattern, Some(regex))) = &rules.pattern
                && !regex.is_match(text)
            {
                say(ErrorKind::Invalid, Some(value.clone()), invalid(format!("should match '{pattern}'")));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(factor) = rules.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
                say(ErrorKind::Invalid, Some(value.clone()), invalid(format!("should be a multiple of {factor}")));
            }
            if let Some((max, exclusive)) = rules.maximum
                && (number > max || (exclusive && number >= max))
            {
                let words = if exclusive { "should be less than" } else { "should be less than or equal to" };
                say(ErrorKind::Invalid, Some(value.clone()), invalid(format!("{words} {max}")));
            }
            if let Some((min, exclusive)) = rules.minimum
                && (number < min || (exclusive && number <= min))
            {
                let words = if exclusive { "should be greater than" } else { "should be greater than or equal to" };
                say(ErrorKind::Invalid, Some(value.clone()), invalid(format!("{words} {min}")));
            }
        }
        Value::Array(items) => {
            if let Some(min) = rules.min_items.filter(|min| items.len() < *min) {
                let count = Value::from(items.len());
                say(ErrorKind::Invalid, Some(count), invalid(format!("should have at least {min} items")));
            }
            if let Some(max) = rules.max_items.filter(|max| items.len() > *max) {
                say(ErrorKind::TooMany, Some(items.len().into()), at_most(max));
            }
        }
        Value::Object(map) => {
            if let Some(min) = rules.min_properties.filter(|min| map.len() < *min) {
                let count = Value::from(map.len());
                say(ErrorKind::Invalid, Some(count), invalid(format!("should have at least {min} properties")));
            }
            if let Some(max) = rules.max_properties.filter(|max| map.len() > *max) {
                say(ErrorKind::TooMany, Some(map.len().into()), at_most(max));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    check_allowed(value, rules, path, out);
}

fn at_most(max: usize) -> String {
    format!("must have at most {max} {}", if max == 1 { "item" } else { "items" })
}

fn check_allowed(value: &Value, rules: &ValueRules, path: &str, out: &mut Vec<FieldError>) {
    if rules.allowed.is_empty() || rules.allowed.contains(value) {
        return;
    }
    let allowed: Vec<String> = rules
        .allowed
        .iter()
        .map(|allowed| match allowed {
            Value::String(_) => allowed.to_string(),
            other => Value::String(other.to_string()).to_string(),
        })
        .collect();
    let detail = format!("supported values: {}", allowed.join(", "));
    out.push(fault(ErrorKind::NotSupported, path, Some(value.clone()), detail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::root(&json!({"type": "object", "required": ["spec"], "properties": {"spec": {
        "type": "object", "required": ["size"], "properties": {
            "size": {"type": "string", "enum": ["small", "large"]},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 10},
            "note": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
            "items": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
            "port": {"x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"},
            "ratio": {"type": "number", "exclusiveMaximum": true, "maximum": 1},
            "either": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        }}}}))
    }

    fn faults(spec: &Value, old: Option<Value>) -> Vec<String> {
        let mut out = Vec::new();
        let object = json!({"spec": spec});
        validate(&object, old.map(|spec| json!({"spec": spec})).as_ref(), &schema(), "", &mut out);
        validate_lists(&object, &schema(), "", &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn faults_have_upstreams_words() {
        let none: [&str; 0] = [];
        let cases: Vec<(Value, Vec<&str>)> = vec![
            (json!({"size": "small", "port": "http", "ratio": 0.5}), none.into()),
            (json!({"size": "small", "port": 80, "ratio": 0, "when": "2024-01-01T00:00:00Z"}), none.into()),
            (json!({}), vec!["spec.size: Required value"]),
            (
                json!({"size": "huge"}),
                vec![r#"spec.size: Unsupported value: "huge": supported values: "small", "large""#],
            ),
            (
                json!({"size": "small", "replicas": 11}),
                vec!["spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"],
            ),
            (
                json!({"size": "small", "replicas": "3"}),
                vec![
                    r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
                ],
            ),
            (json!({"size": "small", "note": "TOOLONG"}), vec!["spec.note: Too long: may not be more than 5 bytes"]),
            (
                json!({"size": "small", "note": "NOT"}),
                vec![r#"spec.note: Invalid value: "NOT": spec.note in body should match '^[a-z]*$'"#],
            ),
            (
                json!({"size": "small", "items": [{"name": "a"}, {"name": "a"}]}),
                vec![r#"spec.items[1]: Duplicate value: {"name":"a"}"#],
            ),
            (
                json!({"size": "small", "items": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
                vec!["spec.items: Too many: 3: must have at most 2 items"],
            ),
            (json!({"size": "small", "items": [{}]}), vec!["spec.items[0].name: Required value"]),
            (
                json!({"size": "small", "port": 1.5}),
                vec![
                    r#"spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number""#,
                ],
            ),
            (
                json!({"size": "small", "when": "today"}),
                vec![r#"spec.when: Invalid value: "today": spec.when in body must be of type date-time: "today""#],
            ),
            (
                json!({"size": "small", "ratio": 1}),
                vec!["spec.ratio: Invalid value: 1: spec.ratio in body should be less than 1"],
            ),
            (
                json!({"size": "small", "either": {"a": 1, "b": 2}}),
                vec![
                    r#"<nil>: Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
                ],
            ),
        ];
        for (spec, want) in cases {
            assert_eq!(faults(&spec, None), want, "{spec}");
        }
    }

    #[test]
    fn what_an_update_leaves_alone_is_not_checked_again() {
        let old = json!({"size": "huge", "replicas": 1});
        assert_eq!(faults(&json!({"size": "huge", "replicas": 2}), Some(old.clone())), Vec::<String>::new());
        assert_eq!(faults(&json!({"size": "tiny", "replicas": 1}), Some(old)).len(), 1);
    }
}
