//! The write-ahead log's writer: collects what many writers decided, puts it on disk with one write and one sync, and
//! only then lets them answer. Reading a log back is the recovery's.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::files::{self, SEGMENT_MAGIC};
use super::record::{self, Change, Record};
use super::snapshot::{self, Snapshot};
use super::{KeyValue, LeaseId, Revision, StoreError, WatchEvent};

/// A log of fewer bytes is never worth a snapshot.
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

/// Told when a write is durable, or why it is not.
pub(super) type Ticket = oneshot::Receiver<Result<(), StoreError>>;

/// The writer of a data directory's log. See the module.
#[derive(Debug)]
pub(super) struct Journal {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    segment: Mutex<Option<Segment>>,
    /// Held while the store is open, so that no second process opens the directory.
    lock: Mutex<Option<File>>,
}

/// The file that is written to.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// The first revision that it can hold.
    pub(super) first: Revision,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    queue: Mutex<Queue>,
    wake: Condvar,
    log_bytes: AtomicU64,
    snapshot_after: AtomicU64,
    snapshot_runs: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    failed: Option<StoreError>,
    closed: bool,
}

/// What one write and one sync make durable.
#[derive(Debug)]
struct Batch {
    frame: Vec<u8>,
    last: Revision,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
    /// Written after this batch; what comes later goes into a new segment.
    snapshot: Option<Snapshot>,
}

impl Journal {
    /// A journal that goes on writing to `segment`. `log_bytes`: how much log there is since the last snapshot.
    pub(super) fn new(dir: &Path, segment: Segment, lock: File, log_bytes: u64) -> Self {
        let shared = Shared {
            dir: dir.to_owned(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            log_bytes: AtomicU64::new(log_bytes),
            snapshot_after: AtomicU64::new(SNAPSHOT_AFTER_BYTES),
            snapshot_runs: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            thread: Mutex::default(),
            segment: Mutex::new(Some(segment)),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// Starts the thread that writes. `publish` is called with each revision that has become durable, in order.
    pub(super) fn start(&self, publish: impl Fn(Revision) + Send + 'static) -> io::Result<()> {
        let Some(segment) = lock(&self.segment).take() else { return Ok(()) };
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("store-journal".to_owned())
            .spawn(move || Writer { shared, segment }.run(publish))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Whether the disk still takes writes.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &lock(&self.shared.queue).failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Queues one decision; the caller holds the state's write lock, so that the order is the state's. `changes` are
    /// all of revision `applied`.
    pub(super) fn append<'a>(
        &self,
        record: Option<Record<'static>>,
        applied: Revision,
        changes: impl Iterator<Item = &'a WatchEvent>,
    ) -> Ticket {
        let (waiter, ticket) = oneshot::channel();
        let changes: Vec<Change<'_>> = changes.map(Change::from).collect();
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            // Nobody would ever write it: dropping the sender tells the caller.
            return ticket;
        }
        if queue.batches.back().is_none_or(|batch| batch.snapshot.is_some()) {
            let batch = Batch { frame: Vec::new(), last: applied, waiters: Vec::new(), snapshot: None };
            queue.batches.push_back(batch);
        }
        let batch = queue.batches.back_mut().expect("a batch was pushed if there was none");
        let before = batch.frame.len();
        if record.is_some() || !changes.is_empty() {
            if batch.frame.is_empty() {
                record::begin_frame(&mut batch.frame);
            }
            if let Some(record) = record {
                record.encode(&mut batch.frame);
            }
            if !changes.is_empty() {
                Record::Commit { revision: applied, changes }.encode(&mut batch.frame);
            }
        }
        let bytes = batch.frame.len() - before;
        batch.last = applied;
        batch.waiters.push(waiter);
        drop(queue);
        self.shared.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.shared.wake.notify_one();
        ticket
    }

    /// Whether the log has grown so long that a snapshot should replace it.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.shared.log_bytes.load(Ordering::Relaxed) > self.shared.snapshot_after.load(Ordering::Relaxed)
            && !self.shared.snapshot_runs.load(Ordering::Acquire)
    }

    /// Begins a snapshot of the state at `revision`; called under the state's write lock, right after an append.
    pub(super) fn start_snapshot(&self, revision: Revision, leases: Vec<(LeaseId, Duration)>, kvs: Vec<KeyValue>) {
        let mut queue = lock(&self.shared.queue);
        if let Some(batch) = queue.batches.back_mut().filter(|batch| batch.snapshot.is_none()) {
            self.shared.snapshot_runs.store(true, Ordering::Release);
            self.shared.log_bytes.store(0, Ordering::Relaxed);
            batch.snapshot = Some(Snapshot { revision, leases, kvs });
        }
    }

    /// Writes what is queued, ends the thread and lets go of the directory.
    pub(super) fn close(&self) {
        lock(&self.shared.queue).closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic in the thread has failed its waiters already: their channels are closed.
            let _ = thread.join();
        }
        lock(&self.lock).take();
    }
}

/// The thread's side.
struct Writer {
    shared: Arc<Shared>,
    segment: Segment,
}

impl Writer {
    fn run(mut self, publish: impl Fn(Revision)) {
        let mut snapshots: Vec<JoinHandle<()>> = Vec::new();
        while let Some((batch, failed)) = self.next() {
            let outcome = match failed {
                Some(error) => Err(error),
                None => self.write(batch.frame),
            };
            match &outcome {
                Ok(()) => publish(batch.last),
                Err(error) => lock(&self.shared.queue).failed = Some(error.clone()),
            }
            for waiter in batch.waiters {
                // Whoever no longer listens has dropped its request.
                let _ = waiter.send(outcome.clone());
            }
            if let (Ok(()), Some(snapshot)) = (outcome, batch.snapshot) {
                if let Err(error) = self.rotate(snapshot.revision.next()) {
                    lock(&self.shared.queue).failed = Some(error);
                    continue;
                }
                snapshots.retain(|thread| !thread.is_finished());
                snapshots.extend(spawn_snapshot(self.shared.clone(), snapshot));
            }
        }
        for thread in snapshots {
            let _ = thread.join();
        }
    }

    fn next(&self) -> Option<(Batch, Option<StoreError>)> {
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                return Some((batch, queue.failed.clone()));
            }
            if queue.closed {
                return None;
            }
            queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write(&mut self, mut frame: Vec<u8>) -> Result<(), StoreError> {
        if frame.is_empty() {
            return Ok(());
        }
        record::finish_frame(&mut frame);
        let Segment { file, path, .. } = &mut self.segment;
        file.write_all(&frame).map_err(|source| io_error(path, "append", source))?;
        file.sync_data().map_err(|source| io_error(path, "sync", source))
    }

    fn rotate(&mut self, first: Revision) -> Result<(), StoreError> {
        if first == self.segment.first {
            return Ok(());
        }
        let path = files::segment_path(&self.shared.dir, first);
        let file = files::create(&path, SEGMENT_MAGIC).map_err(|source| io_error(&path, "create", source))?;
        self.segment = Segment { file, path, first };
        Ok(())
    }
}

/// Writes a snapshot beside the log; afterwards what it replaces is removed. A failure leaves the log as it is, which
/// loses nothing, and the next snapshot is tried when the log has grown as much again.
fn spawn_snapshot(shared: Arc<Shared>, snapshot: Snapshot) -> Option<JoinHandle<()>> {
    let work = move || {
        let written = snapshot::write(&shared.dir, &snapshot)
            .and_then(|bytes| files::remove_before(&shared.dir, snapshot.revision).map(|()| bytes));
        match written {
            Ok(bytes) => {
                shared.snapshot_after.store(SNAPSHOT_AFTER_BYTES.max(2 * bytes), Ordering::Relaxed);
            }
            Err(error) => {
                tracing::warn!(dir = %shared.dir.display(), %error, "snapshot of the store failed, its log goes on growing");
            }
        }
        shared.snapshot_runs.store(false, Ordering::Release);
    };
    std::thread::Builder::new().name("store-snapshot".to_owned()).spawn(work).ok()
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), action, source: Arc::new(source) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
