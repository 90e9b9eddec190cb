//! What both embedded backends share: the state behind its lock, what of it is visible, the watchers, the leases' clock.
//! With a journal, a change becomes visible only when the journal has made it durable.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::journal::Journal;
use super::mvcc::Mvcc;
use super::record::Record;
use super::watch::{self, Watchers};
use super::{
    LeaseId, RangeRequest, RangeResponse, Revision, StoreError, TxnRequest, TxnResponse, WatchItem, WatchRequest,
};

/// Changes freed in one hold of the write lock while compacting: a few milliseconds at most.
const SWEEP_STEP: usize = 4096;

/// An embedded store. The backends wrap it.
#[derive(Debug)]
pub(super) struct Engine {
    state: RwLock<Mvcc>,
    /// The newest revision that readers and watchers see.
    visible: AtomicI64,
    watchers: Watchers,
    journal: Option<Journal>,
    deadlines: Mutex<HashMap<LeaseId, Instant>>,
    deadline_changed: Notify,
    expiry_runs: AtomicBool,
    closed: AtomicBool,
}

impl Engine {
    /// An engine over `state`, all of which is visible.
    pub(super) fn new(state: Mvcc, journal: Option<Journal>) -> Self {
        Self {
            visible: AtomicI64::new(state.applied().0),
            state: RwLock::new(state),
            watchers: Watchers::default(),
            journal,
            deadlines: Mutex::default(),
            deadline_changed: Notify::new(),
            expiry_runs: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// The newest visible revision.
    pub(super) fn visible(&self) -> Revision {
        Revision(self.visible.load(Ordering::Acquire))
    }

    /// The state, locked for reading, and the newest revision that may be read from it.
    pub(super) fn read(&self) -> (RwLockReadGuard<'_, Mvcc>, Revision) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        (state, self.visible())
    }

    /// The watchers.
    pub(super) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Whether [`Engine::close`] was called.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends every watch, refuses further writes, and waits until the journal has written what it holds.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(journal) = &self.journal {
            journal.close();
        }
        self.watchers.wake_all();
        self.deadline_changed.notify_one();
    }

    /// Shows everything up to `revision` to readers and watchers. The journal calls this in order of revision.
    pub(super) fn publish(&self, revision: Revision) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        self.show(&state, revision);
    }

    fn show(&self, state: &Mvcc, revision: Revision) {
        let before = Revision(self.visible.swap(revision.0, Ordering::AcqRel));
        self.watchers.publish(state.changes_since(before, revision));
    }

    /// Decides a change under the write lock, journals it, and waits until it is durable and visible. `decide` returns
    /// its answer and whether something besides the keys (a lease, a compaction) has to be journalled.
    async fn write<T: Send>(
        &self,
        decide: impl FnOnce(&mut Mvcc) -> Result<(T, Option<Record<'static>>), StoreError> + Send,
    ) -> Result<T, StoreError> {
        let (answer, durable) = {
            if self.is_closed() {
                return Err(StoreError::Closed);
            }
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(journal) = &self.journal {
                journal.check()?;
            }
            let before = state.applied();
            let (answer, record) = decide(&mut state)?;
            let applied = state.applied();
            match &self.journal {
                None => {
                    if applied > before {
                        self.show(&state, applied);
                    }
                    (answer, None)
                }
                Some(journal) => {
                    let changes = state.changes_since(before, applied);
                    // Even an answer that changed nothing may rest on changes that are not durable yet.
                    let waits = applied > self.visible() || record.is_some();
                    let ticket = waits.then(|| journal.append(record, applied, changes));
                    if journal.wants_snapshot() {
                        journal.start_snapshot(applied, state.leases().collect(), state.live());
                    }
                    (answer, ticket)
                }
            }
        };
        if let Some(durable) = durable {
            durable.await.unwrap_or(Err(StoreError::Closed))?;
        }
        Ok(answer)
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        let (state, visible) = self.read();
        state.range(request, visible)
    }

    pub(super) fn txn(&self, request: TxnRequest) -> BoxFuture<'_, Result<TxnResponse, StoreError>> {
        self.write(move |state| Ok((state.txn(&request)?, None))).boxed()
    }

    pub(super) fn watch(self: &Arc<Self>, request: WatchRequest) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        watch::watch(self.clone(), request).boxed()
    }

    pub(super) async fn lease_grant(self: &Arc<Self>, ttl: Duration) -> Result<LeaseId, StoreError> {
        let id = LeaseId(rand::random_range(1..i64::MAX));
        self.write(move |state| {
            state.grant(id, ttl);
            Ok(((), Some(Record::LeaseGrant { id, ttl })))
        })
        .await?;
        self.set_deadline(id, ttl);
        Ok(id)
    }

    pub(super) fn lease_keep_alive(self: &Arc<Self>, id: LeaseId) -> Result<Duration, StoreError> {
        let ttl = self.read().0.ttl(id)?;
        self.set_deadline(id, ttl);
        Ok(ttl)
    }

    pub(super) async fn lease_revoke(&self, id: LeaseId) -> Result<(), StoreError> {
        self.write(move |state| {
            state.revoke(id)?;
            Ok(((), Some(Record::LeaseRevoke { id })))
        })
        .await?;
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        Ok(())
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let visible = self.visible();
        self.write(move |state| {
            state.compact(revision, visible)?;
            Ok(((), Some(Record::Compact { revision })))
        })
        .await?;
        while !self.state.write().unwrap_or_else(PoisonError::into_inner).sweep(SWEEP_STEP) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Starts the journal's writer and the clock of leases that were there when the store was opened: each gets its
    /// whole time anew, as after a change of leader in etcd. Must run inside a tokio runtime if there are leases.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        if let Some(journal) = &self.journal {
            let engine = Arc::downgrade(self);
            journal.start(move |revision| {
                if let Some(engine) = engine.upgrade() {
                    engine.publish(revision);
                }
            })?;
        }
        let leases: Vec<_> = self.read().0.leases().collect();
        for (id, ttl) in leases {
            self.set_deadline(id, ttl);
        }
        Ok(())
    }

    fn set_deadline(self: &Arc<Self>, id: LeaseId, ttl: Duration) {
        let deadline = Instant::now() + ttl;
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner).insert(id, deadline);
        self.deadline_changed.notify_one();
        if !self.expiry_runs.swap(true, Ordering::AcqRel) {
            tokio::spawn(expire_leases(Arc::downgrade(self)));
        }
    }

    /// The leases that are over at `now`, and when the next one ends.
    fn due(&self, now: Instant) -> (Vec<LeaseId>, Option<Instant>) {
        let deadlines = self.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        let due = deadlines.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        (due, deadlines.values().filter(|at| **at > now).min().copied())
    }
}

/// Revokes leases as they end, until the engine is closed or gone.
async fn expire_leases(engine: Weak<Engine>) {
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let (due, next) = engine.due(Instant::now());
        for id in due {
            match engine.lease_revoke(id).await {
                Ok(()) | Err(StoreError::LeaseNotFound(_)) => {
                    engine.deadlines.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                }
                // A failed disk takes no deletions either; the store says so to every writer.
                Err(_) => return,
            }
        }
        if engine.is_closed() {
            return;
        }
        let changed = engine.deadline_changed.notified();
        match next {
            Some(at) => {
                // A second at most, so that a dropped store is let go of soon.
                let at = at.min(Instant::now() + Duration::from_secs(1));
                tokio::select! { () = tokio::time::sleep_until(at) => {}, () = changed => {} }
            }
            None => changed.await,
        }
    }
}
