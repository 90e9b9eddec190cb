//! Records of kube-scheduler-simulator: one JSON object a line, `{"time":…,"event":"Add|Update|Delete","resource":{…}}`.
//! Upstream: kubernetes-sigs/kube-scheduler-simulator simulator/recorder.

use std::path::Path;

use scheduler_core::model::Timestamp;
use serde_json::Value;

use super::lines::Lines;
use crate::simulate::admission::Admission;
use crate::simulate::script::{Happening, InputError, Name, Script, Timed};

/// Opens a file of records.
///
/// # Errors
/// The file cannot be opened; the rest when a line is read.
pub(crate) fn open(path: &Path, mut admission: Admission) -> Result<Script<'static>, InputError> {
    let lines = Lines::open(path)?;
    let file = std::sync::Arc::clone(lines.file());
    let mut last = Timestamp::MIN;
    let mut ended = false;
    Ok(Box::new(lines.filter_map(move |line| {
        if ended {
            return None;
        }
        let result = line.and_then(|(number, text)| {
            if text.trim().is_empty() {
                return Ok(None);
            }
            let what =
                record(&text, &mut last, &mut admission).map_err(|problem| InputError::at(&file, number, problem))?;
            Ok(what.map(|what| Timed { at: last, what, line: number }))
        });
        ended = result.is_err();
        result.transpose()
    })))
}

fn record(text: &str, last: &mut Timestamp, admission: &mut Admission) -> Result<Option<Happening>, String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| format!("malformed JSON: {error}"))?;
    let time = value["time"].as_str().unwrap_or_default();
    let at: jiff::Timestamp = time.parse().map_err(|_| format!("time is {}, expected RFC 3339", value["time"]))?;
    // Informers of several kinds write at once: a little disorder is their nature.
    *last = (*last).max(Timestamp::from_micros(at.as_microsecond()));
    let event = value["event"].as_str().unwrap_or_default().to_owned();
    let mut resource = value["resource"].take();
    match event.as_str() {
        "Add" | "Update" => {
            if resource["kind"] == "Pod" && resource["spec"]["nodeName"].is_string() {
                // Where a pod goes is decided here anew.
                resource["spec"]["nodeName"] = Value::Null;
                if event == "Update" {
                    return Ok(None);
                }
            }
            super::applied(resource, admission, None)
        }
        "Delete" => {
            let text = |path: &Value| path.as_str().unwrap_or_default().to_owned();
            let (kind, metadata) = (text(&resource["kind"]), &resource["metadata"]);
            Ok(Some(Happening::Delete(Name {
                kind,
                namespace: text(&metadata["namespace"]),
                name: text(&metadata["name"]),
            })))
        }
        other => Err(format!("event is {other:?}, expected Add, Update or Delete")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("r.jsonl");
        let lines = [
            r#"{"time":"2024-01-01T00:00:00Z","event":"Add","resource":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}}"#,
            r#"{"time":"2024-01-01T00:00:05.5Z","event":"Add","resource":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x"},"spec":{"nodeName":"n","containers":[]}}}"#,
            r#"{"time":"2024-01-01T00:00:09Z","event":"Delete","resource":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x"}}}"#,
        ];
        std::fs::write(&path, lines.join("\n")).expect("the file can be written");
        let events: Vec<_> = open(&path, Admission::default()).and_then(Iterator::collect).expect("well formed");
        assert_eq!(events[1].at.since(events[0].at).as_millis(), 5500);
        assert!(matches!(&events[1].what, Happening::Pod(pod, _) if pod.node_name.is_none()), "it is placed anew");
        assert!(matches!(&events[2].what, Happening::Delete(name) if name.to_string() == "Pod x/p"));
        std::fs::write(&path, "{\"time\":\"2024-01-01T00:00:00Z\",\"event\":\"Sing\",\"resource\":{}}")
            .expect("the file can be written");
        let error = open(&path, Admission::default())
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .expect_err("no such event");
        assert!(error.to_string().contains("r.jsonl:1: event is \"Sing\""), "{error}");
    }
}
