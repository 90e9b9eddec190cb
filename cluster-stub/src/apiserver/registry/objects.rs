//! Access to stored objects for code inside the API server: admission, allocators, actions, authorization.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::context::{RequestContext, format_time};
use super::options::DeleteOptions;
use super::{Entry, Registry, meta};
use crate::apiserver::codec::sketch::{Sketch, Wanted};
use crate::apiserver::codec::stored;
use crate::apiserver::resources::{Change, EncodedChange, GroupResource, Objects};
use crate::apiserver::status::ApiError;
use crate::store::KeyValue;
use bytes::Bytes;

/// What becomes of an encoded object.
enum Rewrite {
    /// These bytes.
    With(Bytes),
    /// Nothing else.
    Same,
    /// It takes another way to tell.
    Otherwise,
}

/// What became of it.
enum Rewritten {
    /// It is as wanted.
    Done,
    /// There is none.
    Absent,
    /// It takes another way; nothing was written.
    Otherwise,
}

/// Tries before a change gives up against other writers.
const ATTEMPTS: usize = 64;

impl Registry {
    /// Takes a finalizer from a cluster-scoped object; a deleted object goes with its last one. One that is gone is no error.
    pub(crate) async fn drop_finalizer(
        &self,
        resource: &GroupResource,
        name: &str,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        let entry = self.entry_of(resource)?;
        let ctx = RequestContext::internal("update");
        let mut compute = |live: &Value| {
            let mut object = live.clone();
            if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|other| other != finalizer);
            }
            Ok(object)
        };
        let place = super::update::Place { namespace: "", name, subresource: "" };
        let change = super::update::Change { place, uid: None, admitted_as: None };
        self.change(&ctx, &entry, change, &mut compute).await.map(drop)
    }

    /// Writes what `rewrite` makes of an encoded object, until no other writer is in between.
    async fn rewrite(
        &self,
        entry: &Entry,
        namespace: &str,
        name: &str,
        mut rewrite: impl FnMut(&KeyValue) -> Result<Rewrite, ApiError>,
    ) -> Result<Rewritten, ApiError> {
        let key = Bytes::from(entry.key(namespace, name));
        let mut current = self.read_encoded(&key).await?;
        for _ in 0..ATTEMPTS {
            let Some(old) = current else { return Ok(Rewritten::Absent) };
            let bytes = match rewrite(&old)? {
                Rewrite::With(bytes) => bytes,
                Rewrite::Same => return Ok(Rewritten::Done),
                Rewrite::Otherwise => return Ok(Rewritten::Otherwise),
            };
            match self.replace_encoded(&key, old.mod_revision, bytes).await? {
                Ok(revision) => {
                    self.tell_updated(entry, namespace, name, revision);
                    return Ok(Rewritten::Done);
                }
                Err(newer) => current = newer,
            }
        }
        Err(ApiError::conflict(entry.qualified(), name, super::update::MODIFIED))
    }
}

impl Objects for Registry {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let entry = self.entry_of(resource).ok()?;
        Some(entry.cache.as_ref()?.get(namespace, name)?.value())
    }

    fn has_label(&self, resource: &GroupResource, namespace: &str, name: &str, keys: &[&str]) -> bool {
        let entry = self.entry_of(resource).ok();
        let object = entry.and_then(|entry| entry.cache.as_ref()?.get(namespace, name));
        object.is_some_and(|object| keys.iter().any(|key| object.label(key).is_some()))
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Ok(entry) = self.entry_of(resource) else {
            return Vec::new();
        };
        let Some(cache) = &entry.cache else {
            return Vec::new();
        };
        cache.snapshot(namespace.unwrap_or(""), 0, |_| true).objects.iter().map(|object| object.value()).collect()
    }

    fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<(GroupResource, bool)> {
        let table = self.table();
        let found =
            table.entries.iter().find(|entry| entry.api_version == api_version && entry.resource.kind == kind)?;
        Some((found.resource.group_resource(), found.resource.namespaced))
    }

    fn read<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            let stored = self.read_stored(&entry, &entry.key(namespace, name)).await?;
            Ok(stored.map(|stored| stored.object))
        })
    }

    fn create<'a>(&'a self, resource: &'a GroupResource, mut object: Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            let ctx = RequestContext::internal("create");
            let metadata = meta::metadata_mut(&mut object)?;
            metadata.entry("uid").or_insert_with(|| uuid::Uuid::new_v4().to_string().into());
            metadata.entry("creationTimestamp").or_insert_with(|| format_time(ctx.now).into());
            let name = meta::text(&object, "name").to_string();
            let key = entry.key(meta::text(&object, "namespace"), &name);
            let written = self.insert(&ctx, &entry, key, object).await?;
            let written = written.ok_or_else(|| ApiError::already_exists(entry.qualified(), &name))?;
            Ok(written.object)
        })
    }

    fn update<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        mut change: Change,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            let ctx = RequestContext::internal("update");
            let key = entry.key(namespace, name);
            let mut current = self.read_stored(&entry, &key).await?;
            for _ in 0..ATTEMPTS {
                let old = current.ok_or_else(|| ApiError::not_found(entry.qualified(), name))?;
                let mut object = old.object.clone();
                change(&mut object)?;
                stored::set_resource_version(&mut object, old.revision.0).map_err(ApiError::internal)?;
                let bytes = Bytes::from(entry.encode(&object));
                if bytes == old.bytes {
                    return Ok(old.object);
                }
                match self.replace(&ctx, &entry, &key, old.revision, bytes, object).await? {
                    Ok(written) => return Ok(written.object),
                    Err(newer) => current = newer,
                }
            }
            Err(ApiError::conflict(entry.qualified(), name, super::update::MODIFIED))
        })
    }

    fn update_members<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        wanted: &'static Wanted,
        mut change: Change,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            let rewrite = |old: &KeyValue| -> Result<Rewrite, ApiError> {
                let sketch = if entry.converts { None } else { Sketch::read(&old.value, wanted) };
                // One that is not encoded as usual.
                let Some(sketch) = sketch else { return Ok(Rewrite::Otherwise) };
                let mut object = sketch.object().clone();
                stored::set_resource_version(&mut object, old.mod_revision.0).map_err(ApiError::internal)?;
                change(&mut object)?;
                Ok(match sketch.write(&object) {
                    None => Rewrite::Otherwise,
                    Some(bytes) if *bytes == *old.value => Rewrite::Same,
                    Some(bytes) => Rewrite::With(bytes.into()),
                })
            };
            match self.rewrite(&entry, namespace, name, rewrite).await? {
                Rewritten::Done => Ok(()),
                Rewritten::Absent => Err(ApiError::not_found(entry.qualified(), name)),
                Rewritten::Otherwise => self.update(resource, namespace, name, change).await.map(drop),
            }
        })
    }

    fn update_encoded<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        change: EncodedChange<'a>,
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            if entry.converts {
                return Ok(false);
            }
            let rewrite =
                |old: &KeyValue| Ok(change(&old.value).map_or(Rewrite::Otherwise, |bytes| Rewrite::With(bytes.into())));
            Ok(matches!(self.rewrite(&entry, namespace, name, rewrite).await?, Rewritten::Done))
        })
    }

    fn delete<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let entry = self.entry_of(resource)?;
            let options = DeleteOptions::from_body(&options)?;
            let ctx = RequestContext::internal("delete");
            self.delete_object(&ctx, &entry, namespace, name, &options).await?;
            Ok(())
        })
    }
}
