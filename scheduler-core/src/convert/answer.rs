//! The API server's answers to lists and watches taken apart: pages into items, a stream into lines, lines into events.
//! Items stay bytes here; `read` makes objects of them.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::wire::{Text, or_default};

/// One page of a list.
#[derive(Debug, Deserialize)]
pub struct ListPage<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    metadata: ListMeta<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    items: Vec<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    r#continue: Text<'a>,
}

impl<'a> ListPage<'a> {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// It is not a list as JSON.
    pub fn read(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The position in the history at which the list was true; empty when the server named none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// The token with which the next page is asked for; `None` on the last page.
    #[must_use]
    pub fn continue_token(&self) -> Option<&str> {
        Some(&*self.metadata.r#continue).filter(|token| !token.is_empty())
    }

    /// The objects, as JSON.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.items.iter().map(|item| item.get().as_bytes())
    }
}

/// What a line of a watch tells. Upstream: apimachinery watch `EventType` (v1.36.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// The object is new, or new to this watch.
    Added,
    /// The object is changed.
    Modified,
    /// The object is gone, or no longer selected; this is its last state.
    Deleted,
    /// Nothing happened up to this resource version.
    Bookmark,
    /// The watch ends; the object is a Status that says why.
    Error,
}

/// One line of a watch.
#[derive(Debug)]
pub struct WatchEvent<'a> {
    /// What happened.
    pub r#type: EventType,
    object: &'a [u8],
}

/// The same in any order and with any space.
#[derive(Deserialize)]
struct AnyWatchEvent<'a> {
    r#type: EventType,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// How the API server begins the lines of objects.
const HEADS: [(EventType, &[u8]); 3] = [
    (EventType::Added, b"{\"type\":\"ADDED\",\"object\":{"),
    (EventType::Modified, b"{\"type\":\"MODIFIED\",\"object\":{"),
    (EventType::Deleted, b"{\"type\":\"DELETED\",\"object\":{"),
];

impl<'a> WatchEvent<'a> {
    /// Reads a line. The object in it may still turn out to be no JSON when it is read itself.
    ///
    /// # Errors
    /// It is not an event as JSON.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        for (r#type, head) in HEADS {
            if line.starts_with(head) && line.ends_with(b"}}") {
                return Ok(Self { r#type, object: &line[head.len() - 1..line.len() - 1] });
            }
        }
        let AnyWatchEvent { r#type, object } = serde_json::from_slice(line)?;
        Ok(Self { r#type, object: object.get().as_bytes() })
    }

    /// The object, as JSON.
    #[must_use]
    pub fn object(&self) -> &'a [u8] {
        self.object
    }
}

/// Cuts a stream of bytes, which comes in pieces, into lines. A line within one piece is not copied.
///
/// ```
/// use scheduler_core::convert::Lines;
///
/// let mut lines = Lines::default();
/// let mut seen = Vec::new();
/// for piece in ["a\nb", "b\n\n", "c"] {
///     lines.push(piece.as_bytes(), |line| {
///         seen.push(String::from_utf8_lossy(line).into_owned());
///         true
///     });
/// }
/// assert_eq!(seen, ["a", "bb"]);
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
}

impl Lines {
    /// Takes the next piece and hands every line that is complete now, without its end, to `take`; empty lines are skipped.
    /// Stops when `take` says `false`, and says so; what is left of the piece is lost then.
    pub fn push(&mut self, piece: &[u8], mut take: impl FnMut(&[u8]) -> bool) -> bool {
        self.push_to(piece, &mut take)
    }

    /// Not generic, so that it is compiled, and optimised, here and not with whoever calls it.
    fn push_to(&mut self, piece: &[u8], take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut rest = piece;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (head, tail) = (&rest[..at], &rest[at + 1..]);
            let goes_on = if self.begun.is_empty() {
                head.is_empty() || take(head)
            } else {
                self.begun.extend_from_slice(head);
                let goes_on = take(&self.begun);
                self.begun.clear();
                goes_on
            };
            if !goes_on {
                return false;
            }
            rest = tail;
        }
        self.begun.extend_from_slice(rest);
        true
    }

    /// Bytes of the line that has begun.
    #[must_use]
    pub fn n_begun(&self) -> usize {
        self.begun.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_gives_items_position_and_token() {
        let json = br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":3},"items":[{"a":1}, {"b":[2]}]}"#;
        let page = ListPage::read(json).expect("a list");
        assert_eq!((page.resource_version(), page.continue_token()), ("7", Some("t")));
        assert_eq!(page.items().collect::<Vec<_>>(), [&br#"{"a":1}"#[..], br#"{"b":[2]}"#]);
        for json in [&br#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#[..], b"{}"] {
            let page = ListPage::read(json).expect("an empty list");
            assert_eq!((page.items().len(), page.continue_token()), (0, None));
        }
        assert!(ListPage::read(br#"{"items":[{"a":1}"#).is_err(), "cut off");
    }

    #[test]
    fn an_event_gives_type_and_object() {
        let event = WatchEvent::read(br#"{"type":"MODIFIED","object":{"kind":"Pod","x":"\n"}}"#).expect("an event");
        assert_eq!((event.r#type, event.object()), (EventType::Modified, &br#"{"kind":"Pod","x":"\n"}"#[..]));
        let event = WatchEvent::read(br#"{"object":{},"type":"BOOKMARK"}"#).expect("an event");
        assert_eq!(event.r#type, EventType::Bookmark);
        for line in [&br#"{"type":"MODIFIED","object":{"kind":"#[..], br#"{"type":"MOVED","object":{}}"#, b"x"] {
            assert!(WatchEvent::read(line).is_err());
        }
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_stream_is_cut(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.sort_unstable();
            let mut lines = Lines::default();
            let mut got: Vec<String> = Vec::new();
            let mut start = 0;
            for end in cuts.into_iter().chain([text.len()]) {
                lines.push(&text.as_bytes()[start..end], |line| {
                    got.push(String::from_utf8_lossy(line).into_owned());
                    true
                });
                start = end;
            }
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            let want: Vec<&str> = complete.split('\n').filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(got, want);
        }
    }
}
