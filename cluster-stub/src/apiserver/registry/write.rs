//! Writes one object into the store: the last step of every create, update and delete.

use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;

use super::context::{INTERNAL_USER, RequestContext};
use super::{Entry, Registry, meta, store_failure};
use crate::apiserver::codec::stored;
use crate::apiserver::status::ApiError;
use crate::store::{KeyValue, RangeRequest, Revision, TxnRequest};
use cluster_stub_base::story::{Component, Step};

/// An object as it is in the store now.
pub(super) struct Stored {
    /// In the version of the resource, with its resource version.
    pub object: Value,
    /// The bytes in the store.
    pub bytes: Bytes,
    /// The revision of the last write.
    pub revision: Revision,
}

/// The end of a write.
pub(super) struct Written {
    /// What the client gets, encoded.
    pub bytes: Bytes,
    /// The same, decoded.
    pub object: Value,
}

impl Registry {
    /// Reads an object.
    pub(super) async fn read_stored(&self, entry: &Entry, key: &str) -> Result<Option<Stored>, ApiError> {
        let range =
            self.0.store.range(RangeRequest::key(key.to_string())).await.map_err(|error| store_failure(&error))?;
        range.kvs.into_iter().next().map(|kv| Stored::of(entry, kv)).transpose()
    }

    /// Reads an object as it is encoded.
    pub(super) async fn read_encoded(&self, key: &Bytes) -> Result<Option<KeyValue>, ApiError> {
        let range = self.0.store.range(RangeRequest::key(key.clone())).await.map_err(|error| store_failure(&error))?;
        Ok(range.kvs.into_iter().next())
    }

    /// Replaces the encoded object that is still at `expected`; otherwise gives what is there now, if anything.
    pub(super) async fn replace_encoded(
        &self,
        key: &Bytes,
        expected: Revision,
        bytes: Bytes,
    ) -> Result<Result<Revision, Option<KeyValue>>, ApiError> {
        let txn = TxnRequest::update(key.clone(), expected, bytes, None);
        let outcome = self.0.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        Ok(if outcome.succeeded { Ok(outcome.revision) } else { Err(outcome.current().cloned()) })
    }

    /// Puts a new object in; `None` when the key is taken.
    pub(super) async fn insert(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: String,
        mut object: Value,
    ) -> Result<Option<Written>, ApiError> {
        let bytes = Bytes::from(entry.encode_own(&mut object));
        let txn = TxnRequest::create(key, bytes.clone(), None);
        let outcome = self.0.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        if !outcome.succeeded {
            return Ok(None);
        }
        let revision = outcome.revision;
        stored::set_resource_version(&mut object, revision.0).map_err(ApiError::internal)?;
        self.tell_stored(ctx, entry, &object, "stored");
        Ok(Some(Written { bytes: served(entry, &bytes, revision, &object), object }))
    }

    /// Replaces an object that is still at `expected`; otherwise gives what is there now, if anything.
    pub(super) async fn replace(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: &str,
        expected: Revision,
        bytes: Bytes,
        mut object: Value,
    ) -> Result<Result<Written, Option<Stored>>, ApiError> {
        let txn = TxnRequest::update(key.to_string(), expected, bytes.clone(), None);
        let outcome = self.0.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        if !outcome.succeeded {
            return Ok(Err(outcome.current().cloned().map(|kv| Stored::of(entry, kv)).transpose()?));
        }
        let revision = outcome.revision;
        stored::set_resource_version(&mut object, revision.0).map_err(ApiError::internal)?;
        self.tell_stored(ctx, entry, &object, "updated");
        Ok(Ok(Written { bytes: served(entry, &bytes, revision, &object), object }))
    }

    /// Deletes an object that is still at `expected`; otherwise gives what is there now, if anything.
    pub(super) async fn erase(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: &str,
        expected: Revision,
        object: &Value,
    ) -> Result<Result<Revision, Option<Stored>>, ApiError> {
        let txn = TxnRequest::delete(key.to_string(), expected);
        let outcome = self.0.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        if !outcome.succeeded {
            return Ok(Err(outcome.current().cloned().map(|kv| Stored::of(entry, kv)).transpose()?));
        }
        if entry.resource.strategy.allocates() {
            entry.resource.strategy.release(self, object, None).await;
        }
        self.tell_stored(ctx, entry, object, "deleted");
        Ok(Ok(outcome.revision))
    }

    /// Puts a new encoded object in; `None` when the key is taken.
    pub(super) async fn insert_encoded(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        name: &str,
        bytes: Bytes,
    ) -> Result<Option<Revision>, ApiError> {
        let txn = TxnRequest::create(entry.key(namespace, name), bytes, None);
        let outcome = self.0.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        if !outcome.succeeded {
            return Ok(None);
        }
        self.0.story.tell(|| stored_step(ctx, entry, (namespace, name), outcome.revision.to_string(), "stored"));
        Ok(Some(outcome.revision))
    }

    /// Tells that the admission plugins let an object in.
    pub(super) fn tell_admitted(&self, ctx: &RequestContext, entry: &Entry, namespace: &str, name: &str) {
        self.0.story.tell(|| Step {
            at: Instant::now(),
            component: Component::ApiServer,
            stage: "admission",
            what: "defaulted, validated and admitted".to_string(),
            kind: entry.resource.kind.to_string(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            resource_version: None,
            user: Some(ctx.user.name.as_str().into()),
        });
    }

    /// Tells that the server itself changed an object.
    pub(super) fn tell_updated(&self, entry: &Entry, namespace: &str, name: &str, revision: Revision) {
        self.0.story.tell(|| Step {
            at: Instant::now(),
            component: Component::Store,
            stage: "storage",
            what: "updated".to_string(),
            kind: entry.resource.kind.to_string(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            resource_version: Some(revision.to_string()),
            user: Some(INTERNAL_USER.into()),
        });
    }

    fn tell_stored(&self, ctx: &RequestContext, entry: &Entry, object: &Value, what: &'static str) {
        let place = (meta::text(object, "namespace"), meta::text(object, "name"));
        let version = || meta::text(object, "resourceVersion").to_string();
        self.0.story.tell(|| stored_step(ctx, entry, place, version(), what));
    }
}

/// The step of a write by a client.
fn stored_step(
    ctx: &RequestContext,
    entry: &Entry,
    (namespace, name): (&str, &str),
    version: String,
    what: &'static str,
) -> Step {
    Step {
        at: Instant::now(),
        component: Component::Store,
        stage: "storage",
        what: what.to_string(),
        kind: entry.resource.kind.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        resource_version: Some(version),
        user: Some(ctx.user.name.as_str().into()),
    }
}

impl Stored {
    fn of(entry: &Entry, kv: KeyValue) -> Result<Stored, ApiError> {
        let object = entry.decode(&kv.value, kv.mod_revision.0)?;
        Ok(Stored { object, bytes: kv.value, revision: kv.mod_revision })
    }

    /// What the client gets of it.
    pub(super) fn written(self, entry: &Entry) -> Written {
        Written { bytes: served(entry, &self.bytes, self.revision, &self.object), object: self.object }
    }
}

fn served(entry: &Entry, bytes: &Bytes, revision: Revision, object: &Value) -> Bytes {
    if entry.converts { stored::encode_served(object).into() } else { stored::splice(bytes, revision.0) }
}
