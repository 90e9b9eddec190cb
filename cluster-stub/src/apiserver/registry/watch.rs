//! The watch verb: a stream of events from a position in the history.
//!
//! Upstream: apiserver v1.36.2 `pkg/storage/cacher`, `pkg/endpoints/handlers/watch.go`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::context::RequestContext;
use super::list::read_revision;
use super::media::{Accept, View};
use super::options::ListOptions;
use super::response::Response;
use super::table_of::view_of_object;
use super::{Entry, Registry, feed_failure};
use crate::apiserver::cache::{CachedObject, Change, ChangeKind, Cursor, CursorError};
use crate::apiserver::codec::stored;
use crate::apiserver::server::Body;
use crate::apiserver::status::ApiError;

/// Time between bookmarks. Upstream: about a minute.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(55);
/// The least time after which a watch without `timeoutSeconds` ends, seconds; the most is twice as long.
const MIN_TIMEOUT: u64 = 1800;
/// The annotation of the bookmark behind the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Initial events in one piece of the stream.
const BATCH: usize = 256;

impl Registry {
    /// Answers a watch.
    pub(super) async fn watch(
        &self,
        ctx: Arc<RequestContext>,
        entry: Arc<Entry>,
        options: ListOptions,
        accept: Accept,
    ) -> Result<Response, ApiError> {
        self.check_fields(&entry, &options.fields)?;
        let from = revision_of(&options)?;
        let cache = entry.cache()?.clone();
        let namespace = if entry.resource.namespaced { ctx.info.namespace.clone() } else { String::new() };
        let initial = options.send_initial_events.unwrap_or(from == 0);
        let mut watch = Watch {
            registry: self.clone(),
            cursor: None,
            initial: VecDeque::new(),
            initial_end: None,
            after: from,
            known: 0,
            first: true,
            ended: false,
            deadline: deadline(&options),
            next_bookmark: Instant::now() + BOOKMARK_PERIOD,
            error: None,
            namespace,
            options,
            accept,
            entry,
            ctx,
        };
        if initial {
            let feed = &self.0.feed;
            let known = if watch.options.resource_version == "0" {
                Ok(feed.revision())
            } else if watch.options.resource_version.is_empty() {
                feed.catch_up().await
            } else {
                feed.wait_for(from).await
            };
            let known = known.map_err(|error| feed_failure(&error))?;
            let options = &watch.options;
            let keep = |object: &CachedObject| object.matches(&options.labels, &options.fields);
            let (snapshot, cursor) = cache.snapshot_and_cursor(&watch.namespace, known, keep);
            watch.after = snapshot.revision;
            watch.known = snapshot.revision;
            watch.initial = snapshot.objects.into();
            watch.initial_end = (watch.options.send_initial_events == Some(true) && watch.options.bookmarks)
                .then_some(snapshot.revision);
            watch.cursor = Some(cursor);
        } else {
            match cache.cursor((from > 0).then_some(from)) {
                Ok(cursor) => watch.cursor = Some(cursor),
                Err(error) => watch.error = Some(ApiError::expired(error.to_string())),
            }
        }
        let pieces = stream::unfold(watch, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok::<Bytes, Infallible>(piece), watch))
        });
        let mut response = http::Response::new(Body::stream(pieces));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

/// Upstream answers an unreadable version with a 500 here and on a get, and with a 400 on lists.
fn revision_of(options: &ListOptions) -> Result<i64, ApiError> {
    read_revision(&options.resource_version).map_err(ApiError::unclassified)
}

fn deadline(options: &ListOptions) -> Instant {
    let seconds = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => seconds,
        // Spread, so that clients do not all come back at once.
        _ => rand::rng().random_range(MIN_TIMEOUT..MIN_TIMEOUT * 2),
    };
    Instant::now() + Duration::from_secs(seconds)
}

/// A watch under way.
struct Watch {
    registry: Registry,
    ctx: Arc<RequestContext>,
    entry: Arc<Entry>,
    options: ListOptions,
    accept: Accept,
    namespace: String,
    /// `None` when the watch could not begin; then `error` says why.
    cursor: Option<Cursor>,
    /// Objects that were there at the beginning and are not sent yet.
    initial: VecDeque<Arc<CachedObject>>,
    /// The revision of the bookmark behind them, when the client wants one.
    initial_end: Option<i64>,
    /// Changes up to this revision are not sent.
    after: i64,
    /// Everything up to this revision was looked at.
    known: i64,
    /// Nothing was sent yet; the first table has the columns.
    first: bool,
    ended: bool,
    deadline: Instant,
    next_bookmark: Instant,
    error: Option<ApiError>,
}

impl Watch {
    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if let Some(error) = self.error.take() {
            self.ended = true;
            let mut piece = BytesMut::new();
            frame(&mut piece, "ERROR", error.to_status().to_string().as_bytes());
            return Some(piece.freeze());
        }
        if !self.initial.is_empty() || self.initial_end.is_some() {
            return Some(self.initial_piece());
        }
        loop {
            match self.changes() {
                Ok(piece) if !piece.is_empty() => return Some(piece),
                Ok(_) => {}
                // The client comes back with the last version that it has seen.
                Err(_) => return None,
            }
            let wake = if self.options.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
            tokio::select! {
                waited = self.cursor.as_mut()?.wait() => waited.ok()?,
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.next_bookmark = now + BOOKMARK_PERIOD;
                    let revision = self.registry.0.feed.revision();
                    // What came in between is sent first, so that the bookmark never runs ahead.
                    let mut piece = BytesMut::from(self.changes().ok()?.as_ref());
                    self.bookmark(&mut piece, revision.max(self.known).max(self.after), false);
                    return Some(piece.freeze());
                }
            }
        }
    }

    fn initial_piece(&mut self) -> Bytes {
        let mut piece = BytesMut::new();
        for _ in 0..BATCH {
            let Some(object) = self.initial.pop_front() else {
                break;
            };
            self.event(&mut piece, ChangeKind::Added, &object);
        }
        if self.initial.is_empty()
            && let Some(revision) = self.initial_end.take()
        {
            self.bookmark(&mut piece, revision, true);
        }
        piece.freeze()
    }

    /// The events of the changes since the last look; empty when there are none for this watcher.
    fn changes(&mut self) -> Result<Bytes, CursorError> {
        let mut piece = BytesMut::new();
        loop {
            let Some(cursor) = self.cursor.as_mut() else {
                return Err(CursorError::Ended);
            };
            let (changes, known) = cursor.take()?;
            if changes.is_empty() {
                self.known = self.known.max(known);
                return Ok(piece.freeze());
            }
            for change in &changes {
                self.change(&mut piece, change);
            }
            if !piece.is_empty() {
                return Ok(piece.freeze());
            }
        }
    }

    fn change(&mut self, piece: &mut BytesMut, change: &Change) {
        if change.revision() <= self.after {
            return;
        }
        self.known = self.known.max(change.revision());
        if !self.namespace.is_empty() && *change.object.namespace != *self.namespace {
            return;
        }
        if let Some((kind, object)) = change.seen_through(&self.options.labels, &self.options.fields) {
            self.event(piece, kind, &object);
        }
    }

    fn event(&mut self, piece: &mut BytesMut, kind: ChangeKind, object: &CachedObject) {
        if self.accept.view == View::Object {
            frame(piece, kind.as_str(), &self.entry.served(object));
            return;
        }
        let value = self.entry.value(object);
        let first = std::mem::replace(&mut self.first, false);
        match view_of_object(&self.ctx, &self.entry, &value, self.accept.view, first) {
            Ok(view) => frame(piece, kind.as_str(), &stored::encode_served(&view)),
            Err(error) => frame(piece, "ERROR", error.to_status().to_string().as_bytes()),
        }
    }

    fn bookmark(&mut self, piece: &mut BytesMut, revision: i64, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let resource = &self.entry.resource;
        let object: Value = match self.accept.view {
            View::Object => json!({
                "kind": resource.kind, "apiVersion": self.entry.api_version, "metadata": metadata,
            }),
            View::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            View::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": [],
            }),
        };
        frame(piece, "BOOKMARK", &stored::encode_served(&object));
    }
}

fn frame(piece: &mut BytesMut, kind: &str, object: &[u8]) {
    piece.reserve(object.len() + 40);
    piece.put(&b"{\"type\":\""[..]);
    piece.put(kind.as_bytes());
    piece.put(&b"\",\"object\":"[..]);
    piece.put(object);
    piece.put(&b"}\n"[..]);
}
