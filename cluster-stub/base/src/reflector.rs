//! Lists and watches one collection and feeds what it sees to a sink, for ever. Keeps no objects itself.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Objects per page of a list.
const PAGE: u32 = 500;
/// First pause after a failure, doubled up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause after a failure. Upstream: client-go v1.36.2 reflector, 30 s.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A watch that lived this long was healthy: the next failure starts with the first pause again.
const HEALTHY: Duration = Duration::from_secs(10);

/// A watch that ended well but sooner than this counts as a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// One change of a watched collection, as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object is new or changed.
    Put,
    /// The object is gone; the text is its last state.
    Delete,
}

/// Whoever wants to know what is in a collection. Called from one task, in order; must not block.
pub trait Sink: Send + Sync + 'static {
    /// A list begins: what [`Sink::listed`] does not name before [`Sink::list_ended`] no longer exists.
    fn list_started(&self);
    /// One object of the list. Errors are decoding errors of this object.
    fn listed(&self, object: &str) -> Result<(), serde_json::Error>;
    /// The list is complete.
    fn list_ended(&self);
    /// One change after the list.
    fn changed(&self, kind: ChangeKind, object: &str) -> Result<(), serde_json::Error>;
    /// The collection is not served (404). Its contents count as empty until it is.
    fn missing(&self);
}

/// Which form of the objects to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole objects.
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("the collection is not served")]
    Missing,
    #[error("the resource version is too old")]
    Expired,
    #[error("the request failed")]
    Request(#[from] kube::Error),
    #[error("the request could not be built")]
    Build(#[from] kube::core::request::Error),
    #[error("the stream broke")]
    Stream(#[from] std::io::Error),
    #[error("the answer is not what was asked for")]
    Decode(#[from] serde_json::Error),
    #[error("the server ended the watch: {0}")]
    Server(String),
}

#[derive(Deserialize)]
struct ListFrame<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct WatchFrame<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

/// Follows the collection at `path` (for example `/api/v1/pods`) until `shutdown`.
/// Upstream: client-go v1.36.2 tools/cache/reflector.go, without streaming lists.
pub async fn run(client: kube::Client, path: String, form: Form, sink: &dyn Sink, shutdown: CancellationToken) {
    let collection = Collection { client, request: Request::new(path.clone()), form };
    let mut pause = MIN_PAUSE;
    let mut version: Option<String> = None;
    let work = async {
        loop {
            let started = Instant::now();
            let result = collection.follow(&mut version, sink).await;
            if started.elapsed() >= HEALTHY {
                pause = MIN_PAUSE;
            }
            match result {
                Ok(()) if started.elapsed() >= SHORT_WATCH => continue, // the server's own time limit; go on where it stopped
                Ok(()) => {} // a server that ends every watch at once must not make us spin
                Err(WatchError::Expired) => version = None,
                Err(WatchError::Missing) => {
                    sink.missing();
                    version = None;
                }
                Err(error) => {
                    tracing::debug!(path, error = &error as &dyn std::error::Error, "watch failed");
                    if matches!(error, WatchError::Decode(_) | WatchError::Server(_)) {
                        version = None;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

struct Collection {
    client: kube::Client,
    request: Request,
    form: Form,
}

impl Collection {
    async fn follow(&self, version: &mut Option<String>, sink: &dyn Sink) -> Result<(), WatchError> {
        let from = match version.take() {
            Some(from) => from,
            None => self.list(sink).await?,
        };
        *version = Some(from.clone());
        self.watch(from, version, sink).await
    }

    async fn list(&self, sink: &dyn Sink) -> Result<String, WatchError> {
        let mut params = ListParams::default().limit(PAGE);
        sink.list_started();
        loop {
            let request = match self.form {
                Form::Full => self.request.list(&params)?,
                Form::Metadata => self.request.list_metadata(&params)?,
            };
            let text = self.client.request_text(request).await.map_err(classify)?;
            let frame: ListFrame<'_> = serde_json::from_str(&text)?;
            for item in frame.items.iter().flatten() {
                sink.listed(item.get())?;
            }
            match frame.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    sink.list_ended();
                    return Ok(frame.metadata.resource_version.unwrap_or_default());
                }
            }
        }
    }

    async fn watch(&self, from: String, version: &mut Option<String>, sink: &dyn Sink) -> Result<(), WatchError> {
        let params = WatchParams::default();
        let mut request = match self.form {
            Form::Full => self.request.watch(&params, &from)?,
            Form::Metadata => self.request.watch_metadata(&params, &from)?,
        };
        // A compressed stream would hold events back.
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        let stream = self.client.request_stream(request).await.map_err(classify)?;
        let mut lines = std::pin::pin!(stream.lines());
        while let Some(line) = lines.next().await {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let frame: WatchFrame<'_> = serde_json::from_str(&line)?;
            let object = frame.object.get();
            match frame.r#type.as_ref() {
                "ADDED" | "MODIFIED" => sink.changed(ChangeKind::Put, object)?,
                "DELETED" => sink.changed(ChangeKind::Delete, object)?,
                "BOOKMARK" => {}
                "ERROR" => {
                    let status: Status = serde_json::from_str(object)?;
                    return Err(if status.code == 410 {
                        WatchError::Expired
                    } else {
                        WatchError::Server(status.message)
                    });
                }
                other => return Err(WatchError::Server(format!("unknown event type {other:?}"))),
            }
            *version = serde_json::from_str::<Versioned>(object)?.metadata.resource_version;
        }
        Ok(())
    }
}

fn classify(error: kube::Error) -> WatchError {
    match &error {
        kube::Error::Api(status) if status.code == 404 => WatchError::Missing,
        kube::Error::Api(status) if status.code == 410 => WatchError::Expired,
        _ => WatchError::Request(error),
    }
}
