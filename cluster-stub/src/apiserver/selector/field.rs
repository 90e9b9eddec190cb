//! Field selectors: `metadata.name=a,spec.nodeName!=b`. Which labels a kind has is the kind's business.
//!
//! Upstream: apimachinery v1.36.2 `pkg/fields/selector.go`.

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// A parsed field selector; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

impl FieldSelector {
    /// Parses a selector. Commas and equals signs in values are escaped by backslashes.
    ///
    /// # Errors
    /// Upstream's text, for a 400.
    pub fn parse(text: &str) -> Result<FieldSelector, String> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let not_understood = || format!("invalid selector: '{text}'; can't understand '{part}'");
            let (field, operator, value) = split_term(part).ok_or_else(not_understood)?;
            let value = unescape(value)?;
            terms.push(Term { field: field.to_string(), value, equal: operator != "!=" });
        }
        terms.sort_by(|a, b| a.field.cmp(&b.field));
        Ok(FieldSelector(terms))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that it names.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| term.field.as_str())
    }

    /// The value that a field must have, if there is only one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.field == field && term.equal).map(|term| term.value.as_str())
    }

    /// Whether fields fit; `get` gives the value of a field, empty when the object has none.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.0.iter().all(|term| (get(&term.field) == term.value) == term.equal)
    }
}

fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if byte == b',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(part: &str) -> Option<(&str, &str, &str)> {
    part.char_indices().find_map(|(at, _)| {
        let operator = ["!=", "==", "="].into_iter().find(|operator| part[at..].starts_with(operator))?;
        Some((&part[..at], operator, &part[at + operator.len()..]))
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => return Err(format!("invalid field selector: invalid escape sequence: \\{next}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_string()),
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {character}")),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str) -> bool {
        let selector = FieldSelector::parse(selector).expect("the selector is right");
        selector.matches(|field| match field {
            "metadata.name" => "a",
            "note" => "x,y",
            _ => "",
        })
    }

    #[test]
    fn terms_compare_values() {
        for fits in ["", "metadata.name=a", "metadata.name==a", "metadata.name!=b", "spec.nodeName=", "note=x\\,y", ","]
        {
            assert!(matches(fits), "{fits}");
        }
        for other in ["metadata.name=b", "metadata.name!=a", "spec.nodeName!="] {
            assert!(!matches(other), "{other}");
        }
    }

    #[test]
    fn a_term_without_operator_is_refused() {
        let error = "invalid selector: 'a=b,c'; can't understand 'c'";
        assert_eq!(FieldSelector::parse("a=b,c"), Err(error.to_string()));
    }

    #[test]
    fn exact_needs_equality() {
        let selector = FieldSelector::parse("a=1,b!=2").expect("the selector is right");
        assert_eq!(selector.exact("a"), Some("1"));
        assert_eq!(selector.exact("b"), None);
        assert_eq!(selector.exact("c"), None);
    }
}
