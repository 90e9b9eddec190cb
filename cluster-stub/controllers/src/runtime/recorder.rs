//! Sends the events of one component without holding its reconciles up. What becomes of an event the correlator decides.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::api::{ApiClient, Object, SyncError};
use super::key::ObjectKey;
use cluster_stub_base::correlator::{Correlator, Occurrence, Verdict};

/// Events that may wait to be sent; more are dropped. Upstream: client-go v1.36.2 record/event.go `maxQueuedEvents`.
const MAX_QUEUED: usize = 1000;
/// Tries per event. Upstream: client-go v1.36.2 record/event.go `maxTriesPerEvent`.
const MAX_TRIES: u32 = 12;
/// Pause between tries; grows with each.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// Type of an event that tells of something expected.
pub(crate) const NORMAL: &str = "Normal";
/// Type of an event that tells of something wrong.
pub(crate) const WARNING: &str = "Warning";

/// Reports events under one component name; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventRecorder {
    sender: mpsc::Sender<Occurrence>,
}

impl EventRecorder {
    /// A recorder and the work that sends what it is told; the work ends with `shutdown`.
    pub(crate) fn new(
        api: ApiClient,
        component: &'static str,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        (Self { sender }, send_all(api, component, receiver, shutdown))
    }

    /// Reports an event about `object`. `event_type` is [`NORMAL`] or [`WARNING`].
    pub(crate) fn event<K: Object>(&self, object: &K, event_type: &'static str, reason: &str, message: String) {
        self.event_about(reference(object), event_type, reason, message);
    }

    /// Reports an event about whatever `object` refers to.
    pub(crate) fn event_about(&self, object: ObjectReference, event_type: &'static str, reason: &str, message: String) {
        let occurrence = Occurrence { object, event_type, reason: reason.to_owned(), message, at: Timestamp::now() };
        if let Err(error) = self.sender.try_send(occurrence) {
            tracing::debug!(error = &error as &dyn std::error::Error, "event dropped");
        }
    }
}

/// A reference to `object` as events carry it. Upstream: client-go v1.36.2 tools/reference/ref.go.
pub(crate) fn reference<K: Object>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

async fn send_all(
    api: ApiClient,
    component: &'static str,
    mut receiver: mpsc::Receiver<Occurrence>,
    shutdown: CancellationToken,
) {
    let mut correlator = Correlator::default();
    loop {
        let occurrence = tokio::select! {
            () = shutdown.cancelled() => return,
            occurrence = receiver.recv() => match occurrence {
                Some(occurrence) => occurrence,
                None => return,
            },
        };
        let verdict = correlator.observe(&occurrence);
        for attempt in 1..=MAX_TRIES {
            match send(&api, component, &occurrence, &verdict).await {
                Ok(Some((key, name, count, first))) => {
                    correlator.recorded(key, name, count, first);
                    break;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(component, error = &error as &dyn std::error::Error, "event not sent");
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(RETRY_PAUSE * attempt) => {}
                    }
                }
            }
        }
    }
}

/// Sends one event. `None`: it was refused or dropped for good. An error is worth another try.
async fn send(
    api: &ApiClient,
    component: &str,
    occurrence: &Occurrence,
    verdict: &Verdict,
) -> Result<Option<(String, String, i32, Timestamp)>, SyncError> {
    let namespace = namespace(&occurrence.object);
    let (key, message, count, first) = match verdict {
        Verdict::Drop => return Ok(None),
        Verdict::Create { key, message } => (key, message, 1, occurrence.at),
        Verdict::Count { key, name, count, message, first } => {
            let patch = json!({"count": count, "message": message, "lastTimestamp": Time(occurrence.at)});
            match api.patch::<Event>(&ObjectKey::new(namespace, name), &patch).await {
                Ok(_) => return Ok(Some((key.clone(), name.clone(), *count, *first))),
                Err(error) if error.is_not_found() => (key, message, *count, *first), // expired meanwhile
                Err(error) => return final_or_retry(error),
            }
        }
    };
    let event = Event {
        metadata: ObjectMeta {
            name: Some(event_name(occurrence)),
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
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(String::new()),
        ..Event::default()
    };
    match api.create(&event).await {
        Ok(created) => Ok(Some((key.clone(), created.metadata.name.unwrap_or_default(), count, first))),
        Err(error) => final_or_retry(error),
    }
}

/// An answer of the server is final, as upstream has it; only a lost request is tried again.
fn final_or_retry<T>(error: SyncError) -> Result<Option<T>, SyncError> {
    match &error {
        SyncError::Request { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code < 500) =>
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "event refused");
            Ok(None)
        }
        _ => Err(error),
    }
}

fn namespace(object: &ObjectReference) -> &str {
    object.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

/// Upstream: client-go v1.36.2 record/util `GenerateEventName`.
fn event_name(occurrence: &Occurrence) -> String {
    let name = occurrence.object.name.as_deref().unwrap_or_default();
    let name = format!("{name}.{:x}", occurrence.at.as_nanosecond());
    let valid = name.len() <= 253
        && name.split('.').all(|label| {
            label.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && label.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
    // A ClusterRole may be called system:node; its events may not.
    if valid { name } else { uuid::Uuid::new_v4().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_after_its_object_unless_that_is_no_valid_name() {
        let occurrence = |name: &str| Occurrence {
            object: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
            event_type: NORMAL,
            reason: String::new(),
            message: String::new(),
            at: Timestamp::from_nanosecond(105_999_103_295_324_396).expect("in range"),
        };
        assert_eq!(event_name(&occurrence("test-pod")), "test-pod.178959f726d80ec");
        assert_eq!(event_name(&occurrence("system:node")).len(), 36);
    }
}
