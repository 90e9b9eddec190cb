//! JSON as Go reads it where extenders answer: the first value counts and the rest is ignored, names of fields are compared
//! without regard to case, and faults are told in the words of Go's encoding/json.

use serde_json::Value;

/// The first value in `text`.
///
/// # Errors
/// It is no JSON, as Go's decoder says it.
pub(super) fn first_value(text: &[u8]) -> Result<Value, String> {
    match serde_json::Deserializer::from_slice(text).into_iter::<Value>().next() {
        Some(Ok(value)) => Ok(value),
        None => Err("EOF".to_owned()),
        Some(Err(error)) if error.is_eof() => Err("unexpected EOF".to_owned()),
        Some(Err(error)) => Err(syntax(text).unwrap_or_else(|| error.to_string())),
    }
}

/// Looks for the end of an object or a list in a text that comes in pieces. Other values end with the text.
#[derive(Debug, Default)]
pub(super) struct ValueEnd {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl ValueEnd {
    /// Whether the value ends in the next piece; the first piece begins with the value.
    pub(super) fn is_in(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|byte| {
            let was_escaped = std::mem::take(&mut self.is_escaped);
            match byte {
                b'\\' if self.in_text => self.is_escaped = !was_escaped,
                b'"' if !was_escaped => self.in_text = !self.in_text,
                b'{' | b'[' if !self.in_text => self.depth += 1,
                b'}' | b']' if !self.in_text => {
                    self.depth = self.depth.saturating_sub(1);
                    return self.depth == 0;
                }
                _ => {}
            }
            false
        })
    }
}

/// Go's words for a text that does not even begin as a value.
fn syntax(text: &[u8]) -> Option<String> {
    let at = text.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let rest = &text[at..];
    for literal in ["null", "true", "false"] {
        if rest[0] == literal.as_bytes()[0] {
            let wrong = rest.iter().zip(literal.bytes()).position(|(got, want)| *got != want)?;
            let want = char::from(literal.as_bytes()[wrong]);
            let got = quoted(rest[wrong]);
            return Some(format!("invalid character {got} in literal {literal} (expecting '{want}')"));
        }
    }
    let begins = |byte: u8| matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9');
    (!begins(rest[0])).then(|| format!("invalid character {} looking for beginning of value", quoted(rest[0])))
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => format!("{:?}", char::from(byte)),
    }
}

/// An object of a Go struct.
pub(super) struct Struct<'a> {
    name: &'static str,
    fields: Option<&'a serde_json::Map<String, Value>>,
}

impl<'a> Struct<'a> {
    /// The value as a struct of this name; null is one without fields.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn new(name: &'static str, value: &'a Value) -> Result<Self, String> {
        match value {
            Value::Object(fields) => Ok(Self { name, fields: Some(fields) }),
            Value::Null => Ok(Self { name, fields: None }),
            other => Err(format!("json: cannot unmarshal {} into Go value of type v1.{name}", kind(other))),
        }
    }

    /// The field's value, if it is there and not null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        let fields = self.fields?;
        let folded = || fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value);
        fields.get(field).or_else(folded).filter(|value| !value.is_null())
    }

    /// A text; empty when it is absent.
    pub(super) fn text(&self, field: &str) -> Result<&'a str, String> {
        match self.get(field) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.mismatch(field, other, "string")),
        }
    }

    /// A whole number; zero when it is absent.
    pub(super) fn int64(&self, field: &str) -> Result<i64, String> {
        match self.get(field) {
            None => Ok(0),
            Some(value) => value.as_i64().ok_or_else(|| {
                let what = if value.is_number() { format!("number {value}") } else { kind(value).to_owned() };
                format!("json: cannot unmarshal {what} into Go struct field {}.{field} of type int64", self.name)
            }),
        }
    }

    /// A list; `None` when it is absent.
    pub(super) fn list(&self, field: &str, go_type: &str) -> Result<Option<&'a Vec<Value>>, String> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.mismatch(field, other, go_type)),
        }
    }

    /// A map's entries; none when it is absent.
    pub(super) fn map(
        &self,
        field: &str,
        go_type: &str,
    ) -> Result<impl Iterator<Item = (&'a str, &'a Value)> + use<'a>, String> {
        let fields = match self.get(field) {
            None => None,
            Some(Value::Object(fields)) => Some(fields),
            Some(other) => return Err(self.mismatch(field, other, go_type)),
        };
        Ok(fields.into_iter().flatten().map(|(name, value)| (name.as_str(), value)))
    }

    /// The complaint about a field's value.
    pub(super) fn mismatch(&self, field: &str, got: &Value, want: &str) -> String {
        format!("json: cannot unmarshal {} into Go struct field {}.{field} of type {want}", kind(got), self.name)
    }
}

/// Go's word for a kind of value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_told_as_go_tells_it() {
        for (text, want) in [
            ("", "EOF"),
            ("  \n", "EOF"),
            ("{\"a\":", "unexpected EOF"),
            ("<html>", "invalid character '<' looking for beginning of value"),
            ("not json", "invalid character 'o' in literal null (expecting 'u')"),
            ("filtered", "invalid character 'i' in literal false (expecting 'a')"),
            ("'x'", r"invalid character '\'' looking for beginning of value"),
        ] {
            assert_eq!(first_value(text.as_bytes()), Err(want.to_owned()), "{text}");
        }
        assert_eq!(first_value(b"[1] and more"), Ok(serde_json::json!([1])), "the rest is ignored");
    }

    #[test]
    fn the_end_of_a_value_is_found_wherever_its_text_is_cut() {
        for (text, ends) in [
            (r#"{"a":["}",{"b\"]":"\\"}]}"#, true),
            ("[]", true),
            (r#"["\\\""]"#, true),
            (r#"{"a":[1,2]"#, false),
            (r#"{"a":"}"#, false),
            ("null", false),
            ("12", false),
            ("", false),
        ] {
            for length in 1..=text.len().max(1) {
                let mut end = ValueEnd::default();
                let pieces: Vec<bool> = text.as_bytes().chunks(length).map(|piece| end.is_in(piece)).collect();
                let first = pieces.iter().position(|is_in| *is_in);
                assert_eq!(first, ends.then(|| pieces.len() - 1), "{text} by {length}");
            }
        }
    }

    #[test]
    fn fields_are_found_whatever_their_case_and_must_have_their_type() {
        let value = serde_json::json!({ "nodenames": ["a"], "ERROR": null, "Score": 1.5, "host": 7 });
        let fields = Struct::new("HostPriority", &value).expect("an object");
        assert_eq!(fields.list("NodeNames", "[]string").map(|list| list.map(Vec::len)), Ok(Some(1)));
        assert_eq!(fields.text("Error"), Ok(""));
        let want = "json: cannot unmarshal number 1.5 into Go struct field HostPriority.Score of type int64";
        assert_eq!(fields.int64("Score"), Err(want.to_owned()));
        let want = "json: cannot unmarshal number into Go struct field HostPriority.Host of type string";
        assert_eq!(fields.text("Host"), Err(want.to_owned()));
        let list = serde_json::json!([]);
        let want = "json: cannot unmarshal array into Go value of type v1.HostPriority";
        assert_eq!(Struct::new("HostPriority", &list).err().as_deref(), Some(want));
    }
}
