//! Watches: who follows which keys, and waking them. Events are not queued per watcher: each reads the shared history
//! at its own pace, so a slow one costs writers one atomic and no memory.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::Notify;

use super::engine::Engine;
use super::{RangeEnd, Revision, StoreError, WatchEvent, WatchItem, WatchRequest};

/// Most events of one item, unless one revision alone has more: bounds how long a reader holds the state's read lock.
const EVENTS_PER_ITEM: usize = 1024;

/// One watcher's mailbox.
#[derive(Debug)]
pub(super) struct Watcher {
    start: Bytes,
    end: RangeEnd,
    progress: bool,
    /// The first revision that may concern this watcher and that it has not looked at; 0 for none.
    pending: AtomicI64,
    progress_wanted: AtomicBool,
    wake: Notify,
}

/// All watchers of a store.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    list: RwLock<Vec<Arc<Watcher>>>,
}

impl Watchers {
    fn add(&self, watcher: &Arc<Watcher>) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).push(watcher.clone());
    }

    fn remove(&self, watcher: &Arc<Watcher>) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, watcher));
    }

    /// Tells whom `changes` concern. They must be visible already.
    pub(super) fn publish<'a>(&self, changes: impl Iterator<Item = &'a WatchEvent>) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        if list.is_empty() {
            return;
        }
        for event in changes {
            for watcher in list.iter().filter(|watcher| watcher.end.covers(&watcher.start, &event.kv.key)) {
                let revision = event.kv.mod_revision.0;
                if watcher.pending.compare_exchange(0, revision, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    watcher.wake.notify_one();
                }
            }
        }
    }

    /// Asks the watchers of `key` for their progress.
    pub(super) fn request_progress(&self, key: &[u8]) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for watcher in list.iter().filter(|w| w.progress && w.end.covers(&w.start, key)) {
            watcher.progress_wanted.store(true, Ordering::Release);
            watcher.wake.notify_one();
        }
    }

    /// Wakes everyone, so that they see that the store is closed.
    pub(super) fn wake_all(&self) {
        for watcher in self.list.read().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.wake.notify_one();
        }
    }
}

/// A watcher and its place in the history.
struct Cursor {
    engine: Arc<Engine>,
    watcher: Arc<Watcher>,
    /// The next revision to report.
    next: Revision,
    prev_kv: bool,
    ended: bool,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.engine.watchers().remove(&self.watcher);
    }
}

/// Opens a watch; its place is taken now.
pub(super) fn watch(
    engine: Arc<Engine>,
    request: WatchRequest,
) -> impl Stream<Item = Result<WatchItem, StoreError>> + Send + 'static {
    let WatchRequest { start, end, from, prev_kv, progress } = request;
    let watcher = Arc::new(Watcher {
        start,
        end,
        progress,
        pending: AtomicI64::new(0),
        progress_wanted: AtomicBool::new(false),
        wake: Notify::new(),
    });
    // First listed, then placed: a change in between is reported twice to the mailbox but once to the reader.
    engine.watchers().add(&watcher);
    let next = from.unwrap_or_else(|| engine.visible().next());
    watcher.pending.store(next.0.max(1), Ordering::Release);
    let cursor = Cursor { engine, watcher, next, prev_kv, ended: false };
    futures::stream::unfold(cursor, |mut cursor| async move {
        let item = cursor.item().await?;
        cursor.ended = item.is_err();
        Some((item, cursor))
    })
}

impl Cursor {
    async fn item(&mut self) -> Option<Result<WatchItem, StoreError>> {
        if self.ended {
            return None;
        }
        loop {
            // Read before the mailbox, so that the progress reported covers every event before the request.
            let progress = self.watcher.progress_wanted.swap(false, Ordering::AcqRel);
            let pending = Revision(self.watcher.pending.swap(0, Ordering::AcqRel));
            if pending.0 != 0 {
                match self.read(pending.max(self.next)) {
                    Ok(Some(item)) => {
                        if progress {
                            self.watcher.progress_wanted.store(true, Ordering::Release);
                        }
                        return Some(Ok(item));
                    }
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            if progress {
                let visible = self.engine.visible();
                // Something may have come in meanwhile: then the next turn reports it first.
                if self.watcher.pending.load(Ordering::Acquire) == 0 && visible.next() >= self.next {
                    return Some(Ok(WatchItem::Progress(visible)));
                }
                self.watcher.progress_wanted.store(true, Ordering::Release);
                if visible.next() >= self.next {
                    continue;
                }
            }
            if self.engine.is_closed() {
                return Some(Err(StoreError::Closed));
            }
            self.watcher.wake.notified().await;
        }
    }

    /// The events from `from` on, whole revisions, and moves past them.
    fn read(&mut self, from: Revision) -> Result<Option<WatchItem>, StoreError> {
        let engine = self.engine.clone();
        let (state, visible) = engine.read();
        // Not `self.next`: up to `from` nothing concerned this watcher, so nothing that it misses is gone.
        state.watchable(from)?;
        let mut events: Vec<WatchEvent> = Vec::new();
        let mut reached = visible;
        for event in state.changes_since(Revision(from.0 - 1), visible) {
            if !self.watcher.end.covers(&self.watcher.start, &event.kv.key) {
                continue;
            }
            if events.len() >= EVENTS_PER_ITEM
                && let Some(last) = events.last().map(|last| last.kv.mod_revision)
                && event.kv.mod_revision > last
            {
                reached = Revision(event.kv.mod_revision.0 - 1);
                // The rest is for the next turn, whatever else arrives until then.
                self.watcher.pending.store(event.kv.mod_revision.0, Ordering::Release);
                break;
            }
            let mut event = event.clone();
            if !self.prev_kv {
                event.prev = None;
            }
            events.push(event);
        }
        drop(state);
        self.next = self.next.max(reached.next());
        Ok((!events.is_empty()).then_some(WatchItem::Events { revision: reached, events }))
    }
}
