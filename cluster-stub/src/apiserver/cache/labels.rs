//! Reads `metadata.labels` out of encoded bytes without building the object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// Labels in the order of their keys.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// The labels of an encoded object; empty when it has none or is no object. What comes behind them is not looked at.
pub fn read(json: &[u8]) -> Labels {
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let seed = At { way: &["metadata", "labels"], found: &mut found };
    // The reading ends with an error as soon as the labels are found, or their place has passed.
    let _ = seed.deserialize(&mut deserializer);
    let mut labels = found.unwrap_or_default();
    labels.sort();
    labels.into_boxed_slice()
}

/// The value of a label.
pub fn get<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.binary_search_by(|(label, _)| label.as_ref().cmp(key)).ok().map(|at| labels[at].1.as_ref())
}

struct At<'a> {
    way: &'a [&'a str],
    found: &'a mut Option<Vec<(Box<str>, Box<str>)>>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.way.split_first() else {
            let mut labels = Vec::new();
            while let Some(label) = map.next_entry()? {
                labels.push(label);
            }
            *self.found = Some(labels);
            return Ok(());
        };
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == *step {
                map.next_value_seed(At { way: rest, found: self.found })?;
                return Err(A::Error::custom("the rest is not wanted"));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
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
    }
}
