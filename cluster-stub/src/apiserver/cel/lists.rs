//! Methods of lists.
//!
//! Upstream: apiserver v1.36.2 `pkg/cel/library/lists.go`, cel-go `ext/lists.go` and `ext/strings.go` (join).

use std::cmp::Ordering;

use super::{EvalError, Value};

/// Calls a method of a list; `None` if there is no such method for these arguments.
pub(super) fn method(function: &str, target: &Value, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let Value::List(items) = target else { return Ok(None) };
    Ok(Some(match (function, args) {
        ("isSorted", []) => {
            Value::Bool(items.windows(2).all(|pair| pair[0].order(&pair[1]).is_some_and(Ordering::is_le)))
        }
        ("sum", []) => sum(items)?,
        ("min", []) => extreme(items, Ordering::Less, "min")?,
        ("max", []) => extreme(items, Ordering::Greater, "max")?,
        ("indexOf", [item]) => position(items.iter().position(|other| other == item)),
        ("lastIndexOf", [item]) => position(items.iter().rposition(|other| other == item)),
        ("join", []) => Value::text(join(items, "")?),
        ("join", [Value::String(separator)]) => Value::text(join(items, separator)?),
        ("slice", [Value::Int(from), Value::Int(to)]) => {
            let bounds = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
            let part = bounds.and_then(|(from, to)| items.get(from..to));
            Value::List(part.ok_or_else(|| EvalError::new(format!("cannot slice({from}, {to})")))?.into())
        }
        ("distinct", []) => {
            let mut unique: Vec<Value> = Vec::new();
            for item in items.iter().filter(|item| !items.is_empty() || **item != Value::Null) {
                if !unique.contains(item) {
                    unique.push(item.clone());
                }
            }
            Value::List(unique.into())
        }
        ("reverse", []) => Value::list(items.iter().rev().cloned()),
        ("sort", []) => {
            let mut sorted = items.to_vec();
            sorted.sort_by(|left, right| left.order(right).unwrap_or(Ordering::Equal));
            Value::List(sorted.into())
        }
        ("flatten", []) => Value::list(items.iter().flat_map(|item| match item {
            Value::List(inner) => inner.to_vec(),
            other => vec![other.clone()],
        })),
        ("first", []) => Value::Optional(items.first().cloned().map(Into::into)),
        ("last", []) => Value::Optional(items.last().cloned().map(Into::into)),
        ("includes", [item]) => Value::Bool(items.contains(item)),
        _ => return sets(function, items, args),
    }))
}

fn sets(function: &str, items: &[Value], args: &[Value]) -> Result<Option<Value>, EvalError> {
    let [Value::List(others)] = args else { return Ok(None) };
    Ok(match function {
        "containsAll" => Some(Value::Bool(others.iter().all(|other| items.contains(other)))),
        "intersects" => Some(Value::Bool(others.iter().any(|other| items.contains(other)))),
        _ => None,
    })
}

fn position(found: Option<usize>) -> Value {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn sum(items: &[Value]) -> Result<Value, EvalError> {
    let Some(first) = items.first() else { return Ok(Value::Int(0)) };
    items[1..].iter().try_fold(first.clone(), |sum, item| super::functions::call("_+_", None, &[sum, item.clone()]))
}

fn extreme(items: &[Value], wanted: Ordering, name: &str) -> Result<Value, EvalError> {
    let mut found = items.first().ok_or_else(|| EvalError::new(format!("{name} called on empty list")))?;
    for item in &items[1..] {
        let order = item.order(found).ok_or_else(|| super::functions::no_overload(name, &[item, found]))?;
        if order == wanted {
            found = item;
        }
    }
    Ok(found.clone())
}

fn join(items: &[Value], separator: &str) -> Result<String, EvalError> {
    let texts: Option<Vec<&str>> = items
        .iter()
        .map(|item| match item {
            Value::String(text) => Some(&**text),
            _ => None,
        })
        .collect();
    let texts = texts.ok_or_else(|| EvalError::new("join: invalid input: all items must be strings"))?;
    Ok(texts.join(separator))
}
