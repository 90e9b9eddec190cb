//! Where a script comes from: traces of several formats, read while the run goes on.

mod csv;
pub(crate) mod event_lines;
mod kwok;
pub(crate) mod lines;
mod msgpack;
pub(crate) mod openb;
mod records;
mod simkube;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scheduler_core::model::Timestamp;
use serde_json::{Value, json};

use super::admission::Admission;
use super::object::{self, Parsed};
use super::script::{Happening, InputError, Leaves, Script};

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Our own: one JSON object a line.
    EventLines,
    /// simkube, version 2 (MessagePack).
    Simkube,
    /// `kwokctl snapshot record`.
    Kwok,
    /// The recorder of kube-scheduler-simulator.
    Records,
}

/// Tells the format of a trace by its beginning; `None` if it is none that is known.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn detect(path: &Path) -> Result<Option<Format>, InputError> {
    let name = path.display().to_string();
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut head));
    read.map_err(|error| InputError::unreadable(&name, &error))?;
    let text = String::from_utf8_lossy(&head);
    let first = text.trim_start();
    // A MessagePack map of a few entries, or an array for what simkube wrote before.
    Ok(if head.first().is_some_and(|byte| (0x80..=0x9f).contains(byte)) {
        Some(Format::Simkube)
    } else if first.starts_with('{') && first.lines().next().is_some_and(|line| line.contains("\"EventTrace\"")) {
        Some(Format::EventLines)
    } else if first.starts_with('{') && text.contains("\"resource\"") && text.contains("\"event\"") {
        Some(Format::Records)
    } else if text.contains("kwok.x-k8s.io") && text.contains("ResourcePatch") {
        Some(Format::Kwok)
    } else {
        None
    })
}

/// Opens a trace.
///
/// # Errors
/// The file cannot be read, or is not of this format or version.
pub(crate) fn open(path: &Path, format: Format, admission: Admission) -> Result<Script<'static>, InputError> {
    match format {
        Format::EventLines => event_lines::open(path, admission),
        Format::Simkube => simkube::open(path, &admission),
        Format::Kwok => kwok::open(path, &admission),
        Format::Records => records::open(path, admission),
    }
}

/// What it means that an object is created or changed; `lifetime` is how long a pod works, if the trace says so.
fn applied(object: Value, admission: &mut Admission, lifetime: Option<Duration>) -> Result<Option<Happening>, String> {
    if admission.learn(&object) {
        return Ok(None);
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if kind.is_empty() || object["apiVersion"].as_str().is_none() {
        return Err("expected a Kubernetes object with apiVersion and kind".to_owned());
    }
    let parsed =
        object::parse(object, admission, &mut Vec::new()).map_err(|problem| format!("{kind} {name}: {problem}"))?;
    Ok(match parsed {
        Parsed::Pod(pod, duration) => {
            Some(Happening::Pod(pod, lifetime.or(duration).map_or(Leaves::Never, Leaves::After)))
        }
        Parsed::Workload(mut workload) => {
            if let Some(lifetime) = lifetime {
                let template = Arc::make_mut(&mut workload.template);
                template.duration = Some(lifetime);
            }
            Some(Happening::Workload(workload))
        }
        Parsed::Object(object) => Some(Happening::Object(object)),
        Parsed::Other => None,
    })
}

/// Merges a JSON merge patch (RFC 7386) into `target`.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(map) = target.as_object_mut() {
                map.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Microseconds since the epoch for whole seconds.
fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}
