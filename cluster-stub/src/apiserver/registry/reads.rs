//! What admission reads of other objects on a create, noted, so that it can be told later whether it would read the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Registry, Table};
use crate::apiserver::cache::StorageCache;
use crate::apiserver::resources::{Change, GroupResource, Objects};
use crate::apiserver::status::ApiError;

/// Longer lists are not noted.
const MAX_LISTED: usize = 64;
/// Of more reads none is noted.
const MAX_READS: usize = 64;

/// The stored objects as admission sees them, and what it saw.
pub(super) struct Noting<'a> {
    registry: &'a Registry,
    table: Arc<Table>,
    /// `None` when something was done that cannot be told to repeat itself.
    reads: Mutex<Option<Vec<Read>>>,
}

/// What was read, and where.
struct Read {
    cache: Arc<StorageCache>,
    /// As many changes the storage had seen when it was last known that the same would be read.
    n_changes: AtomicU64,
    what: What,
}

enum What {
    /// One object, at this revision; `None`: there was none.
    One { namespace: Box<str>, name: Box<str>, revision: Option<i64> },
    /// All objects of a namespace, or of all if it is empty, at these revisions.
    All { namespace: Box<str>, revisions: Vec<i64> },
}

/// All that was read.
pub(super) struct Reads {
    /// The resources that were served.
    table: Arc<Table>,
    reads: Vec<Read>,
}

impl Reads {
    /// Whether the same would be read now.
    pub(super) fn are_current(&self, registry: &Registry) -> bool {
        Arc::ptr_eq(&self.table, &registry.table()) && self.reads.iter().all(Read::is_current)
    }
}

impl Read {
    fn is_current(&self) -> bool {
        let n_changes = self.cache.n_changes();
        if self.n_changes.load(Ordering::Acquire) == n_changes {
            return true;
        }
        let same = match &self.what {
            What::One { namespace, name, revision } => {
                self.cache.get(namespace, name).map(|object| object.revision) == *revision
            }
            What::All { namespace, revisions } => {
                let snapshot = self.cache.snapshot(namespace, 0, |_| true);
                snapshot.objects.iter().map(|object| object.revision).eq(revisions.iter().copied())
            }
        };
        if same {
            self.n_changes.store(n_changes, Ordering::Release);
        }
        same
    }
}

impl<'a> Noting<'a> {
    /// Nothing is read yet.
    pub(super) fn new(registry: &'a Registry) -> Noting<'a> {
        Noting { registry, table: registry.table(), reads: Mutex::new(Some(Vec::new())) }
    }

    /// What was read; `None` when more was done than reading what the caches have.
    pub(super) fn reads(self) -> Option<Reads> {
        let reads = self.reads.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Some(Reads { table: self.table, reads })
    }

    fn note(&self, read: Option<Read>) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *reads, read) {
            (Some(reads), Some(read)) if reads.len() < MAX_READS => reads.push(read),
            (reads, _) => *reads = None,
        }
    }

    fn cache(&self, resource: &GroupResource) -> Option<Arc<StorageCache>> {
        self.table.by_name.get(resource)?.cache.clone()
    }
}

impl Objects for Noting<'_> {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let Some(cache) = self.cache(resource) else {
            self.note(None);
            return self.registry.get(resource, namespace, name);
        };
        // Asked before the read: a change in between is one too many, not one too few.
        let n_changes = cache.n_changes().into();
        let object = cache.get(namespace, name);
        let revision = object.as_ref().map(|object| object.revision);
        let what = What::One { namespace: namespace.into(), name: name.into(), revision };
        self.note(Some(Read { cache, n_changes, what }));
        object.map(|object| object.value())
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(cache) = self.cache(resource) else {
            self.note(None);
            return Objects::list(self.registry, resource, namespace);
        };
        let n_changes = cache.n_changes().into();
        let namespace = namespace.unwrap_or("");
        let objects = cache.snapshot(namespace, 0, |_| true).objects;
        let revisions: Vec<i64> = objects.iter().map(|object| object.revision).collect();
        let what = What::All { namespace: namespace.into(), revisions };
        self.note((objects.len() <= MAX_LISTED).then_some(Read { cache, n_changes, what }));
        objects.iter().map(|object| object.value()).collect()
    }

    fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<(GroupResource, bool)> {
        self.registry.resource_of_kind(api_version, kind)
    }

    fn read<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        self.note(None);
        self.registry.read(resource, namespace, name)
    }

    fn create<'a>(&'a self, resource: &'a GroupResource, object: Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        self.note(None);
        self.registry.create(resource, object)
    }

    fn update<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        change: Change,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        self.note(None);
        self.registry.update(resource, namespace, name, change)
    }

    fn delete<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.note(None);
        self.registry.delete(resource, namespace, name, options)
    }
}
