//! Takes encoded JSON objects apart without building them: where their members are, and nothing about what they mean.
//! Reads compact JSON only, which is what the API server stores; of anything else the answer is `None`.

use std::ops::Range;

/// One member of an encoded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'j> {
    /// The key as it is encoded, without its quotes.
    pub key: &'j [u8],
    /// The value as it is encoded.
    pub value: &'j [u8],
}

/// The members of the compact JSON object that `json` is, in their order. `None` when it is none, as far as the way to its
/// members shows: the inside of a value is not looked at more closely than it takes to find its end.
///
/// ```
/// use cluster_stub_wire::scan::members;
///
/// let found = members(br#"{"a":{"x":[1,"}"]},"b":true}"#).unwrap();
/// assert_eq!((found[0].key, found[0].value), (&b"a"[..], &br#"{"x":[1,"}"]}"#[..]));
/// assert_eq!((found[1].key, found[1].value), (&b"b"[..], &b"true"[..]));
/// assert!(members(b"{ }").is_none() && members(b"[]").is_none());
/// ```
#[must_use]
pub fn members(json: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut found = Vec::with_capacity(16);
    let end = walk(json, |member| {
        found.push(member);
        true
    })?;
    (end == json.len()).then_some(found)
}

/// The value of a member of the compact JSON object that `json` begins with; what stands behind it is not looked at.
/// `None` when there is no such member.
///
/// ```
/// use cluster_stub_wire::scan::member;
///
/// assert_eq!(member(br#"{"a":1,"b":"x"}"#, b"b"), Some(&b"\"x\""[..]));
/// assert_eq!(member(br#"{"a":1}"#, b"b"), None);
/// ```
#[must_use]
pub fn member<'j>(json: &'j [u8], key: &[u8]) -> Option<&'j [u8]> {
    let mut found = None;
    walk(json, |member| {
        if member.key == key {
            found = Some(member.value);
        }
        found.is_none()
    });
    found
}

/// The same as [`member`], as the place of the value in `json`.
#[must_use]
pub fn place(json: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let value = member(json, key)?;
    // The value is a part of `json`.
    let start = value.as_ptr().addr() - json.as_ptr().addr();
    Some(start..start + value.len())
}

/// The values at ways of two members, such as `spec.nodeName`, of the compact JSON object that `json` begins with: one look at
/// the object finds them all.
///
/// ```
/// use cluster_stub_wire::scan::at_ways;
///
/// let json = br#"{"metadata":{"name":"a"},"spec":{"nodeName":"n","x":{"y":1}}}"#;
/// assert_eq!(at_ways(json, &["spec.nodeName", "status.phase", "spec.x"]), [Some(&b"\"n\""[..]), None, Some(b"{\"y\":1}")]);
/// ```
#[must_use]
pub fn at_ways<'j>(json: &'j [u8], ways: &[&str]) -> Vec<Option<&'j [u8]>> {
    let ways: Vec<(&[u8], &[u8])> = ways
        .iter()
        .map(|way| way.split_once('.').unwrap_or((way, "")))
        .map(|(outer, inner)| (outer.as_bytes(), inner.as_bytes()))
        .collect();
    let mut found = vec![None; ways.len()];
    walk(json, |outer| {
        if ways.iter().any(|way| way.0 == outer.key) {
            walk(outer.value, |inner| {
                for (way, found) in ways.iter().zip(&mut found) {
                    if *way == (outer.key, inner.key) {
                        *found = Some(inner.value);
                    }
                }
                true
            });
        }
        true
    });
    found
}

/// Hands the members to `take` until it has enough; gives the place behind the object, or of the last member's end.
fn walk<'j>(json: &'j [u8], mut take: impl FnMut(Member<'j>) -> bool) -> Option<usize> {
    if *json.first()? != b'{' {
        return None;
    }
    let mut at = 1;
    if *json.get(at)? == b'}' {
        return Some(at + 1);
    }
    loop {
        if *json.get(at)? != b'"' {
            return None;
        }
        let key_end = text_end(json, at)?;
        if *json.get(key_end)? != b':' {
            return None;
        }
        let value_end = value_end(json, key_end + 1)?;
        if !take(Member { key: &json[at + 1..key_end - 1], value: &json[key_end + 1..value_end] }) {
            return Some(value_end);
        }
        match *json.get(value_end)? {
            b',' => at = value_end + 1,
            b'}' => return Some(value_end + 1),
            _ => return None,
        }
    }
}

/// The place behind the value at `at`.
fn value_end(json: &[u8], at: usize) -> Option<usize> {
    match *json.get(at)? {
        b'"' => text_end(json, at),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match *json.get(at)? {
                    b'"' => {
                        at = text_end(json, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let length = json[at..].iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?;
            (length > 0).then_some(at + length)
        }
    }
}

/// The place behind the text that begins with the quote at `at`.
fn text_end(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match *json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[\\\\\"{}\\[\\],:]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_are_those_of_the_object(value in any_value()) {
            let text = value.to_string();
            let found = members(text.as_bytes());
            match value.as_object() {
                None => prop_assert!(found.is_none()),
                Some(object) => {
                    let found = found.expect("an object");
                    prop_assert_eq!(found.len(), object.len());
                    for (found, (key, value)) in found.iter().zip(object) {
                        let quoted = Value::from(key.as_str()).to_string();
                        prop_assert_eq!(found.key, &quoted.as_bytes()[1..quoted.len() - 1]);
                        let text = value.to_string();
                        prop_assert_eq!(found.value, text.as_bytes());
                        let alone = format!("{{{quoted}:{text}}}");
                        prop_assert_eq!(member(alone.as_bytes(), found.key), Some(found.value));
                        let place = place(alone.as_bytes(), found.key).expect("it is there");
                        prop_assert_eq!(&alone.as_bytes()[place], found.value);
                    }
                }
            }
        }

        #[test]
        fn what_is_cut_off_is_no_object(value in any_value(), cut in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let cut = cut.index(text.len());
            prop_assert!(members(&text.as_bytes()[..cut]).is_none());
        }

        #[test]
        fn nothing_makes_it_fail(bytes in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\ a1"[..]), 0..40)) {
            let _ = members(&bytes);
            let _ = member(&bytes, b"a");
        }
    }
}
