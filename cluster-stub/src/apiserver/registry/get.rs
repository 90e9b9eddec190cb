//! The get verb.

use super::context::RequestContext;
use super::list::read_revision;
use super::write::{Stored, Written};
use super::{Entry, Registry, feed_failure};
use crate::apiserver::status::ApiError;

impl Registry {
    /// One object. `resourceVersion=0` or any other takes it from the cache; none reads the store, so that every acknowledged
    /// write is seen.
    pub(super) async fn get_object(&self, ctx: &RequestContext, entry: &Entry) -> Result<Written, ApiError> {
        let info = &ctx.info;
        let missing = || ApiError::not_found(entry.qualified(), &info.name);
        let version = ctx.query.get("resourceVersion").unwrap_or("");
        if version.is_empty() {
            let key = entry.key(&info.namespace, &info.name);
            let stored: Stored = self.read_stored(entry, &key).await?.ok_or_else(missing)?;
            return Ok(stored.written(entry));
        }
        let wanted = read_revision(version).map_err(ApiError::unclassified)?;
        self.0.feed.wait_for(wanted).await.map_err(|error| feed_failure(&error))?;
        let cached = entry.cache()?.get(&info.namespace, &info.name).ok_or_else(missing)?;
        Ok(Written { bytes: entry.served(&cached), object: entry.value(&cached) })
    }
}
