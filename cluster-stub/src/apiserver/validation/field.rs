//! Field paths and field errors with the texts that clients know. No rule about any kind lives here.

use std::fmt;

use serde_json::Value;

/// The way from the root of an object to one of its fields. Building one allocates nothing: each step borrows the step
/// before it, and the text is made only when an error needs it.
///
/// Upstream: apimachinery `field.Path` (v1.36.2 `util/validation/field/path.go`).
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A path of one name, such as `spec`.
    pub const fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Name(name) }
    }

    /// The path of a member: `spec` → `spec.name`.
    pub const fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// The path of a list item: `spec.ports` → `spec.ports[0]`.
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// The path of a map entry: `limits` → `limits[cpu]`.
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.write(out)?;
        }
        match self.step {
            Step::Name(name) if self.parent.is_some() => write!(out, ".{name}"),
            Step::Name(name) => out.write_str(name),
            Step::Index(index) => write!(out, "[{index}]"),
            Step::Key(key) => write!(out, "[{key}]"),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(out)
    }
}

/// What is wrong with a field. Upstream: `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A value that had to exist does not.
    NotFound,
    /// A value is missing.
    Required,
    /// A value occurs twice where it must be unique.
    Duplicate,
    /// A value is malformed or out of range.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A well-formed value is not allowed here.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// A value is of the wrong JSON type.
    TypeInvalid,
    /// A list has too few items.
    TooFew,
    /// The server failed while it was checking.
    Internal,
}

impl ErrorKind {
    /// The words that open the message.
    pub const fn title(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "Not found",
            ErrorKind::Required => "Required value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
            ErrorKind::TooFew => "Too few",
            ErrorKind::Internal => "Internal error",
        }
    }

    /// The `reason` of the entry in a Status' `details.causes`.
    pub const fn cause(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "FieldValueNotFound",
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TooFew => "FieldValueTooFew",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::Internal => "InternalError",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, ErrorKind::Required | ErrorKind::Forbidden | ErrorKind::TooLong | ErrorKind::Internal)
    }
}

/// One fault of one field. `Display` gives `field: message`, as in the message of a 422 Status.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}: {}", self.body())]
pub struct FieldError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// The field, e.g. `spec.containers[0].name`.
    pub path: String,
    /// The offending value; `None` where the message shows none.
    pub value: Option<Value>,
    /// The explanation after the value; may be empty.
    pub detail: String,
    /// The text of the value where it is not its JSON (see [`FieldError::showing`]).
    pub shown: Option<String>,
}

impl FieldError {
    fn new(kind: ErrorKind, path: &Path<'_>, value: Option<Value>, detail: impl Into<String>) -> FieldError {
        FieldError { kind, path: path.to_string(), value, detail: detail.into(), shown: None }
    }

    /// `Not found: <value>`.
    pub fn not_found(path: &Path<'_>, value: impl Into<Value>) -> FieldError {
        FieldError::new(ErrorKind::NotFound, path, Some(value.into()), "")
    }

    /// `Required value: <detail>`.
    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Required, path, None, detail)
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(path: &Path<'_>, value: impl Into<Value>) -> FieldError {
        FieldError::new(ErrorKind::Duplicate, path, Some(value.into()), "")
    }

    /// `Invalid value: <value>: <detail>`.
    pub fn invalid(path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Invalid, path, Some(value.into()), detail)
    }

    /// `Invalid value: <value>: <detail>` for a value of the wrong JSON type.
    pub fn type_invalid(path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    /// `Unsupported value: <value>: supported values: …`. The caller gives the values in the order that upstream prints:
    /// sorted where upstream keeps a set, as written where it keeps a list.
    pub fn not_supported(path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) -> FieldError {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        FieldError::new(ErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    /// `Forbidden: <detail>`.
    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Forbidden, path, None, detail)
    }

    /// `Too long: may not be more than <max> bytes`.
    pub fn too_long(path: &Path<'_>, max_bytes: usize) -> FieldError {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        FieldError::new(ErrorKind::TooLong, path, None, format!("may not be more than {max_bytes} {unit}"))
    }

    /// `Too long: may not be more than <max> characters`.
    pub fn too_long_characters(path: &Path<'_>, max_characters: usize) -> FieldError {
        let unit = if max_characters == 1 { "character" } else { "characters" };
        FieldError::new(ErrorKind::TooLong, path, None, format!("may not be more than {max_characters} {unit}"))
    }

    /// `Too many: <actual>: must have at most <max> items`.
    pub fn too_many(path: &Path<'_>, actual: usize, max: usize) -> FieldError {
        let unit = if max == 1 { "item" } else { "items" };
        FieldError::new(ErrorKind::TooMany, path, Some(actual.into()), format!("must have at most {max} {unit}"))
    }

    /// `Internal error: <detail>`.
    pub fn internal(path: &Path<'_>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Internal, path, None, detail)
    }

    /// Shows this text as the value: upstream prints some values from internal types, whose members have Go's names and order.
    #[must_use]
    pub fn showing(mut self, text: String) -> FieldError {
        self.shown = Some(text);
        self
    }

    /// The message without the field, as in a Status' `details.causes[].message`.
    pub fn body(&self) -> String {
        let mut text = String::from(self.kind.title());
        if let (true, Some(value)) = (self.kind.shows_value(), &self.value) {
            text.push_str(": ");
            match (&self.shown, value) {
                (Some(shown), _) => text.push_str(shown),
                (None, Value::String(value)) => text.push_str(&quote(value)),
                (None, other) => text.push_str(&go_json(other)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// A Go struct as JSON: members in the order given, each with the JSON text of its value.
pub fn go_struct(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// A text in double quotes with Go's escapes (`%q`, `strconv.Quote`).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            other if (other as u32) < 0x20 || other as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", other as u32));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// JSON as Go's encoder writes it: compact, with `<`, `>` and `&` escaped.
pub fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_joins_names_with_dots_and_subscripts_with_brackets() {
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let limits = first.child("limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[0].limits[cpu]");
        assert_eq!(spec.to_string(), "spec");
    }

    #[test]
    fn message_shows_the_value_only_where_the_kind_has_one() {
        let path = Path::root("spec");
        let cases = [
            (FieldError::required(&path, ""), "spec: Required value"),
            (FieldError::required(&path, "say it"), "spec: Required value: say it"),
            (FieldError::invalid(&path, "a\"b", "no quotes"), "spec: Invalid value: \"a\\\"b\": no quotes"),
            (FieldError::invalid(&path, -1, ""), "spec: Invalid value: -1"),
            (FieldError::invalid(&path, json!({"a": ["<"]}), "bad"), "spec: Invalid value: {\"a\":[\"\\u003c\"]}: bad"),
            (
                FieldError::not_supported(&path, "x", &["a", "b"]),
                "spec: Unsupported value: \"x\": supported values: \"a\", \"b\"",
            ),
            (FieldError::forbidden(&path, "never"), "spec: Forbidden: never"),
            (FieldError::duplicate(&path, 3), "spec: Duplicate value: 3"),
            (FieldError::not_found(&path, "v"), "spec: Not found: \"v\""),
            (FieldError::too_long(&path, 1), "spec: Too long: may not be more than 1 byte"),
            (FieldError::too_many(&path, 5, 4), "spec: Too many: 5: must have at most 4 items"),
        ];
        for (error, want) in cases {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn quote_uses_go_escapes() {
        assert_eq!(quote("a\n\u{1}é"), "\"a\\n\\x01é\"");
    }
}
