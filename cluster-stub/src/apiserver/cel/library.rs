//! What Kubernetes adds to CEL: quantities, IP addresses, URLs, optionals, the authorizer.
//!
//! Upstream: apiserver v1.36.2 `pkg/cel/library/`.

use std::net::IpAddr;
use std::sync::Arc;

use super::authorizer::Check;
use super::url::Url;
use super::{EvalError, Value};
use crate::apiserver::validation::ip::masked;
use crate::apiserver::validation::quantity::Quantity;

/// Calls a function or method; `None` if there is none for these values.
pub(super) fn call(function: &str, target: Option<&Value>, args: &[Value]) -> Result<Option<Value>, EvalError> {
    match (target, args) {
        (None, args) => global(function, args),
        (Some(Value::Quantity(quantity)), args) => of_quantity(function, *quantity, args),
        (Some(Value::Ip(address)), args) => Ok(of_ip(function, *address, args)),
        (Some(Value::Cidr(address, length)), args) => of_cidr(function, *address, *length, args),
        (Some(Value::Url(url)), []) => Ok(of_url(function, url)),
        (Some(Value::Authorizer(check)), args) => Ok(of_authorizer(function, check, args)),
        (Some(Value::Decision(answer)), []) => Ok(match function {
            "allowed" => Some(Value::Bool(answer.allowed)),
            "reason" => Some(Value::text(answer.reason.as_str())),
            "errored" => Some(Value::Bool(false)),
            "error" => Some(Value::text("")),
            _ => None,
        }),
        _ => Ok(None),
    }
}

fn global(function: &str, args: &[Value]) -> Result<Option<Value>, EvalError> {
    Ok(Some(match (function, args) {
        ("quantity", [Value::String(text)]) => {
            Value::Quantity(Quantity::parse(text).map_err(|error| EvalError::new(error.to_string()))?)
        }
        ("isQuantity", [Value::String(text)]) => Value::Bool(Quantity::parse(text).is_ok()),
        ("ip", [Value::String(text)]) => Value::Ip(ip(text)?),
        ("isIP", [Value::String(text)]) => Value::Bool(ip(text).is_ok()),
        ("ip.isCanonical", [Value::String(text)]) => Value::Bool(ip(text)?.to_string() == **text),
        ("cidr", [Value::String(text)]) => {
            let (address, length) = cidr(text)?;
            Value::Cidr(address, length)
        }
        ("isCIDR", [Value::String(text)]) => Value::Bool(cidr(text).is_ok()),
        ("url", [Value::String(text)]) => {
            let url = Url::parse(text).ok_or_else(|| {
                EvalError::new(format!(
                    "URL parse error during conversion from string: parse \"{text}\": invalid URI for request"
                ))
            })?;
            Value::Url(Arc::new(url))
        }
        ("isURL", [Value::String(text)]) => Value::Bool(Url::parse(text).is_some()),
        ("optional.of", [value]) => Value::Optional(Some(Arc::new(value.clone()))),
        ("optional.none", []) => Value::Optional(None),
        ("optional.ofNonZeroValue", [value]) => {
            Value::Optional(Some(value).filter(|value| !is_zero(value)).map(|value| Arc::new(value.clone())))
        }
        ("math.greatest" | "math.least", args) => return extreme(function, args),
        ("math.abs", [Value::Int(value)]) => Value::Int(value.saturating_abs()),
        _ => return Ok(None),
    }))
}

fn extreme(function: &str, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let list = match args {
        [list @ Value::List(_)] => list.clone(),
        args => Value::list(args.iter().cloned()),
    };
    super::lists::method(if function == "math.least" { "min" } else { "max" }, &list, &[])
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(0) | Value::Uint(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    }
}

fn of_quantity(function: &str, quantity: Quantity, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let whole = || quantity.is_whole();
    Ok(Some(match (function, args) {
        ("sign", []) => Value::Int(quantity.sign().into()),
        ("isInteger", []) => Value::Bool(whole()),
        ("asInteger", []) if whole() => Value::Int(quantity.value()),
        ("asInteger", []) => return Err(EvalError::new("cannot convert value to integer")),
        ("asApproximateFloat", []) if whole() => Value::Double(quantity.value() as f64),
        ("asApproximateFloat", []) => Value::Double(quantity.milli_value() as f64 / 1000.0),
        ("isGreaterThan", [Value::Quantity(other)]) => Value::Bool(quantity > *other),
        ("isLessThan", [Value::Quantity(other)]) => Value::Bool(quantity < *other),
        ("compareTo", [Value::Quantity(other)]) => Value::Int(quantity.cmp(other) as i64),
        ("add", [Value::Quantity(other)]) => Value::Quantity(quantity.plus(*other)),
        ("sub", [Value::Quantity(other)]) => Value::Quantity(quantity.minus(*other)),
        ("add", [Value::Int(other)]) => Value::Quantity(quantity.plus(Quantity::of(*other))),
        ("sub", [Value::Int(other)]) => Value::Quantity(quantity.minus(Quantity::of(*other))),
        _ => return Ok(None),
    }))
}

/// Strict: no leading zeros, no zones, no IPv4 inside IPv6.
fn ip(text: &str) -> Result<IpAddr, EvalError> {
    let parsed = text.parse::<IpAddr>().ok();
    let plain = parsed.filter(|address| !matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()));
    plain.ok_or_else(|| {
        EvalError::new(format!("IP Address {text:?} parse error during conversion from string: unable to parse IP"))
    })
}

fn cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let address = ip(address).ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    });
    parsed.ok_or_else(|| EvalError::new(format!("network address parse error during conversion from string: {text:?}")))
}

fn of_ip(function: &str, address: IpAddr, args: &[Value]) -> Option<Value> {
    if !args.is_empty() {
        return None;
    }
    Some(match function {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }),
        "isLinkLocalUnicast" => Value::Bool(match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }),
        "isGlobalUnicast" => Value::Bool(match address {
            IpAddr::V4(v4) => {
                !(v4.is_unspecified()
                    || v4.is_loopback()
                    || v4.is_multicast()
                    || v4.is_link_local()
                    || v4.is_broadcast())
            }
            IpAddr::V6(v6) => {
                !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local())
            }
        }),
        _ => return None,
    })
}

fn of_cidr(function: &str, address: IpAddr, length: u8, args: &[Value]) -> Result<Option<Value>, EvalError> {
    let holds = |other: IpAddr, at_least: u8| {
        other.is_ipv4() == address.is_ipv4() && at_least >= length && masked(other, length) == masked(address, length)
    };
    Ok(Some(match (function, args) {
        ("ip", []) => Value::Ip(address),
        ("prefixLength", []) => Value::Int(length.into()),
        ("masked", []) => Value::Cidr(masked(address, length), length),
        ("containsIP", [Value::Ip(other)]) => Value::Bool(holds(*other, 128)),
        ("containsIP", [Value::String(text)]) => Value::Bool(holds(ip(text)?, 128)),
        ("containsCIDR", [Value::Cidr(other, prefix)]) => Value::Bool(holds(*other, *prefix)),
        ("containsCIDR", [Value::String(text)]) => {
            let (other, prefix) = cidr(text)?;
            Value::Bool(holds(other, prefix))
        }
        _ => return Ok(None),
    }))
}

fn of_url(function: &str, url: &Url) -> Option<Value> {
    Some(match function {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.path.as_str()),
        "getQuery" => Value::map(url.query.iter().map(|(name, values)| {
            (name.as_str(), Value::list(values.iter().map(|value| Value::text(value.as_str()))))
        })),
        _ => return None,
    })
}

fn of_authorizer(function: &str, check: &Check, args: &[Value]) -> Option<Value> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.to_string()),
        _ => None,
    };
    let mut next = check.clone();
    match (function, args) {
        ("check", [verb]) => return Some(Value::Decision(Arc::new(check.ask(&text(verb)?)))),
        ("serviceAccount", [namespace, name]) => next = check.for_service_account(&text(namespace)?, &text(name)?),
        ("path", [path]) => next.path = Some(text(path)?),
        ("group", [group]) => next.group = text(group)?,
        ("resource", [resource]) => next.resource = text(resource)?,
        ("subresource", [subresource]) => next.subresource = text(subresource)?,
        ("namespace", [namespace]) => next.namespace = text(namespace)?,
        ("name", [name]) => next.name = text(name)?,
        ("fieldSelector", [selector]) => next.field_selector = text(selector)?,
        _ => return None,
    }
    Some(Value::Authorizer(Arc::new(next)))
}
