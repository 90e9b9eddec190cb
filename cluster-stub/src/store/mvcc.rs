//! The state of a store as plain data: every key's versions, the history of changes, the leases. No locks, no I/O, no
//! clock; two revisions bound it: `applied` (what transactions have decided) and `compacted` (what has been forgotten).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;

use super::record::Change;
use super::{
    Compare, KeyValue, LeaseId, Op, OpResult, RangeEnd, RangeRequest, RangeResponse, Revision, StoreError, TxnRequest,
    TxnResponse, WatchEvent, WatchEventKind,
};

/// One value of a key, or its deletion.
#[derive(Clone, Debug)]
struct Version {
    mod_revision: Revision,
    create_revision: Revision,
    version: i64,
    /// `None`: the key was deleted here.
    value: Option<Bytes>,
    lease: Option<LeaseId>,
}

impl Version {
    fn live(&self, key: &Bytes) -> Option<KeyValue> {
        self.value.as_ref().map(|value| KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        })
    }
}

/// The versions of one key. Most keys have one, which needs no second allocation.
#[derive(Clone, Debug)]
struct Chain {
    newest: Version,
    /// Ascending by revision.
    older: Vec<Version>,
}

impl Chain {
    fn at(&self, revision: Revision) -> Option<&Version> {
        if self.newest.mod_revision <= revision {
            return Some(&self.newest);
        }
        let after = self.older.partition_point(|version| version.mod_revision <= revision);
        after.checked_sub(1).map(|i| &self.older[i])
    }

    /// Forgets what cannot be read at `revision` or later; true if nothing is left.
    fn compact(&mut self, revision: Revision) -> bool {
        if self.newest.mod_revision <= revision {
            self.older = Vec::new();
            return self.newest.value.is_none();
        }
        let after = self.older.partition_point(|version| version.mod_revision <= revision);
        let mut forget = after.saturating_sub(1);
        if after > 0 && self.older[after - 1].value.is_none() {
            forget = after;
        }
        self.older.drain(..forget);
        if self.older.is_empty() {
            self.older = Vec::new();
        }
        false
    }
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: Duration,
    keys: HashSet<Bytes>,
}

/// The whole state. See the module.
#[derive(Debug)]
pub(super) struct Mvcc {
    index: BTreeMap<Bytes, Chain>,
    /// Changes after `swept`, ascending by revision; every event carries what was before.
    history: VecDeque<WatchEvent>,
    leases: HashMap<LeaseId, Lease>,
    applied: Revision,
    compacted: Revision,
}

impl Mvcc {
    /// An empty store.
    pub(super) fn new() -> Self {
        Self {
            index: BTreeMap::new(),
            history: VecDeque::new(),
            leases: HashMap::new(),
            applied: Revision(1),
            compacted: Revision(0),
        }
    }

    /// A store whose state is known at `revision` and whose history begins there. `kvs` may come in any order.
    pub(super) fn restore(revision: Revision, leases: Vec<(LeaseId, Duration)>, kvs: Vec<KeyValue>) -> Self {
        let mut state = Self::new();
        state.applied = revision;
        // The revision itself can be listed, but what led to it cannot be watched.
        state.compacted = revision;
        state.leases = leases.into_iter().map(|(id, ttl)| (id, Lease { ttl, keys: HashSet::new() })).collect();
        for kv in kvs {
            if let Some(lease) = kv.lease.and_then(|id| state.leases.get_mut(&id)) {
                lease.keys.insert(kv.key.clone());
            }
            let newest = Version {
                mod_revision: kv.mod_revision,
                create_revision: kv.create_revision,
                version: kv.version,
                value: Some(kv.value),
                lease: kv.lease,
            };
            state.index.insert(kv.key, Chain { newest, older: Vec::new() });
        }
        state
    }

    /// The newest decided revision.
    pub(super) fn applied(&self) -> Revision {
        self.applied
    }

    /// Reads at `request.revision`, or at `visible` when it names none.
    pub(super) fn range(&self, request: &RangeRequest, visible: Revision) -> Result<RangeResponse, StoreError> {
        let at = request.revision.unwrap_or(visible);
        self.readable(at, visible)?;
        Ok(self.range_at(request, at, visible))
    }

    fn readable(&self, at: Revision, visible: Revision) -> Result<(), StoreError> {
        if at > visible {
            return Err(StoreError::FutureRevision { requested: at, current: visible });
        }
        if at < self.compacted {
            return Err(StoreError::Compacted { requested: at, compacted: self.compacted });
        }
        Ok(())
    }

    fn range_at(&self, request: &RangeRequest, at: Revision, newest: Revision) -> RangeResponse {
        let mut response = RangeResponse { revision: newest, ..RangeResponse::default() };
        for (key, chain) in self.chains(&request.start, &request.end) {
            let Some(version) = chain.at(at).filter(|version| version.value.is_some()) else { continue };
            response.count += 1;
            if request.count_only {
                continue;
            }
            if request.limit != 0 && response.kvs.len() == request.limit {
                response.more = true;
                continue;
            }
            response.kvs.extend(version.live(key));
        }
        response
    }

    /// The chains of a range. Most ranges of an API server are one key, which needs no iterator of the tree.
    fn chains<'a>(&'a self, start: &'a Bytes, end: &'a RangeEnd) -> impl Iterator<Item = (&'a Bytes, &'a Chain)> {
        let (one, many) = match end {
            RangeEnd::Key => (self.index.get_key_value(start), None),
            RangeEnd::Prefix | RangeEnd::Before(_) => {
                let from = (Bound::Included(start.clone()), Bound::Unbounded);
                (None, Some(self.index.range(from).take_while(|(key, _)| end.covers(start, key))))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The newest live value of `key`.
    fn newest(&self, key: &Bytes) -> Option<KeyValue> {
        self.index.get(key).and_then(|chain| chain.newest.live(key))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let live = |key: &Bytes| self.index.get(key).map(|chain| &chain.newest).filter(|v| v.value.is_some());
        match compare {
            Compare::ModRevision(key, revision) => live(key).is_some_and(|v| v.mod_revision == *revision),
            Compare::Absent(key) => live(key).is_none(),
            Compare::Present(key) => live(key).is_some(),
            Compare::Version(key, version) => live(key).is_some_and(|v| v.version == *version),
        }
    }

    /// Decides a transaction: all of it, or an error and none of it. `response.revision` is above the former `applied`
    /// exactly if something changed; [`Mvcc::changes_since`] then tells what.
    pub(super) fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, StoreError> {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &request.success } else { &request.failure };
        self.check(ops)?;
        let revision = self.applied.next();
        let changes_before = self.history.len();
        let mut results = Vec::with_capacity(ops.len());
        for op in ops {
            results.push(match op {
                Op::Put { key, value, lease } => OpResult::Put { prev: self.put(revision, key, value.clone(), *lease) },
                Op::Delete { start, end } => OpResult::Delete { deleted: self.delete_range(revision, start, end) },
                Op::Range(range) => {
                    let at = range.revision.unwrap_or(revision);
                    OpResult::Range(self.range_at(range, at, self.applied))
                }
            });
        }
        if self.history.len() > changes_before {
            self.applied = revision;
        }
        for result in &mut results {
            if let OpResult::Range(range) = result {
                range.revision = self.applied;
            }
        }
        Ok(TxnResponse { succeeded, revision: self.applied, results })
    }

    /// Everything that could make a step fail, asked before the first one runs.
    fn check(&self, ops: &[Op]) -> Result<(), StoreError> {
        let mut written: BTreeSet<&Bytes> = BTreeSet::new();
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Put { key, lease, .. } => {
                    if let Some(lease) = lease.filter(|lease| !self.leases.contains_key(lease)) {
                        return Err(StoreError::LeaseNotFound(lease));
                    }
                    let deleted = |op: &Op| matches!(op, Op::Delete { start, end } if end.covers(start, key));
                    if !written.insert(key) || (ops.len() > 1 && ops[..i].iter().any(deleted)) {
                        return Err(StoreError::DuplicateKey { key: String::from_utf8_lossy(key).into_owned() });
                    }
                }
                Op::Delete { start, end } => {
                    if let Some(key) = written.iter().find(|key| end.covers(start, key)) {
                        return Err(StoreError::DuplicateKey { key: String::from_utf8_lossy(key).into_owned() });
                    }
                }
                Op::Range(range) => {
                    if let Some(at) = range.revision {
                        self.readable(at, self.applied)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, revision: Revision, key: &Bytes, value: Bytes, lease: Option<LeaseId>) -> Option<KeyValue> {
        let prev = self.newest(key);
        let create_revision = prev.as_ref().map_or(revision, |prev| prev.create_revision);
        let version = prev.as_ref().map_or(1, |prev| prev.version + 1);
        let kv = KeyValue { key: key.clone(), value, create_revision, mod_revision: revision, version, lease };
        self.record(WatchEvent { kind: WatchEventKind::Put, kv, prev: prev.clone() });
        prev
    }

    fn delete_range(&mut self, revision: Revision, start: &Bytes, end: &RangeEnd) -> Vec<KeyValue> {
        let deleted: Vec<KeyValue> =
            self.chains(start, end).filter_map(|(key, chain)| chain.newest.live(key)).collect();
        for prev in &deleted {
            self.record(deletion(revision, prev.clone()));
        }
        deleted
    }

    /// Enters one change into index, leases and history.
    fn record(&mut self, event: WatchEvent) {
        let kv = &event.kv;
        let was = event.prev.as_ref().and_then(|prev| prev.lease);
        if was != kv.lease {
            if let Some(lease) = was.and_then(|id| self.leases.get_mut(&id)) {
                lease.keys.remove(&kv.key);
            }
            if let Some(lease) = kv.lease.and_then(|id| self.leases.get_mut(&id)) {
                lease.keys.insert(kv.key.clone());
            }
        }
        let newest = Version {
            mod_revision: kv.mod_revision,
            create_revision: kv.create_revision,
            version: kv.version,
            value: (event.kind == WatchEventKind::Put).then(|| kv.value.clone()),
            lease: kv.lease,
        };
        match self.index.get_mut(&kv.key) {
            Some(chain) => {
                let former = std::mem::replace(&mut chain.newest, newest);
                chain.older.push(former);
            }
            None => {
                self.index.insert(kv.key.clone(), Chain { newest, older: Vec::new() });
            }
        }
        self.history.push_back(event);
    }

    /// Adds a lease. An id that exists keeps its keys.
    pub(super) fn grant(&mut self, id: LeaseId, ttl: Duration) {
        self.leases.entry(id).or_insert_with(|| Lease { ttl, keys: HashSet::new() }).ttl = ttl;
    }

    /// How long the lease lives after a keep-alive.
    pub(super) fn ttl(&self, id: LeaseId) -> Result<Duration, StoreError> {
        self.leases.get(&id).map(|lease| lease.ttl).ok_or(StoreError::LeaseNotFound(id))
    }

    /// All leases.
    pub(super) fn leases(&self) -> impl Iterator<Item = (LeaseId, Duration)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.ttl))
    }

    /// Ends a lease and deletes its keys, ascending, in one revision.
    pub(super) fn revoke(&mut self, id: LeaseId) -> Result<(), StoreError> {
        let lease = self.leases.remove(&id).ok_or(StoreError::LeaseNotFound(id))?;
        let revision = self.applied.next();
        let keys: BTreeSet<Bytes> = lease.keys.into_iter().collect();
        for key in keys {
            if let Some(prev) = self.newest(&key) {
                self.record(deletion(revision, prev));
                self.applied = revision;
            }
        }
        Ok(())
    }

    /// Enters the changes of a revision that was decided and journalled before the last restart.
    pub(super) fn replay(&mut self, revision: Revision, changes: &[Change<'_>]) {
        for change in changes {
            match change {
                Change::Put { key, value, lease } => {
                    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                    self.put(revision, &key, value, *lease);
                }
                Change::Delete { key } => {
                    if let Some(prev) = self.newest(&Bytes::copy_from_slice(key)) {
                        self.record(deletion(revision, prev));
                    }
                }
            }
        }
        self.applied = revision;
    }

    /// Removes a lease whose keys' deletion is replayed by itself.
    pub(super) fn forget_lease(&mut self, id: LeaseId) {
        self.leases.remove(&id);
    }

    /// The changes after `revision`, up to and with `until`. The caller knows that they are not compacted.
    pub(super) fn changes_since(&self, revision: Revision, until: Revision) -> impl Iterator<Item = &WatchEvent> {
        let first = self.history.partition_point(|event| event.kv.mod_revision <= revision);
        self.history.range(first..).take_while(move |event| event.kv.mod_revision <= until)
    }

    /// Whether every change from `from` on is still in the history.
    pub(super) fn watchable(&self, from: Revision) -> Result<(), StoreError> {
        if from <= self.compacted {
            return Err(StoreError::Compacted { requested: from, compacted: self.compacted });
        }
        Ok(())
    }

    /// Makes `revision` the oldest that can be read. [`Mvcc::sweep`] then frees the memory.
    pub(super) fn compact(&mut self, revision: Revision, visible: Revision) -> Result<(), StoreError> {
        if revision <= self.compacted {
            return Err(StoreError::Compacted { requested: revision, compacted: self.compacted });
        }
        if revision > visible {
            return Err(StoreError::FutureRevision { requested: revision, current: visible });
        }
        self.compacted = revision;
        Ok(())
    }

    /// Frees at most `max_changes` changes of the compacted history; true when nothing is left to free.
    pub(super) fn sweep(&mut self, max_changes: usize) -> bool {
        for _ in 0..max_changes {
            let Some(event) = self.history.front().filter(|event| event.kv.mod_revision <= self.compacted) else {
                return true;
            };
            let key = event.kv.key.clone();
            self.history.pop_front();
            // A superseded version is freed by the event of the version that superseded it, so no other key needs a look.
            if self.index.get_mut(&key).is_some_and(|chain| chain.compact(self.compacted)) {
                self.index.remove(&key);
            }
        }
        false
    }

    /// Every live key at the applied revision, for a snapshot.
    pub(super) fn live(&self) -> Vec<KeyValue> {
        self.index.iter().filter_map(|(key, chain)| chain.newest.live(key)).collect()
    }
}

fn deletion(revision: Revision, prev: KeyValue) -> WatchEvent {
    let kv = KeyValue {
        key: prev.key.clone(),
        value: Bytes::new(),
        create_revision: prev.create_revision,
        mod_revision: revision,
        version: 0,
        lease: None,
    };
    WatchEvent { kind: WatchEventKind::Delete, kv, prev: Some(prev) }
}
