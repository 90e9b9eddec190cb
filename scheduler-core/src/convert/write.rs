//! Bodies of the API calls that scheduling ends in, as JSON: bindings and events of pods.

use jiff::Timestamp;
use jiff::tz::Offset;
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
    let mut json = Writer::new(128 + pod.name.len() + pod.namespace.len() + pod.uid.len() + node.len());
    json.raw(r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"#).text(&pod.name);
    json.raw(r#","namespace":"#).text(&pod.namespace).text_if_any(r#","uid":"#, &pod.uid);
    json.raw(r#"},"target":{"kind":"Node","name":"#).text(node).raw("}}");
    json.0
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
        let mut json = Writer::new(768 + self.note.len());
        json.raw(r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"#).text(self.name);
        json.raw(r#","namespace":"#).text(self.namespace).raw(r#"},"eventTime":"#).micro_time(self.event_time);
        json.raw(r#","reportingController":"#).text(self.reporting_controller);
        json.raw(r#","reportingInstance":"#).text(self.reporting_instance);
        json.raw(r#","action":"#).text(self.action).raw(r#","reason":"#).text(self.reason);
        json.raw(r#","regarding":"#).pod(self.regarding);
        if let Some(related) = self.related {
            json.raw(r#","related":"#).pod(related);
        }
        json.raw(r#","note":"#).text(self.note).raw(r#","type":"#).text(self.event_type);
        if let Some(series) = self.series {
            json.raw(r#","series":{"count":"#).raw(&series.count.to_string());
            json.raw(r#","lastObservedTime":"#).micro_time(series.last_observed_time).raw("}");
        }
        json.raw("}");
        json.0
    }
}

/// JSON in the making. Each pod that is scheduled has two bodies, so that they are put together from their parts.
struct Writer(Vec<u8>);

impl Writer {
    fn new(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// What is JSON already.
    fn raw(&mut self, json: &str) -> &mut Self {
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            return self.raw("\"").raw(text).raw("\"");
        }
        serde_json::to_writer(&mut self.0, text).expect("a text can be written to memory");
        self
    }

    fn text_if_any(&mut self, key: &str, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.raw(key).text(text) }
    }

    /// An `ObjectReference` to a pod.
    fn pod(&mut self, pod: &ObjectRef) -> &mut Self {
        self.raw(r#"{"apiVersion":"v1","kind":"Pod","namespace":"#).text(&pod.namespace);
        self.raw(r#","name":"#).text(&pod.name).text_if_any(r#","uid":"#, &pod.uid);
        self.text_if_any(r#","resourceVersion":"#, &pod.resource_version).raw("}")
    }

    /// The API's `MicroTime`.
    fn micro_time(&mut self, time: Timestamp) -> &mut Self {
        let civil = Offset::UTC.to_datetime(time);
        let Ok(year @ 0..=9999) = u32::try_from(civil.year()) else { return self.text(&written(time)) };
        let mut text = *b"\"0000-00-00T00:00:00.000000Z\"";
        let small = |number: i8| u32::from(number.unsigned_abs());
        let parts = [
            (1, 4, year),
            (6, 2, small(civil.month())),
            (9, 2, small(civil.day())),
            (12, 2, small(civil.hour())),
            (15, 2, small(civil.minute())),
            (18, 2, small(civil.second())),
            (21, 6, civil.subsec_nanosecond().unsigned_abs() / 1000),
        ];
        for (at, n_digits, mut number) in parts {
            for digit in text[at..at + n_digits].iter_mut().rev() {
                *digit = b'0' + u8::try_from(number % 10).expect("a digit");
                number /= 10;
            }
        }
        self.0.extend_from_slice(&text);
        self
    }
}

/// The API's `MicroTime`.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&written(*time))
}

fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod text_tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![3 => "[a-z.-]{0,8}", 1 => any::<String>()]
    }

    fn any_pod() -> impl Strategy<Value = ObjectRef> {
        [any_text(), any_text(), any_text(), any_text()].prop_map(|texts| {
            let [namespace, name, uid, resource_version] = texts.map(Into::into);
            ObjectRef { namespace, name, uid, resource_version }
        })
    }

    fn reference(pod: &ObjectRef) -> Value {
        let mut reference = json!({"apiVersion": "v1", "kind": "Pod", "namespace": *pod.namespace, "name": *pod.name});
        for (key, text) in [("uid", &pod.uid), ("resourceVersion", &pod.resource_version)] {
            if !text.is_empty() {
                reference[key] = (**text).into();
            }
        }
        reference
    }

    proptest! {
        #[test]
        fn bodies_are_the_json_of_their_members(
            pod in any_pod(),
            related in proptest::option::of(any_pod()),
            texts in proptest::collection::vec(any_text(), 8),
            time in Timestamp::MIN.as_microsecond()..=Timestamp::MAX.as_microsecond(),
            recent in 0..4_000_000_000_000_000_i64,
            count in proptest::option::of(any::<i32>()),
        ) {
            let [event_time, last_observed_time] = [time, recent].map(|time| Timestamp::from_microsecond(time).expect("in range"));
            let series = count.map(|count| EventSeries { count, last_observed_time });
            let body = EventBody {
                name: &texts[0],
                namespace: &texts[1],
                regarding: &pod,
                related: related.as_ref(),
                event_type: &texts[2],
                reason: &texts[3],
                action: &texts[4],
                note: &texts[5],
                reporting_controller: &texts[6],
                reporting_instance: &texts[7],
                event_time,
                series,
            };
            let mut want = json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": texts[0], "namespace": texts[1]},
                "eventTime": written(event_time), "reportingController": texts[6], "reportingInstance": texts[7],
                "action": texts[4], "reason": texts[3], "regarding": reference(&pod), "note": texts[5], "type": texts[2],
            });
            if let Some(related) = &related {
                want["related"] = reference(related);
            }
            if let Some(series) = series {
                want["series"] = json!(series);
            }
            prop_assert_eq!(serde_json::from_slice::<Value>(&body.to_json()).expect("JSON"), want);

            let mut metadata = json!({"name": *pod.name, "namespace": *pod.namespace});
            if !pod.uid.is_empty() {
                metadata["uid"] = (*pod.uid).into();
            }
            let want = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
                "target": {"kind": "Node", "name": texts[0]}});
            prop_assert_eq!(serde_json::from_slice::<Value>(&binding(&pod, &texts[0])).expect("JSON"), want);
        }
    }
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
