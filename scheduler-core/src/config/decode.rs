//! Strict reading of a JSON value into typed fields: the path of every error, no unknown field left over. No defaults here.

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::error::{ConfigError, FieldPath, nearest};

/// Readers return the error as it is: it names its own path.
pub(super) type Decoded<T> = Result<T, ConfigError>;

/// One JSON object that is being read. `null` and an absent object read as an object without fields.
pub(super) struct Fields<'v> {
    path: FieldPath,
    map: Option<&'v Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    pub(super) fn new(value: &'v Value, path: FieldPath) -> Decoded<Self> {
        let map = match value {
            Value::Object(map) => Some(map),
            Value::Null => None,
            other => return Err(wrong_type(path, other, "an object")),
        };
        Ok(Self { path, map, known: Vec::new() })
    }

    pub(super) fn path(&self) -> &FieldPath {
        &self.path
    }

    /// The value of `name` unless it is absent or null; from now on `name` is a known field.
    pub(super) fn raw(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// Reads `name` with `read` if it is there.
    pub(super) fn get<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&'v Value, FieldPath) -> Decoded<T>,
    ) -> Decoded<Option<T>> {
        let path = self.path.child(name);
        self.raw(name).map(|value| read(value, path)).transpose()
    }

    /// Reads each element of the list `name` with `read`; `None` when it is absent.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&'v Value, FieldPath) -> Decoded<T>,
    ) -> Decoded<Option<Vec<T>>> {
        self.get(name, |value, path| match value {
            Value::Array(items) => items.iter().enumerate().map(|(i, item)| read(item, path.index(i))).collect(),
            other => Err(wrong_type(path, other, "a list")),
        })
    }

    /// Refuses every field that was not asked for.
    pub(super) fn finish(self) -> Decoded<()> {
        let unknown = self.map.into_iter().flat_map(Map::keys).filter(|key| !self.known.contains(&key.as_str()));
        let errors = unknown.map(|key| ConfigError::UnknownField {
            path: self.path.child(key),
            nearest: nearest(key, self.known.iter().copied()),
        });
        ConfigError::from_all(errors.collect())
    }
}

pub(super) fn string(value: &Value, path: FieldPath) -> Decoded<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_type(path, value, "a string"))
}

pub(super) fn boolean(value: &Value, path: FieldPath) -> Decoded<bool> {
    value.as_bool().ok_or_else(|| wrong_type(path, value, "true or false"))
}

pub(super) fn int32(value: &Value, path: FieldPath) -> Decoded<i32> {
    integer(value).and_then(|n| i32::try_from(n).ok()).ok_or_else(|| wrong_type(path, value, "a 32-bit integer"))
}

pub(super) fn int64(value: &Value, path: FieldPath) -> Decoded<i64> {
    integer(value).ok_or_else(|| wrong_type(path, value, "a 64-bit integer"))
}

pub(super) fn float32(value: &Value, path: FieldPath) -> Decoded<f32> {
    let narrow = value.as_f64().map(|wide| wide as f32).filter(|narrow| narrow.is_finite());
    narrow.ok_or_else(|| wrong_type(path, value, "a 32-bit floating point number"))
}

/// A whole number; YAML's `5.0` counts, as it does after upstream's conversion to JSON.
fn integer(value: &Value) -> Option<i64> {
    let whole = |float: f64| (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64);
    value.as_i64().or_else(|| if value.is_f64() { value.as_f64().and_then(whole) } else { None })
}

/// Base64 text to bytes is left to the reader of the certificate: the text is kept.
pub(super) fn duration(value: &Value, path: FieldPath) -> Decoded<SignedDuration> {
    let parsed = value.as_str().and_then(parse_duration);
    parsed.ok_or_else(|| wrong_type(path, value, "a duration such as \"10s\" or \"1h30m\""))
}

/// Go's duration text: signed decimal numbers with a unit each, `0` alone without one.
pub(super) fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total_nanos: i128 = 0;
    while !rest.is_empty() {
        let n_number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(n_number);
        let n_unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(n_unit);
        let unit_nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.into() };
        total_nanos += whole * unit_nanos;
        let mut scale = unit_nanos;
        for digit in fraction.bytes() {
            scale /= 10;
            total_nanos += scale * i128::from(digit - b'0');
        }
        rest = tail;
    }
    let nanos = i64::try_from(if negative { -total_nanos } else { total_nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

pub(super) fn wrong_type(path: FieldPath, value: &Value, expected: &'static str) -> ConfigError {
    let mut got = value.to_string();
    if got.chars().count() > 60 {
        got = got.chars().take(60).chain("...".chars()).collect();
    }
    ConfigError::WrongType { path, got, expected }
}

#[cfg(test)]
mod tests {
    use super::{Fields, parse_duration};
    use crate::config::error::FieldPath;
    use serde_json::json;

    #[test]
    fn durations_read_as_go_reads_them() {
        let cases = [
            ("15s", Some(15_000_000_000)),
            ("1h15m30.5s", Some(4_530_500_000_000)),
            ("-1.5h", Some(-5_400_000_000_000)),
            ("100ms", Some(100_000_000)),
            ("1µs", Some(1_000)),
            ("0", Some(0)),
            (".5s", Some(500_000_000)),
            ("", None),
            ("10", None),
            ("s", None),
            ("1d", None),
            ("1..5s", None),
            ("99999999999999h", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_duration(text).map(|d| d.as_nanos()), want, "{text:?}");
        }
    }

    #[test]
    fn leftover_fields_are_refused_with_path_and_neighbour() {
        let value = json!({"weight": 1, "nam": "x"});
        let mut fields = Fields::new(&value, FieldPath::root().child("resources").index(0)).unwrap();
        assert!(fields.raw("weight").is_some());
        assert!(fields.raw("name").is_none());
        let error = fields.finish().unwrap_err();
        assert_eq!(error.to_string(), "resources[0].nam: unknown field, did you mean \"name\"?");
    }
}
