//! Feeds all storage caches from one watch of the store, so that they share one revision: a read that has to see every
//! acknowledged write waits until the feed has passed the store's revision.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use super::object::CachedObject;
use super::storage::{StorageCache, StorageSpec};
use crate::store::{KeyValue, RangeRequest, Revision, Store, StoreError, WatchEventKind, WatchItem, WatchRequest};

/// What all keys of the API server begin with.
pub const ROOT: &str = "/registry/";

/// How long a read waits for the feed before it gives up.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why the caches cannot be filled or cannot answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FeedError {
    /// The store failed.
    #[error("reading {ROOT} from the store failed")]
    Store(#[source] StoreError),
    /// The feed did not reach a revision in time.
    #[error("the watch cache is at revision {current}, waited for {wanted}")]
    Late {
        /// The revision that was waited for.
        wanted: i64,
        /// The revision reached.
        current: i64,
    },
    /// The feed has ended.
    #[error("the watch cache has ended")]
    Ended,
}

/// A change of one key, still to be applied.
type Pending = (Box<str>, i64, Option<Arc<CachedObject>>);

type Caches = Arc<RwLock<HashMap<Arc<str>, Arc<StorageCache>>>>;

/// All storage caches and the task that feeds them. The task ends with the last handle.
pub struct Feed {
    store: Arc<dyn Store>,
    caches: Caches,
    revision: watch::Receiver<i64>,
    additions: mpsc::UnboundedSender<Addition>,
    _task: AbortOnDropHandle<()>,
}

struct Addition {
    spec: StorageSpec,
    done: oneshot::Sender<Arc<StorageCache>>,
}

impl Feed {
    /// Reads the present state and follows the store from there.
    ///
    /// # Errors
    /// [`FeedError::Store`] when the first read fails.
    pub async fn start(store: Arc<dyn Store>, specs: Vec<StorageSpec>) -> Result<Feed, FeedError> {
        let caches: HashMap<Arc<str>, Arc<StorageCache>> =
            specs.into_iter().map(|spec| (spec.prefix.clone(), Arc::new(StorageCache::new(spec)))).collect();
        let caches: Caches = Arc::new(RwLock::new(caches));
        let (additions, receiver) = mpsc::unbounded_channel();
        let (sender, revision) = watch::channel(0);
        let mut worker = Worker { store: store.clone(), caches: caches.clone(), revision: sender, additions: receiver };
        let start = worker.reload().await.map_err(FeedError::Store)?;
        let task = AbortOnDropHandle::new(tokio::spawn(async move { worker.run(start).await }));
        Ok(Feed { store, caches, revision, additions, _task: task })
    }

    /// The cache of a storage prefix.
    pub fn cache(&self, prefix: &str) -> Option<Arc<StorageCache>> {
        self.caches.read().unwrap_or_else(PoisonError::into_inner).get(prefix).cloned()
    }

    /// Adds a storage prefix while the server runs; one that is there already is returned.
    ///
    /// # Errors
    /// [`FeedError::Ended`].
    pub async fn add(&self, spec: StorageSpec) -> Result<Arc<StorageCache>, FeedError> {
        let (done, added) = oneshot::channel();
        self.additions.send(Addition { spec, done }).map_err(|_| FeedError::Ended)?;
        added.await.map_err(|_| FeedError::Ended)
    }

    /// The revision up to which all caches know everything.
    pub fn revision(&self) -> i64 {
        *self.revision.borrow()
    }

    /// Waits until every write that was acknowledged before this call is in the caches.
    ///
    /// # Errors
    /// [`FeedError`] when the store cannot be asked or the feed does not get there.
    pub async fn catch_up(&self) -> Result<i64, FeedError> {
        let wanted = self.store.revision().await.map_err(FeedError::Store)?;
        self.wait_for(wanted.0).await
    }

    /// Waits until the caches know everything up to a revision.
    ///
    /// # Errors
    /// [`FeedError::Late`] after three seconds, [`FeedError::Ended`].
    pub async fn wait_for(&self, wanted: i64) -> Result<i64, FeedError> {
        if self.revision() >= wanted {
            return Ok(self.revision());
        }
        let mut revision = self.revision.clone();
        let waited = tokio::time::timeout(PATIENCE, revision.wait_for(|revision| *revision >= wanted)).await;
        match waited {
            Ok(Ok(reached)) => Ok(*reached),
            Ok(Err(_)) => Err(FeedError::Ended),
            Err(_) => Err(FeedError::Late { wanted, current: self.revision() }),
        }
    }
}

struct Worker {
    store: Arc<dyn Store>,
    caches: Caches,
    revision: watch::Sender<i64>,
    additions: mpsc::UnboundedReceiver<Addition>,
}

impl Worker {
    async fn run(&mut self, mut from: i64) {
        loop {
            let failure = self.follow(from).await;
            tracing::debug!(%failure, "the watch of the store ended, reading everything again");
            from = loop {
                match self.reload().await {
                    Ok(revision) => break revision,
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "reading the store failed, trying again in a second");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            };
        }
    }

    /// Applies changes after `from` until the watch ends; says why it did.
    async fn follow(&mut self, from: i64) -> StoreError {
        let mut watch = self.store.watch(WatchRequest::prefix(ROOT, Some(Revision(from + 1))));
        loop {
            tokio::select! {
                item = watch.next() => match item {
                    Some(Ok(WatchItem::Events { revision, events })) => {
                        let mut changes: HashMap<Arc<str>, Vec<Pending>> = HashMap::new();
                        for event in events {
                            let deleted = event.kind == WatchEventKind::Delete;
                            self.sort_in(&event.kv, deleted, &mut changes);
                        }
                        self.apply(changes, revision.0);
                    }
                    Some(Ok(WatchItem::Progress(revision))) => self.apply(HashMap::new(), revision.0),
                    Some(Err(error)) => return error,
                    None => return StoreError::Closed,
                },
                Some(addition) = self.additions.recv() => self.add(addition).await,
            }
        }
    }

    fn apply(&self, mut changes: HashMap<Arc<str>, Vec<Pending>>, revision: i64) {
        let caches = self.caches.read().unwrap_or_else(PoisonError::into_inner);
        for (prefix, changes) in changes.drain() {
            if let Some(cache) = caches.get(&prefix) {
                cache.apply(changes, revision);
            }
        }
        drop(caches);
        self.revision.send_replace(revision);
    }

    /// Decodes a key's change and files it under its storage prefix; keys of no known prefix are left alone.
    fn sort_in(&self, kv: &KeyValue, deleted: bool, changes: &mut HashMap<Arc<str>, Vec<Pending>>) {
        let Some((cache, key)) = self.locate(&kv.key) else {
            return;
        };
        let spec = cache.spec();
        let object = (!deleted).then(|| Arc::new(CachedObject::new(spec, key, &kv.value, kv.mod_revision.0)));
        changes.entry(spec.prefix.clone()).or_default().push((key.into(), kv.mod_revision.0, object));
    }

    /// The cache of a store key and the part of the key behind the prefix. Prefixes have one or two segments.
    fn locate<'k>(&self, key: &'k Bytes) -> Option<(Arc<StorageCache>, &'k str)> {
        let path = std::str::from_utf8(key).ok()?.strip_prefix(ROOT)?;
        let caches = self.caches.read().unwrap_or_else(PoisonError::into_inner);
        let slashes = path.match_indices('/').take(2).map(|(at, _)| at);
        slashes.filter_map(|at| caches.get(&path[..at]).map(|cache| (cache.clone(), &path[at + 1..]))).next()
    }

    /// Reads everything at one revision.
    async fn reload(&mut self) -> Result<i64, StoreError> {
        let range = self.store.range(RangeRequest::prefix(ROOT)).await?;
        let revision = range.revision.0;
        let mut objects: HashMap<Arc<str>, BTreeMap<Box<str>, Arc<CachedObject>>> = HashMap::new();
        for kv in &range.kvs {
            if let Some((cache, key)) = self.locate(&kv.key) {
                let object = Arc::new(CachedObject::new(cache.spec(), key, &kv.value, kv.mod_revision.0));
                objects.entry(cache.spec().prefix.clone()).or_default().insert(key.into(), object);
            }
        }
        let caches = self.caches.read().unwrap_or_else(PoisonError::into_inner);
        for (prefix, cache) in caches.iter() {
            cache.load(objects.remove(prefix).unwrap_or_default(), revision);
        }
        drop(caches);
        self.revision.send_replace(revision);
        Ok(revision)
    }

    async fn add(&mut self, addition: Addition) {
        let known = self.caches.read().unwrap_or_else(PoisonError::into_inner).get(&addition.spec.prefix).cloned();
        if let Some(cache) = known {
            // The one who asked may be gone; then nobody needs the answer.
            let _ = addition.done.send(cache);
            return;
        }
        let revision = *self.revision.borrow();
        let prefix = addition.spec.prefix.clone();
        let start = format!("{ROOT}{prefix}/");
        let range = match self.store.range(RangeRequest::prefix(start.clone()).at(Revision(revision))).await {
            Ok(range) => range,
            Err(error) => {
                tracing::warn!(%error, %prefix, "reading a new storage prefix failed");
                return;
            }
        };
        let cache = Arc::new(StorageCache::new(addition.spec));
        let mut objects = BTreeMap::new();
        for kv in &range.kvs {
            if let Some(key) = std::str::from_utf8(&kv.key).ok().and_then(|key| key.strip_prefix(&start)) {
                let object = CachedObject::new(cache.spec(), key, &kv.value, kv.mod_revision.0);
                objects.insert(Box::from(key), Arc::new(object));
            }
        }
        cache.load(objects, revision);
        self.caches.write().unwrap_or_else(PoisonError::into_inner).insert(prefix, cache.clone());
        let _ = addition.done.send(cache);
    }
}
