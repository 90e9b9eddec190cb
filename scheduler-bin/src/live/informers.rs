//! One watch per kind: lists, follows, lists again after a loss, and turns what it sees into objects of the engine's model.
//! Holds the last known state of each object, so that a deletion that was missed is told after the next list.

use std::fmt::Debug;
use std::sync::mpsc::Sender;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use rustc_hash::{FxHashMap, FxHashSet};
use scheduler_core::model::{self, Object};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::conditions::KnownConditions;
use super::cycle::Input;
use super::failure;

/// A change of one object, in the order in which its kind's watch told it.
#[derive(Debug)]
pub(crate) enum Observation {
    /// The object is new or changed; as the API gave it if a recording is kept.
    Applied(Object, Option<Box<RawValue>>),
    /// The object is gone; this is its last known state, and its name as an API object if a recording is kept.
    Deleted(Object, Option<Box<RawValue>>),
    /// The first list of a kind is complete.
    Listed(&'static str),
}

/// Terminated pods need no room; the server leaves them out. Upstream: scheduler.go NewInformerFactory.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The kinds that must be listed before the first pod is scheduled.
pub(crate) const N_KINDS: usize = 14;

/// Follows every kind that the engine reads, until `stop`.
pub(crate) fn start(
    client: &Client,
    out: &Sender<Input>,
    conditions: &KnownConditions,
    recorded: bool,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let pods = watcher::Config::default().fields(LIVE_PODS);
    let seen = conditions.clone();
    follow(&mut tasks, "pods", Api::<Pod>::all(client.clone()), pods, out, recorded, stop, move |pod: &Pod| {
        seen.observe(pod);
        convert(model::Pod::try_from(pod))
    });
    macro_rules! follow_all {
        ($($name:literal $kind:ty => $model:ident),* $(,)?) => {$(
            follow(&mut tasks, $name, Api::<$kind>::all(client.clone()), watcher::Config::default(), out, recorded, stop,
                |object: &$kind| convert(model::$model::try_from(object)));
        )*};
    }
    follow_all! {
        "nodes" Node => Node,
        "namespaces" Namespace => Namespace,
        "services" Service => Service,
        "replicationcontrollers" ReplicationController => ReplicationController,
        "replicasets.apps" ReplicaSet => ReplicaSet,
        "statefulsets.apps" StatefulSet => StatefulSet,
        "poddisruptionbudgets.policy" PodDisruptionBudget => PodDisruptionBudget,
        "persistentvolumes" PersistentVolume => PersistentVolume,
        "persistentvolumeclaims" PersistentVolumeClaim => PersistentVolumeClaim,
        "storageclasses.storage.k8s.io" StorageClass => StorageClass,
        "csinodes.storage.k8s.io" CSINode => CsiNode,
        "csidrivers.storage.k8s.io" CSIDriver => CsiDriver,
        "csistoragecapacities.storage.k8s.io" CSIStorageCapacity => CsiStorageCapacity,
    }
    debug_assert_eq!(tasks.len(), N_KINDS, "N_KINDS counts the watches");
    tasks
}

fn convert<T: Into<Object>, E: std::fmt::Display>(result: Result<T, E>) -> Result<Object, String> {
    result.map(Into::into).map_err(|error| error.to_string())
}

#[expect(clippy::too_many_arguments, reason = "what a watch is told, one by one")]
fn follow<K>(
    tasks: &mut JoinSet<()>,
    name: &'static str,
    api: Api<K>,
    config: watcher::Config,
    out: &Sender<Input>,
    recorded: bool,
    stop: &CancellationToken,
    convert: impl Fn(&K) -> Result<Object, String> + Send + 'static,
) where
    K: Resource + k8s_openapi::Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let (out, stop) = (out.clone(), stop.clone());
    tasks.spawn(async move {
        let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
        let mut store = Store { recorded, ..Store::default() };
        let mut listed = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            let event = match event {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    tracing::warn!("watch of {name}: {}; trying again", describe(&error));
                    continue;
                }
                None => return,
            };
            let done = matches!(event, Event::InitDone);
            for observation in store.take(name, event, &convert) {
                if out.send(Input::Observed(observation)).is_err() {
                    return;
                }
            }
            if done && !listed {
                listed = true;
                if out.send(Input::Observed(Observation::Listed(name))).is_err() {
                    return;
                }
            }
        }
    });
}

fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => failure::describe(source),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => "the list has no resourceVersion".to_owned(),
    }
}

/// Namespace, name and uid: an object deleted and made again under its name is another one.
type Key = (String, String, String);

/// The last known state of the objects of one kind.
#[derive(Default)]
struct Store {
    objects: FxHashMap<Key, Object>,
    /// Keys that the list in progress has not shown.
    unseen: Option<FxHashSet<Key>>,
    /// Whether observations carry API objects.
    recorded: bool,
}

impl Store {
    fn take<K: Resource + k8s_openapi::Resource + Serialize>(
        &mut self,
        name: &str,
        event: Event<K>,
        convert: impl Fn(&K) -> Result<Object, String>,
    ) -> Vec<Observation> {
        match event {
            Event::Init => {
                self.unseen = Some(self.objects.keys().cloned().collect());
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => self.apply(name, &object, convert),
            Event::Delete(object) => self.delete::<K>(&key(&object)).into_iter().collect(),
            Event::InitDone => {
                let unseen = self.unseen.take().unwrap_or_default();
                unseen.iter().filter_map(|key| self.delete::<K>(key)).collect()
            }
        }
    }

    fn delete<K: k8s_openapi::Resource>(&mut self, key: &Key) -> Option<Observation> {
        let gone = self.objects.remove(key)?;
        let (namespace, name, uid) = key;
        let metadata = serde_json::json!({ "namespace": namespace, "name": name, "uid": uid });
        let object = serde_json::json!({ "apiVersion": K::API_VERSION, "kind": K::KIND, "metadata": metadata });
        Some(Observation::Deleted(gone, self.recorded.then(|| to_raw(&object)).flatten()))
    }

    fn apply<K: Resource + Serialize>(
        &mut self,
        name: &str,
        object: &K,
        convert: impl Fn(&K) -> Result<Object, String>,
    ) -> Vec<Observation> {
        let key = key(object);
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&key);
        }
        match convert(object) {
            Ok(model) => {
                self.objects.insert(key, model.clone());
                vec![Observation::Applied(model, self.recorded.then(|| to_raw(object)).flatten())]
            }
            Err(problem) => {
                // What cannot be read cannot be scheduled on or around; its last readable state stays in force.
                tracing::error!("{name} {}/{}: {problem}; the object is ignored", key.0, key.1);
                Vec::new()
            }
        }
    }
}

/// The object as JSON. An API object that was read can be written.
fn to_raw<T: Serialize>(object: &T) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(object).ok()
}

fn key<K: Resource>(object: &K) -> Key {
    let metadata = object.meta();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn node(name: &str, uid: &str) -> Node {
        Node {
            metadata: ObjectMeta { name: Some(name.into()), uid: Some(uid.into()), ..ObjectMeta::default() },
            ..Node::default()
        }
    }

    fn told(store: &mut Store, event: Event<Node>) -> Vec<String> {
        let observations = store.take("nodes", event, |node| {
            if node.metadata.name.as_deref() == Some("broken") {
                return Err("no".to_owned());
            }
            convert(model::Node::try_from(node))
        });
        observations
            .into_iter()
            .map(|observation| match observation {
                Observation::Applied(Object::Node(node), None) => format!("+{}", node.name),
                Observation::Deleted(Object::Node(node), None) => format!("-{}", node.name),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn what_a_new_list_does_not_show_was_deleted() {
        let mut store = Store::default();
        told(&mut store, Event::Init);
        assert_eq!(told(&mut store, Event::InitApply(node("a", "1"))), ["+a"]);
        assert_eq!(told(&mut store, Event::InitApply(node("b", "2"))), ["+b"]);
        assert!(told(&mut store, Event::InitDone).is_empty());
        told(&mut store, Event::Init);
        assert_eq!(told(&mut store, Event::InitApply(node("b", "2"))), ["+b"]);
        assert_eq!(told(&mut store, Event::InitDone), ["-a"]);
    }

    #[test]
    fn an_object_made_again_under_its_name_is_another_one() {
        let mut store = Store::default();
        told(&mut store, Event::Apply(node("a", "1")));
        told(&mut store, Event::Init);
        assert_eq!(told(&mut store, Event::InitApply(node("a", "2"))), ["+a"]);
        assert_eq!(told(&mut store, Event::InitDone), ["-a"], "the old one");
        assert_eq!(told(&mut store, Event::Delete(node("a", "2"))), ["-a"]);
        assert!(told(&mut store, Event::Delete(node("a", "2"))).is_empty(), "told once");
    }

    #[test]
    fn an_unreadable_object_is_left_out() {
        let mut store = Store::default();
        assert!(told(&mut store, Event::Apply(node("broken", "1"))).is_empty());
    }
}
