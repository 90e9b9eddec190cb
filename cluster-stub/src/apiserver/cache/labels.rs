//! Reads `metadata.labels` out of encoded bytes without building the object.

use cluster_stub_wire::scan::{member, members};
use serde_json::Value;

use crate::apiserver::codec::stored;

/// Labels in the order of their keys.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// The labels of an encoded object; empty when it has none or is no object. What comes behind them is not looked at.
pub fn read(json: &[u8]) -> Labels {
    let encoded = member(json, b"metadata").and_then(|metadata| member(metadata, b"labels"));
    let Some(members) = encoded.and_then(members) else {
        return Labels::default();
    };
    let labels = members.iter().filter_map(|label| Some((text(label.key)?, text(unquoted(label.value)?)?)));
    let mut labels: Vec<(Box<str>, Box<str>)> = labels.collect();
    labels.sort();
    labels.into_boxed_slice()
}

/// A text without its quotes; `None` for another value.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// The text that stands encoded between two quotes.
fn text(encoded: &[u8]) -> Option<Box<str>> {
    if !encoded.contains(&b'\\') {
        return std::str::from_utf8(encoded).ok().map(Box::from);
    }
    match stored::parse(&[b"\"", encoded, b"\""].concat()) {
        Ok(Value::String(text)) => Some(text.into_boxed_str()),
        _ => None,
    }
}

/// The value of a label.
pub fn get<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.binary_search_by(|(label, _)| label.as_ref().cmp(key)).ok().map(|at| labels[at].1.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_where_there_are_any() {
        let labels =
            read(br#"{"kind":"A","metadata":{"name":"x","labels":{"b":"2","a":"1"}},"spec":{"labels":{"c":"3"}}}"#);
        assert_eq!(get(&labels, "a"), Some("1"));
        assert_eq!(get(&labels, "b"), Some("2"));
        assert_eq!(get(&labels, "c"), None);
        assert!(read(br#"{"metadata":{"name":"x"}}"#).is_empty());
        assert!(read(b"[]").is_empty());
        let escaped = read(br#"{"metadata":{"labels":{"a\"":"\u00e4\\"}}}"#);
        assert_eq!(get(&escaped, "a\""), Some("\u{e4}\\"));
    }
}
