//! The functions of CEL itself: operators, conversions, times. What Kubernetes adds stands in `library.rs`, texts in `strings.rs`,
//! lists in `lists.rs`.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{EvalError, Key, Value, library, lists, strings, time};

/// Names that are types.
pub(super) const TYPES: [&str; 10] =
    ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"];

/// Names that stand in front of functions and are no values.
pub(super) const NAMESPACES: [&str; 4] = ["optional", "ip", "cidr", "math"];

pub(super) type Outcome = Result<Value, EvalError>;

/// The functions of this crate, for the check of names: all without a target, then all with one.
pub(super) const GLOBAL: [&str; 25] = [
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "matches",
    "quantity",
    "isQuantity",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "url",
    "isURL",
    "ip.isCanonical",
    "optional.of",
    "optional.ofNonZeroValue",
    "optional.none",
    "math.greatest",
];

/// An operator or function that does not take these values.
pub(super) fn no_overload(function: &str, args: &[&Value]) -> EvalError {
    let types: Vec<&str> = args.iter().map(|arg| arg.type_name()).collect();
    EvalError::new(format!("no such overload: {function}({})", types.join(", ")))
}

/// How much a value weighs in the count of steps.
pub(super) fn size_of(value: &Value) -> u64 {
    (match value {
        Value::String(text) => text.len() / 10,
        Value::Bytes(bytes) => bytes.len() / 10,
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        _ => 0,
    }) as u64
}

/// Calls a function or a method.
pub(super) fn call(function: &str, target: Option<&Value>, args: &[Value]) -> Outcome {
    let all: Vec<&Value> = target.into_iter().chain(args).collect();
    let done = match (target, args) {
        (None, [value]) => unary(function, value)?,
        (None, [left, right]) => binary(function, left, right)?,
        (Some(target), args) => method(function, target, args)?,
        _ => None,
    };
    let done = match done {
        Some(value) => Some(value),
        None => library::call(function, target, args)?,
    };
    done.ok_or_else(|| no_overload(function, &all))
}

fn unary(function: &str, value: &Value) -> Result<Option<Value>, EvalError> {
    Ok(Some(match (function, value) {
        ("!_", Value::Bool(value)) => Value::Bool(!value),
        ("-_", Value::Int(value)) => Value::Int(value.checked_neg().ok_or_else(overflow)?),
        ("-_", Value::Double(value)) => Value::Double(-value),
        ("size", value) => Value::Int(size(value).ok_or_else(|| no_overload("size", &[value]))?),
        ("dyn", value) => value.clone(),
        ("type", value) => Value::Type(value.type_name().into()),
        ("int" | "uint" | "double" | "string" | "bool" | "bytes" | "duration" | "timestamp", value) => {
            convert(function, value)?
        }
        _ => return Ok(None),
    }))
}

/// Code points, bytes, items or entries.
fn size(value: &Value) -> Option<i64> {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        _ => return None,
    };
    i64::try_from(size).ok()
}

fn overflow() -> EvalError {
    EvalError::new("return error for overflow: integer overflow")
}

fn convert(function: &str, value: &Value) -> Outcome {
    let failed = || EvalError::new(format!("type conversion error from '{}' to '{function}'", value.type_name()));
    Ok(match (function, value) {
        ("int", Value::Int(value)) => Value::Int(*value),
        ("int", Value::Uint(value)) => Value::Int(i64::try_from(*value).map_err(|_| overflow())?),
        ("int", Value::Double(value)) if value.abs() < 9.2e18 => Value::Int(*value as i64),
        ("int", Value::Double(_)) => return Err(overflow()),
        ("int", Value::String(text)) => Value::Int(text.parse().map_err(|_| failed())?),
        ("int", Value::Timestamp(moment)) => Value::Int(moment.as_second()),
        ("int", Value::Duration(span)) => Value::Int(i64::try_from(span.as_nanos()).map_err(|_| overflow())?),
        ("uint", Value::Uint(value)) => Value::Uint(*value),
        ("uint", Value::Int(value)) => Value::Uint(u64::try_from(*value).map_err(|_| overflow())?),
        ("uint", Value::Double(value)) if (0.0..1.8e19).contains(value) => Value::Uint(*value as u64),
        ("uint", Value::Double(_)) => return Err(overflow()),
        ("uint", Value::String(text)) => Value::Uint(text.parse().map_err(|_| failed())?),
        ("double", Value::Double(value)) => Value::Double(*value),
        ("double", Value::Int(value)) => Value::Double(*value as f64),
        ("double", Value::Uint(value)) => Value::Double(*value as f64),
        ("double", Value::String(text)) => Value::Double(text.parse().map_err(|_| failed())?),
        ("string", Value::List(_) | Value::Map(_) | Value::Null | Value::Optional(_)) => return Err(failed()),
        ("string", Value::Bytes(bytes)) => {
            Value::text(std::str::from_utf8(bytes).map_err(|_| EvalError::new("invalid UTF-8 in bytes"))?)
        }
        ("string", value) => Value::text(value.to_string()),
        ("bool", Value::Bool(value)) => Value::Bool(*value),
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Value::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Value::Bool(false),
            _ => return Err(failed()),
        },
        ("bytes", Value::Bytes(bytes)) => Value::Bytes(bytes.clone()),
        ("bytes", Value::String(text)) => Value::Bytes(text.as_bytes().into()),
        ("duration", Value::Duration(span)) => Value::Duration(*span),
        ("duration", Value::String(text)) => Value::Duration(time::parse_duration(text).ok_or_else(failed)?),
        ("timestamp", Value::Timestamp(moment)) => Value::Timestamp(*moment),
        ("timestamp", Value::String(text)) => Value::Timestamp(time::parse_timestamp(text).ok_or_else(failed)?),
        ("timestamp", Value::Int(seconds)) => {
            Value::Timestamp(Timestamp::from_second(*seconds).map_err(|_| overflow())?)
        }
        _ => return Err(no_overload(function, &[value])),
    })
}

fn binary(function: &str, left: &Value, right: &Value) -> Result<Option<Value>, EvalError> {
    let ordered = |accept: fn(Ordering) -> bool| {
        let comparable = left.order(right);
        comparable.map(|order| Value::Bool(accept(order))).ok_or_else(|| no_overload(function, &[left, right]))
    };
    Ok(Some(match function {
        "_==_" => Value::Bool(left == right),
        "_!=_" => Value::Bool(left != right),
        "_<_" => ordered(Ordering::is_lt)?,
        "_<=_" => ordered(Ordering::is_le)?,
        "_>_" => ordered(Ordering::is_gt)?,
        "_>=_" => ordered(Ordering::is_ge)?,
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" => arithmetic(function, left, right)?,
        "@in" => match right {
            Value::List(items) => Value::Bool(items.contains(left)),
            Value::Map(map) => Value::Bool(Key::of(left).is_some_and(|key| map.contains_key(&key))),
            _ => return Err(no_overload("@in", &[left, right])),
        },
        "matches" => return strings::method("matches", left, std::slice::from_ref(right)),
        _ => return Ok(None),
    }))
}

fn arithmetic(function: &str, left: &Value, right: &Value) -> Outcome {
    let zero = || EvalError::new(if function == "_%_" { "modulus by zero" } else { "division by zero" });
    let whole = |result: Option<i64>| result.map(Value::Int).ok_or_else(overflow);
    let natural = |result: Option<u64>| result.map(Value::Uint).ok_or_else(overflow);
    let span = |result: Option<SignedDuration>| result.map(Value::Duration).ok_or_else(overflow);
    let moment = |result: Result<Timestamp, jiff::Error>| result.map(Value::Timestamp).map_err(|_| overflow());
    match (function, left, right) {
        ("_/_" | "_%_", _, Value::Int(0) | Value::Uint(0)) => Err(zero()),
        ("_+_", Value::Int(a), Value::Int(b)) => whole(a.checked_add(*b)),
        ("_-_", Value::Int(a), Value::Int(b)) => whole(a.checked_sub(*b)),
        ("_*_", Value::Int(a), Value::Int(b)) => whole(a.checked_mul(*b)),
        ("_/_", Value::Int(a), Value::Int(b)) => whole(a.checked_div(*b)),
        ("_%_", Value::Int(a), Value::Int(b)) => whole(a.checked_rem(*b)),
        ("_+_", Value::Uint(a), Value::Uint(b)) => natural(a.checked_add(*b)),
        ("_-_", Value::Uint(a), Value::Uint(b)) => natural(a.checked_sub(*b)),
        ("_*_", Value::Uint(a), Value::Uint(b)) => natural(a.checked_mul(*b)),
        ("_/_", Value::Uint(a), Value::Uint(b)) => natural(a.checked_div(*b)),
        ("_%_", Value::Uint(a), Value::Uint(b)) => natural(a.checked_rem(*b)),
        ("_+_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        ("_-_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        ("_*_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        ("_/_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        ("_+_", Value::String(a), Value::String(b)) => Ok(Value::text(format!("{a}{b}"))),
        ("_+_", Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes(a.iter().chain(b.iter()).copied().collect())),
        ("_+_", Value::List(a), Value::List(b)) => Ok(Value::list(a.iter().chain(b.iter()).cloned())),
        ("_+_", Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        ("_-_", Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        ("_+_", Value::Timestamp(a), Value::Duration(b)) | ("_+_", Value::Duration(b), Value::Timestamp(a)) => {
            moment(a.checked_add(*b))
        }
        ("_-_", Value::Timestamp(a), Value::Duration(b)) => moment(a.checked_sub(*b)),
        ("_-_", Value::Timestamp(a), Value::Timestamp(b)) => Ok(Value::Duration(a.duration_since(*b))),
        _ => Err(no_overload(function, &[left, right])),
    }
}

fn method(function: &str, target: &Value, args: &[Value]) -> Result<Option<Value>, EvalError> {
    if let ("size", []) = (function, args) {
        return Ok(size(target).map(Value::Int));
    }
    match target {
        Value::String(_) => strings::method(function, target, args),
        Value::List(_) => lists::method(function, target, args),
        Value::Timestamp(moment) => timestamp_part(function, *moment, args),
        Value::Duration(span) => Ok(duration_part(function, *span, args)),
        Value::Optional(inner) => optional(function, inner.as_ref(), args),
        _ => Ok(None),
    }
}

fn timestamp_part(function: &str, moment: Timestamp, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let zone = match args {
        [] => None,
        [Value::String(zone)] => Some(&**zone),
        _ => return Ok(None),
    };
    let at = time::zoned(moment, zone)
        .ok_or_else(|| EvalError::new(format!("unknown time zone {}", zone.unwrap_or_default())))?;
    Ok(Some(Value::Int(i64::from(match function {
        "getFullYear" => i32::from(at.year()),
        "getMonth" => i32::from(at.month()) - 1,
        "getDate" => i32::from(at.day()),
        "getDayOfMonth" => i32::from(at.day()) - 1,
        "getDayOfYear" => i32::from(at.day_of_year()) - 1,
        "getDayOfWeek" => i32::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i32::from(at.hour()),
        "getMinutes" => i32::from(at.minute()),
        "getSeconds" => i32::from(at.second()),
        "getMilliseconds" => i32::from(at.millisecond()),
        _ => return Ok(None),
    }))))
}

fn duration_part(function: &str, span: SignedDuration, args: &[Value]) -> Option<Value> {
    if !args.is_empty() {
        return None;
    }
    Some(Value::Int(match function {
        "getHours" => span.as_hours(),
        "getMinutes" => span.as_mins(),
        "getSeconds" => span.as_secs(),
        "getMilliseconds" => i64::from(span.subsec_millis()),
        _ => return None,
    }))
}

fn optional(function: &str, inner: Option<&Arc<Value>>, args: &[Value]) -> Result<Option<Value>, EvalError> {
    match (function, args, inner) {
        ("hasValue", [], inner) => Ok(Some(Value::Bool(inner.is_some()))),
        ("value", [], Some(value)) => Ok(Some((**value).clone())),
        ("value", [], None) => Err(EvalError::new("optional.none() dereference")),
        _ => Ok(None),
    }
}
