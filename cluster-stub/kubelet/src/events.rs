//! Sends the kubelets' events in the background, in order for each object. What repeats becomes a count.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cluster_stub_base::correlator::{Correlator, Occurrence, Verdict};

/// Workers that send; each object belongs to one of them.
const WORKERS: usize = 4;
/// Tries per event, with a pause between them. Upstream: client-go v1.36.2 record/event.go `maxTriesPerEvent`.
const MAX_TRIES: u32 = 12;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// One event on its way.
pub(crate) struct Outgoing {
    /// Acts as the node's kubelet.
    pub(crate) client: kube::Client,
    /// Name of the node.
    pub(crate) node: Arc<str>,
    /// What happened.
    pub(crate) occurrence: Occurrence,
}

/// Takes events of all kubelets; cheap to clone.
#[derive(Clone)]
pub(crate) struct EventSender {
    workers: Arc<[mpsc::UnboundedSender<Outgoing>]>,
}

impl EventSender {
    /// Starts the workers; they end with `shutdown`.
    pub(crate) fn start(tasks: &TaskTracker, shutdown: &CancellationToken) -> Self {
        // Names of events hold the time; the same instant must not make the same name twice.
        let last = Arc::new(AtomicI64::new(0));
        let workers = (0..WORKERS)
            .map(|_| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let (last, shutdown) = (last.clone(), shutdown.clone());
                tasks.spawn(async move {
                    tokio::select! { () = shutdown.cancelled() => {}, () = send_all(receiver, &last) => {} }
                });
                sender
            })
            .collect();
        Self { workers }
    }

    /// Hands an event over.
    pub(crate) fn send(&self, event: Outgoing) {
        let mut hasher = DefaultHasher::new();
        event.occurrence.object.uid.hash(&mut hasher);
        let worker = usize::try_from(hasher.finish() % WORKERS as u64).unwrap_or_default();
        // At shutdown nobody listens any more, and the event is lost as with a real kubelet.
        let _ = self.workers[worker].send(event);
    }
}

async fn send_all(mut receiver: mpsc::UnboundedReceiver<Outgoing>, last: &AtomicI64) {
    let mut correlator = Correlator::default();
    while let Some(event) = receiver.recv().await {
        let verdict = correlator.observe(&event.occurrence);
        for attempt in 1..=MAX_TRIES {
            match send(&event, &verdict, last).await {
                Ok(Some((key, name, count, first))) => {
                    correlator.recorded(key, name, count, first);
                    break;
                }
                Ok(None) => break,
                // An answer is final; only a lost request is tried again.
                Err(kube::Error::Api(status)) if status.code < 500 => {
                    tracing::debug!(reason = event.occurrence.reason, message = status.message, "event refused");
                    break;
                }
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "event not sent");
                    tokio::time::sleep(RETRY_PAUSE * attempt).await;
                }
            }
        }
    }
}

async fn send(
    outgoing: &Outgoing,
    verdict: &Verdict,
    last: &AtomicI64,
) -> Result<Option<(String, String, i32, Timestamp)>, kube::Error> {
    let occurrence = &outgoing.occurrence;
    let namespace = occurrence.object.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let api: Api<Event> = Api::namespaced(outgoing.client.clone(), namespace);
    let (key, message, count, first) = match verdict {
        Verdict::Drop => return Ok(None),
        Verdict::Create { key, message } => (key, message, 1, occurrence.at),
        Verdict::Count { key, name, count, message, first } => {
            let patch = json!({"count": count, "message": message, "lastTimestamp": Time(occurrence.at)});
            match api.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
                Ok(_) => return Ok(Some((key.clone(), name.clone(), *count, *first))),
                Err(kube::Error::Api(status)) if status.code == 404 => (key, message, *count, *first),
                Err(error) => return Err(error),
            }
        }
    };
    let name = event_name(&occurrence.object, occurrence.at, last);
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: occurrence.object.clone(),
        reason: Some(occurrence.reason.clone()),
        message: Some(message.clone()),
        type_: Some(occurrence.event_type.to_owned()),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(occurrence.at)),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(outgoing.node.to_string()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(outgoing.node.to_string()),
        ..Event::default()
    };
    api.create(&PostParams::default(), &event).await?;
    Ok(Some((key.clone(), name, count, first)))
}

/// Upstream: client-go v1.36.2 record/util `GenerateEventName`, with times that grow.
fn event_name(object: &ObjectReference, at: Timestamp, last: &AtomicI64) -> String {
    let at = i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
    let previous = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(at.max(last + 1)));
    let unique = at.max(previous.unwrap_or_default() + 1);
    format!("{}.{unique:x}", object.name.as_deref().unwrap_or_default())
}
