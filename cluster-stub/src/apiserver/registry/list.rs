//! The list verb: from the cache at a consistent revision, from the store's history for later pages and exact versions.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::context::RequestContext;
use super::media::{Accept, Encoding, View};
use super::options::{ListOptions, VersionMatch};
use super::page::Continue;
use super::response::{self, Response};
use super::{Entry, Registry, feed_failure, store_failure};
use crate::apiserver::cache::{CachedObject, Snapshot};
use crate::apiserver::selector::FieldSelector;
use crate::apiserver::server::Body;
use crate::apiserver::status::ApiError;
use crate::store::{RangeEnd, RangeRequest, Revision, StoreError};

/// Lists above this are streamed in pieces of this size, bytes.
const PIECE: usize = 512 * 1024;

/// One page of a list.
pub(super) struct Page {
    /// Its revision.
    pub revision: i64,
    /// Its objects.
    pub objects: Vec<Arc<CachedObject>>,
    /// `metadata.continue`; empty on the last page.
    pub next: String,
    /// `metadata.remainingItemCount`, known without selectors only.
    pub remaining: Option<usize>,
}

impl Page {
    /// `metadata` of the list.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if !self.next.is_empty() {
            metadata["continue"] = self.next.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

impl Registry {
    /// Answers a list.
    pub(super) async fn list(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        options: &ListOptions,
        accept: Accept,
    ) -> Result<Response, ApiError> {
        self.check_fields(entry, &options.fields)?;
        let page = self.page(entry, &ctx.info.namespace, options).await?;
        if accept.view != View::Object {
            let body = self.view_of_list(ctx, entry, &page, accept)?;
            return Ok(response::object(200, &body, accept));
        }
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
            entry.resource.list_kind,
            entry.api_version,
            page.metadata()
        );
        let size: usize = page.objects.iter().map(|object| object.bytes.len() + 1).sum();
        let plain = accept.encoding == Encoding::Json && !accept.pretty && !accept.gzip;
        if plain && size > PIECE && !entry.converts {
            return Ok(streamed(head, page.objects));
        }
        let mut body = BytesMut::with_capacity(head.len() + size + 2);
        body.put(head.as_bytes());
        for (at, object) in page.objects.iter().enumerate() {
            if at > 0 {
                body.put_u8(b',');
            }
            body.put(entry.served(object));
        }
        body.put(&b"]}"[..]);
        Ok(response::encoded(200, body.freeze(), accept))
    }

    /// Refuses fields that the kind has not.
    pub(super) fn check_fields(&self, entry: &Entry, fields: &FieldSelector) -> Result<(), ApiError> {
        let known = entry.resource.strategy.field_labels();
        for field in fields.fields() {
            if matches!(field, "metadata.name" | "metadata.namespace") || known.contains(&field) {
                continue;
            }
            return Err(ApiError::bad_request(if known.is_empty() {
                format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            }));
        }
        Ok(())
    }

    /// The objects that a list asks for.
    pub(super) async fn page(&self, entry: &Entry, namespace: &str, options: &ListOptions) -> Result<Page, ApiError> {
        let token = match options.continue_token.as_str() {
            "" => None,
            token => {
                let bad = |why| ApiError::bad_request(format!("invalid continue token: {why}"));
                let token = Continue::decode(token).map_err(bad)?;
                if !matches!(options.resource_version.as_str(), "" | "0") {
                    return Err(ApiError::bad_request(
                        "specifying resource version is not allowed when using continue",
                    ));
                }
                Some(token)
            }
        };
        let wanted = wanted_revision(options)?;
        // Pages of a version that was named are of that version even without `resourceVersionMatch`.
        // Upstream: apiserver v1.36.2 `pkg/storage/interfaces.go` `ValidateListOptions`.
        let exact = match options.version_match {
            Some(wanted) => wanted == VersionMatch::Exact,
            None => options.limit > 0 && wanted > 0,
        };
        match token {
            Some(token) if token.revision > 0 => {
                let (snapshot, total) =
                    self.history(entry, namespace, token.revision, Some(&token.start), options).await?;
                Ok(cut(entry, snapshot, "", options, Some(total)))
            }
            Some(token) => {
                Ok(cut(entry, self.newest(entry, namespace, 0, options).await?, &token.start, options, None))
            }
            None if exact => {
                let (snapshot, total) = self.history(entry, namespace, wanted, None, options).await?;
                Ok(cut(entry, snapshot, "", options, Some(total)))
            }
            None => Ok(cut(entry, self.newest(entry, namespace, wanted, options).await?, "", options, None)),
        }
    }

    async fn newest(
        &self,
        entry: &Entry,
        namespace: &str,
        wanted: i64,
        options: &ListOptions,
    ) -> Result<Snapshot, ApiError> {
        let feed = &self.0.feed;
        let known = match options.resource_version.as_str() {
            "" => feed.catch_up().await,
            _ => feed.wait_for(wanted).await,
        };
        let known = known.map_err(|error| feed_failure(&error))?;
        let cache = entry.cache()?;
        if let Some(name) = options.fields.exact("metadata.name")
            && (!namespace.is_empty() || !entry.resource.namespaced)
        {
            let object = cache.get(namespace, name);
            let found = object.filter(|object| object.matches(&options.labels, &options.fields));
            return Ok(Snapshot { revision: known, objects: found.into_iter().collect() });
        }
        Ok(cache.snapshot(namespace, known, |object| object.matches(&options.labels, &options.fields)))
    }

    /// The selected objects as they were at a revision: at most one more than a page has, from the start of the page on. Also
    /// how many objects there were from there on, selected or not.
    async fn history(
        &self,
        entry: &Entry,
        namespace: &str,
        revision: i64,
        page_start: Option<&str>,
        options: &ListOptions,
    ) -> Result<(Snapshot, usize), ApiError> {
        let root = format!("/registry/{}/", entry.resource.storage);
        let prefix = if namespace.is_empty() || !entry.resource.namespaced {
            root.clone()
        } else {
            format!("{root}{namespace}/")
        };
        let mut end = prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            // The prefix ends with a slash; the next byte bounds everything below it.
            *last += 1;
        }
        let spec = entry.cache()?.spec();
        let mut request = RangeRequest {
            start: page_start.map_or(prefix, |start| format!("{root}{start}")).into(),
            end: RangeEnd::Before(end.into()),
            limit: if options.limit == 0 { 0 } else { options.limit + 1 },
            revision: Some(Revision(revision)),
            count_only: false,
        };
        let (mut objects, mut total) = (Vec::new(), None);
        loop {
            let answer = self.0.store.range(request.clone()).await;
            let range = answer.map_err(|error| history_failure(&error, page_start.is_some()))?;
            total.get_or_insert(range.count);
            objects.extend(range.kvs.iter().filter_map(|kv| {
                let key = std::str::from_utf8(&kv.key).ok()?.strip_prefix(&root)?;
                let object = CachedObject::new(spec, key, &kv.value, kv.mod_revision.0);
                object.matches(&options.labels, &options.fields).then(|| Arc::new(object))
            }));
            match range.kvs.last() {
                Some(last) if range.more && objects.len() <= options.limit => {
                    request.start = [&last.key[..], b"\0"].concat().into();
                }
                _ => break,
            }
        }
        let total = usize::try_from(total.unwrap_or_default()).unwrap_or(usize::MAX);
        Ok((Snapshot { revision, objects }, total))
    }
}

/// Why the past cannot be read, as the client is told.
fn history_failure(error: &StoreError, paging: bool) -> ApiError {
    match error {
        StoreError::Compacted { .. } if paging => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a \
             new list without the continue parameter.",
        ),
        StoreError::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
        StoreError::FutureRevision { requested, current } => {
            ApiError::too_large_resource_version(requested.0, current.0)
        }
        error => store_failure(error),
    }
}

fn wanted_revision(options: &ListOptions) -> Result<i64, ApiError> {
    read_revision(&options.resource_version)
        .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))
}

/// The revision that a `resourceVersion` names; 0 stands for no version and for `0`. The error is upstream's text, which each
/// verb wraps in its own way. Upstream: apiserver v1.36.2 `pkg/storage/api_object_versioner.go` `ParseResourceVersion`.
pub(super) fn read_revision(given: &str) -> Result<i64, String> {
    if given.is_empty() {
        return Ok(0);
    }
    given.parse::<i64>().ok().filter(|revision| *revision >= 0).ok_or_else(|| {
        let why = format!("strconv.ParseUint: parsing \"{given}\": invalid syntax");
        format!("resourceVersion: Invalid value: \"{given}\": {why}")
    })
}

/// Selects, skips to `start` and cuts at the limit. `total` says how many objects there were when the snapshot is cut already.
fn cut(entry: &Entry, snapshot: Snapshot, start: &str, options: &ListOptions, total: Option<usize>) -> Page {
    let key = |object: &CachedObject| {
        if entry.resource.namespaced {
            format!("{}/{}", object.namespace, object.name)
        } else {
            object.name.to_string()
        }
    };
    let mut objects = snapshot.objects;
    objects.retain(|object| {
        (start.is_empty() || key(object).as_str() >= start) && object.matches(&options.labels, &options.fields)
    });
    let (mut next, mut remaining) = (String::new(), None);
    if options.limit > 0 && objects.len() > options.limit {
        let rest = total.unwrap_or(objects.len()).saturating_sub(options.limit);
        remaining = (options.labels.is_empty() && options.fields.is_empty()).then_some(rest);
        objects.truncate(options.limit);
        if let Some(last) = objects.last() {
            next = Continue { revision: snapshot.revision, start: format!("{}\0", key(last)) }.encode();
        }
    }
    Page { revision: snapshot.revision, objects, next, remaining }
}

/// A long list, copied piece by piece while the client reads.
fn streamed(head: String, objects: Vec<Arc<CachedObject>>) -> Response {
    let state = (Some(head), objects.into_iter().peekable(), true);
    let pieces = stream::unfold(state, |(head, mut objects, first)| async move {
        objects.peek()?;
        let mut piece = BytesMut::with_capacity(PIECE + PIECE / 8);
        let mut first = first;
        if let Some(head) = head {
            piece.put(head.as_bytes());
        }
        while piece.len() < PIECE
            && let Some(object) = objects.next()
        {
            if !first {
                piece.put_u8(b',');
            }
            first = false;
            piece.put(object.bytes.clone());
        }
        if objects.peek().is_none() {
            piece.put(&b"]}"[..]);
        }
        Some((Ok::<Bytes, std::convert::Infallible>(piece.freeze()), (None, objects, first)))
    });
    let mut response = http::Response::new(Body::stream(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
