//! The objects and the latest history of one storage prefix.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::watch;

use super::cursor::{Cursor, CursorError};
use super::object::{CachedObject, Change, ChangeKind};
use crate::apiserver::resources::Strategy;

/// Events kept for watchers that come late or are slow.
const HISTORY: usize = 16_384;

/// What the cache has to know about what it keeps.
#[derive(Clone)]
pub struct StorageSpec {
    /// The part of the store's keys behind `/registry/`.
    pub prefix: Arc<str>,
    /// Whether keys have a namespace part.
    pub namespaced: bool,
    /// The strategy of the stored version, for selectable fields.
    pub strategy: Arc<dyn Strategy>,
}

/// Objects of one storage prefix, by the part of the key behind it.
pub struct StorageCache {
    spec: StorageSpec,
    state: RwLock<State>,
    changed: watch::Sender<i64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Box<str>, Arc<CachedObject>>,
    /// Everything up to this revision is in here.
    revision: i64,
    history: VecDeque<Arc<Change>>,
    /// The history is whole for revisions above this one.
    floor: i64,
    /// How many events were ever put into the history; the oldest kept one has the number `sequence - history.len()`.
    sequence: u64,
}

/// A consistent view of (part of) a storage.
pub struct Snapshot {
    /// The revision of the view.
    pub revision: i64,
    /// Its objects in key order.
    pub objects: Vec<Arc<CachedObject>>,
}

impl StorageCache {
    /// An empty cache.
    pub fn new(spec: StorageSpec) -> StorageCache {
        StorageCache { spec, state: RwLock::default(), changed: watch::Sender::new(0) }
    }

    /// What it keeps.
    pub fn spec(&self) -> &StorageSpec {
        &self.spec
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces everything by the state at `revision`. What differs from before becomes events, so that watchers go on.
    pub(super) fn load(&self, objects: BTreeMap<Box<str>, Arc<CachedObject>>, revision: i64) {
        let mut state = self.write();
        let first = state.revision == 0;
        if first {
            state.floor = revision;
            state.objects = objects;
        } else {
            let gone: Vec<Box<str>> = state.objects.keys().filter(|key| !objects.contains_key(*key)).cloned().collect();
            for key in gone {
                state.delete(&key, revision);
            }
            for (key, object) in objects {
                if state.objects.get(&key).is_none_or(|old| old.revision != object.revision) {
                    state.put(key, object);
                }
            }
        }
        state.revision = revision;
        drop(state);
        self.changed.send_replace(revision);
    }

    /// Applies changes in order; a change without a value is a deletion. Afterwards everything up to `revision` is known.
    pub(super) fn apply(&self, changes: Vec<(Box<str>, i64, Option<Arc<CachedObject>>)>, revision: i64) {
        let mut state = self.write();
        for (key, at, object) in changes {
            match object {
                Some(object) => state.put(key, object),
                None => state.delete(&key, at),
            }
        }
        state.revision = state.revision.max(revision);
        drop(state);
        self.changed.send_replace(revision);
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        let state = self.read();
        if self.spec.namespaced {
            state.objects.get(format!("{namespace}/{name}").as_str()).cloned()
        } else {
            state.objects.get(name).cloned()
        }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// How many changes there ever were: as long as it is the same, so is everything in here.
    pub fn n_changes(&self) -> u64 {
        self.read().sequence
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.read().objects.is_empty()
    }

    /// The objects of a namespace (empty: of all) that `keep` takes. `known` is a revision that the feed has reached; the
    /// snapshot's revision is at least that.
    pub fn snapshot(&self, namespace: &str, known: i64, keep: impl Fn(&CachedObject) -> bool) -> Snapshot {
        let state = self.read();
        let mut objects = Vec::new();
        if namespace.is_empty() || !self.spec.namespaced {
            objects.extend(state.objects.values().filter(|object| keep(object)).cloned());
        } else {
            let start = format!("{namespace}/");
            let range = state.objects.range(Box::from(start.as_str())..).take_while(|(key, _)| key.starts_with(&start));
            objects.extend(range.map(|(_, object)| object).filter(|object| keep(object)).cloned());
        }
        Snapshot { revision: state.revision.max(known), objects }
    }

    /// A position behind everything up to `revision`. `None` means behind everything there is.
    ///
    /// # Errors
    /// [`CursorError::TooOld`] when the history does not reach back so far.
    pub fn cursor(self: &Arc<Self>, revision: Option<i64>) -> Result<Cursor, CursorError> {
        let state = self.read();
        let sequence = match revision {
            None => state.sequence,
            Some(revision) if revision < state.floor => {
                return Err(CursorError::TooOld { requested: revision, oldest: state.floor });
            }
            Some(revision) => state.sequence_after(revision),
        };
        Ok(Cursor::new(self.clone(), sequence, self.changed.subscribe()))
    }

    /// A snapshot and the position right behind it, with no change in between.
    pub fn snapshot_and_cursor(
        self: &Arc<Self>,
        namespace: &str,
        known: i64,
        keep: impl Fn(&CachedObject) -> bool,
    ) -> (Snapshot, Cursor) {
        // The changes between the two reads are in the cursor; those that the snapshot shows already are skipped by revision.
        let receiver = self.changed.subscribe();
        let snapshot = self.snapshot(namespace, known, keep);
        let sequence = self.read().sequence_after(snapshot.revision);
        (snapshot, Cursor::new(self.clone(), sequence, receiver))
    }

    /// The changes from a position on, at most `limit`, and the revision up to which everything is known now.
    pub(super) fn changes_from(&self, sequence: u64, limit: usize) -> Result<(Vec<Arc<Change>>, i64), CursorError> {
        let state = self.read();
        let oldest = state.sequence - state.history.len() as u64;
        let skip = sequence.checked_sub(oldest).ok_or(CursorError::FellBehind)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let changes = state.history.iter().skip(skip).take(limit).cloned().collect();
        Ok((changes, state.revision))
    }
}

impl State {
    fn put(&mut self, key: Box<str>, object: Arc<CachedObject>) {
        let previous = self.objects.insert(key, object.clone());
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(Change { kind, object, previous });
    }

    fn delete(&mut self, key: &str, revision: i64) {
        if let Some(previous) = self.objects.remove(key) {
            let object = Arc::new(previous.at(revision));
            self.record(Change { kind: ChangeKind::Deleted, object, previous: Some(previous) });
        }
    }

    fn record(&mut self, change: Change) {
        if self.history.len() == HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.floor = oldest.revision();
        }
        self.revision = self.revision.max(change.revision());
        self.history.push_back(Arc::new(change));
        self.sequence += 1;
    }

    fn sequence_after(&self, revision: i64) -> u64 {
        let older = self.history.partition_point(|change| change.revision() <= revision);
        self.sequence - (self.history.len() - older) as u64
    }
}
