//! Our own trace format: one JSON object a line, in the order of time. docs/simulation.md describes it.
//!
//! ```text
//! {"apiVersion":"plimsoll.io/v1alpha1","kind":"EventTrace"}
//! {"at":0,"apply":{"apiVersion":"v1","kind":"Node",…}}
//! {"at":5,"pod":{"name":"a","requests":{"cpu":"1"}},"count":10,"duration":"90s"}
//! {"at":"10m","scale":{"kind":"Deployment","name":"web","replicas":5}}
//! {"at":"1h","drain":"node-3"}
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use scheduler_core::model::{Pod, Timestamp};
use serde_json::{Value, json};

use super::lines::Lines;
use crate::field_validation;
use crate::simulate::admission::Admission;
use crate::simulate::script::{Happening, InputError, Leaves, Name, Script, Timed};
use crate::simulate::span;

/// `apiVersion` of the format.
pub(crate) const API_VERSION: &str = "plimsoll.io/v1alpha1";

/// `kind` of the first line.
pub(crate) const KIND: &str = "EventTrace";

/// Most pods of one line.
const MAX_COUNT: u64 = 10_000_000;

/// What a line may do besides `at`.
const VERBS: [&str; 9] = ["apply", "pod", "delete", "scale", "drain", "cordon", "uncordon", "fail", "recover"];

/// Opens a trace and checks its first line.
///
/// # Errors
/// The file cannot be read, or its first line is not that of this format and version.
pub(crate) fn open(path: &Path, admission: Admission) -> Result<Script<'static>, InputError> {
    let mut lines = Lines::open(path)?;
    let file = std::sync::Arc::clone(lines.file());
    let head = lines.next().unwrap_or_else(|| Err(InputError::at(&file, 1, "the file is empty")))?.1;
    let head: Value = serde_json::from_str(&head)
        .map_err(|error| InputError::at(&file, 1, format_args!("malformed JSON: {error}")))?;
    let wanted = format!("expected {{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"{KIND}\"}}");
    if head["kind"] != KIND {
        return Err(InputError::at(&file, 1, format_args!("kind is {}, {wanted}", head["kind"])));
    }
    if head["apiVersion"] != API_VERSION {
        return Err(InputError::at(&file, 1, format_args!("apiVersion is {}, {wanted}", head["apiVersion"])));
    }
    Ok(Box::new(Events { lines, admission, last: Timestamp::MIN, dates: None, more: VecDeque::new(), ended: false }))
}

struct Events {
    lines: Lines<BufReader<File>>,
    admission: Admission,
    last: Timestamp,
    /// Whether the trace tells its times by dates.
    dates: Option<bool>,
    /// The pods of a line with a count that are still to come.
    more: VecDeque<More>,
    ended: bool,
}

struct More {
    at: Timestamp,
    line: u64,
    object: Value,
    /// The first of them, from which the others are copied.
    first: Option<(Arc<Pod>, Leaves)>,
    next: u64,
    count: u64,
}

impl Iterator for Events {
    type Item = Result<Timed, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(answer) = self.next_of_count() {
                return Some(answer);
            }
            let (line, text) = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return self.fail(error),
            };
            if text.trim().is_empty() {
                continue;
            }
            match self.line(line, &text) {
                Ok(Some(timed)) => return Some(Ok(timed)),
                Ok(None) => {}
                Err(problem) => {
                    let error = InputError::at(self.lines.file(), line, problem);
                    return self.fail(error);
                }
            }
        }
    }
}

impl Events {
    fn fail(&mut self, error: InputError) -> Option<Result<Timed, InputError>> {
        self.ended = true;
        Some(Err(error))
    }

    fn line(&mut self, line: u64, text: &str) -> Result<Option<Timed>, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| format!("malformed JSON: {error}"))?;
        let Some(fields) = value.as_object() else { return Err("expected a JSON object".to_owned()) };
        let verb: Vec<&str> = VERBS.iter().copied().filter(|verb| fields.contains_key(*verb)).collect();
        let [verb] = verb[..] else {
            return Err(format!("{} of {} are there, expected exactly one", verb.len(), VERBS.join(", ")));
        };
        if let Some(unknown) =
            fields.keys().find(|key| *key != verb && !["at", "duration", "count"].contains(&key.as_str()))
        {
            return Err(format!(
                "unknown field {unknown:?}, expected at, duration, count and one of {}",
                VERBS.join(", ")
            ));
        }
        let at = span::instant_of(&value["at"]).map_err(|problem| format!("at: {problem}"))?;
        let is_date = span::is_date(&value["at"]);
        if *self.dates.get_or_insert(is_date) != is_date {
            let (this, first) = if is_date { ("a date", "count from the start") } else { ("no date", "are dates") };
            return Err(format!("at {} is {this}, but those above {first}: expected one or the other", value["at"]));
        }
        if at < self.last {
            return Err(format!("at {} lies before the line above: lines must be in the order of time", value["at"]));
        }
        self.last = at;
        let duration = match &value["duration"] {
            Value::Null => None,
            duration => Some(span::duration_of(duration).map_err(|problem| format!("duration: {problem}"))?),
        };
        let count = match &value["count"] {
            Value::Null => None,
            count => Some(
                count
                    .as_u64()
                    .filter(|count| (1..=MAX_COUNT).contains(count))
                    .ok_or_else(|| format!("count is {count}, expected 1 to {MAX_COUNT}"))?,
            ),
        };
        let argument = value[verb].take();
        let what = match verb {
            "apply" | "pod" => {
                let mut object = if verb == "pod" { short_pod(&argument)? } else { argument };
                let faults = field_validation::faults(&object);
                if !faults.is_empty() {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
                    return Err(format!("{kind} {name}: {}", faults.join("; ")));
                }
                if duration.is_some() {
                    let kind = object["kind"].as_str().unwrap_or_default();
                    if kind != "Pod" && !crate::simulate::workload::is_workload(kind) {
                        return Err(format!("duration is for pods and workloads, not for {kind:?}"));
                    }
                }
                if let Some(count) = count {
                    if object["kind"] != "Pod" {
                        return Err("count is for pods; a workload has replicas".to_owned());
                    }
                    if let Some(duration) = duration {
                        object["metadata"]["annotations"]["plimsoll.io/duration"] =
                            json!(duration.as_secs_f64().to_string());
                    }
                    self.more.push_back(More { at, line, object, first: None, next: 0, count });
                    return Ok(None);
                }
                super::applied(object, &mut self.admission, duration)?
            }
            "delete" => Some(Happening::Delete(name_of(&argument)?)),
            "scale" => {
                let replicas = argument["replicas"].as_u64().and_then(|number| u32::try_from(number).ok());
                let replicas = replicas
                    .ok_or_else(|| format!("scale: replicas is {}, expected a number", argument["replicas"]))?;
                Some(Happening::Scale(name_of(&argument)?, replicas))
            }
            _ => {
                let node = argument.as_str().or(argument["node"].as_str()).map(std::sync::Arc::from);
                let node = node.ok_or_else(|| format!("{verb}: expected the name of a node, found {argument}"))?;
                Some(match verb {
                    "drain" => Happening::Drain(node),
                    "cordon" => Happening::Cordon(node),
                    "uncordon" => Happening::Uncordon(node),
                    "fail" => Happening::Fail(node),
                    _ => Happening::Recover(node),
                })
            }
        };
        Ok(what.map(|what| Timed { at, what, line }))
    }

    fn next_of_count(&mut self) -> Option<Result<Timed, InputError>> {
        let more = self.more.front_mut()?;
        let metadata = &more.object["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or("pod");
        let name = format!("{}-{}", name.trim_end_matches('-'), more.next);
        let has_uid = !metadata["uid"].as_str().unwrap_or_default().is_empty();
        more.next += 1;
        let (at, line, done) = (more.at, more.line, more.next == more.count);
        let what = match &more.first {
            // They differ in their names only.
            Some((first, leaves)) => {
                let mut pod = Pod::clone(first);
                if !has_uid {
                    pod.uid = format!("{}/{name}", pod.namespace).into();
                }
                pod.name = name.into();
                Ok(Some(Happening::Pod(Arc::new(pod), *leaves)))
            }
            None => {
                let mut object = more.object.clone();
                object["metadata"]["name"] = json!(name);
                let what = super::applied(object, &mut self.admission, None);
                if let Ok(Some(Happening::Pod(pod, leaves))) = &what {
                    more.first = Some((Arc::clone(pod), *leaves));
                }
                what
            }
        };
        if done {
            self.more.pop_front();
        }
        match what {
            Ok(Some(what)) => Some(Ok(Timed { at, what, line })),
            Ok(None) => None,
            Err(problem) => {
                let error = InputError::at(self.lines.file(), line, problem);
                self.fail(error)
            }
        }
    }
}

/// A pod in short: `name`, `namespace`, `labels`, `requests`, `priority`, and any field of a pod's `spec`.
fn short_pod(short: &Value) -> Result<Value, String> {
    let Some(fields) = short.as_object() else { return Err(format!("pod: expected an object, found {short}")) };
    if short["name"].as_str().is_none_or(str::is_empty) {
        return Err("pod: it has no name".to_owned());
    }
    let mut spec = short["spec"].as_object().cloned().unwrap_or_default();
    for (key, value) in fields {
        match key.as_str() {
            "name" | "namespace" | "labels" | "requests" | "spec" => {}
            "priority"
            | "priorityClassName"
            | "nodeSelector"
            | "tolerations"
            | "affinity"
            | "schedulerName"
            | "topologySpreadConstraints" => {
                spec.insert(key.clone(), value.clone());
            }
            other => {
                return Err(format!(
                    "pod: unknown field {other:?}, expected name, namespace, labels, requests, priority, … or spec"
                ));
            }
        }
    }
    if !spec.contains_key("containers") {
        let requests = if short["requests"].is_null() { json!({}) } else { short["requests"].clone() };
        spec.insert(
            "containers".to_owned(),
            json!([{"name": "main", "image": "simulated", "resources": {"requests": requests}}]),
        );
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": short["name"], "namespace": short["namespace"], "labels": short["labels"]},
        "spec": spec,
    }))
}

fn name_of(value: &Value) -> Result<Name, String> {
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let kind = text("kind").ok_or_else(|| format!("expected kind and name, found {value}"))?;
    let name = text("name").ok_or_else(|| format!("expected kind and name, found {value}"))?;
    let is_global =
        matches!(&*kind, "Node" | "Namespace" | "PersistentVolume" | "StorageClass" | "CSINode" | "CSIDriver");
    let namespace = if is_global { String::new() } else { text("namespace").unwrap_or_else(|| "default".to_owned()) };
    Ok(Name { kind, namespace, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(body: &str) -> Result<Vec<Timed>, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("t");
        std::fs::write(&path, body).expect("the file can be written");
        let all = open(&path, Admission::default()).and_then(Iterator::collect);
        all.map_err(|error| error.to_string().replace(&path.display().to_string(), "t"))
    }

    const HEAD: &str = "{\"apiVersion\":\"plimsoll.io/v1alpha1\",\"kind\":\"EventTrace\"}\n";

    #[test]
    fn events_are_read_in_order() {
        let lines = [
            r#"{"at":0,"apply":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}}"#,
            r#"{"at":5,"pod":{"name":"a","requests":{"cpu":"1"}},"count":2,"duration":"90s"}"#,
            "",
            r#"{"at":"10m","scale":{"kind":"Deployment","name":"web","replicas":5}}"#,
            r#"{"at":"1h","drain":"n"}"#,
            r#"{"at":"2h","delete":{"kind":"Node","name":"n"}}"#,
        ];
        let events = read(&format!("{HEAD}{}\n", lines.join("\n"))).expect("well formed");
        assert_eq!(
            events.iter().map(|event| event.at.as_micros() / 1_000_000).collect::<Vec<_>>(),
            [0, 5, 5, 600, 3600, 7200]
        );
        let Happening::Pod(pod, leaves) = &events[2].what else { panic!("a pod") };
        assert_eq!((&*pod.name, *leaves), ("a-1", Leaves::After(Duration::from_secs(90))));
        assert_eq!(pod.resources.requests.milli_cpu, 1000);
        assert!(matches!(&events[3].what, Happening::Scale(name, 5) if name.to_string() == "Deployment default/web"));
        assert!(matches!(&events[4].what, Happening::Drain(node) if &**node == "n"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (name, body, want) in [
            ("empty", String::new(), "t:1: the file is empty"),
            ("no head", "{\"at\":0}\n".to_owned(), "t:1: kind is null"),
            ("another version", HEAD.replace("v1alpha1", "v9"), "t:1: apiVersion is \"plimsoll.io/v9\""),
            ("cut off", format!("{HEAD}{{\"at\":0,\"po"), "t:2: malformed JSON"),
            (
                "backwards",
                format!("{HEAD}{{\"at\":5,\"drain\":\"n\"}}\n{{\"at\":4,\"drain\":\"n\"}}\n"),
                "t:3: at 4 lies before",
            ),
            (
                "a date among spans",
                format!("{HEAD}{{\"at\":5,\"drain\":\"n\"}}\n{{\"at\":\"2026-01-31T00:00:00Z\",\"drain\":\"n\"}}\n"),
                "t:3: at \"2026-01-31T00:00:00Z\" is a date, but those above count from the start",
            ),
            (
                "an unknown field of an object",
                format!("{HEAD}{{\"at\":5,\"pod\":{{\"name\":\"a\",\"tolerations\":[{{\"ky\":\"b\"}}]}}}}\n"),
                "t:2: Pod a: unknown field \"spec.tolerations[0].ky\", did you mean \"key\"?",
            ),
            ("nothing to do", format!("{HEAD}{{\"at\":5}}\n"), "t:2: 0 of apply"),
            (
                "a wrong field",
                format!("{HEAD}{{\"at\":5,\"drain\":\"n\",\"when\":1}}\n"),
                "t:2: unknown field \"when\"",
            ),
            (
                "a wrong quantity",
                format!("{HEAD}{{\"at\":5,\"pod\":{{\"name\":\"a\",\"requests\":{{\"cpu\":\"lots\"}}}}}}\n"),
                "t:2: Pod a:",
            ),
            ("no time", format!("{HEAD}{{\"at\":\"soon\",\"drain\":\"n\"}}\n"), "t:2: at: \"soon\" is no time"),
        ] {
            let error = read(&body).expect_err(name);
            assert!(error.starts_with(want), "{name}: {error}");
        }
    }
}
