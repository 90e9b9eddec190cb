//! `x-kubernetes-validations`: CEL rules of a schema, compiled with it and run on values that passed everything else.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/schema/cel/compilation.go`, `validation.go`.

use std::sync::Arc;

use serde_json::Value;

use super::structural::{Structural, escaped};
use super::validate::{correlated, fault, joined};
use crate::apiserver::cel::{EvalError, Program, Type, Value as Cel};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{ErrorKind, FieldError};

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    message: String,
    message_expression: String,
    reason: String,
    field_path: String,
    optional_old_self: bool,
    compiled: Option<Compiled>,
    fault: Option<String>,
}

#[derive(Clone, Debug)]
struct Compiled {
    program: Program,
    message: Option<Program>,
    uses_old_self: bool,
}

impl Rule {
    pub(super) fn read_all(schema: &Value) -> Vec<Rule> {
        let read = |rule: &Value| Rule {
            rule: rule.text("rule").to_owned(),
            message: rule.text("message").to_owned(),
            message_expression: rule.text("messageExpression").to_owned(),
            reason: rule.text("reason").to_owned(),
            field_path: rule.text("fieldPath").to_owned(),
            optional_old_self: rule.flag("optionalOldSelf"),
            compiled: None,
            fault: None,
        };
        schema.items("x-kubernetes-validations").iter().map(read).collect()
    }

    pub(super) fn compile(&mut self, ty: &Type) {
        let variables = variables_of(ty.clone(), self.optional_old_self);
        match Program::compile_typed(&self.rule, &variables) {
            Ok((program, _)) => {
                let message = Program::compile(&self.message_expression).ok();
                let message = message.filter(|_| !self.message_expression.is_empty());
                let uses_old_self = program.mentions("oldSelf");
                self.compiled = Some(Compiled { program, message, uses_old_self });
            }
            Err(error) => self.fault = Some(error.to_string()),
        }
    }

    fn default_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.rule.trim())
        } else {
            self.message.trim().to_owned()
        }
    }
}

/// The variables of a rule and their types.
pub fn variables_of(ty: Type, optional_old_self: bool) -> impl Fn(&str) -> Option<Type> {
    move |name| match name {
        "self" => Some(ty.clone()),
        "oldSelf" if optional_old_self => Some(Type::Dyn),
        "oldSelf" => Some(ty.clone()),
        _ => None,
    }
}

/// Runs the rules of `schema` and of everything below it.
pub(super) fn run(
    value: &Value,
    old: Option<&Value>,
    schema: &Structural,
    path: &str,
    is_root: bool,
    out: &mut Vec<FieldError>,
) {
    if value.is_null() || !schema.has_rules() {
        return;
    }
    run_own(value, old, schema, path, is_root, out);
    match value {
        Value::Object(map) => {
            for (name, member) in map {
                let Some(inner) = schema.member(name) else { continue };
                let path =
                    if schema.properties.contains_key(name) { joined(path, name) } else { format!("{path}[{name}]") };
                run(member, old.and_then(|old| old.get(name)), inner, &path, false, out);
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                let is_map = matches!(schema.list_type, super::structural::ListType::Map(_));
                let old = old.filter(|_| is_map).and_then(|old| correlated(item, old, &schema.list_type));
                run(item, old, inner, &format!("{path}[{at}]"), false, out);
            }
        }
        _ => {}
    }
}

fn run_own(
    value: &Value,
    old: Option<&Value>,
    schema: &Structural,
    path: &str,
    is_root: bool,
    out: &mut Vec<FieldError>,
) {
    if schema.rules.is_empty() {
        return;
    }
    let new = to_cel(value, schema, is_root);
    let before = old.map(|old| to_cel(old, schema, is_root));
    for rule in &schema.rules {
        let kind_of_value = || Some(Value::String(schema.ty.clone()));
        let compiled = match (&rule.compiled, &rule.fault) {
            (Some(compiled), _) => compiled,
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                out.push(fault(ErrorKind::Invalid, path, kind_of_value(), format!("rule compile error: {why}")));
                continue;
            }
        };
        if compiled.uses_old_self && before.is_none() && !rule.optional_old_self {
            continue;
        }
        let variables = |name: &str| match name {
            "self" => Some(Ok(new.clone())),
            "oldSelf" if rule.optional_old_self => Some(Ok(Cel::Optional(before.clone().map(Arc::new)))),
            "oldSelf" => before.clone().map(Ok),
            _ => None,
        };
        match compiled.program.evaluate(&variables) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => {
                // A rule that an update did not newly break is forgiven, unless it is about the change itself.
                if !compiled.uses_old_self && old == Some(value) {
                    continue;
                }
                out.push(broken(rule, compiled, &variables, value, schema, path));
            }
            Err(error) => {
                let text = error.to_string();
                let detail = if text.starts_with("no such overload") {
                    format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                        rule.rule
                    )
                } else if text.starts_with("operation cancelled") {
                    format!(
                        "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        rule.rule
                    )
                } else {
                    format!("{text} evaluating rule: {}", rule.rule)
                };
                out.push(fault(ErrorKind::Invalid, path, kind_of_value(), detail));
            }
        }
    }
}

fn broken(
    rule: &Rule,
    compiled: &Compiled,
    variables: &dyn Fn(&str) -> Option<Result<Cel, EvalError>>,
    value: &Value,
    schema: &Structural,
    path: &str,
) -> FieldError {
    let said = compiled.message.as_ref().and_then(|message| match message.evaluate(variables) {
        Ok(Cel::String(text)) if !text.trim().is_empty() && !text.contains('\n') => Some(text.trim().to_owned()),
        _ => None,
    });
    let detail = said.unwrap_or_else(|| rule.default_message());
    let path = if rule.field_path.is_empty() {
        path.to_owned()
    } else {
        joined(path, field_path(&rule.field_path).as_deref().unwrap_or_default())
    };
    // Objects and lists are not shown.
    let shown = Some(value.clone()).filter(|value| !value.is_object() && !value.is_array());
    match rule.reason.as_str() {
        "FieldValueForbidden" => fault(ErrorKind::Forbidden, &path, None, detail),
        "FieldValueRequired" => fault(ErrorKind::Required, &path, None, detail),
        "FieldValueDuplicate" => fault(ErrorKind::Duplicate, &path, shown, ""),
        _ => {
            let is_structure = matches!(schema.ty.as_str(), "object" | "array");
            fault(ErrorKind::Invalid, &path, shown.filter(|_| !is_structure), detail)
        }
    }
}

/// A path such as `.spec.items['a.b']` as messages write it; `None` if it is none.
pub fn field_path(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix("['") {
            let end = tail.find("']")?;
            let name = &tail[..end];
            out = if out.is_empty() { name.to_owned() } else { format!("{out}[{name}]") };
            rest = &tail[end + 2..];
        } else {
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            if end == 0 {
                return None;
            }
            out = joined(&out, &tail[..end]);
            rest = &tail[end..];
        }
    }
    (!out.is_empty()).then_some(out)
}

/// A value as rules see it: names escaped, texts of known formats read, members that are not declared left out.
///
/// Upstream: apiserver v1.36.2 `pkg/cel/common/values.go` UnstructuredToVal.
fn to_cel(value: &Value, schema: &Structural, is_resource: bool) -> Cel {
    match value {
        Value::Object(map) if schema.additional.is_some() && schema.properties.is_empty() => {
            Cel::map(map.iter().map(|(name, member)| {
                let inner = schema.member(name);
                (
                    name.as_str(),
                    inner.map_or_else(|| Cel::of_json(member), |inner| to_cel(member, inner, inner.embedded)),
                )
            }))
        }
        Value::Object(map) if schema.properties.is_empty() => {
            Cel::map(map.iter().map(|(name, member)| (name.as_str(), Cel::of_json(member))))
        }
        Value::Object(map) => {
            let members = map.iter().filter_map(|(name, member)| {
                let inner = schema.properties.get(name);
                let meta = is_resource || schema.embedded;
                if meta && name == "metadata" {
                    let known = member.as_object().into_iter().flatten();
                    let known = known.filter(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
                    return Some((
                        name.clone(),
                        Cel::map(known.map(|(name, text)| (name.as_str(), Cel::of_json(text)))),
                    ));
                }
                match inner {
                    Some(inner) => Some((escaped(name)?, to_cel(member, inner, inner.embedded))),
                    None if meta && matches!(name.as_str(), "apiVersion" | "kind") => {
                        Some((name.clone(), Cel::of_json(member)))
                    }
                    None => None,
                }
            });
            Cel::map(members.collect::<Vec<_>>())
        }
        Value::Array(items) => match &schema.items {
            Some(inner) => Cel::list(items.iter().map(|item| to_cel(item, inner, inner.embedded))),
            None => Cel::of_json(value),
        },
        Value::Number(number) if schema.ty == "number" => Cel::Double(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) if schema.ty == "string" => formatted(text, &schema.values.format),
        scalar => Cel::of_json(scalar),
    }
}

/// A text of a format that rules have a type for.
fn formatted(text: &str, format: &str) -> Cel {
    let source = match format {
        "date-time" => text.parse().ok().map(Cel::Timestamp),
        "date" => format!("{text}T00:00:00Z").parse().ok().map(Cel::Timestamp),
        "duration" => Cel::duration(text),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(bytes.into()))
        }
        _ => None,
    };
    source.unwrap_or_else(|| Cel::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(object: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = Structural::root(&json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('w')", "message": "name must start with w"}],
        "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.min) || self.min <= self.replicas", "messageExpression": "'min ' + string(self.min) + ' is too much'"},
                {"rule": "!has(self.secret)", "reason": "FieldValueForbidden", "fieldPath": ".secret", "message": "keep it"}],
            "properties": {
                "replicas": {"type": "integer"}, "min": {"type": "integer"}, "secret": {"type": "string"},
                "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
                "when": {"type": "string", "format": "date-time",
                    "x-kubernetes-validations": [{"rule": "self.getFullYear() > 2000"}]},
                "map": {"type": "object", "additionalProperties": {"type": "integer",
                    "x-kubernetes-validations": [{"rule": "self > 0"}]}},
            }}}}));
        let mut out = Vec::new();
        run(object, old, &schema, "", true, &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn broken_rules_are_named_where_they_stand() {
        let object = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let none: Vec<&str> = Vec::new();
        let cases = [
            (object("w", json!({"replicas": 2, "min": 1})), none),
            (object("x", json!({})), vec!["<nil>: Invalid value: name must start with w"]),
            (object("w", json!({"replicas": 2, "min": 5})), vec!["spec: Invalid value: min 5 is too much"]),
            (object("w", json!({"secret": "s"})), vec!["spec.secret: Forbidden: keep it"]),
            (
                object("w", json!({"when": "1999-01-01T00:00:00Z"})),
                vec![r#"spec.when: Invalid value: "1999-01-01T00:00:00Z": failed rule: self.getFullYear() > 2000"#],
            ),
            (object("w", json!({"map": {"a": 0}})), vec!["spec.map[a]: Invalid value: 0: failed rule: self > 0"]),
        ];
        for (object, want) in cases {
            assert_eq!(faults(&object, None), want, "{object}");
        }
    }

    #[test]
    fn rules_about_a_change_need_an_old_value() {
        let object = |fixed: &str| json!({"metadata": {"name": "w"}, "spec": {"fixed": fixed}});
        assert_eq!(faults(&object("b"), None), Vec::<String>::new());
        assert_eq!(faults(&object("a"), Some(&object("a"))), Vec::<String>::new());
        assert_eq!(faults(&object("b"), Some(&object("a"))), [r#"spec.fixed: Invalid value: "b": fixed is immutable"#]);
        assert_eq!(faults(&object("b"), Some(&json!({"metadata": {"name": "w"}}))), Vec::<String>::new());
    }

    #[test]
    fn field_paths_are_read() {
        for (text, want) in [(".a.b", Some("a.b")), (".a['x.y']", Some("a[x.y]")), ("a", None), ("", None), (".", None)]
        {
            assert_eq!(field_path(text).as_deref(), want, "{text}");
        }
    }
}
