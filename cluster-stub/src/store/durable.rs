//! The store that survives its process: an append-only log of checksummed frames with snapshots, and the state in memory.
//!
//! A log of our own and not an embedded database: the whole state is in memory anyway (as it is in the API server's watch
//! cache), so that a commit needs one sequential write and one sync for all writers that wait, and no page is written twice.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::engine::Engine;
use super::recovery::{self, OpenError};
use super::{
    LeaseId, RangeRequest, RangeResponse, Revision, Store, StoreError, TxnRequest, TxnResponse, WatchItem, WatchRequest,
};

/// A store on disk. An acknowledged write survives the end of the process at any moment, and of the machine as far as
/// the disk keeps what it was told to sync. Nothing is seen by a reader or a watcher before it is durable. Dropping the
/// store ends its watches with [`StoreError::Closed`] and lets go of the directory.
#[derive(Debug)]
pub struct DurableStore {
    engine: Arc<Engine>,
}

impl DurableStore {
    /// Opens the data directory `dir`, creating it if it does not exist. Blocks while it reads what is there. Must be
    /// called inside a tokio runtime, which then watches over the leases. The history since the last snapshot stays
    /// watchable over a restart; leases begin their time anew.
    ///
    /// # Errors
    /// [`OpenError::Io`] if the directory or a file in it cannot be made, read or written; [`OpenError::Locked`] if
    /// another process has it open; [`OpenError::Corrupt`] if a file is damaged other than by a crash while appending.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let (state, journal) = recovery::open(dir)?;
        let engine = Arc::new(Engine::new(state, Some(journal)));
        engine.start().map_err(|source| OpenError::Io {
            dir: dir.to_owned(),
            action: "start the writer of",
            path: dir.to_owned(),
            source,
        })?;
        Ok(Self { engine })
    }
}

impl Drop for DurableStore {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl Store for DurableStore {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, StoreError>> {
        async move { self.engine.range(&request) }.boxed()
    }

    fn txn(&self, request: TxnRequest) -> BoxFuture<'_, Result<TxnResponse, StoreError>> {
        self.engine.txn(request)
    }

    fn watch(&self, request: WatchRequest) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        self.engine.watch(request)
    }

    fn request_progress(&self, key: &[u8]) {
        self.engine.watchers().request_progress(key);
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>> {
        self.engine.lease_grant(ttl).boxed()
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration, StoreError>> {
        async move { self.engine.lease_keep_alive(lease) }.boxed()
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.engine.lease_revoke(lease).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.engine.compact(revision).boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move { Ok(self.engine.visible()) }.boxed()
    }
}
