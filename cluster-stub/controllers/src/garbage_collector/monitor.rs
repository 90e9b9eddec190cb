//! Watches the metadata of one collection for the graph. Used for kinds that no other controller watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::runtime::discovery::{Collection, MetadataOnly};
use crate::runtime::key::ObjectKey;
use cluster_stub_base::reflector::{ChangeKind, Sink};

use super::GarbageCollector;

/// Feeds what a metadata watch sees to the garbage collector.
pub(super) struct Monitor {
    collection: Arc<Collection>,
    collector: Arc<GarbageCollector>,
    seen: Mutex<Seen>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct Seen {
    uids: BTreeMap<ObjectKey, String>,
    listed: BTreeSet<ObjectKey>,
}

impl Monitor {
    /// A monitor that has seen nothing yet.
    pub(super) fn new(collection: Arc<Collection>, collector: Arc<GarbageCollector>) -> Self {
        Self { collection, collector, seen: Mutex::default(), synced: watch::Sender::new(false) }
    }

    /// Waits until the first list is complete.
    pub(super) fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut synced = self.synced.subscribe();
        async move {
            // An error means that the monitor was dropped, and then nobody waits for it to know anything.
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, object: &str, listed: bool) -> Result<(), serde_json::Error> {
        let meta = serde_json::from_str::<MetadataOnly>(object)?.metadata;
        let key = ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let uid = meta.uid.clone().unwrap_or_default();
        let replaced = {
            let mut seen = self.seen();
            if listed {
                seen.listed.insert(key.clone());
            }
            seen.uids.insert(key, uid.clone()).filter(|old| *old != uid)
        };
        if let Some(old) = replaced {
            self.collector.removed(&old);
        }
        self.collector.observed(&self.collection, &meta);
        Ok(())
    }
}

impl Sink for Monitor {
    fn list_started(&self) {
        self.seen().listed.clear();
    }

    fn listed(&self, object: &str) -> Result<(), serde_json::Error> {
        self.put(object, true)
    }

    fn list_ended(&self) {
        let gone: Vec<String> = {
            let mut seen = self.seen();
            let listed = std::mem::take(&mut seen.listed);
            let gone: Vec<ObjectKey> = seen.uids.keys().filter(|key| !listed.contains(key)).cloned().collect();
            gone.iter().filter_map(|key| seen.uids.remove(key)).collect()
        };
        for uid in gone {
            self.collector.removed(&uid);
        }
        self.synced.send_replace(true);
    }

    fn changed(&self, kind: ChangeKind, object: &str) -> Result<(), serde_json::Error> {
        match kind {
            ChangeKind::Put => self.put(object, false),
            ChangeKind::Delete => {
                let meta = serde_json::from_str::<MetadataOnly>(object)?.metadata;
                let key =
                    ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
                let uid = self.seen().uids.remove(&key);
                if let Some(uid) = uid {
                    self.collector.removed(&uid);
                }
                Ok(())
            }
        }
    }

    fn missing(&self) {
        self.list_started();
        self.list_ended();
    }
}
