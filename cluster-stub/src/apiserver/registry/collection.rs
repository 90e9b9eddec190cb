//! The deletecollection verb.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::context::RequestContext;
use super::options::{DeleteOptions, ListOptions};
use super::{Entry, Registry, feed_failure};
use crate::apiserver::status::ApiError;

impl Registry {
    /// Deletes every selected object and answers with the list of what they were.
    pub(super) async fn delete_collection(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Bytes, ApiError> {
        self.check_fields(entry, &list.fields)?;
        let known = self.0.feed.catch_up().await.map_err(|error| feed_failure(&error))?;
        let namespace = &ctx.info.namespace;
        let snapshot = entry.cache()?.snapshot(namespace, known, |object| object.matches(&list.labels, &list.fields));
        let mut items = BytesMut::new();
        for object in &snapshot.objects {
            match self.delete_object(ctx, entry, &object.namespace, &object.name, options).await {
                Ok(_) => {
                    if !items.is_empty() {
                        items.put_u8(b',');
                    }
                    items.put(entry.served(object));
                }
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[",
            entry.resource.list_kind, entry.api_version, snapshot.revision
        );
        Ok([head.as_bytes(), &items, b"]}"].concat().into())
    }
}
