//! Traces of simkube, version 2: MessagePack of events with the objects that were applied and deleted.
//! Upstream: acrlabs/simkube docs/ref/trace-files.md.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::msgpack;
use crate::simulate::admission::Admission;
use crate::simulate::script::{Happening, InputError, Leaves, Name, Script, Timed};

/// The version that is read.
const VERSION: u64 = 2;

/// Opens a trace. It is read as a whole: the format has its index behind the events.
///
/// # Errors
/// The file cannot be read or is cut off, has another version, or holds an object that is not what its kind says.
pub(crate) fn open(path: &Path, admission: &Admission) -> Result<Script<'static>, InputError> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| InputError::unreadable(&file, &error))?;
    let trace = msgpack::decode(&bytes).map_err(|problem| InputError::of(&file, problem))?;
    let events = read(trace, admission).map_err(|problem| InputError::of(&file, problem))?;
    Ok(Box::new(events.into_iter().map(Ok)))
}

fn read(mut trace: Value, admission: &Admission) -> Result<Vec<Timed>, String> {
    if trace["version"].as_u64() != Some(VERSION) {
        return Err(format!("version is {}, expected a simkube trace of version {VERSION}", trace["version"]));
    }
    let mut admission = admission.clone();
    let lifecycles = trace["pod_lifecycles"].take();
    let Value::Array(events) = trace["events"].take() else {
        return Err("events is no sequence".to_owned());
    };
    let mut script = Vec::new();
    for (mut event, number) in events.into_iter().zip(1_u64..) {
        let wrong = |problem: String| format!("event {number}: {problem}");
        let at = event["ts"]
            .as_i64()
            .map(super::seconds)
            .ok_or_else(|| wrong(format!("ts is {}, expected seconds", event["ts"])))?;
        let objects = |list: Value| match list {
            Value::Array(objects) => objects,
            _ => Vec::new(),
        };
        let applied = objects(event["applied_objs"].take());
        let deleted = objects(event["deleted_objs"].take());
        if applied.is_empty() && deleted.is_empty() {
            continue;
        }
        for object in applied {
            let lifetimes = lifetimes(&lifecycles, &object);
            if let Some(what) = super::applied(object, &mut admission, None).map_err(wrong)? {
                script.push(Timed { at, what: with_lifetimes(what, lifetimes), line: number });
            }
        }
        for object in deleted {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = Name {
                kind: text(&object["kind"]),
                namespace: text(&object["metadata"]["namespace"]),
                name: text(&object["metadata"]["name"]),
            };
            script.push(Timed { at, what: Happening::Delete(name), line: number });
        }
    }
    script.sort_by_key(|timed| timed.at);
    Ok(script)
}

/// How long the pods of an object worked, in the order in which they came: `{Finished: [start, end]}` or `{Running: start}`.
fn lifetimes(lifecycles: &Value, object: &Value) -> Vec<Option<Duration>> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let key = serde_json::json!([format!("{version}.{kind}"), format!("{namespace}/{name}")]).to_string();
    let by_hash = lifecycles[&key].as_object().into_iter().flatten();
    by_hash
        .flat_map(|(_, pods)| pods.as_array().into_iter().flatten())
        .map(|pod| match (pod["Finished"][0].as_i64(), pod["Finished"][1].as_i64()) {
            (Some(start), Some(end)) => Some(Duration::from_secs(u64::try_from(end - start).unwrap_or(0))),
            _ => None,
        })
        .collect()
}

fn with_lifetimes(what: Happening, lifetimes: Vec<Option<Duration>>) -> Happening {
    match what {
        Happening::Pod(pod, Leaves::Never) => {
            let leaves = lifetimes.first().copied().flatten().map_or(Leaves::Never, Leaves::After);
            Happening::Pod(pod, leaves)
        }
        Happening::Workload(mut workload) => {
            workload.lifetimes = lifetimes;
            Happening::Workload(workload)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_trace_is_read_with_the_lifetimes_of_its_pods() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"}, "spec": {"completions": 2, "template": {"spec": {"containers": []}}}});
        let trace = json!({
            "version": 2,
            "events": [
                {"ts": 10, "applied_objs": [], "deleted_objs": []},
                {"ts": 10, "applied_objs": [job], "deleted_objs": []},
                {"ts": 50, "applied_objs": [], "deleted_objs": [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"}}]},
            ],
            "pod_lifecycles": {"[\"batch/v1.Job\",\"n/j\"]": {"7": [{"Finished": [11, 21]}, {"Running": 22}]}},
        });
        let script = read(trace, &Admission::default()).expect("a trace");
        assert_eq!(script.len(), 2);
        let Happening::Workload(workload) = &script[0].what else { panic!("a workload") };
        assert_eq!(workload.lifetimes, [Some(Duration::from_secs(10)), None]);
        assert!(matches!(&script[1].what, Happening::Delete(name) if name.to_string() == "Job n/j"));
    }

    #[test]
    fn other_traces_are_refused() {
        for (trace, want) in [
            (json!({"version": 1, "events": []}), "version is 1"),
            (json!({"version": 2}), "events is no sequence"),
            (json!({"version": 2, "events": [{"ts": "x"}]}), "event 1: ts"),
            (
                json!({"version": 2, "events": [{"ts": 1, "applied_objs": [{"kind": "Pod"}]}]}),
                "event 1: expected a Kubernetes object",
            ),
        ] {
            let error = read(trace, &Admission::default()).expect_err(want);
            assert!(error.starts_with(want), "{error}");
        }
    }
}
