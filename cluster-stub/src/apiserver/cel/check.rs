//! Holds an expression against the types of its variables: names, fields, operators and methods that cannot be right whatever the values
//! are. What depends on values is left to evaluation.
//!
//! Texts: cel-go `checker/errors.go`.

use super::functions::{GLOBAL, NAMESPACES, TYPES};
use super::parse::{Expr, ExprKind, Loop, LoopKind};
use super::{ParseFault, Type, Value};

/// The type of `expr` and everything that is wrong with it.
pub(super) fn check(expr: &Expr, variables: &dyn Fn(&str) -> Option<Type>) -> (Type, Vec<ParseFault>) {
    let mut checker = Checker { variables, locals: Vec::new(), faults: Vec::new() };
    let ty = checker.type_of(expr);
    (ty, checker.faults)
}

/// Whether `name` occurs as a variable of the caller.
pub(super) fn mentions(expr: &Expr, name: &str) -> bool {
    let found = std::cell::Cell::new(false);
    let variables = |asked: &str| {
        found.set(found.get() || asked == name);
        Some(Type::Dyn)
    };
    check(expr, &variables);
    found.get()
}

struct Checker<'a> {
    variables: &'a dyn Fn(&str) -> Option<Type>,
    locals: Vec<(String, Type)>,
    faults: Vec<ParseFault>,
}

/// Methods and the type of what they give; `None` where it depends.
const METHODS: &[(&str, &[Receiver], Option<Type>)] = &[
    ("startsWith", &[Receiver::String], Some(Type::Bool)),
    ("endsWith", &[Receiver::String], Some(Type::Bool)),
    ("matches", &[Receiver::String], Some(Type::Bool)),
    ("contains", &[Receiver::String], Some(Type::Bool)),
    ("find", &[Receiver::String], Some(Type::String)),
    ("findAll", &[Receiver::String], None),
    ("charAt", &[Receiver::String], Some(Type::String)),
    ("indexOf", &[Receiver::String, Receiver::List], Some(Type::Int)),
    ("lastIndexOf", &[Receiver::String, Receiver::List], Some(Type::Int)),
    ("lowerAscii", &[Receiver::String], Some(Type::String)),
    ("upperAscii", &[Receiver::String], Some(Type::String)),
    ("trim", &[Receiver::String], Some(Type::String)),
    ("replace", &[Receiver::String], Some(Type::String)),
    ("substring", &[Receiver::String], Some(Type::String)),
    ("split", &[Receiver::String], None),
    ("format", &[Receiver::String], Some(Type::String)),
    ("size", &[Receiver::String, Receiver::List, Receiver::Map, Receiver::Bytes], Some(Type::Int)),
    ("join", &[Receiver::List], Some(Type::String)),
    ("isSorted", &[Receiver::List], Some(Type::Bool)),
    ("containsAll", &[Receiver::List], Some(Type::Bool)),
    ("intersects", &[Receiver::List], Some(Type::Bool)),
    ("includes", &[Receiver::List], Some(Type::Bool)),
    ("getHours", &[Receiver::Time], Some(Type::Int)),
    ("getMinutes", &[Receiver::Time], Some(Type::Int)),
    ("getSeconds", &[Receiver::Time], Some(Type::Int)),
    ("getMilliseconds", &[Receiver::Time], Some(Type::Int)),
    ("getFullYear", &[Receiver::Time], Some(Type::Int)),
    ("getMonth", &[Receiver::Time], Some(Type::Int)),
    ("getDate", &[Receiver::Time], Some(Type::Int)),
    ("getDayOfMonth", &[Receiver::Time], Some(Type::Int)),
    ("getDayOfYear", &[Receiver::Time], Some(Type::Int)),
    ("getDayOfWeek", &[Receiver::Time], Some(Type::Int)),
    ("allowed", &[], Some(Type::Bool)),
    ("reason", &[], Some(Type::String)),
    ("hasValue", &[], Some(Type::Bool)),
];

/// Methods of values whose types the checker does not follow, or with a type that depends.
const LOOSE_METHODS: &[&str] = &[
    "sum",
    "min",
    "max",
    "slice",
    "distinct",
    "reverse",
    "sort",
    "flatten",
    "first",
    "last",
    "value",
    "or",
    "orValue",
    "sign",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "ip",
    "prefixLength",
    "masked",
    "containsIP",
    "containsCIDR",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "check",
    "serviceAccount",
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "fieldSelector",
    "errored",
    "error",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    String,
    List,
    Map,
    Bytes,
    Time,
}

impl Receiver {
    fn takes(self, ty: &Type) -> bool {
        match self {
            Receiver::String => matches!(ty, Type::String),
            Receiver::List => matches!(ty, Type::List(_)),
            Receiver::Map => matches!(ty, Type::Map(_) | Type::Object(_)),
            Receiver::Bytes => matches!(ty, Type::Bytes),
            Receiver::Time => matches!(ty, Type::Timestamp | Type::Duration),
        }
    }
}

impl Checker<'_> {
    fn fault(&mut self, at: usize, text: String) -> Type {
        self.faults.push(ParseFault::new(at, text));
        Type::Dyn
    }

    fn type_of(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            ExprKind::Literal(value) => literal(value),
            ExprKind::Ident(name) => self.name(expr.at, name),
            ExprKind::Select { operand, field, test, optional } => {
                if is_protobuf_type(operand) {
                    return Type::Dyn;
                }
                let operand = self.type_of(operand);
                let found = match &operand {
                    Type::Dyn => Type::Dyn,
                    Type::Map(value) => (**value).clone(),
                    Type::Object(object) => match object.fields.get(field) {
                        Some(ty) => ty.clone(),
                        None => return self.fault(expr.at, format!("undefined field '{field}'")),
                    },
                    other => {
                        let text = format!("type '{other}' does not support field selection");
                        return self.fault(expr.at, text);
                    }
                };
                match (test, optional) {
                    (true, _) => Type::Bool,
                    (false, true) => Type::Dyn,
                    (false, false) => found,
                }
            }
            ExprKind::Index { operand, index, optional } => {
                let (operand, index) = (self.type_of(operand), self.type_of(index));
                let fits = match &operand {
                    Type::List(_) => matches!(index, Type::Int | Type::Uint | Type::Double | Type::Dyn),
                    Type::Map(_) => matches!(index, Type::String | Type::Dyn),
                    ty => *ty == Type::Dyn,
                };
                if !fits {
                    return self.no_overload(expr.at, "_[_]", None, &[operand, index]);
                }
                match operand {
                    Type::List(item) | Type::Map(item) if !optional => *item,
                    _ => Type::Dyn,
                }
            }
            ExprKind::Call { function, target, args } => self.call(expr.at, function, target.as_deref(), args),
            ExprKind::List(items) => {
                let mut types = items.iter().map(|(_, item)| self.type_of(item)).collect::<Vec<_>>().into_iter();
                let first = types.next().unwrap_or(Type::Dyn);
                Type::List(Box::new(if types.all(|ty| ty == first) { first } else { Type::Dyn }))
            }
            ExprKind::Map(entries) => {
                let mut types = Vec::new();
                for (_, key, value) in entries {
                    self.type_of(key);
                    types.push(self.type_of(value));
                }
                let mut types = types.into_iter();
                let first = types.next().unwrap_or(Type::Dyn);
                Type::Map(Box::new(if types.all(|ty| ty == first) { first } else { Type::Dyn }))
            }
            ExprKind::Message { fields, .. } => {
                for (_, _, value) in fields {
                    self.type_of(value);
                }
                Type::Dyn
            }
            ExprKind::Loop(inner) => self.loop_type(expr.at, inner),
            ExprKind::Bind { name, init, body, of_optional } => {
                let init = self.type_of(init);
                let init = if of_optional.is_some() { Type::Dyn } else { init };
                self.locals.push((name.clone(), init));
                let body = self.type_of(body);
                self.locals.pop();
                if of_optional.is_some() { Type::Dyn } else { body }
            }
        }
    }

    fn name(&mut self, at: usize, name: &str) -> Type {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return ty.clone();
        }
        match (self.variables)(name) {
            Some(ty) => ty,
            None if TYPES.contains(&name) => Type::Dyn,
            None => self.undeclared(at, name),
        }
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        self.fault(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn no_overload(&mut self, at: usize, function: &str, target: Option<&Type>, args: &[Type]) -> Type {
        let args = args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = match target {
            Some(target) => format!("{target}.({args})"),
            None => format!("({args})"),
        };
        self.fault(at, format!("found no matching overload for '{function}' applied to '{applied}'"))
    }

    fn call(&mut self, at: usize, function: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        if let Some(Expr { kind: ExprKind::Ident(namespace), .. }) = target
            && NAMESPACES.contains(&namespace.as_str())
            && (self.variables)(namespace).is_none()
            && !self.locals.iter().any(|(local, _)| local == namespace)
        {
            args.iter().for_each(|arg| drop(self.type_of(arg)));
            return Type::Dyn;
        }
        let target = target.map(|target| self.type_of(target));
        let types: Vec<Type> = args.iter().map(|arg| self.type_of(arg)).collect();
        match target {
            Some(target) => self.method(at, function, &target, &types),
            None if function.contains('_') || function.starts_with('@') => self.operator(at, function, &types),
            None if GLOBAL.contains(&function) => match function {
                "size" | "int" => Type::Int,
                "uint" => Type::Uint,
                "double" => Type::Double,
                "string" => Type::String,
                "bytes" => Type::Bytes,
                "bool" | "matches" | "isQuantity" | "isIP" | "isCIDR" | "isURL" => Type::Bool,
                "duration" => Type::Duration,
                "timestamp" => Type::Timestamp,
                _ => Type::Dyn,
            },
            None => self.undeclared(at, function),
        }
    }

    fn method(&mut self, at: usize, function: &str, target: &Type, args: &[Type]) -> Type {
        match METHODS.iter().find(|(name, ..)| *name == function) {
            Some((_, receivers, result)) => {
                let fits = *target == Type::Dyn
                    || receivers.is_empty()
                    || receivers.iter().any(|receiver| receiver.takes(target));
                if fits {
                    result.clone().unwrap_or(Type::Dyn)
                } else {
                    self.no_overload(at, function, Some(target), args)
                }
            }
            None if LOOSE_METHODS.contains(&function) => match (function, target) {
                ("sum" | "min" | "max", Type::List(item)) => (**item).clone(),
                ("distinct" | "reverse" | "sort" | "slice", Type::List(_)) => target.clone(),
                ("reverse", Type::String) => Type::String,
                _ => Type::Dyn,
            },
            None => self.undeclared(at, function),
        }
    }

    fn operator(&mut self, at: usize, function: &str, types: &[Type]) -> Type {
        let all = |wanted: Type| types.iter().all(|ty| ty.agrees(&wanted));
        let pair = |of: fn(&Type) -> bool| types.iter().all(|ty| *ty == Type::Dyn || of(ty));
        let same = types.len() < 2 || types[0].agrees(&types[1]);
        let result = match function {
            "_&&_" | "_||_" | "!_" => all(Type::Bool).then_some(Type::Bool),
            "_==_" | "_!=_" => same.then_some(Type::Bool),
            "_<_" | "_<=_" | "_>_" | "_>=_" => {
                let ordered = |ty: &Type| {
                    matches!(ty, Type::Bool | Type::String | Type::Bytes | Type::Duration | Type::Timestamp)
                };
                (pair(Type::is_number) || (pair(ordered) && same)).then_some(Type::Bool)
            }
            "@in" => match &types[1] {
                Type::List(item) => types[0].agrees(item).then_some(Type::Bool),
                Type::Map(_) | Type::Object(_) => types[0].agrees(&Type::String).then_some(Type::Bool),
                ty => (*ty == Type::Dyn).then_some(Type::Bool),
            },
            "_?_:_" => {
                let branches = types[1].agrees(&types[2]);
                let joined = if types[1] == types[2] { types[1].clone() } else { Type::Dyn };
                (types[0].agrees(&Type::Bool) && branches).then_some(joined)
            }
            "-_" => types[0].clone().into_signed(),
            _ => arithmetic(function, types, same),
        };
        match result {
            Some(ty) => ty,
            None => self.no_overload(at, function, None, types),
        }
    }

    fn loop_type(&mut self, at: usize, inner: &Loop) -> Type {
        let range = self.type_of(&inner.range);
        let two = inner.second.is_some();
        let (first, second) = match &range {
            Type::List(item) if two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(value) => (Type::String, (**value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return self.fault(at, text);
            }
        };
        self.locals.push((inner.variable.clone(), first));
        if let Some(name) = &inner.second {
            self.locals.push((name.clone(), second));
        }
        if let Some(condition) = &inner.condition {
            let ty = self.type_of(condition);
            if !ty.agrees(&Type::Bool) {
                self.no_overload(condition.at, "_&&_", None, &[Type::Bool, ty]);
            }
        }
        let body = inner.body.as_ref().map_or(Type::Dyn, |body| self.type_of(body));
        self.locals.truncate(self.locals.len() - if two { 2 } else { 1 });
        match inner.kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne => Type::Bool,
            LoopKind::Filter => match range {
                Type::List(_) => range,
                _ => Type::List(Box::new(Type::Dyn)),
            },
            LoopKind::Map | LoopKind::TransformList => Type::List(Box::new(body)),
            LoopKind::TransformMap => Type::Map(Box::new(body)),
        }
    }
}

impl Type {
    fn into_signed(self) -> Option<Type> {
        matches!(self, Type::Int | Type::Double | Type::Dyn).then_some(self)
    }
}

fn literal(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Dyn,
    }
}

/// `google.protobuf` in front of a type's name.
fn is_protobuf_type(operand: &Expr) -> bool {
    match &operand.kind {
        ExprKind::Select { operand, field, .. } => {
            field == "protobuf" && matches!(&operand.kind, ExprKind::Ident(name) if name == "google")
        }
        _ => false,
    }
}

fn arithmetic(function: &str, types: &[Type], same: bool) -> Option<Type> {
    let [left, right] = types else { return None };
    match (function, left, right) {
        (_, Type::Dyn, other) | (_, other, Type::Dyn) => {
            Some(if other.is_number() { other.clone() } else { Type::Dyn })
        }
        ("_%_", Type::Double, _) => None,
        (_, left, _) if left.is_number() && same => Some(left.clone()),
        ("_+_", Type::String | Type::Bytes | Type::List(_), _) if same => Some(left.clone()),
        ("_+_" | "_-_", Type::Duration, Type::Duration) | ("_-_", Type::Timestamp, Type::Timestamp) => {
            Some(Type::Duration)
        }
        ("_+_" | "_-_", Type::Timestamp, Type::Duration) | ("_+_", Type::Duration, Type::Timestamp) => {
            Some(Type::Timestamp)
        }
        _ => None,
    }
}
