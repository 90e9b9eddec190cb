//! Recordings of KWOK (`kwokctl snapshot record`): objects of the start, then ResourcePatch entries with their time.
//! Upstream: kubernetes-sigs/kwok pkg/apis/action/v1alpha1.

use std::collections::BTreeMap;
use std::path::Path;

use scheduler_core::model::Timestamp;
use serde_json::{Value, json};

use crate::manifest::{Document, ManifestError};
use crate::simulate::admission::Admission;
use crate::simulate::documents;
use crate::simulate::script::{Happening, InputError, Name, Script, Timed};

/// Resources whose kind decisions depend on.
const KINDS: [(&str, &str); 17] = [
    ("pods", "Pod"),
    ("nodes", "Node"),
    ("namespaces", "Namespace"),
    ("services", "Service"),
    ("replicationcontrollers", "ReplicationController"),
    ("persistentvolumes", "PersistentVolume"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("deployments", "Deployment"),
    ("replicasets", "ReplicaSet"),
    ("statefulsets", "StatefulSet"),
    ("daemonsets", "DaemonSet"),
    ("jobs", "Job"),
    ("cronjobs", "CronJob"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
    ("storageclasses", "StorageClass"),
    ("priorityclasses", "PriorityClass"),
    ("csinodes", "CSINode"),
];

/// Opens a recording. It is read as a whole, since a patch needs the object that it changes.
///
/// # Errors
/// The file cannot be read, or an entry is malformed.
pub(crate) fn open(path: &Path, admission: &Admission) -> Result<Script<'static>, InputError> {
    let mut recording = Recording { admission: admission.clone(), objects: BTreeMap::new(), script: Vec::new() };
    let mut failed = None;
    let read = documents::each(path, &mut |document| {
        let document = document?;
        let place = document.place.clone();
        recording.take(document).map_err(|problem| {
            failed = Some(InputError { place: place.clone(), problem: problem.clone() });
            ManifestError::Document { place, problem }
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if let Err(error) = read {
        let text = error.to_string();
        let (place, problem) = text.split_once(": ").unwrap_or(("", &text));
        return Err(InputError { place: place.to_owned(), problem: problem.to_owned() });
    }
    recording.script.sort_by_key(|timed| timed.at);
    Ok(Box::new(recording.script.into_iter().map(Ok)))
}

struct Recording {
    admission: Admission,
    /// Objects as they are after the entries so far.
    objects: BTreeMap<Name, Value>,
    script: Vec<Timed>,
}

impl Recording {
    fn take(&mut self, document: Document) -> Result<(), String> {
        if document.kind() != "ResourcePatch" {
            let name = Name {
                kind: document.kind().to_owned(),
                namespace: document.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
                name: document.name().to_owned(),
            };
            self.objects.insert(name, document.object.clone());
            return self.happen(Timestamp::ZERO, document.object, false);
        }
        let patch = document.object;
        let nanos = patch["durationNanosecond"].as_i64().filter(|nanos| *nanos >= 0);
        let nanos = nanos.ok_or_else(|| {
            format!("durationNanosecond is {}, expected a number of 0 or more", patch["durationNanosecond"])
        })?;
        let at = Timestamp::from_micros(nanos / 1000);
        let resource = patch["resource"]["resource"].as_str().unwrap_or_default();
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == resource) else { return Ok(()) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = Name {
            kind: (*kind).to_owned(),
            namespace: text(&patch["target"]["namespace"]),
            name: text(&patch["target"]["name"]),
        };
        match patch["method"].as_str().unwrap_or_default() {
            "create" => {
                let mut object = patch["template"].clone();
                let (group, version) = (text(&patch["resource"]["group"]), text(&patch["resource"]["version"]));
                object["apiVersion"] = json!(if group.is_empty() { version } else { format!("{group}/{version}") });
                object["kind"] = json!(kind);
                self.objects.insert(name, object.clone());
                self.happen(at, object, false)
            }
            "patch" => {
                let object =
                    self.objects.get_mut(&name).ok_or_else(|| format!("{name} is patched but was never created"))?;
                super::merge(object, &patch["template"]);
                let object = object.clone();
                self.happen(at, object, true)
            }
            "delete" => {
                self.objects.remove(&name);
                self.script.push(Timed { at, what: Happening::Delete(name), line: 0 });
                Ok(())
            }
            other => Err(format!("method is {other:?}, expected create, patch or delete")),
        }
    }

    fn happen(&mut self, at: Timestamp, mut object: Value, is_change: bool) -> Result<(), String> {
        let is_pod = object["kind"] == "Pod";
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if is_pod && at > Timestamp::ZERO {
            if is_change && !ended {
                // Bindings and statuses are what the run decides itself.
                return Ok(());
            }
            object["spec"]["nodeName"] = Value::Null;
        }
        if let Some(what) = super::applied(object, &mut self.admission, None)? {
            self.script.push(Timed { at, what, line: 0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDING: &str = "apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
kind: ResourcePatch
resource: {version: v1, resource: pods}
target: {name: p, namespace: x}
durationNanosecond: 2000000000
method: create
template: {metadata: {name: p, namespace: x}, spec: {containers: []}}
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
kind: ResourcePatch
resource: {version: v1, resource: pods}
target: {name: p, namespace: x}
durationNanosecond: 9000000000
method: patch
template: {status: {phase: Succeeded}}
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
kind: ResourcePatch
resource: {version: v1, resource: nodes}
target: {name: n1}
durationNanosecond: 10000000000
method: delete
";

    fn read(text: &str) -> Result<Vec<Timed>, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("r.yaml");
        std::fs::write(&path, text).expect("the file can be written");
        open(&path, &Admission::default()).and_then(Iterator::collect).map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_is_read() {
        let script = read(RECORDING).expect("well formed");
        assert_eq!(script.iter().map(|timed| timed.at.as_micros() / 1_000_000).collect::<Vec<_>>(), [0, 2, 9, 10]);
        assert!(matches!(&script[2].what, Happening::Pod(pod, _) if pod.is_terminal()), "it ends");
        assert!(matches!(&script[3].what, Happening::Delete(name) if name.to_string() == "Node n1"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (from, to, want) in [
            ("method: delete", "method: sing", "r.yaml:21: method is \"sing\""),
            ("durationNanosecond: 2000000000", "durationNanosecond: soon", "r.yaml:5: durationNanosecond"),
            ("method: create", "method: patch", "r.yaml:5: Pod x/p is patched but was never created"),
        ] {
            let error = read(&RECORDING.replace(from, to)).expect_err(want);
            assert!(error.contains(want), "{error}");
        }
    }
}
