//! One watch of a kind for all controllers: keeps the cache and tells the handlers what changed. Decides nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::api::Object;
use super::cache::{Cache, IndexFn};
use super::key::ObjectKey;
use cluster_stub_base::reflector::{self, ChangeKind, Form, Sink};

/// What happened to an object.
#[derive(Debug)]
pub(crate) enum Delta<'a, K> {
    /// It was seen for the first time.
    Added(&'a Arc<K>),
    /// It changed.
    Updated {
        /// As it was.
        old: &'a Arc<K>,
        /// As it is.
        new: &'a Arc<K>,
    },
    /// It is gone; this is its last known state.
    Deleted(&'a Arc<K>),
}

// By hand: deriving would ask for `K: Copy`, although only references are copied.
impl<K> Clone for Delta<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Delta<'_, K> {}

impl<'a, K> Delta<'a, K> {
    /// The newest known state.
    pub(crate) fn object(&self) -> &'a Arc<K> {
        match self {
            Self::Added(object) | Self::Deleted(object) | Self::Updated { new: object, .. } => object,
        }
    }

    /// The state before the change, where there was one.
    pub(crate) fn old(&self) -> Option<&'a Arc<K>> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added(_) | Self::Deleted(_) => None,
        }
    }

    /// Whether the object is gone.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted(_))
    }
}

type Handler<K> = Box<dyn Fn(Delta<'_, K>) + Send + Sync>;

/// A shared informer; cheap to clone. Upstream: client-go v1.36.2 `SharedIndexInformer`.
pub(crate) struct Informer<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    cache: Cache<K>,
    handlers: RwLock<Vec<Handler<K>>>,
    /// Keys that the running list has named so far.
    listed: Mutex<HashSet<ObjectKey>>,
    synced: watch::Sender<bool>,
    started: OnceLock<()>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Object> std::ops::Deref for Informer<K> {
    type Target = Cache<K>;
    fn deref(&self) -> &Cache<K> {
        &self.shared.cache
    }
}

impl<K: Object> Informer<K> {
    /// An informer that has seen nothing yet. `index` names the extra terms by which objects are found.
    pub(crate) fn new(index: Option<IndexFn<K>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                cache: Cache::new(index),
                handlers: RwLock::new(Vec::new()),
                listed: Mutex::new(HashSet::new()),
                synced: watch::Sender::new(false),
                started: OnceLock::new(),
            }),
        }
    }

    /// Calls `handler` for every change from now on. It runs on the informer's task and must not block.
    pub(crate) fn on_change(&self, handler: impl Fn(Delta<'_, K>) + Send + Sync + 'static) {
        self.shared.handlers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(handler));
    }

    /// Lists and watches through `client` until `shutdown`.
    pub(crate) async fn run(&self, client: kube::Client, shutdown: CancellationToken) {
        if self.shared.started.set(()).is_ok() {
            reflector::run(client, K::url_path(&(), None), Form::Full, self.shared.as_ref(), shutdown).await;
        }
    }

    /// Waits until the first list is complete.
    pub(crate) async fn synced(&self) {
        // An error means that the sender is gone, and it lives as long as `self`.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }
}

impl<K: Object> Shared<K> {
    fn tell(&self, delta: Delta<'_, K>) {
        for handler in self.handlers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            handler(delta);
        }
    }

    fn put(&self, mut object: K) {
        // Nobody reads them here, and they are often larger than the object itself.
        object.meta_mut().managed_fields = None;
        let new = Arc::new(object);
        match self.cache.put(&new) {
            None => self.tell(Delta::Added(&new)),
            Some(old) if old.meta().resource_version == new.meta().resource_version => {}
            Some(old) if old.meta().uid != new.meta().uid => {
                // Deleted and made again under the same name while nobody watched.
                self.tell(Delta::Deleted(&old));
                self.tell(Delta::Added(&new));
            }
            Some(old) => self.tell(Delta::Updated { old: &old, new: &new }),
        }
    }

    fn remove(&self, key: &ObjectKey) {
        if let Some(old) = self.cache.remove(key) {
            self.tell(Delta::Deleted(&old));
        }
    }

    fn listed_keys(&self) -> std::sync::MutexGuard<'_, HashSet<ObjectKey>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Object> Sink for Shared<K> {
    fn list_started(&self) {
        self.listed_keys().clear();
    }

    fn listed(&self, object: &str) -> Result<(), serde_json::Error> {
        let object: K = serde_json::from_str(object)?;
        self.listed_keys().insert(ObjectKey::of(&object));
        self.put(object);
        Ok(())
    }

    fn list_ended(&self) {
        let listed = std::mem::take(&mut *self.listed_keys());
        for key in self.cache.keys() {
            if !listed.contains(&key) {
                self.remove(&key);
            }
        }
        self.synced.send_replace(true);
    }

    fn changed(&self, kind: ChangeKind, object: &str) -> Result<(), serde_json::Error> {
        let object: K = serde_json::from_str(object)?;
        match kind {
            ChangeKind::Put => self.put(object),
            ChangeKind::Delete => self.remove(&ObjectKey::of(&object)),
        }
        Ok(())
    }

    fn missing(&self) {
        self.list_started();
        self.list_ended();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn text(name: &str, uid: &str, version: u32) -> String {
        format!(r#"{{"metadata":{{"namespace":"d","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#)
    }

    #[test]
    fn handlers_hear_every_difference_between_what_was_and_what_is() {
        let informer: Informer<ConfigMap> = Informer::new(None);
        let log = Arc::new(Mutex::new(Vec::new()));
        informer.on_change({
            let log = Arc::clone(&log);
            move |delta| {
                let word = match delta {
                    Delta::Added(_) => "added",
                    Delta::Updated { .. } => "updated",
                    Delta::Deleted(_) => "deleted",
                };
                let uid = delta.object().metadata.uid.clone().unwrap_or_default();
                log.lock().expect("no panic while held").push(format!("{word} {uid}"));
            }
        });
        let sink = informer.shared.as_ref();
        sink.list_started();
        sink.listed(&text("a", "1", 1)).expect("valid");
        sink.listed(&text("b", "2", 1)).expect("valid");
        sink.list_ended();
        sink.changed(ChangeKind::Put, &text("a", "1", 2)).expect("valid");
        sink.changed(ChangeKind::Put, &text("a", "1", 2)).expect("valid");
        sink.changed(ChangeKind::Delete, &text("b", "2", 3)).expect("valid");
        sink.list_started();
        sink.listed(&text("c", "3", 5)).expect("valid");
        sink.list_ended();
        sink.changed(ChangeKind::Put, &text("c", "4", 6)).expect("valid");
        let log = log.lock().expect("no panic while held");
        assert_eq!(
            *log,
            ["added 1", "added 2", "updated 1", "deleted 2", "added 3", "deleted 1", "deleted 3", "added 4"]
        );
    }
}
