//! Lists one collection and follows it for ever: resumes at the last position, lists again when that is lost.
//! Hands bytes on and keeps no objects. Upstream v1.36.2: client-go tools/cache/reflector.go, without streaming lists.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::core::Status;
use scheduler_core::convert::{EventType, Lines, ListPage, WatchEvent};
use tokio::time::Instant;

use super::{failure, request};

/// Objects per page of a list. Upstream: client-go tools/pager defaultPageSize.
const PAGE: usize = 500;
/// Pauses after failures: the first, doubled each time up to the longest, and up to as much again at random.
/// Upstream: client-go reflector, 800 ms to 30 s, jitter 1.0.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The server ends a watch after this time, or up to twice as long. Upstream: minWatchTimeout.
const WATCH_TIME: Duration = Duration::from_secs(5 * 60);
/// A watch that the server has not ended so long after its time is taken for dead.
const WATCH_GRACE: Duration = Duration::from_secs(60);
/// A watch that ended well but sooner than this counts as a failure, or a server that ends each one at once makes us spin.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Longer lines are not taken for events; objects are limited to a tenth of it.
const MAX_LINE: usize = 16 << 20;

/// Hears what is in a collection, in order; called by one task, must not block.
pub(crate) trait Sink: Send {
    /// A list begins: what is not listed before it ends no longer exists.
    fn list_started(&mut self);
    /// An object of the list.
    fn listed(&mut self, object: &[u8]);
    /// The list is complete.
    fn list_ended(&mut self);
    /// A change after the list; gives the object's resource version.
    ///
    /// # Errors
    /// The object cannot be read at all.
    fn changed(&mut self, event: EventType, object: &[u8]) -> Result<Arc<str>, serde_json::Error>;
}

/// Which objects are followed.
#[derive(Clone)]
pub(crate) struct Collection {
    /// The client.
    pub(crate) client: Client,
    /// What it is called in messages.
    pub(crate) name: &'static str,
    /// For example `/api/v1/pods`.
    pub(crate) path: &'static str,
    /// Field selector, percent-encoded; empty for all objects.
    pub(crate) fields: &'static str,
}

/// Why a list or a watch ended before its time.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the position in the history is gone")]
    Expired,
    #[error("{}", failure::describe(.0))]
    Request(kube::Error),
    #[error("the answer is not what was asked for: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("a line of the watch is longer than {MAX_LINE} bytes")]
    EndlessLine,
    #[error("the server ended the watch: {}", .0.message)]
    Ended(Box<Status>),
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_expired(&status) => Self::Expired,
            other => Self::Request(other),
        }
    }
}

/// Whether the position asked for is too old for the server, or newer than all it knows (after it lost its memory).
fn is_expired(status: &Status) -> bool {
    let too_new = |cause: &kube::core::response::StatusCause| cause.reason == "ResourceVersionTooLarge";
    status.code == 410
        || matches!(status.reason.as_str(), "Expired" | "Gone")
        || status.details.as_ref().is_some_and(|details| details.causes.iter().any(too_new))
}

impl Fault {
    /// Whether the next watch can begin where this one stopped. Upstream: reflector.go watch and handleAnyWatch.
    fn keeps_position(&self) -> bool {
        match self {
            Self::Expired | Self::Malformed(_) | Self::EndlessLine => false,
            Self::Request(error) => matches!(failure::verdict(error), failure::Verdict::TryAgain(_)),
            Self::Ended(status) => matches!(status.code, 429 | 500..=599),
        }
    }
}

/// How the next list is asked for. Upstream: reflector.go relistResourceVersion, and when pages are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListMode {
    /// As the server has it at hand, in one piece: cheap for both, and what is old in it is told by the watch.
    Cached,
    /// The newest, in pages: after the position was lost.
    Paged,
    /// The newest, in one piece: after pages got too old while they were read.
    Whole,
}

/// How a step ended well.
enum Step {
    Listed,
    /// The watch ran out. The flag says whether it told anything.
    Watched(bool),
}

/// Pauses that grow while nothing works.
#[derive(Default)]
struct Pauses {
    made: u32,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.made)).min(LONGEST_PAUSE);
        self.made = self.made.saturating_add(1);
        pause.mul_f64(1.0 + rand::random::<f64>())
    }
}

/// Follows `collection`; never returns.
pub(crate) async fn follow(collection: &Collection, sink: &mut dyn Sink) {
    let mut pauses = Pauses::default();
    let mut position: Option<Arc<str>> = None;
    let mut mode = ListMode::Cached;
    loop {
        let started = Instant::now();
        let result = match &mut position {
            None => list(collection, mode, sink).await.map(|from| {
                position = Some(from);
                Step::Listed
            }),
            Some(position) => watch(collection, position, &mut pauses, sink).await.map(Step::Watched),
        };
        match result {
            Ok(Step::Listed) => continue,
            Ok(Step::Watched(told)) if told || started.elapsed() >= SHORT_WATCH => {
                pauses = Pauses::default();
                continue;
            }
            Ok(Step::Watched(_)) => tracing::debug!("watch of {}: ended at once", collection.name),
            Err(fault) => {
                tracing::warn!("watch of {}: {fault}; trying again", collection.name);
                if !fault.keeps_position() {
                    let was_watching = position.take().is_some();
                    let expired = matches!(fault, Fault::Expired);
                    mode = if expired && !was_watching && mode == ListMode::Paged {
                        ListMode::Whole
                    } else {
                        ListMode::Paged
                    };
                }
            }
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Lists everything; gives the position at which the list was true.
async fn list(collection: &Collection, mode: ListMode, sink: &mut dyn Sink) -> Result<Arc<str>, Fault> {
    sink.list_started();
    let mut token = String::new();
    loop {
        let mut query = query(collection);
        match mode {
            ListMode::Cached => query.push_str("&resourceVersion=0"),
            ListMode::Paged => {
                // Writing to a string cannot fail.
                let _ = write!(query, "&limit={PAGE}");
            }
            ListMode::Whole => {}
        }
        if !token.is_empty() {
            query.push_str("&continue=");
            percent_encode(&token, &mut query);
        }
        let answer = request::get(&collection.client, &query).await?;
        let body = answer.into_body().collect_bytes().await?;
        let page = ListPage::read(&body)?;
        for item in page.items() {
            sink.listed(item);
        }
        match page.continue_token() {
            Some(next) => token = next.to_owned(),
            None => {
                sink.list_ended();
                return Ok(page.resource_version().into());
            }
        }
    }
}

/// Follows from `position`, and moves it on, until the server ends the watch; says whether anything was told.
async fn watch(
    collection: &Collection,
    position: &mut Arc<str>,
    pauses: &mut Pauses,
    sink: &mut dyn Sink,
) -> Result<bool, Fault> {
    let time = WATCH_TIME.mul_f64(1.0 + rand::random::<f64>());
    let mut query = query(collection);
    // Writing to a string cannot fail.
    let _ = write!(query, "&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion=", time.as_secs());
    percent_encode(position, &mut query);
    let deadline = Instant::now() + time + WATCH_GRACE;
    let mut body = request::get(&collection.client, &query).await?.into_body();
    let mut lines = Lines::default();
    let mut told = false;
    while let Ok(Some(frame)) = tokio::time::timeout_at(deadline, body.frame()).await {
        let Ok(piece) = frame?.into_data() else { continue };
        let mut fault = None;
        lines.push(&piece, |line| match take(line, sink) {
            Ok(version) => {
                told = true;
                if !version.is_empty() {
                    *position = version;
                }
                true
            }
            Err(why) => {
                fault = Some(why);
                false
            }
        });
        // A server that tells something works.
        if told {
            *pauses = Pauses::default();
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        if lines.n_begun() > MAX_LINE {
            return Err(Fault::EndlessLine);
        }
    }
    // What has begun and not ended is told again from the position on.
    Ok(told)
}

/// Takes one line of a watch; gives the position after it.
fn take(line: &[u8], sink: &mut dyn Sink) -> Result<Arc<str>, Fault> {
    let event = WatchEvent::read(line)?;
    if event.r#type == EventType::Error {
        let status: Box<Status> = serde_json::from_slice(event.object())?;
        return Err(if is_expired(&status) { Fault::Expired } else { Fault::Ended(status) });
    }
    Ok(sink.changed(event.r#type, event.object())?)
}

fn query(collection: &Collection) -> String {
    format!("{}?fieldSelector={}", collection.path, collection.fields)
}

/// Appends `text` as it may stand in a query.
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests;
