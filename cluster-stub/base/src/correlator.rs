//! Decides what becomes of an event: a new object, one more count on an old one, or nothing. Sends nothing itself.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

/// Entries that each memory below keeps. Upstream: client-go v1.36.2 record/events_cache.go.
const MAX_ENTRIES: usize = 4096;
/// Different messages of one reason about one object before they are combined.
const MAX_SIMILAR: usize = 10;
/// Seconds after which similar events are counted anew.
const SIMILAR_INTERVAL_SECONDS: f64 = 600.0;
/// Events that one source may send about one object at once.
const SPAM_BURST: f64 = 25.0;
/// Events per second that such a source earns back.
const SPAM_QPS: f64 = 1.0 / 300.0;

/// An event as a controller reports it.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The object that it is about.
    pub object: ObjectReference,
    /// `Normal` or `Warning`.
    pub event_type: &'static str,
    /// Reason, one word.
    pub reason: String,
    /// Message for a person.
    pub message: String,
    /// When it happened.
    pub at: Timestamp,
}

/// What to send for an occurrence.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A new event object with this message; the key remembers it.
    Create {
        /// Identity for [`Correlator::recorded`].
        key: String,
        /// The message, possibly marked as combined.
        message: String,
    },
    /// One more count on the event object `name`.
    Count {
        /// Identity for [`Correlator::recorded`].
        key: String,
        /// Name of the event object.
        name: String,
        /// The new count.
        count: i32,
        /// The newest message.
        message: String,
        /// When the first one happened.
        first: Timestamp,
    },
    /// Nothing: this source said enough about this object.
    Drop,
}

#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    count: i32,
    first: Timestamp,
}

#[derive(Debug)]
struct Similar {
    messages: HashSet<String>,
    last: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// Memory of the events that one component sent. Upstream: client-go v1.36.2 `EventCorrelator`.
#[derive(Debug, Default)]
pub struct Correlator {
    recorded: Lru<Recorded>,
    similar: Lru<Similar>,
    buckets: Lru<Bucket>,
}

impl Correlator {
    /// Decides about `event` and counts it.
    pub fn observe(&mut self, event: &Occurrence) -> Verdict {
        let about = about(&event.object);
        let aggregate_key = format!("{about}\u{1f}{}\u{1f}{}", event.event_type, event.reason);
        let similar =
            self.similar.entry(aggregate_key.clone(), || Similar { messages: HashSet::new(), last: event.at });
        if seconds_between(similar.last, event.at) > SIMILAR_INTERVAL_SECONDS {
            similar.messages.clear();
        }
        similar.messages.insert(event.message.clone());
        similar.last = event.at;
        let (key, message) = if similar.messages.len() < MAX_SIMILAR {
            (format!("{aggregate_key}\u{1f}{}", event.message), event.message.clone())
        } else {
            if let Some(one) = similar.messages.iter().next().cloned() {
                similar.messages.remove(&one); // the set stays just below its limit
            }
            (aggregate_key, format!("(combined from similar events): {}", event.message))
        };
        let known = self.recorded.get_mut(&key).map(|recorded| {
            recorded.count = recorded.count.saturating_add(1);
            recorded.clone()
        });
        let bucket = self
            .buckets
            .entry(format!("{about}\u{1f}{}", event.event_type), || Bucket { tokens: SPAM_BURST, last: event.at });
        bucket.tokens = (bucket.tokens + seconds_between(bucket.last, event.at) * SPAM_QPS).min(SPAM_BURST);
        bucket.last = event.at;
        if bucket.tokens < 1.0 {
            return Verdict::Drop;
        }
        bucket.tokens -= 1.0;
        match known {
            Some(Recorded { name, count, first }) => Verdict::Count { key, name, count, message, first },
            None => Verdict::Create { key, message },
        }
    }

    /// The event object `name` now stands for `key` with `count` since `first`.
    pub fn recorded(&mut self, key: String, name: String, count: i32, first: Timestamp) {
        let recorded = Recorded { name, count, first };
        self.recorded.put(key, recorded);
    }
}

fn about(object: &ObjectReference) -> String {
    let parts = [&object.kind, &object.namespace, &object.name, &object.field_path, &object.uid, &object.api_version];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("\u{1f}")
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// A map that forgets what was not used for longest once it is full.
#[derive(Debug)]
struct Lru<V> {
    entries: HashMap<String, (u64, V)>,
    clock: u64,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<V> Lru<V> {
    fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.clock += 1;
        let clock = self.clock;
        self.entries.get_mut(key).map(|(used, value)| {
            *used = clock;
            value
        })
    }

    fn entry(&mut self, key: String, make: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            self.evict();
        }
        self.clock += 1;
        let clock = self.clock;
        let (used, value) = self.entries.entry(key).or_insert_with(|| (clock, make()));
        *used = clock;
        value
    }

    fn put(&mut self, key: String, value: V) {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            self.evict();
        }
        self.clock += 1;
        self.entries.insert(key, (self.clock, value));
    }

    /// Drops the older half at once, so that a full map costs a pass only every now and then.
    fn evict(&mut self) {
        let mut ages: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        ages.sort_unstable();
        let middle = ages[ages.len() / 2];
        self.entries.retain(|_, (used, _)| *used > middle);
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    fn event(message: &str, seconds: i64) -> Occurrence {
        Occurrence {
            object: ObjectReference { kind: Some("Pod".into()), name: Some("a".into()), ..ObjectReference::default() },
            event_type: "Normal",
            reason: "Because".into(),
            message: message.into(),
            at: Timestamp::UNIX_EPOCH + seconds.seconds(),
        }
    }

    fn observe(correlator: &mut Correlator, message: &str, seconds: i64) -> Verdict {
        let event = event(message, seconds);
        let verdict = correlator.observe(&event);
        if let Verdict::Create { key, .. } = &verdict {
            correlator.recorded(key.clone(), format!("a.{seconds}"), 1, event.at);
        }
        verdict
    }

    #[test]
    fn the_same_event_again_is_counted_on_the_first_object() {
        let mut correlator = Correlator::default();
        assert!(matches!(observe(&mut correlator, "m", 1), Verdict::Create { message, .. } if message == "m"));
        assert!(matches!(observe(&mut correlator, "other", 2), Verdict::Create { .. }));
        for count in 2..5 {
            let verdict = observe(&mut correlator, "m", 10);
            assert!(
                matches!(&verdict, Verdict::Count { name, count: got, .. } if name == "a.1" && *got == count),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn the_tenth_different_message_is_combined() {
        let mut correlator = Correlator::default();
        for n in 1..10 {
            assert!(
                matches!(observe(&mut correlator, &format!("m{n}"), n), Verdict::Create { message, .. } if message == format!("m{n}"))
            );
        }
        let combined = observe(&mut correlator, "m10", 10);
        assert!(
            matches!(combined, Verdict::Create { message, .. } if message == "(combined from similar events): m10")
        );
        let again = observe(&mut correlator, "m11", 11);
        assert!(
            matches!(again, Verdict::Count { count: 2, message, .. } if message == "(combined from similar events): m11")
        );
        let later = observe(&mut correlator, "m12", 700);
        assert!(matches!(later, Verdict::Create { message, .. } if message == "m12"));
    }

    #[test]
    fn a_chatty_source_is_cut_off_and_earns_tokens_back() {
        let mut correlator = Correlator::default();
        for _ in 0..25 {
            assert!(!matches!(observe(&mut correlator, "m", 0), Verdict::Drop));
        }
        assert_eq!(observe(&mut correlator, "m", 0), Verdict::Drop);
        assert_eq!(observe(&mut correlator, "m", 299), Verdict::Drop);
        assert!(matches!(observe(&mut correlator, "m", 601), Verdict::Count { count: 28, .. }));
    }

    #[test]
    fn a_full_memory_forgets_the_oldest() {
        let mut lru: Lru<usize> = Lru::default();
        for n in 0..=MAX_ENTRIES {
            lru.entry(n.to_string(), || n);
        }
        assert!(lru.entries.len() <= MAX_ENTRIES);
        assert!(lru.get_mut("0").is_none());
        assert!(lru.get_mut(&MAX_ENTRIES.to_string()).is_some());
    }
}
