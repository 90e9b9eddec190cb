//! The store that lives in memory and ends with the process.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::engine::Engine;
use super::mvcc::Mvcc;
use super::{
    LeaseId, RangeRequest, RangeResponse, Revision, Store, StoreError, TxnRequest, TxnResponse, WatchItem, WatchRequest,
};

/// A store in memory. Dropping it ends its watches with [`StoreError::Closed`].
///
/// ```
/// use cluster_stub::store::memory::MemoryStore;
/// use cluster_stub::store::{RangeRequest, Store, TxnRequest};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// let created = store.txn(TxnRequest::create("/a", "1", None)).await.unwrap();
/// let again = store.txn(TxnRequest::create("/a", "2", None)).await.unwrap();
/// assert!(created.succeeded && !again.succeeded);
/// assert_eq!(again.current().unwrap().value, "1");
/// assert_eq!(store.range(RangeRequest::prefix("/")).await.unwrap().count, 1);
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    engine: Arc<Engine>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { engine: Arc::new(Engine::new(Mvcc::new(), None)) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl Store for MemoryStore {
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
