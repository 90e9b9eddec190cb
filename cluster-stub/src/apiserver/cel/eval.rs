//! Evaluates a tree. Functions live in `functions.rs`; here are names, members, operators that look at half of their operands only, and
//! macros.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::functions;
use super::parse::{Expr, ExprKind, Loop, LoopKind, OptionalMacro};
use super::{EvalError, Key, Value};

/// Steps that one evaluation may take; upstream counts cost with the same limit.
///
/// Upstream: apiserver v1.36.2 `pkg/apis/cel/config.go` PerCallLimit is a tenth of it, RuntimeCELCostBudget this.
const MAX_STEPS: u64 = 10_000_000;

/// The names that an expression sees.
pub(super) struct Scope<'a> {
    /// Variables of the caller.
    variables: &'a dyn Fn(&str) -> Option<Result<Value, EvalError>>,
    /// Variables of macros, innermost last.
    locals: Vec<(String, Value)>,
    steps: u64,
}

type Outcome = Result<Value, EvalError>;

/// Evaluates `expr`; `variables` gives the value of a name.
pub(super) fn evaluate(expr: &Expr, variables: &dyn Fn(&str) -> Option<Result<Value, EvalError>>) -> Outcome {
    Scope { variables, locals: Vec::new(), steps: 0 }.value(expr)
}

impl Scope<'_> {
    fn step(&mut self, cost: u64) -> Result<(), EvalError> {
        self.steps += cost;
        if self.steps > MAX_STEPS {
            return Err(EvalError::new("operation cancelled: actual cost limit exceeded"));
        }
        Ok(())
    }

    fn value(&mut self, expr: &Expr) -> Outcome {
        self.step(1)?;
        match &expr.kind {
            ExprKind::Literal(value) => Ok(value.clone()),
            ExprKind::Ident(name) => self.name(name),
            ExprKind::Select { operand, field, test, optional } => self.select(operand, field, *test, *optional),
            ExprKind::Index { operand, index, optional } => {
                let operand = self.value(operand)?;
                let index = self.value(index)?;
                access(operand, *optional, |value| item(value, &index))
            }
            ExprKind::Call { function, target, args } => self.call(function, target.as_deref(), args),
            ExprKind::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (optional, item) in items {
                    let value = self.value(item)?;
                    list.extend(unwrapped(*optional, value)?);
                }
                Ok(Value::List(list.into()))
            }
            ExprKind::Map(entries) => {
                let mut map = BTreeMap::new();
                for (optional, key, value) in entries {
                    let key = self.value(key)?;
                    let name = Key::of(&key)
                        .ok_or_else(|| EvalError::new(format!("unsupported key type: {}", key.type_name())))?;
                    let value = self.value(value)?;
                    if let Some(value) = unwrapped(*optional, value)?
                        && map.insert(name.clone(), value).is_some()
                    {
                        return Err(EvalError::new(format!("Failed with repeated key: {name}")));
                    }
                }
                Ok(Value::Map(Arc::new(map)))
            }
            ExprKind::Message { fields, .. } => {
                let mut map = BTreeMap::new();
                for (optional, field, value) in fields {
                    let value = self.value(value)?;
                    if let Some(value) = unwrapped(*optional, value)? {
                        map.insert(Key::String(field.as_str().into()), value);
                    }
                }
                Ok(Value::Map(Arc::new(map)))
            }
            ExprKind::Loop(inner) => self.run(inner),
            ExprKind::Bind { name, init, body, of_optional } => {
                let init = self.value(init)?;
                let init = match (of_optional, init) {
                    (None, init) => init,
                    (Some(_), Value::Optional(Some(inner))) => (*inner).clone(),
                    (Some(_), none @ Value::Optional(None)) => return Ok(none),
                    (Some(_), other) => return Err(functions::no_overload("optMap", &[&other])),
                };
                let value = self.with(name, init, |scope| scope.value(body))?;
                Ok(if *of_optional == Some(OptionalMacro::Map) {
                    Value::Optional(Some(Arc::new(value)))
                } else {
                    value
                })
            }
        }
    }

    fn name(&self, name: &str) -> Outcome {
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(value.clone());
        }
        if let Some(outcome) = (self.variables)(name) {
            return outcome;
        }
        if functions::TYPES.contains(&name) {
            return Ok(Value::Type(name.into()));
        }
        Err(EvalError::new(format!("no such attribute(s): {name}")))
    }

    fn with<T>(
        &mut self,
        name: &str,
        value: Value,
        inner: impl FnOnce(&mut Self) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        self.locals.push((name.to_owned(), value));
        let outcome = inner(self);
        self.locals.pop();
        outcome
    }

    fn select(&mut self, operand: &Expr, field: &str, test: bool, optional: bool) -> Outcome {
        // Names of protobuf's types have dots.
        if let ExprKind::Select { operand: package, field: name, .. } = &operand.kind
            && let (ExprKind::Ident(root), "protobuf") = (&package.kind, name.as_str())
            && root == "google"
        {
            return Ok(Value::Type(format!("google.protobuf.{field}").into()));
        }
        let operand = self.value(operand)?;
        if test {
            return match &operand {
                Value::Map(map) => Ok(Value::Bool(map.contains_key(&Key::String(field.into())))),
                Value::Optional(None) => Ok(Value::Bool(false)),
                Value::Optional(Some(inner)) => Ok(Value::Bool(inner.member(field).is_some())),
                _ => Err(EvalError::new(format!("no such key: {field}"))),
            };
        }
        access(operand, optional, |value| match value {
            Value::Map(map) => map.get(&Key::String(field.into())).cloned().ok_or_else(|| no_key(field)),
            Value::Authorizer(check) if field == "requestResource" => {
                check.of_request().map(Value::Authorizer).ok_or_else(|| no_key(field))
            }
            _ => Err(EvalError::new(format!("no such overload: type {} has no field {field}", value.type_name()))),
        })
    }

    fn call(&mut self, function: &str, target: Option<&Expr>, args: &[Expr]) -> Outcome {
        match (function, args) {
            ("_&&_", [left, right]) => return self.logic(left, right, false),
            ("_||_", [left, right]) => return self.logic(left, right, true),
            ("_?_:_", [condition, then, otherwise]) => {
                return match self.value(condition)? {
                    Value::Bool(true) => self.value(then),
                    Value::Bool(false) => self.value(otherwise),
                    other => Err(functions::no_overload("_?_:_", &[&other])),
                };
            }
            _ => {}
        }
        // A namespace in front of a function is no value: `optional.of(x)`, `ip.isCanonical(x)`.
        if let Some(Expr { kind: ExprKind::Ident(namespace), .. }) = target
            && functions::NAMESPACES.contains(&namespace.as_str())
            && (self.variables)(namespace).is_none()
            && !self.locals.iter().any(|(local, _)| local == namespace)
        {
            let args = self.values(args)?;
            return functions::call(&format!("{namespace}.{function}"), None, &args);
        }
        if function == "orValue" || function == "or" {
            return self.or(function, target, args);
        }
        let target = target.map(|target| self.value(target)).transpose()?;
        let args = self.values(args)?;
        self.step(args.iter().chain(&target).map(functions::size_of).sum())?;
        functions::call(function, target.as_ref(), &args)
    }

    fn values(&mut self, args: &[Expr]) -> Result<Vec<Value>, EvalError> {
        args.iter().map(|arg| self.value(arg)).collect()
    }

    /// `optional.orValue(x)` and `optional.or(optional)` look at the argument only when there is no value.
    fn or(&mut self, function: &str, target: Option<&Expr>, args: &[Expr]) -> Outcome {
        let (Some(target), [other]) = (target, args) else {
            return Err(EvalError::new(format!("no such overload: {function}")));
        };
        match self.value(target)? {
            Value::Optional(Some(inner)) if function == "orValue" => Ok((*inner).clone()),
            some @ Value::Optional(Some(_)) => Ok(some),
            Value::Optional(None) => self.value(other),
            value => Err(functions::no_overload(function, &[&value])),
        }
    }

    /// `&&` and `||`: an operand that decides makes an error in the other one harmless.
    fn logic(&mut self, left: &Expr, right: &Expr, decides: bool) -> Outcome {
        let check = |outcome: Outcome| match outcome {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(other) => Err(functions::no_overload(if decides { "_||_" } else { "_&&_" }, &[&other])),
            Err(error) => Err(error),
        };
        let first = check(self.value(left));
        if first == Ok(decides) {
            return Ok(Value::Bool(decides));
        }
        match (first, check(self.value(right))) {
            (_, Ok(value)) if value == decides => Ok(Value::Bool(decides)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(value)) => Ok(Value::Bool(value)),
        }
    }

    fn run(&mut self, inner: &Loop) -> Outcome {
        let range = self.value(&inner.range)?;
        let two = inner.second.is_some();
        let entries: Vec<(Value, Value)> = match &range {
            Value::List(items) if two => {
                items.iter().enumerate().map(|(at, item)| (Value::Int(at as i64), item.clone())).collect()
            }
            Value::List(items) => items.iter().map(|item| (item.clone(), Value::Null)).collect(),
            Value::Map(map) => map.iter().map(|(key, value)| (key.to_value(), value.clone())).collect(),
            other => return Err(EvalError::new(format!("cannot iterate over a value of type {}", other.type_name()))),
        };
        let mut found = 0_usize;
        let mut failure = None;
        let mut list = Vec::new();
        let mut map = BTreeMap::new();
        for (first, second) in entries {
            let key = first.clone();
            let (condition, body) = {
                self.locals.push((inner.variable.clone(), first.clone()));
                if let Some(name) = &inner.second {
                    self.locals.push((name.clone(), second.clone()));
                }
                let condition = inner.condition.as_ref().map(|condition| self.value(condition));
                let wanted = !matches!(condition, Some(Ok(Value::Bool(false)) | Err(_)));
                let body = inner.body.as_ref().filter(|_| wanted).map(|body| self.value(body));
                self.locals.truncate(self.locals.len() - if two { 2 } else { 1 });
                (condition, body)
            };
            let holds = match condition {
                None => true,
                Some(Ok(Value::Bool(value))) => value,
                Some(Ok(other)) => return Err(functions::no_overload("_&&_", &[&other])),
                // For `all` and `exists` another item may still decide.
                Some(Err(error)) if matches!(inner.kind, LoopKind::All | LoopKind::Exists) => {
                    failure.get_or_insert(error);
                    continue;
                }
                Some(Err(error)) => return Err(error),
            };
            match inner.kind {
                LoopKind::All if !holds => return Ok(Value::Bool(false)),
                LoopKind::Exists if holds => return Ok(Value::Bool(true)),
                LoopKind::ExistsOne => found += usize::from(holds),
                LoopKind::Filter if holds => list.push(first),
                LoopKind::Map | LoopKind::TransformList => list.extend(body.transpose()?),
                LoopKind::TransformMap => {
                    if let (Some(value), Some(key)) = (body.transpose()?, Key::of(&key)) {
                        map.insert(key, value);
                    }
                }
                LoopKind::All | LoopKind::Exists | LoopKind::Filter => {}
            }
        }
        match (inner.kind, failure) {
            (_, Some(error)) => Err(error),
            (LoopKind::All, None) => Ok(Value::Bool(true)),
            (LoopKind::Exists, None) => Ok(Value::Bool(false)),
            (LoopKind::ExistsOne, None) => Ok(Value::Bool(found == 1)),
            (LoopKind::TransformMap, None) => Ok(Value::Map(Arc::new(map))),
            (LoopKind::Filter | LoopKind::Map | LoopKind::TransformList, None) => Ok(Value::List(list.into())),
        }
    }
}

pub(super) fn no_key(name: impl std::fmt::Display) -> EvalError {
    EvalError { text: format!("no such key: {name}"), absent: true }
}

/// A member of a value; through an optional, or with `?`, the answer is an optional.
fn access(operand: Value, optional: bool, read: impl Fn(&Value) -> Outcome) -> Outcome {
    let wrapped = |outcome: Outcome| match outcome {
        Ok(value) => Ok(Value::Optional(Some(Arc::new(value)))),
        Err(error) if error.absent => Ok(Value::Optional(None)),
        Err(error) => Err(error),
    };
    match operand {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => wrapped(read(&inner)),
        value if optional => wrapped(read(&value)),
        value => read(&value),
    }
}

fn item(value: &Value, index: &Value) -> Outcome {
    match value {
        Value::List(items) => {
            let at = match Key::of(index) {
                Some(Key::Int(at)) => at,
                _ => return Err(functions::no_overload("_[_]", &[value, index])),
            };
            let found = usize::try_from(at).ok().and_then(|at| items.get(at)).cloned();
            found.ok_or_else(|| EvalError { text: format!("index out of bounds: {at}"), absent: true })
        }
        Value::Map(map) => {
            let key = Key::of(index).ok_or_else(|| functions::no_overload("_[_]", &[value, index]))?;
            map.get(&key).cloned().ok_or_else(|| no_key(key))
        }
        _ => Err(functions::no_overload("_[_]", &[value, index])),
    }
}

/// The value of `?item`: nothing when the optional is empty.
fn unwrapped(optional: bool, value: Value) -> Result<Option<Value>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(inner) => Ok(inner.map(|inner| (*inner).clone())),
        other => Err(functions::no_overload("optional", &[&other])),
    }
}
