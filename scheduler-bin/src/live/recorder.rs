//! Scheduler events through events.k8s.io/v1: one object for each distinct event, a series for its repetitions. Never blocks its caller.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::mpsc;

use super::failure::{self, Verdict};
use super::request;

/// A series ends when its event was not seen for so long; upstream: event_broadcaster.go finishTime.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// How often the counts of running series are written; upstream: refreshTime.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// Tries for one event; upstream: maxTriesPerEvent.
const MAX_TRIES: u32 = 12;
/// Pause between two tries; upstream: defaultSleepDuration.
const PAUSE: Duration = Duration::from_secs(10);
/// Events that may wait to be written; more are dropped, as upstream does.
const MAX_QUEUED: usize = 10_000;
/// Requests in flight at once.
const MAX_IN_FLIGHT: usize = 64;

/// What happened, before it has a name and a time.
#[derive(Clone, Debug)]
pub(crate) struct Happening {
    /// The object that it happened to, with its resourceVersion.
    pub(crate) regarding: ObjectReference,
    /// Another object that had a part in it.
    pub(crate) related: Option<ObjectReference>,
    /// `Normal` or `Warning`.
    pub(crate) kind: String,
    /// For example `FailedScheduling`.
    pub(crate) reason: String,
    /// For example `Scheduling`.
    pub(crate) action: String,
    /// The message.
    pub(crate) note: String,
    /// The profile's schedulerName.
    pub(crate) reporting_controller: String,
    /// When it happened.
    pub(crate) at: Timestamp,
}

/// Takes happenings and writes them in the background.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Happening>,
}

impl Recorder {
    /// Starts the writer. `host` becomes part of `reportingInstance`. It ends when every recorder is dropped and the queue is empty.
    pub(crate) fn start(client: Client, host: &str) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let writer = tokio::spawn(write_all(client, host.to_owned(), receiver));
        (Self { queue }, writer)
    }

    /// Records `happening`; drops it if too many wait already.
    pub(crate) fn record(&self, happening: Happening) {
        if self.queue.try_send(happening).is_err() {
            tracing::warn!("event dropped: {MAX_QUEUED} events wait to be written");
        }
    }
}

async fn write_all(client: Client, host: String, mut receiver: mpsc::Receiver<Happening>) {
    let mut series = Series::default();
    let mut in_flight = futures::stream::FuturesUnordered::new();
    let mut finish = tokio::time::interval(FINISH);
    let mut refresh = tokio::time::interval(REFRESH);
    let mut open = true;
    while open || !in_flight.is_empty() {
        let writes = tokio::select! {
            next = receiver.recv(), if open && in_flight.len() < MAX_IN_FLIGHT => match next {
                Some(happening) => series.add(happening, &host).into_iter().collect(),
                None => { open = false; Vec::new() }
            },
            Some(()) = in_flight.next(), if !in_flight.is_empty() => Vec::new(),
            _ = finish.tick() => series.finish(Timestamp::now()),
            _ = refresh.tick() => series.running(),
        };
        for event in writes {
            in_flight.push(write(client.clone(), event));
        }
    }
}

/// Everything but the time and the message: two events that agree in it are repetitions of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: String,
    action: String,
    reason: String,
    reporting_controller: String,
    regarding: Reference,
    related: Option<Reference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reference([Option<String>; 7]);

impl From<&ObjectReference> for Reference {
    fn from(object: &ObjectReference) -> Self {
        let ObjectReference { api_version, field_path, kind, name, namespace, resource_version, uid } = object.clone();
        Self([api_version, field_path, kind, name, namespace, resource_version, uid])
    }
}

/// The events of the last minutes. Upstream: client-go tools/events/event_broadcaster.go eventCache.
#[derive(Debug, Default)]
struct Series {
    seen: FxHashMap<Identity, Arc<Event>>,
}

impl Series {
    /// The event to write now: the first of its kind, or the second, which starts a series. Later ones are only counted.
    fn add(&mut self, happening: Happening, host: &str) -> Option<Arc<Event>> {
        let identity = Identity {
            kind: happening.kind.clone(),
            action: happening.action.clone(),
            reason: happening.reason.clone(),
            reporting_controller: happening.reporting_controller.clone(),
            regarding: Reference::from(&happening.regarding),
            related: happening.related.as_ref().map(Reference::from),
        };
        if let Some(event) = self.seen.get_mut(&identity) {
            let event = Arc::make_mut(event);
            let last_observed_time = MicroTime(happening.at);
            if let Some(series) = &mut event.series {
                series.count += 1;
                series.last_observed_time = last_observed_time;
                return None;
            }
            event.series = Some(EventSeries { count: 2, last_observed_time });
            return Some(Arc::new(event.clone()));
        }
        let event = Arc::new(new_event(happening, host));
        self.seen.insert(identity, Arc::clone(&event));
        Some(event)
    }

    /// Forgets what was not seen for [`FINISH`]; the final count of each ended series is to be written.
    fn finish(&mut self, now: Timestamp) -> Vec<Arc<Event>> {
        let limit = now - FINISH;
        let mut ended = Vec::new();
        self.seen.retain(|_, event| {
            let last = event
                .series
                .as_ref()
                .map(|series| series.last_observed_time.0)
                .or(event.event_time.as_ref().map(|time| time.0));
            let over = last.is_none_or(|last| last < limit);
            if over && event.series.is_some() {
                ended.push(Arc::clone(event));
            }
            !over
        });
        ended
    }

    fn running(&self) -> Vec<Arc<Event>> {
        self.seen.values().filter(|event| event.series.is_some()).map(Arc::clone).collect()
    }
}

fn new_event(happening: Happening, host: &str) -> Event {
    let name = happening.regarding.name.clone().unwrap_or_default();
    let namespace = happening.regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
    Event {
        metadata: ObjectMeta {
            // Upstream: client-go tools/record/util GenerateEventName, nanoseconds in hexadecimal.
            name: Some(format!("{name}.{:x}", happening.at.as_nanosecond())),
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(happening.at)),
        reporting_instance: Some(format!("{}-{host}", happening.reporting_controller)),
        reporting_controller: Some(happening.reporting_controller),
        action: Some(happening.action),
        reason: Some(happening.reason),
        regarding: Some(happening.regarding),
        related: happening.related,
        note: Some(happening.note),
        type_: Some(happening.kind),
        ..Event::default()
    }
}

async fn write(client: Client, event: Arc<Event>) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    for attempt in 1..=MAX_TRIES {
        let Err(error) = write_once(&client, namespace, &event).await else { return };
        match failure::verdict(&error) {
            Verdict::TryAgain(after) if attempt < MAX_TRIES => {
                let jitter = 1.0 + rand::random::<f64>() / 4.0;
                tokio::time::sleep(after.unwrap_or(PAUSE).mul_f64(jitter)).await;
            }
            // The event of a first try whose answer was lost is there already.
            Verdict::Conflict => return,
            _ => {
                let name = event.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!("cannot write event {namespace}/{name}: {}", failure::describe(&error));
                return;
            }
        }
    }
}

async fn write_once(client: &Client, namespace: &str, event: &Event) -> Result<(), kube::Error> {
    if let (Some(series), Some(name)) = (&event.series, &event.metadata.name) {
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Strategic(json!({ "series": series }));
        match events.patch(name, &PatchParams::default(), &patch).await {
            Err(error) if failure::verdict(&error) == Verdict::NotFound => {}
            answer => return answer.map(drop),
        }
    }
    let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    request::post(client, &format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(resource_version: &str, second: i64) -> Happening {
        Happening {
            regarding: ObjectReference {
                name: Some("p".into()),
                namespace: Some("n".into()),
                resource_version: Some(resource_version.into()),
                ..ObjectReference::default()
            },
            related: None,
            kind: "Warning".into(),
            reason: "FailedScheduling".into(),
            action: "Scheduling".into(),
            note: format!("note {second}"),
            reporting_controller: "default-scheduler".into(),
            at: Timestamp::from_second(second).expect("a small number of seconds"),
        }
    }

    #[test]
    fn nine_failures_are_two_objects_when_the_first_changed_the_pod() {
        let mut series = Series::default();
        let mut writes = vec![series.add(happening("1", 1), "host")];
        writes.extend((2..=9).map(|second| series.add(happening("2", second), "host")));
        let written: Vec<_> = writes
            .into_iter()
            .flatten()
            .map(|event| (event.metadata.name.clone(), event.series.as_ref().map(|s| s.count)))
            .collect();
        let second = Some("p.77359400".to_owned());
        assert_eq!(written, [(Some("p.3b9aca00".to_owned()), None), (second.clone(), None), (second, Some(2))]);
        let limit = Timestamp::from_second(9 + 361).expect("a small number of seconds");
        let ended = series.finish(limit);
        assert_eq!(
            ended.iter().map(|e| e.series.as_ref().map(|s| s.count)).collect::<Vec<_>>(),
            [Some(8)],
            "the final count is written once"
        );
        assert!(series.seen.is_empty());
    }

    #[test]
    fn an_event_has_the_fields_of_the_new_api_only() {
        let event = new_event(happening("1", 1), "host");
        assert_eq!(event.reporting_instance.as_deref(), Some("default-scheduler-host"));
        assert_eq!(event.action.as_deref(), Some("Scheduling"));
        assert!(
            event.event_time.is_some()
                && event.deprecated_count.is_none()
                && event.deprecated_first_timestamp.is_none()
        );
        assert!(event.deprecated_source.is_none());
    }
}
