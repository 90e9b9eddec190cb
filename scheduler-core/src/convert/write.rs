//! Bodies of the API calls that scheduling ends in, as JSON: bindings and events of pods.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::model::ObjectRef;

/// The body of POST `pods/<name>/binding`.
///
/// ```
/// use scheduler_core::convert::binding;
/// use scheduler_core::model::ObjectRef;
///
/// let pod = ObjectRef { namespace: "d".into(), name: "p".into(), uid: "u".into(), ..ObjectRef::default() };
/// let json = String::from_utf8(binding(&pod, "n1")).unwrap();
/// assert!(json.contains(r#""target":{"kind":"Node","name":"n1"}"#), "{json}");
/// ```
#[must_use]
pub fn binding(pod: &ObjectRef, node: &str) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Binding<'a> {
        api_version: &'static str,
        kind: &'static str,
        metadata: Metadata<'a>,
        target: Target<'a>,
    }

    #[derive(Serialize)]
    struct Target<'a> {
        kind: &'static str,
        name: &'a str,
    }

    to_json(&Binding {
        api_version: "v1",
        kind: "Binding",
        metadata: Metadata { name: &pod.name, namespace: &pod.namespace, uid: &pod.uid },
        target: Target { kind: "Node", name: node },
    })
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

/// How often an event was seen, when more than once. Upstream: events/v1 `EventSeries` (v1.36.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSeries {
    /// How often.
    pub count: i32,
    /// When last.
    #[serde(serialize_with = "micro_time")]
    pub last_observed_time: Timestamp,
}

/// An event about a pod, of events.k8s.io/v1, with the fields of that version only.
#[derive(Debug, Clone, Copy)]
pub struct EventBody<'a> {
    /// Name of the event.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The pod.
    pub regarding: &'a ObjectRef,
    /// Another pod that had a part in it.
    pub related: Option<&'a ObjectRef>,
    /// `Normal` or `Warning`.
    pub event_type: &'a str,
    /// Machine-readable reason.
    pub reason: &'a str,
    /// What was being done.
    pub action: &'a str,
    /// Text.
    pub note: &'a str,
    /// Who reports.
    pub reporting_controller: &'a str,
    /// Which of them.
    pub reporting_instance: &'a str,
    /// When it was seen first.
    pub event_time: Timestamp,
    /// Its repetitions, if there were any.
    pub series: Option<EventSeries>,
}

impl EventBody<'_> {
    /// The body of POST `events`.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Event<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: Metadata<'a>,
            #[serde(serialize_with = "micro_time")]
            event_time: Timestamp,
            reporting_controller: &'a str,
            reporting_instance: &'a str,
            action: &'a str,
            reason: &'a str,
            regarding: PodReference<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            related: Option<PodReference<'a>>,
            note: &'a str,
            r#type: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            series: Option<EventSeries>,
        }

        to_json(&Event {
            api_version: "events.k8s.io/v1",
            kind: "Event",
            metadata: Metadata { name: self.name, namespace: self.namespace, uid: "" },
            event_time: self.event_time,
            reporting_controller: self.reporting_controller,
            reporting_instance: self.reporting_instance,
            action: self.action,
            reason: self.reason,
            regarding: PodReference::new(self.regarding),
            related: self.related.map(PodReference::new),
            note: self.note,
            r#type: self.event_type,
            series: self.series,
        })
    }
}

/// An `ObjectReference` to a pod.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodReference<'a> {
    api_version: &'static str,
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
}

impl<'a> PodReference<'a> {
    fn new(pod: &'a ObjectRef) -> Self {
        Self {
            api_version: "v1",
            kind: "Pod",
            namespace: &pod.namespace,
            name: &pod.name,
            uid: &pod.uid,
            resource_version: &pod.resource_version,
        }
    }
}

/// The API's `MicroTime`.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
}

fn to_json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("texts, numbers and times can be written to memory")
}

#[cfg(all(test, feature = "k8s-openapi"))]
mod tests {
    use k8s_openapi::api::{core::v1 as core, events::v1 as events};

    use super::*;

    fn pod() -> ObjectRef {
        ObjectRef { namespace: "d".into(), name: "p\"".into(), uid: "u".into(), resource_version: "7".into() }
    }

    #[test]
    fn a_binding_is_what_the_api_reads() {
        let read: core::Binding = serde_json::from_slice(&binding(&pod(), "n1")).expect("a binding");
        assert_eq!(read.metadata.name.as_deref(), Some("p\""));
        assert_eq!(read.metadata.namespace.as_deref(), Some("d"));
        assert_eq!(read.metadata.uid.as_deref(), Some("u"));
        assert_eq!((read.target.kind.as_deref(), read.target.name.as_deref()), (Some("Node"), Some("n1")));
    }

    #[test]
    fn an_event_is_what_the_api_reads_with_the_fields_of_the_new_api_only() {
        let time = Timestamp::from_microsecond(1_700_000_000_000_005).expect("in range");
        let (pod, other) = (pod(), ObjectRef { name: "q".into(), ..ObjectRef::default() });
        let body = EventBody {
            name: "p.1",
            namespace: "d",
            regarding: &pod,
            related: None,
            event_type: "Warning",
            reason: "FailedScheduling",
            action: "Scheduling",
            note: "0/1 nodes",
            reporting_controller: "default-scheduler",
            reporting_instance: "default-scheduler-host",
            event_time: time,
            series: None,
        };
        let read: events::Event = serde_json::from_slice(&body.to_json()).expect("an event");
        let regarding = core::ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some("d".into()),
            name: Some("p\"".into()),
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            field_path: None,
        };
        let mut want = events::Event {
            action: Some("Scheduling".into()),
            event_time: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(time)),
            note: Some("0/1 nodes".into()),
            reason: Some("FailedScheduling".into()),
            regarding: Some(regarding),
            reporting_controller: Some("default-scheduler".into()),
            reporting_instance: Some("default-scheduler-host".into()),
            type_: Some("Warning".into()),
            ..events::Event::default()
        };
        want.metadata.name = Some("p.1".into());
        want.metadata.namespace = Some("d".into());
        assert_eq!(read, want);

        let again = EventBody {
            series: Some(EventSeries { count: 2, last_observed_time: time }),
            related: Some(&other),
            ..body
        };
        let read: events::Event = serde_json::from_slice(&again.to_json()).expect("an event");
        assert_eq!(read.series.expect("a series").count, 2);
        let related = read.related.expect("a pod");
        assert_eq!((related.name.as_deref(), related.uid), (Some("q"), None));
    }
}
