//! The store behind the API server: revisions, ranges, transactions, watches, leases and compaction over bytes, with
//! etcd's semantics. Knows nothing of Kubernetes objects; only the API server may hold a [`Store`].

pub mod compactor;
pub mod durable;
mod engine;
mod files;
mod journal;
pub mod memory;
mod mvcc;
mod record;
pub mod recovery;
mod snapshot;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// A point in the history of a store. Every transaction that changes something makes the next one; a fresh store is at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a lease of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// One key as it was at some revision. Cheap to clone: key and value are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value; empty in the event of a deletion.
    pub value: Bytes,
    /// The revision that created the key (after its last deletion).
    pub create_revision: Revision,
    /// The revision that wrote this value, or that deleted the key.
    pub mod_revision: Revision,
    /// How often the key was written since it was created, from 1; 0 in the event of a deletion.
    pub version: i64,
    /// The lease that the key lives by.
    pub lease: Option<LeaseId>,
}

/// Where a range of keys ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The range is the start key alone.
    Key,
    /// All keys that begin with the start key; an empty start key means every key.
    Prefix,
    /// All keys from the start key up to this one, exclusive.
    Before(Bytes),
}

impl RangeEnd {
    /// Whether `key` lies in the range from `start` to this end.
    pub fn covers(&self, start: &[u8], key: &[u8]) -> bool {
        match self {
            RangeEnd::Key => key == start,
            RangeEnd::Prefix => key.starts_with(start),
            RangeEnd::Before(end) => key >= start && key < end.as_ref(),
        }
    }
}

/// Which keys to read, and as of when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// First key of the range.
    pub start: Bytes,
    /// Where the range ends.
    pub end: RangeEnd,
    /// At most so many keys are returned; 0 means all.
    pub limit: usize,
    /// Read as of this revision; `None` means the newest.
    pub revision: Option<Revision>,
    /// Only count: [`RangeResponse::kvs`] stays empty.
    pub count_only: bool,
}

impl RangeRequest {
    /// The newest value of one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: RangeEnd::Key, limit: 0, revision: None, count_only: false }
    }

    /// The newest value of every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self { start: prefix.into(), end: RangeEnd::Prefix, limit: 0, revision: None, count_only: false }
    }

    /// The same range as of `revision`.
    #[must_use]
    pub fn at(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// The same range, at most `limit` keys of it; 0 means all.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }
}

/// What a range held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The store's newest revision when it answered, whatever revision was read.
    pub revision: Revision,
    /// The keys in ascending order.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit cut keys off.
    pub more: bool,
    /// How many keys the range holds, regardless of the limit.
    pub count: u64,
}

/// A condition of a transaction on the newest state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key exists and was last written at this revision.
    ModRevision(Bytes, Revision),
    /// The key does not exist.
    Absent(Bytes),
    /// The key exists.
    Present(Bytes),
    /// The key exists and was written so often since its creation.
    Version(Bytes, i64),
}

/// One step of a transaction. Steps see what the steps before them did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key. A transaction may write a key only once.
    Put {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// The lease that it lives by from now on; `None` takes it off its lease.
        lease: Option<LeaseId>,
    },
    /// Deletes every key of a range.
    Delete {
        /// First key of the range.
        start: Bytes,
        /// Where the range ends.
        end: RangeEnd,
    },
    /// Reads a range. A revision in the request is honoured; none means the newest state with the steps so far.
    Range(RangeRequest),
}

impl Op {
    /// Writes `key` without a lease.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Op::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Op::Delete { start: key.into(), end: RangeEnd::Key }
    }

    /// Reads one key.
    pub fn get(key: impl Into<Bytes>) -> Self {
        Op::Range(RangeRequest::key(key))
    }
}

/// An atomic compare-and-change: if all compares hold, `success` runs, else `failure`; everything in one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest {
    /// The conditions; none means that `success` runs.
    pub compare: Vec<Compare>,
    /// The steps when every condition holds.
    pub success: Vec<Op>,
    /// The steps otherwise.
    pub failure: Vec<Op>,
}

impl TxnRequest {
    /// Creates `key` unless it exists; the failure branch reads what is there.
    pub fn create(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: Option<LeaseId>) -> Self {
        let key = key.into();
        Self {
            compare: vec![Compare::Absent(key.clone())],
            success: vec![Op::Put { key: key.clone(), value: value.into(), lease }],
            failure: vec![Op::get(key)],
        }
    }

    /// Writes `key` if its newest revision is still `expected`; the failure branch reads what is there.
    pub fn update(key: impl Into<Bytes>, expected: Revision, value: impl Into<Bytes>, lease: Option<LeaseId>) -> Self {
        let key = key.into();
        Self {
            compare: vec![Compare::ModRevision(key.clone(), expected)],
            success: vec![Op::Put { key: key.clone(), value: value.into(), lease }],
            failure: vec![Op::get(key)],
        }
    }

    /// Deletes `key` if its newest revision is still `expected`; the failure branch reads what is there.
    pub fn delete(key: impl Into<Bytes>, expected: Revision) -> Self {
        let key = key.into();
        Self {
            compare: vec![Compare::ModRevision(key.clone(), expected)],
            success: vec![Op::delete(key.clone())],
            failure: vec![Op::get(key)],
        }
    }
}

/// What one step of a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// A key was written; what it held before.
    Put {
        /// The key before, if it existed.
        prev: Option<KeyValue>,
    },
    /// Keys were deleted; what they held before, ascending.
    Delete {
        /// The deleted keys.
        deleted: Vec<KeyValue>,
    },
    /// What was read.
    Range(RangeResponse),
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResponse {
    /// Whether the conditions held, so that the `success` steps ran.
    pub succeeded: bool,
    /// The store's revision after the transaction: its own if it changed something.
    pub revision: Revision,
    /// One result for every step that ran.
    pub results: Vec<OpResult>,
}

impl TxnResponse {
    /// The first key that a range step read: the present state after a failed [`TxnRequest::update`] and its like.
    pub fn current(&self) -> Option<&KeyValue> {
        self.results.iter().find_map(|result| match result {
            OpResult::Range(range) => range.kvs.first(),
            OpResult::Put { .. } | OpResult::Delete { .. } => None,
        })
    }
}

/// Which keys to follow, and from when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// First key of the range.
    pub start: Bytes,
    /// Where the range ends.
    pub end: RangeEnd,
    /// The first revision to report, which may lie in the future; `None` means everything after the present one.
    pub from: Option<Revision>,
    /// Whether events carry what the key held before.
    pub prev_kv: bool,
    /// Whether [`Store::request_progress`] makes this watch report its progress.
    pub progress: bool,
}

impl WatchRequest {
    /// Follows every key that begins with `prefix` from `from` on, with previous values and progress.
    pub fn prefix(prefix: impl Into<Bytes>, from: Option<Revision>) -> Self {
        Self { start: prefix.into(), end: RangeEnd::Prefix, from, prev_kv: true, progress: true }
    }
}

/// What a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// Changes in order of revision; the events of one revision are never split over two items.
    Events {
        /// Everything up to this revision has now been reported; not below the last event's revision.
        revision: Revision,
        /// The changes, at least one.
        events: Vec<WatchEvent>,
    },
    /// Everything up to this revision has been reported.
    Progress(Revision),
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventKind {
    /// It was written.
    Put,
    /// It was deleted, or its lease ended.
    Delete,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventKind,
    /// The key after the change; for a deletion its value is empty and `mod_revision` is the deletion's.
    pub kv: KeyValue,
    /// The key before the change, if it existed and the watch asked for it.
    pub prev: Option<KeyValue>,
}

/// Why the store could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The history before `compacted` is gone: list again and watch from there.
    #[error("revision {requested} has been compacted, the oldest that can be read is {compacted}")]
    Compacted {
        /// The revision that was asked for.
        requested: Revision,
        /// The oldest revision that can be read.
        compacted: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {requested} is in the future, the newest is {current}")]
    FutureRevision {
        /// The revision that was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The lease does not exist, because it was never granted, was revoked, or has expired.
    #[error("lease {0} does not exist")]
    LeaseNotFound(LeaseId),
    /// A transaction that contradicts itself.
    #[error("transaction writes key \"{key}\" twice, a key may be written once")]
    DuplicateKey {
        /// The key, as text where it is text.
        key: String,
    },
    /// The disk failed an earlier write, so that nothing more can be acknowledged; reads still work.
    #[error("{path}: {action} failed, the store takes no more writes until it is opened again", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: std::sync::Arc<std::io::Error>,
    },
    /// The store has been shut down.
    #[error("the store is closed")]
    Closed,
}

/// A store of etcd's semantics. Used as `Arc<dyn Store>`; every method may be called from any task.
pub trait Store: Send + Sync + 'static {
    /// Reads a range. Sees every write that was acknowledged before the call.
    ///
    /// # Errors
    /// [`StoreError::Compacted`], [`StoreError::FutureRevision`].
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, StoreError>>;

    /// Runs a transaction. When it answers `Ok`, the change is as durable as this store can make it.
    /// Dropping the future may leave the change made or not made, never half made.
    ///
    /// # Errors
    /// [`StoreError::LeaseNotFound`], [`StoreError::DuplicateKey`], [`StoreError::Io`]; errors of a range step.
    fn txn(&self, request: TxnRequest) -> BoxFuture<'_, Result<TxnResponse, StoreError>>;

    /// Follows a range. The position is taken when this is called, not when the stream is first polled.
    /// A watcher never slows a writer: one that falls behind the compacted history ends with
    /// [`StoreError::Compacted`] as its last item, and its owner lists again.
    fn watch(&self, request: WatchRequest) -> BoxStream<'static, Result<WatchItem, StoreError>>;

    /// Makes every watch that covers `key` and asked for progress report it once, after the events before it.
    fn request_progress(&self, key: &[u8]);

    /// Grants a lease that ends `ttl` after its last keep-alive, taking its keys with it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>>;

    /// Starts the lease's time anew and returns it.
    ///
    /// # Errors
    /// [`StoreError::LeaseNotFound`].
    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration, StoreError>>;

    /// Ends a lease now; its keys are deleted in one revision.
    ///
    /// # Errors
    /// [`StoreError::LeaseNotFound`], [`StoreError::Io`].
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets the history before `revision`, which itself stays readable.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if that was done already, [`StoreError::FutureRevision`], [`StoreError::Io`].
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The newest revision that can be read.
    ///
    /// # Errors
    /// [`StoreError::Closed`], or the failure of a backend that has to ask for it.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;
}
