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

/// The texts at the ends of `ways`, each a member of a member (`status`, `phase`) of the compact JSON object that `json` is, or
/// one of its own members (an empty name and `note`), as places in `json`: an empty one where there is no such text, `None`
/// where it is written with escapes. `None` for all when `json` is no such object.
///
/// ```
/// use cluster_stub_wire::scan::texts;
///
/// let json = br#"{"a":{"x":1,"y":"one"},"b":{"z":"t\u0077o"}}"#;
/// let found = texts(json, &[("a", "y"), ("a", "x"), ("b", "z"), ("c", "a")]).unwrap();
/// assert_eq!(&json[found[0].clone().unwrap()], b"one");
/// assert!(found[1].clone().unwrap().is_empty() && found[2].is_none() && found[3].clone().unwrap().is_empty());
/// assert_eq!(texts(br#"{"a":{},"note":"x"}"#, &[("", "note")]), Some(vec![Some(16..17)]));
/// ```
#[must_use]
pub fn texts(json: &[u8], ways: &[(&str, &str)]) -> Option<Vec<Option<Range<usize>>>> {
    let mut found = vec![Some(0..0); ways.len()];
    let mut take = |section: &[u8], name: &[u8], at: usize| {
        let end = value_end(json, at)?;
        let way = |(first, second): &(&str, &str)| first.as_bytes() == section && second.as_bytes() == name;
        if json[at] == b'"'
            && let Some(way) = ways.iter().position(way)
        {
            let text = at + 1..end - 1;
            found[way] = (!json[text.clone()].contains(&b'\\')).then_some(text);
        }
        Some(end)
    };
    let end = walk_from(json, 0, |section, at| {
        let is_wanted = !section.is_empty() && ways.iter().any(|(first, _)| first.as_bytes() == section);
        if is_wanted && json.get(at) == Some(&b'{') {
            walk_from(json, at, |name, at| take(section, name, at))
        } else {
            take(b"", section, at)
        }
    })?;
    (end == json.len()).then_some(found)
}

/// Hands the members to `take` until it has enough; gives the place behind the object, or of the last member's end.
fn walk<'j>(json: &'j [u8], mut take: impl FnMut(Member<'j>) -> bool) -> Option<usize> {
    let mut enough = None;
    let end = walk_from(json, 0, |key, at| {
        let end = value_end(json, at)?;
        if take(Member { key, value: &json[at..end] }) {
            return Some(end);
        }
        enough = Some(end);
        None
    });
    enough.or(end)
}

/// Hands the key of each member of the object at `at`, and the place of its value, to `pass`, which gives the place behind
/// the value; gives the place behind the object.
#[inline]
pub(crate) fn walk_from<'j>(
    json: &'j [u8],
    at: usize,
    mut pass: impl FnMut(&'j [u8], usize) -> Option<usize>,
) -> Option<usize> {
    if *json.get(at)? != b'{' {
        return None;
    }
    let mut at = at + 1;
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
        let value_end = pass(&json[at + 1..key_end - 1], key_end + 1)?;
        match *json.get(value_end)? {
            b',' => at = value_end + 1,
            b'}' => return Some(value_end + 1),
            _ => return None,
        }
    }
}

/// The place behind the value at `at`.
pub(crate) fn value_end(json: &[u8], at: usize) -> Option<usize> {
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

/// The JSON without the blanks behind it.
#[must_use]
pub fn without_blanks(json: &[u8]) -> &[u8] {
    let n_blanks = json.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    &json[..json.len() - n_blanks]
}

/// Whether there are only bytes that a text may have between its quotes.
#[must_use]
pub fn is_text(inside: &[u8]) -> bool {
    inside.iter().fold(true, |all, byte| all & (*byte >= b' '))
}

/// Takes the text at `at` and gives the place behind it; `None` for another value, and for a text with an escape or with what
/// would need one.
pub(crate) fn text_at<'j>(json: &'j [u8], at: usize, text: &mut &'j str) -> Option<usize> {
    let inside = json.get(at..)?.strip_prefix(b"\"")?;
    let length = inside.iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'))?;
    *text = std::str::from_utf8(&inside[..length]).ok()?;
    (inside[length] == b'"').then_some(at + length + 2)
}

/// The place behind the text that begins with the quote at `at`.
#[inline]
fn text_end(json: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest byte that is zero keeps its high bit; those above it may, too.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = at + 1;
    loop {
        // Eight bytes at once up to a quote or backslash.
        while let Some(word) = json.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()) {
            let word = u64::from_le_bytes(word);
            let ends = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
            if ends != 0 {
                at += (ends.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
        }
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
        fn texts_are_those_of_the_object(value in any_value(), first in ".{0,4}", second in ".{0,4}") {
            let object = serde_json::json!({ "m": { "a": value.clone(), "b": "" }, "s": { first.clone(): second.clone(), "x": value.clone() } });
            let text = object.to_string();
            let ways = [("m", "a"), ("m", "b"), ("s", first.as_str()), ("s", "x"), ("z", "x")];
            let found = texts(text.as_bytes(), &ways).expect("an object");
            for ((section, name), place) in ways.into_iter().zip(found) {
                let want = object.get(section).and_then(|section| section.get(name)).and_then(Value::as_str).unwrap_or("");
                match place {
                    Some(place) => {
                        let key_is_plain = !Value::from(name).to_string().contains('\\');
                        prop_assert_eq!(&text[place], if key_is_plain { want } else { "" });
                    }
                    None => prop_assert!(Value::from(want).to_string().contains('\\')),
                }
            }
            prop_assert_eq!(texts(value.to_string().as_bytes(), &ways).is_some(), value.is_object());
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
