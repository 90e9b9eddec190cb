//! The kinds that the engine reads, each followed by a task of its own, and what is seen turned into objects of its model.
//! Holds the last known state of each object, so that a deletion that was missed is told after the next list.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use kube::Client;
use rustc_hash::{FxHashMap, FxHashSet};
use scheduler_core::convert::{EventType, Identity, PodReader, ReadObject, read};
use scheduler_core::model::{Object, ObjectKind};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::conditions::KnownConditions;
use super::cycle::Input;
use super::reflector::{self, Collection, Sink};
use crate::extender::Wanted;

/// A change of one object, in the order in which its kind's watch told it.
#[derive(Debug)]
pub(crate) enum Observation {
    /// The object is new or changed; as the API gave it if a recording is kept, or an extender wants to see it.
    Applied(Object, Option<Box<RawValue>>),
    /// The object is gone; this is its last known state, and its name as an API object if a recording is kept.
    Deleted(Object, Option<Box<RawValue>>),
    /// The first list of a kind is complete.
    Listed(&'static str),
}

/// Terminated pods need no room; the server leaves them out. Upstream: scheduler.go NewInformerFactory.
const LIVE_PODS: &str = "status.phase!%3DSucceeded%2Cstatus.phase!%3DFailed";

/// Which observations carry API objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// All, for a recording.
    pub(crate) recorded: bool,
    /// Those that extenders want to see.
    pub(crate) by_extenders: Wanted,
}

/// A kind that is followed.
#[derive(Clone, Copy)]
struct Kind {
    /// The engine's.
    model: ObjectKind,
    /// The API's.
    api: &'static str,
    /// What it is called in messages.
    name: &'static str,
    api_version: &'static str,
    path: &'static str,
    fields: &'static str,
}

macro_rules! kinds {
    ($($api_version:literal $api:literal $model:ident $name:literal $path:literal $fields:expr),* $(,)?) => {
        [$(Kind {
            model: ObjectKind::$model,
            api: $api,
            name: $name,
            api_version: $api_version,
            path: $path,
            fields: $fields,
        }),*]
    };
}

const KINDS: [Kind; N_KINDS] = kinds! {
    "v1" "Pod" Pod "pods" "/api/v1/pods" LIVE_PODS,
    "v1" "Node" Node "nodes" "/api/v1/nodes" "",
    "v1" "Namespace" Namespace "namespaces" "/api/v1/namespaces" "",
    "v1" "Service" Service "services" "/api/v1/services" "",
    "v1" "ReplicationController" ReplicationController "replicationcontrollers" "/api/v1/replicationcontrollers" "",
    "apps/v1" "ReplicaSet" ReplicaSet "replicasets.apps" "/apis/apps/v1/replicasets" "",
    "apps/v1" "StatefulSet" StatefulSet "statefulsets.apps" "/apis/apps/v1/statefulsets" "",
    "policy/v1" "PodDisruptionBudget" PodDisruptionBudget "poddisruptionbudgets.policy" "/apis/policy/v1/poddisruptionbudgets" "",
    "v1" "PersistentVolume" PersistentVolume "persistentvolumes" "/api/v1/persistentvolumes" "",
    "v1" "PersistentVolumeClaim" PersistentVolumeClaim "persistentvolumeclaims" "/api/v1/persistentvolumeclaims" "",
    "storage.k8s.io/v1" "StorageClass" StorageClass "storageclasses.storage.k8s.io" "/apis/storage.k8s.io/v1/storageclasses" "",
    "storage.k8s.io/v1" "CSINode" CsiNode "csinodes.storage.k8s.io" "/apis/storage.k8s.io/v1/csinodes" "",
    "storage.k8s.io/v1" "CSIDriver" CsiDriver "csidrivers.storage.k8s.io" "/apis/storage.k8s.io/v1/csidrivers" "",
    "storage.k8s.io/v1" "CSIStorageCapacity" CsiStorageCapacity "csistoragecapacities.storage.k8s.io" "/apis/storage.k8s.io/v1/csistoragecapacities" "",
};

/// The kinds that must be listed before the first pod is scheduled.
pub(crate) const N_KINDS: usize = 14;

/// Follows every kind that the engine reads, until `stop`.
pub(crate) fn start(
    client: &Client,
    out: &Sender<Input>,
    conditions: &KnownConditions,
    kept: Kept,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for kind in KINDS {
        let Kind { name, path, fields, .. } = kind;
        let collection = Collection { client: client.clone(), name, path, fields };
        let mut store = Store {
            kind,
            out: out.clone(),
            conditions: conditions.clone(),
            kept,
            has_listed: false,
            pods: PodReader::default(),
            objects: FxHashMap::default(),
            unseen: None,
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = reflector::follow(&collection, &mut store) => {}
            }
        });
    }
    tasks
}

/// The last known state of the objects of one kind, and who hears of changes.
struct Store {
    kind: Kind,
    out: Sender<Input>,
    /// Shared with those who patch pods.
    conditions: KnownConditions,
    kept: Kept,
    has_listed: bool,
    /// Remembers what pods have in common.
    pods: PodReader,
    objects: FxHashMap<Identity, Object>,
    /// What the list in progress has not shown.
    unseen: Option<FxHashSet<Identity>>,
}

impl Sink for Store {
    fn list_started(&mut self) {
        self.unseen = Some(self.objects.keys().cloned().collect());
    }

    fn listed(&mut self, object: &[u8]) {
        match self.read(object) {
            Ok(read) => self.apply(read, object),
            Err(error) => tracing::error!("{}: a listed object cannot be read: {error}; it is ignored", self.kind.name),
        }
    }

    fn list_ended(&mut self) {
        for identity in self.unseen.take().unwrap_or_default() {
            self.delete(&identity);
        }
        if !self.has_listed {
            self.has_listed = true;
            self.tell(Observation::Listed(self.kind.name));
        }
    }

    fn changed(&mut self, event: EventType, object: &[u8]) -> Result<Arc<str>, serde_json::Error> {
        let read = self.read(object)?;
        let version = Arc::clone(&read.resource_version);
        match event {
            EventType::Added | EventType::Modified => self.apply(read, object),
            EventType::Deleted => self.delete(&read.identity),
            EventType::Bookmark | EventType::Error => {}
        }
        Ok(version)
    }
}

impl Store {
    fn read(&mut self, object: &[u8]) -> Result<ReadObject, serde_json::Error> {
        match self.kind.model {
            ObjectKind::Pod => self.pods.read(object),
            model => read(model, object),
        }
    }

    fn apply(&mut self, read: ReadObject, json: &[u8]) {
        let ReadObject { identity, object, .. } = read;
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&identity);
        }
        match object {
            Ok(object) => {
                if let Object::Pod(pod) = &object {
                    let is_false = pod.scheduled_condition.as_ref().is_some_and(|condition| !condition.status);
                    self.conditions.note(&pod.uid, is_false);
                }
                let is_kept = self.kept.recorded || self.kept.by_extenders.wants(&object);
                let raw = if is_kept { self.recorded(json) } else { None };
                self.objects.insert(identity, object.clone());
                self.tell(Observation::Applied(object, raw));
            }
            Err(problem) => {
                // What cannot be read cannot be scheduled on or around; its last readable state stays in force.
                let Identity { namespace, name, .. } = &identity;
                tracing::error!("{} {namespace}/{name}: {problem}; the object is ignored", self.kind.name);
            }
        }
    }

    fn delete(&mut self, identity: &Identity) {
        let Some(gone) = self.objects.remove(identity) else { return };
        if let Object::Pod(pod) = &gone {
            self.conditions.note(&pod.uid, false);
        }
        let Identity { namespace, name, uid } = identity;
        let Kind { api_version, api, .. } = self.kind;
        let raw = self.kept.recorded.then(|| {
            let metadata = json!({ "namespace": **namespace, "name": **name, "uid": **uid });
            to_raw(&json!({ "apiVersion": api_version, "kind": api, "metadata": metadata }))
        });
        self.tell(Observation::Deleted(gone, raw.flatten()));
    }

    /// The object as a recording keeps it: with its kind, which items of a list lack, and without what nobody reads.
    fn recorded(&self, json: &[u8]) -> Option<Box<RawValue>> {
        let mut object: Value = serde_json::from_slice(json).ok()?;
        object["apiVersion"] = self.kind.api_version.into();
        object["kind"] = self.kind.api.into();
        object["metadata"].as_object_mut()?.remove("managedFields");
        to_raw(&object)
    }

    fn tell(&self, observation: Observation) {
        // Nobody listens only when the scheduler ends.
        let _ = self.out.send(Input::Observed(observation));
    }
}

/// The object as text; what was read as JSON can be written as JSON.
fn to_raw(object: &Value) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(object).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn store(recorded: bool) -> (Store, Receiver<Input>) {
        let (out, told) = channel();
        let kind = KINDS[1];
        assert_eq!(kind.name, "nodes");
        let store = Store {
            kind,
            out,
            conditions: KnownConditions::default(),
            kept: Kept { recorded, ..Kept::default() },
            has_listed: true,
            pods: PodReader::default(),
            objects: FxHashMap::default(),
            unseen: None,
        };
        (store, told)
    }

    fn node(name: &str, uid: &str) -> Vec<u8> {
        json!({ "metadata": { "name": name, "uid": uid, "resourceVersion": "7", "managedFields": [{}] } })
            .to_string()
            .into()
    }

    fn told(told: &Receiver<Input>) -> Vec<String> {
        told.try_iter()
            .map(|input| match input {
                Input::Observed(Observation::Applied(Object::Node(node), None)) => format!("+{}", node.name),
                Input::Observed(Observation::Deleted(Object::Node(node), None)) => format!("-{}", node.name),
                Input::Observed(Observation::Applied(_, Some(raw)) | Observation::Deleted(_, Some(raw))) => {
                    raw.get().to_owned()
                }
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn what_a_new_list_does_not_show_was_deleted() {
        let (mut store, receiver) = store(false);
        store.list_started();
        store.listed(&node("a", "1"));
        store.listed(&node("b", "2"));
        store.list_ended();
        assert_eq!(told(&receiver), ["+a", "+b"]);
        store.list_started();
        store.listed(&node("b", "2"));
        store.list_ended();
        assert_eq!(told(&receiver), ["+b", "-a"]);
    }

    #[test]
    fn an_object_made_again_under_its_name_is_another_one() {
        let (mut store, receiver) = store(false);
        assert_eq!(&*store.changed(EventType::Added, &node("a", "1")).expect("a node"), "7");
        store.list_started();
        store.listed(&node("a", "2"));
        store.list_ended();
        assert_eq!(told(&receiver), ["+a", "+a", "-a"], "the old one");
        store.changed(EventType::Deleted, &node("a", "2")).expect("a node");
        assert_eq!(told(&receiver), ["-a"]);
        store.changed(EventType::Deleted, &node("a", "2")).expect("a node");
        assert!(told(&receiver).is_empty(), "told once");
    }

    #[test]
    fn an_unreadable_object_is_left_out() {
        let (mut store, receiver) = store(false);
        let broken = json!({ "metadata": { "name": "x" }, "status": { "allocatable": { "cpu": "much" } } }).to_string();
        store.changed(EventType::Added, broken.as_bytes()).expect("it is an object");
        store.listed(b"{\"metadata\":7}");
        assert!(told(&receiver).is_empty());
        assert!(store.changed(EventType::Modified, b"{\"metadata\":").is_err());
    }

    #[test]
    fn a_recording_gets_the_object_with_its_kind() {
        let (mut store, receiver) = store(true);
        store.listed(&node("a", "1"));
        store.changed(EventType::Deleted, &node("a", "1")).expect("a node");
        let told: Vec<Value> = told(&receiver).iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
        let object = |metadata: Value| json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        assert_eq!(
            told,
            [
                object(json!({ "name": "a", "uid": "1", "resourceVersion": "7" })),
                object(json!({ "namespace": "", "name": "a", "uid": "1" })),
            ]
        );
    }

    #[test]
    fn an_extender_gets_the_objects_that_it_wants() {
        let (mut store, receiver) = store(false);
        store.listed(&node("a", "1"));
        assert_eq!(told(&receiver), ["+a"], "it wants none");
        store.kept.by_extenders.nodes = true;
        store.listed(&node("a", "1"));
        assert!(told(&receiver)[0].contains("\"uid\":\"1\""));
        store.changed(EventType::Deleted, &node("a", "1")).expect("a node");
        assert_eq!(told(&receiver), ["-a"]);
    }

    #[test]
    fn a_bookmark_moves_the_position_only() {
        let (mut store, receiver) = store(false);
        let version =
            store.changed(EventType::Bookmark, b"{\"kind\":\"Node\",\"metadata\":{\"resourceVersion\":\"9\"}}");
        assert_eq!(&*version.expect("a bookmark"), "9");
        assert!(told(&receiver).is_empty());
    }
}
