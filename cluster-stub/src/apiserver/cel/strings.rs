//! Methods of texts: those of CEL and those of its extension library.
//!
//! cel-go `ext/strings.go` version 2 and apiserver v1.36.2 `pkg/cel/library/regex.go`.

use regex::Regex;

use super::{EvalError, Value};

/// Calls a method of a text; `None` if there is no such method for these arguments.
pub(super) fn method(function: &str, target: &Value, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let Value::String(text) = target else { return Ok(None) };
    Ok(Some(match (function, args) {
        ("startsWith", [Value::String(part)]) => Value::Bool(text.starts_with(&**part)),
        ("endsWith", [Value::String(part)]) => Value::Bool(text.ends_with(&**part)),
        ("contains", [Value::String(part)]) => Value::Bool(text.contains(&**part)),
        ("matches", [Value::String(pattern)]) => Value::Bool(regex(pattern)?.is_match(text)),
        ("find", [Value::String(pattern)]) => {
            Value::text(regex(pattern)?.find(text).map_or("", |found| found.as_str()))
        }
        ("findAll", [Value::String(pattern)]) => {
            Value::list(regex(pattern)?.find_iter(text).map(|found| Value::text(found.as_str())))
        }
        ("findAll", [Value::String(pattern), Value::Int(limit)]) => {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            Value::list(regex(pattern)?.find_iter(text).take(limit).map(|found| Value::text(found.as_str())))
        }
        ("charAt", [Value::Int(at)]) => {
            let length = text.chars().count();
            let at = usize::try_from(*at).ok().filter(|at| *at <= length).ok_or_else(|| out_of_range(*at))?;
            Value::text(text.chars().nth(at).map(String::from).unwrap_or_default())
        }
        ("indexOf", [Value::String(part)]) => Value::Int(index_of(text, part, 0)),
        ("indexOf", [Value::String(part), Value::Int(from)]) => {
            Value::Int(index_of(text, part, usize::try_from(*from).map_err(|_| out_of_range(*from))?))
        }
        ("lastIndexOf", [Value::String(part)]) => {
            Value::Int(text.rfind(&**part).map_or(-1, |at| text[..at].chars().count() as i64))
        }
        ("lowerAscii", []) => Value::text(text.to_ascii_lowercase()),
        ("upperAscii", []) => Value::text(text.to_ascii_uppercase()),
        ("trim", []) => Value::text(text.trim()),
        ("reverse", []) => Value::text(text.chars().rev().collect::<String>()),
        ("replace", [Value::String(old), Value::String(new)]) => Value::text(text.replace(&**old, new)),
        ("replace", [Value::String(old), Value::String(new), Value::Int(count)]) => match usize::try_from(*count) {
            Ok(count) => Value::text(text.replacen(&**old, new, count)),
            Err(_) => Value::text(text.replace(&**old, new)),
        },
        ("split", [Value::String(separator)]) => Value::list(split(text, separator, None)),
        ("split", [Value::String(separator), Value::Int(limit)]) => {
            Value::list(split(text, separator, usize::try_from(*limit).ok()))
        }
        ("substring", [Value::Int(from)]) => Value::text(substring(text, *from, None)?),
        ("substring", [Value::Int(from), Value::Int(to)]) => Value::text(substring(text, *from, Some(*to))?),
        ("format", [Value::List(args)]) => Value::text(format(text, args)?),
        _ => return Ok(None),
    }))
}

/// Compiles a pattern of RE2's syntax.
pub(super) fn regex(pattern: &str) -> Result<Regex, EvalError> {
    Regex::new(pattern).map_err(|_| EvalError::new(format!("error parsing regexp: invalid pattern: `{pattern}`")))
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

fn index_of(text: &str, part: &str, from: usize) -> i64 {
    let start = text.char_indices().nth(from).map_or(text.len(), |(at, _)| at);
    let found = text[start..].find(part).map(|at| text[..start + at].chars().count());
    found.map_or(-1, |at| at as i64)
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Result<String, EvalError> {
    let length = text.chars().count() as i64;
    let to = to.unwrap_or(length);
    if from < 0 || from > length {
        return Err(out_of_range(from));
    }
    if to < from || to > length {
        return Err(out_of_range(to));
    }
    let (skip, take) = (usize::try_from(from).unwrap_or(0), usize::try_from(to - from).unwrap_or(0));
    Ok(text.chars().skip(skip).take(take).collect())
}

fn split(text: &str, separator: &str, limit: Option<usize>) -> Vec<Value> {
    let parts: Vec<String> = match (separator, limit) {
        (_, Some(0)) => Vec::new(),
        ("", limit) => {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            match limit {
                Some(limit) if limit < letters.len() => {
                    let (first, rest) = letters.split_at(limit - 1);
                    first.iter().cloned().chain([rest.concat()]).collect()
                }
                _ => letters,
            }
        }
        (separator, Some(limit)) => text.splitn(limit, separator).map(str::to_owned).collect(),
        (separator, None) => text.split(separator).map(str::to_owned).collect(),
    };
    parts.into_iter().map(Value::text).collect()
}

/// `%s %d %f %e %b %x %X %o %%`, with a precision for `%f` and `%e`.
fn format(text: &str, args: &[Value]) -> Result<String, EvalError> {
    let mut out = String::new();
    let mut args = args.iter();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut precision = None;
        if letters.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok();
        }
        let verb = letters.next().ok_or_else(|| EvalError::new("unexpected end of format string"))?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let arg = args.next().ok_or_else(|| EvalError::new("index out of range in format arguments"))?;
        let bad = || {
            EvalError::new(format!(
                "error during formatting: no formatting clause %{verb} for type {}",
                arg.type_name()
            ))
        };
        let number = match arg {
            Value::Int(value) => *value as f64,
            Value::Uint(value) => *value as f64,
            Value::Double(value) => *value,
            _ => f64::NAN,
        };
        let piece = match (verb, arg) {
            ('s', value) => value.to_string(),
            ('d', Value::Int(_) | Value::Uint(_)) => arg.to_string(),
            ('f', Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
                format!("{number:.precision$}", precision = precision.unwrap_or(6))
            }
            ('e', Value::Int(_) | Value::Uint(_) | Value::Double(_)) => exponent(number, precision.unwrap_or(6)),
            ('b', Value::Int(value)) => format!("{value:b}"),
            ('b', Value::Bool(value)) => u8::from(*value).to_string(),
            ('o', Value::Int(value)) => format!("{value:o}"),
            ('x', Value::Int(value)) => format!("{value:x}"),
            ('X', Value::Int(value)) => format!("{value:X}"),
            ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ('X', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            _ => return Err(bad()),
        };
        out.push_str(&piece);
    }
    Ok(out)
}

/// As C writes it: at least two digits of exponent.
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{power:0>2}")
}
