//! One object as the cache holds it, and one change of it.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cluster_stub_wire::scan::texts;
use serde_json::Value;

use super::labels::{self, Labels};
use super::outline;
use super::storage::StorageSpec;
use crate::apiserver::codec::stored;
use crate::apiserver::resources::Strategy;
use crate::apiserver::selector::{FieldSelector, LabelSelector};

/// An object: its encoded bytes with the resource version in them, and what selectors ask for beside them.
pub struct CachedObject {
    /// Namespace; empty for cluster scope.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Revision of the write.
    pub revision: i64,
    /// What clients get, in the stored version.
    pub bytes: Bytes,
    strategy: Arc<dyn Strategy>,
    /// What selectors ask for is read when the first of them does: of most objects of some kinds, no one ever asks.
    labels: OnceLock<Labels>,
    /// Where in `bytes` the texts of the strategy's `text_fields` are.
    texts: OnceLock<Option<Box<[Option<Range<u32>>]>>>,
    fields: OnceLock<Box<[(&'static str, Box<str>)]>>,
    value: OnceLock<Arc<Value>>,
}

impl CachedObject {
    /// Takes stored bytes in. `key` is the part of the store's key behind the prefix: `ns/name` or `name`.
    pub fn new(spec: &StorageSpec, key: &str, stored: &[u8], revision: i64) -> CachedObject {
        let (namespace, name) = if spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        let bytes = stored::splice(stored, revision);
        CachedObject {
            namespace: namespace.into(),
            name: name.into(),
            revision,
            bytes,
            strategy: spec.strategy.clone(),
            labels: OnceLock::new(),
            texts: OnceLock::new(),
            fields: OnceLock::new(),
            value: OnceLock::new(),
        }
    }

    fn labels(&self) -> &Labels {
        self.labels.get_or_init(|| labels::read(&self.bytes))
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        labels::get(self.labels(), key)
    }

    fn fields(&self) -> &[(&'static str, Box<str>)] {
        self.fields.get_or_init(|| {
            let names = self.strategy.field_labels();
            if names.is_empty() {
                return Box::default();
            }
            let values = self.strategy.field_values(&outline::read(&self.bytes, names));
            names.iter().copied().zip(values.into_iter().map(String::into_boxed_str)).collect()
        })
    }

    /// The decoded object, made on the first call and kept.
    pub fn value(&self) -> Arc<Value> {
        let decode = || Arc::new(stored::parse(&self.bytes).unwrap_or(Value::Null));
        self.value.get_or_init(decode).clone()
    }

    /// The value of a selectable field; empty when the object has none.
    pub fn field(&self, label: &str) -> &str {
        match label {
            "metadata.name" => &self.name,
            "metadata.namespace" => &self.namespace,
            _ => self.text(label).unwrap_or_else(|| {
                self.fields().iter().find(|(name, _)| *name == label).map_or("", |(_, value)| value)
            }),
        }
    }

    /// The value of a selectable field that is a text in the encoded object as it stands there.
    fn text(&self, label: &str) -> Option<&str> {
        let labels = self.strategy.text_fields();
        let at = labels.iter().position(|known| *known == label)?;
        let texts = self.texts.get_or_init(|| {
            let place = |place: Range<usize>| Some(u32::try_from(place.start).ok()?..u32::try_from(place.end).ok()?);
            let ways: Option<Vec<_>> = labels.iter().map(|label| label.split_once('.')).collect();
            Some(texts(&self.bytes, &ways?)?.into_iter().map(|found| found.and_then(place)).collect())
        });
        let place = texts.as_ref()?.get(at)?.as_ref()?;
        std::str::from_utf8(self.bytes.get(place.start as usize..place.end as usize)?).ok()
    }

    /// Whether both selectors take it.
    pub fn matches(&self, labels: &LabelSelector, fields: &FieldSelector) -> bool {
        labels.matches(|key| self.label(key)) && fields.matches(|label| self.field(label))
    }

    /// The same object under a later revision: what the event of its deletion shows.
    pub fn at(&self, revision: i64) -> CachedObject {
        CachedObject {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            bytes: stored::resplice(&self.bytes, revision),
            strategy: self.strategy.clone(),
            labels: self.labels.clone(),
            texts: OnceLock::new(),
            fields: self.fields.clone(),
            value: OnceLock::new(),
        }
    }
}

impl fmt::Debug for CachedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CachedObject { namespace, name, revision, .. } = self;
        f.debug_struct("CachedObject")
            .field("namespace", namespace)
            .field("name", name)
            .field("revision", revision)
            .finish_non_exhaustive()
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It came into being.
    Added,
    /// It was written again.
    Modified,
    /// It went.
    Deleted,
}

impl ChangeKind {
    /// The word in a watch event.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The object after the change; for a deletion its last state under the deletion's revision.
    pub object: Arc<CachedObject>,
    /// The object before the change.
    pub previous: Option<Arc<CachedObject>>,
}

impl Change {
    /// Revision of the change.
    pub fn revision(&self) -> i64 {
        self.object.revision
    }

    /// What a watcher with these selectors sees: an object that comes into the selection is added, one that leaves it is
    /// deleted in its old state. `None` when it sees nothing.
    pub fn seen_through(
        &self,
        labels: &LabelSelector,
        fields: &FieldSelector,
    ) -> Option<(ChangeKind, Arc<CachedObject>)> {
        if labels.is_empty() && fields.is_empty() {
            return Some((self.kind, self.object.clone()));
        }
        let before = self.previous.as_ref().is_some_and(|object| object.matches(labels, fields));
        let after = self.kind != ChangeKind::Deleted && self.object.matches(labels, fields);
        match (before, after) {
            (false, true) => Some((ChangeKind::Added, self.object.clone())),
            (true, true) => Some((ChangeKind::Modified, self.object.clone())),
            (true, false) => {
                let old = self.previous.as_ref().unwrap_or(&self.object);
                Some((ChangeKind::Deleted, Arc::new(old.at(self.revision()))))
            }
            (false, false) => None,
        }
    }
}
