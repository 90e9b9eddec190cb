//! Scheduler events through events.k8s.io/v1: one object for each distinct event, a series for its repetitions. Never blocks its caller.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use scheduler_core::convert::{EventBody, EventSeries};
use scheduler_core::model::ObjectRef;
use scheduler_transport::Sender;
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

/// What happened, before it has a name.
#[derive(Clone, Debug)]
pub(crate) struct Happening {
    /// Everything but the time and the message.
    pub(crate) identity: Identity,
    /// The message.
    pub(crate) note: String,
    /// When it happened.
    pub(crate) at: Timestamp,
}

/// What is the same in all repetitions of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The pod that it happened to, with its resourceVersion.
    pub(crate) regarding: ObjectRef,
    /// Another pod that had a part in it.
    pub(crate) related: Option<ObjectRef>,
    /// `Normal` or `Warning`.
    pub(crate) event_type: &'static str,
    /// For example `FailedScheduling`.
    pub(crate) reason: &'static str,
    /// For example `Scheduling`.
    pub(crate) action: &'static str,
    /// The profile's schedulerName.
    pub(crate) reporting_controller: Arc<str>,
}

/// Takes happenings and writes them in the background.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Happening>,
}

impl Recorder {
    /// Starts the writer. `host` becomes part of `reportingInstance`. It ends when every recorder is dropped and the queue is empty.
    pub(crate) fn start(sender: Sender, host: &str) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let writer = tokio::spawn(write_all(sender, host.into(), receiver));
        (Self { queue }, writer)
    }

    /// Records `happening`; drops it if too many wait already.
    pub(crate) fn record(&self, happening: Happening) {
        if self.queue.try_send(happening).is_err() {
            tracing::warn!("event dropped: {MAX_QUEUED} events wait to be written");
        }
    }
}

async fn write_all(sender: Sender, host: Arc<str>, mut receiver: mpsc::Receiver<Happening>) {
    let mut series = Series::default();
    let mut in_flight = futures::stream::FuturesUnordered::new();
    let mut finish = tokio::time::interval(FINISH);
    let mut refresh = tokio::time::interval(REFRESH);
    let mut open = true;
    while open || !in_flight.is_empty() {
        let writes = tokio::select! {
            next = receiver.recv(), if open && in_flight.len() < MAX_IN_FLIGHT => match next {
                Some(happening) => series.add(happening).into_iter().collect(),
                None => { open = false; Vec::new() }
            },
            Some(()) = in_flight.next(), if !in_flight.is_empty() => Vec::new(),
            _ = finish.tick() => series.finish(Timestamp::now()),
            _ = refresh.tick() => series.running(),
        };
        for event in writes {
            in_flight.push(write(sender.clone(), Arc::clone(&host), event));
        }
    }
}

/// An event that was or will be written.
#[derive(Clone, Debug)]
struct Event {
    identity: Identity,
    name: String,
    note: String,
    event_time: Timestamp,
    series: Option<EventSeries>,
}

impl Event {
    fn new(Happening { identity, note, at }: Happening) -> Self {
        // Upstream: client-go tools/record/util GenerateEventName, nanoseconds in hexadecimal.
        let name = format!("{}.{:x}", identity.regarding.name, at.as_nanosecond());
        Self { identity, name, note, event_time: at, series: None }
    }

    fn namespace(&self) -> &str {
        match &*self.identity.regarding.namespace {
            "" => "default",
            namespace => namespace,
        }
    }

    fn body(&self, host: &str) -> Vec<u8> {
        let Identity { regarding, related, event_type, reason, action, reporting_controller } = &self.identity;
        EventBody {
            name: &self.name,
            namespace: self.namespace(),
            regarding,
            related: related.as_ref(),
            event_type,
            reason,
            action,
            note: &self.note,
            reporting_controller,
            reporting_instance: &format!("{reporting_controller}-{host}"),
            event_time: self.event_time,
            series: self.series,
        }
        .to_json()
    }
}

/// The events of the last minutes. Upstream: client-go tools/events/event_broadcaster.go eventCache.
#[derive(Debug, Default)]
struct Series {
    seen: FxHashMap<Identity, Arc<Event>>,
}

impl Series {
    /// The event to write now: the first of its kind, or the second, which starts a series. Later ones are only counted.
    fn add(&mut self, happening: Happening) -> Option<Arc<Event>> {
        let mut known = match self.seen.entry(happening.identity.clone()) {
            Entry::Occupied(known) => known,
            Entry::Vacant(place) => return Some(Arc::clone(place.insert(Arc::new(Event::new(happening))))),
        };
        let event = Arc::make_mut(known.get_mut());
        let is_second = event.series.is_none();
        let count = event.series.map_or(1, |series| series.count);
        event.series = Some(EventSeries { count: count.saturating_add(1), last_observed_time: happening.at });
        is_second.then(|| Arc::new(event.clone()))
    }

    /// Forgets what was not seen for [`FINISH`]; the final count of each ended series is to be written.
    fn finish(&mut self, now: Timestamp) -> Vec<Arc<Event>> {
        let limit = now - FINISH;
        let mut ended = Vec::new();
        self.seen.retain(|_, event| {
            let last = event.series.map_or(event.event_time, |series| series.last_observed_time);
            let over = last < limit;
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

async fn write(sender: Sender, host: Arc<str>, event: Arc<Event>) {
    let namespace = event.namespace();
    for attempt in 1..=MAX_TRIES {
        let Err(error) = write_once(&sender, &host, &event).await else { return };
        match failure::verdict(&error) {
            Verdict::TryAgain(after) if attempt < MAX_TRIES => {
                let jitter = 1.0 + rand::random::<f64>() / 4.0;
                tokio::time::sleep(after.unwrap_or(PAUSE).mul_f64(jitter)).await;
            }
            // The event of a first try whose answer was lost is there already.
            Verdict::Conflict => return,
            _ => {
                tracing::warn!("cannot write event {namespace}/{}: {}", event.name, failure::describe(&error));
                return;
            }
        }
    }
}

async fn write_once(sender: &Sender, host: &str, event: &Event) -> Result<(), kube::Error> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", event.namespace());
    if let Some(series) = &event.series {
        let patch = serde_json::json!({ "series": series });
        match request::patch(sender, &format!("{path}/{}", event.name), &patch).await {
            Err(error) if failure::verdict(&error) == Verdict::NotFound => {}
            answer => return answer,
        }
    }
    request::post(sender, &path, event.body(host)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(resource_version: &str, second: i64) -> Happening {
        Happening {
            identity: Identity {
                regarding: ObjectRef {
                    name: "p".into(),
                    resource_version: resource_version.into(),
                    ..ObjectRef::default()
                },
                related: None,
                event_type: "Warning",
                reason: "FailedScheduling",
                action: "Scheduling",
                reporting_controller: "default-scheduler".into(),
            },
            note: format!("note {second}"),
            at: Timestamp::from_second(second).expect("a small number of seconds"),
        }
    }

    #[test]
    fn nine_failures_are_two_objects_when_the_first_changed_the_pod() {
        let mut series = Series::default();
        let mut writes = vec![series.add(happening("1", 1))];
        writes.extend((2..=9).map(|second| series.add(happening("2", second))));
        let written: Vec<_> = writes
            .into_iter()
            .flatten()
            .map(|event| (event.name.clone(), event.series.as_ref().map(|s| s.count)))
            .collect();
        let second = "p.77359400".to_owned();
        assert_eq!(written, [("p.3b9aca00".to_owned(), None), (second.clone(), None), (second, Some(2))]);
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
    fn an_event_lies_in_the_namespace_of_its_pod() {
        let event = Event::new(happening("1", 1));
        let body: serde_json::Value = serde_json::from_slice(&event.body("host")).expect("JSON");
        assert_eq!(body["metadata"]["namespace"], "default", "a pod without namespace");
        assert_eq!(body["reportingInstance"], "default-scheduler-host");
        assert_eq!(body["note"], "note 1");
    }
}
