//! An encoded object with a few texts cut out: what objects that are alike have in common. Filling texts in gives the bytes
//! that encoding the object would; which texts those are is the caller's business.

use std::ops::Range;

use crate::scan;

/// Encoded bytes with gaps. Each gap is for one of a few texts; one text may have several gaps.
///
/// ```
/// use cluster_stub_wire::codec::stencil::Stencil;
///
/// let stencil = Stencil::cut(br#"{"name":"MARK-0","uid":"MARK-1"}"#, &["MARK-0", "MARK-1"]);
/// assert_eq!(stencil.fill(&["a", "7"]), br#"{"name":"a","uid":"7"}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stencil {
    bytes: Box<[u8]>,
    /// Where the gaps are in the bytes, in order, and the index of the text that belongs there.
    gaps: Box<[(usize, usize)]>,
}

impl Stencil {
    /// Cuts every occurrence of the marks out. A mark has to be a text that is encoded as it is and occurs nowhere by chance,
    /// and none may be a part of another.
    #[must_use]
    pub fn cut(encoded: &[u8], marks: &[&str]) -> Stencil {
        let mut bytes = Vec::with_capacity(encoded.len());
        let mut gaps = Vec::new();
        let mut at = 0;
        while let Some(rest) = encoded.get(at..).filter(|rest| !rest.is_empty()) {
            // Marks stand for whole texts, so they begin behind a quote.
            let mark = bytes.last() == Some(&b'"');
            let found = marks.iter().position(|mark| rest.starts_with(mark.as_bytes())).filter(|_| mark);
            match found {
                Some(index) => {
                    gaps.push((bytes.len(), index));
                    at += marks[index].len();
                }
                None => {
                    bytes.push(rest[0]);
                    at += 1;
                }
            }
        }
        Stencil { bytes: bytes.into(), gaps: gaps.into() }
    }

    /// The bytes with these texts in the gaps. They have to be such that are encoded as they are.
    ///
    /// # Panics
    /// A mark that was cut out has no text.
    #[must_use]
    pub fn fill(&self, texts: &[&str]) -> Vec<u8> {
        let length: usize = self.gaps.iter().map(|(_, index)| texts[*index].len()).sum();
        let mut out = Vec::with_capacity(self.bytes.len() + length);
        let mut from = 0;
        for (at, index) in &self.gaps {
            out.extend_from_slice(&self.bytes[from..*at]);
            out.extend_from_slice(texts[*index].as_bytes());
            from = *at;
        }
        out.extend_from_slice(&self.bytes[from..]);
        out
    }

    /// Whether `bytes` are what filling these texts in gives.
    #[must_use]
    pub fn fits(&self, texts: &[&str], bytes: &[u8]) -> bool {
        self.fill(texts) == bytes
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.gaps)
    }
}

/// Where the text of `metadata.name` stands in an encoded object, without its quotes: the first one, in compact JSON. `None`
/// when there is no such text, or one with escapes.
///
/// ```
/// use cluster_stub_wire::codec::stencil::name_of;
///
/// let json = br#"{"kind":"Pod","metadata":{"name":"web"},"spec":{"name":"x"}}"#;
/// assert_eq!(name_of(json).map(|place| &json[place]), Some(&b"web"[..]));
/// assert_eq!(name_of(br#"{"metadata":{"generateName":"web-"}}"#), None);
/// ```
#[must_use]
pub fn name_of(json: &[u8]) -> Option<Range<usize>> {
    let metadata = scan::place(json, b"metadata")?;
    let name = scan::place(&json[metadata.clone()], b"name")?;
    let place = metadata.start + name.start..metadata.start + name.end;
    let text = json[place.clone()].strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!text.contains(&b'\\')).then_some(place.start + 1..place.end - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::codec::stored;

    const MARKS: [&str; 2] = ["5a0c-mark-0", "5a0c-mark-1"];

    fn put(value: &Value, texts: [&str; 2]) -> Value {
        match value {
            Value::String(text) => match MARKS.iter().position(|mark| mark == text) {
                Some(index) => texts[index].into(),
                None => value.clone(),
            },
            Value::Array(items) => items.iter().map(|item| put(item, texts)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| (key.clone(), put(member, texts)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\é]{0,6}".prop_map(Value::from),
            Just(Value::from(MARKS[0])),
            Just(Value::from(MARKS[1])),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("kind|metadata|name|[a-z\"]{0,3}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_filled_in_is_what_would_be_encoded(value in any_value(), a in "[a-z0-9.-]{0,9}", b in "[a-z0-9.-]{0,9}") {
            let stencil = Stencil::cut(&stored::encode(&value), &MARKS);
            let want = stored::encode(&put(&value, [&a, &b]));
            prop_assert!(stencil.fits(&[&a, &b], &want));
            prop_assert_eq!(stencil.fill(&[&a, &b]), want);
        }

        #[test]
        fn the_name_is_where_it_is_read(value in any_value()) {
            let text = value.to_string();
            let found = name_of(text.as_bytes()).map(|place| text[place].to_owned());
            let name = value["metadata"]["name"].as_str().filter(|name| !name.contains(['"', '\\']));
            prop_assert_eq!(found.as_deref(), name);
        }

        #[test]
        fn nothing_makes_it_fail(bytes in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\ metadataname"[..]), 0..60)) {
            let _ = name_of(&bytes);
            let _ = Stencil::cut(&bytes, &["a"]).fill(&["b"]);
        }
    }

    #[test]
    fn only_whole_texts_are_gaps() {
        let stencil = Stencil::cut(&stored::encode(&json!({"a": "x5a0c-mark-0", "b": MARKS[0]})), &MARKS);
        assert_eq!(stencil.fill(&["n", "u"]), br#"{"a":"x5a0c-mark-0","b":"n"}"#);
        assert!(stencil.size() > 20);
    }
}
