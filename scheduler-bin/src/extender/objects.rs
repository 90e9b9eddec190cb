//! Pods and nodes as the API server gave them, for extenders that want to see whole objects: the engine's model keeps only
//! what decisions depend on. What the host has not got is described by what the model knows.

use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use scheduler_core::model::{Node, Object, Pod, Resources};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Which objects extenders want to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Pods that wait for a node.
    pub(crate) pods: bool,
    /// Pods on nodes, too: they may be victims.
    pub(crate) bound_pods: bool,
    /// Nodes.
    pub(crate) nodes: bool,
}

impl Wanted {
    /// All of them.
    pub(crate) const ALL: Self = Self { pods: true, bound_pods: true, nodes: true };

    /// Whether this object is wanted.
    pub(crate) fn wants(self, object: &Object) -> bool {
        match object {
            Object::Pod(pod) => self.pods && (self.bound_pods || pod.node_name.is_none()),
            Object::Node(_) => self.nodes,
            _ => false,
        }
    }
}

/// The objects, as the engine has heard of them: who tells the engine tells this first.
#[derive(Debug, Default)]
pub(crate) struct WholeObjects {
    wanted: Wanted,
    /// Text by uid.
    pods: RwLock<FxHashMap<Arc<str>, Arc<str>>>,
    /// UID and text by name.
    nodes: RwLock<FxHashMap<Arc<str>, (Arc<str>, Arc<str>)>>,
}

impl WholeObjects {
    /// Keeps what is wanted.
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// The object exists and looks like this; the text is looked at if it is wanted.
    pub(crate) fn applied(&self, object: &Object, given: Option<&RawValue>) {
        let given =
            given.filter(|_| self.wanted.wants(object)).and_then(|given| serde_json::from_str(given.get()).ok());
        self.applied_value(object, given);
    }

    /// The same, with the object as a tree, or `None` if there is none or nobody wants it.
    pub(crate) fn applied_value(&self, object: &Object, given: Option<Value>) {
        match (object, given) {
            (Object::Pod(pod), Some(given)) => {
                write(&self.pods).insert(Arc::clone(&pod.uid), as_sent(given));
            }
            (Object::Pod(pod), None) => {
                write(&self.pods).remove(&pod.uid);
            }
            (Object::Node(node), Some(given)) => {
                write(&self.nodes).insert(Arc::clone(&node.name), (Arc::clone(&node.uid), as_sent(given)));
            }
            _ => {}
        }
    }

    /// The object is gone.
    pub(crate) fn deleted(&self, object: &Object) {
        match object {
            Object::Pod(pod) => {
                write(&self.pods).remove(&pod.uid);
            }
            Object::Node(node) => {
                let mut nodes = write(&self.nodes);
                // Another of the same name may have come already.
                if nodes.get(&node.name).is_some_and(|(uid, _)| *uid == node.uid) {
                    nodes.remove(&node.name);
                }
            }
            _ => {}
        }
    }

    /// The pod is the same as another but for name and UID.
    pub(crate) fn copied(&self, pod: &Pod, of: &Pod) {
        let original = self.pods.read().unwrap_or_else(PoisonError::into_inner).get(&of.uid).cloned();
        let Some(mut object) = original.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else { return };
        object["metadata"]["name"] = json!(*pod.name);
        object["metadata"]["uid"] = json!(*pod.uid);
        write(&self.pods).insert(Arc::clone(&pod.uid), as_sent(object));
    }

    /// The node exists, but was given as no object, unless it was.
    pub(crate) fn describe_if_unknown(&self, node: &Node) {
        let described = || (Arc::clone(&node.uid), as_sent(describe_node(node)));
        write(&self.nodes).entry(Arc::clone(&node.name)).or_insert_with(described);
    }

    /// The pod's text.
    pub(super) fn pod(&self, pod: &Pod) -> Arc<str> {
        let pods = self.pods.read().unwrap_or_else(PoisonError::into_inner);
        pods.get(&pod.uid).cloned().unwrap_or_else(|| describe_pod(pod).to_string().into())
    }

    /// The node's text.
    pub(super) fn node(&self, name: &Arc<str>) -> Arc<str> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let unknown = || json!({ "metadata": { "name": **name }, "spec": {}, "status": {} }).to_string().into();
        nodes.get(name).map_or_else(unknown, |(_, text)| Arc::clone(text))
    }
}

/// Each change is one call, so a panic elsewhere leaves the map whole.
fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Go's client leaves `kind` and `apiVersion` of typed objects empty, and informers of the scheduler drop the managed fields.
fn as_sent(mut object: Value) -> Arc<str> {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object.to_string().into()
}

/// A pod of which only the model is known: who it is, its labels, and what it asks for, as of one container.
fn describe_pod(pod: &Pod) -> Value {
    let labels: serde_json::Map<String, Value> =
        pod.labels.iter().map(|(key, value)| (key.to_string(), json!(**value))).collect();
    let mut described = json!({
        "metadata": {
            "name": *pod.name, "namespace": *pod.namespace, "uid": *pod.uid, "labels": labels,
        },
        "spec": {
            "schedulerName": *pod.scheduler_name,
            "priority": pod.priority,
            "containers": [{ "name": "all", "resources": { "requests": amounts(&pod.resources.requests) } }],
        },
        "status": {},
    });
    if let Some(node) = &pod.node_name {
        described["spec"]["nodeName"] = json!(**node);
    }
    described
}

/// A node of which only the model is known: its name, labels, and what it offers.
fn describe_node(node: &Node) -> Value {
    let labels: serde_json::Map<String, Value> =
        node.labels.iter().map(|(key, value)| (key.to_string(), json!(**value))).collect();
    let allocatable = amounts(&node.allocatable);
    json!({
        "metadata": { "name": *node.name, "uid": *node.uid, "labels": labels },
        "spec": { "unschedulable": node.unschedulable },
        "status": { "allocatable": allocatable, "capacity": allocatable },
    })
}

fn amounts(resources: &Resources) -> Value {
    let mut amounts = serde_json::Map::new();
    if resources.milli_cpu > 0 {
        amounts.insert("cpu".to_owned(), json!(format!("{}m", resources.milli_cpu)));
    }
    let plain =
        [("memory", resources.memory), ("ephemeral-storage", resources.ephemeral_storage), ("pods", resources.pods)];
    let scalars = resources.scalars.iter().map(|(name, amount)| (&**name, *amount));
    for (name, amount) in plain.into_iter().filter(|(_, amount)| *amount > 0).chain(scalars) {
        amounts.insert(name.to_owned(), json!(amount.to_string()));
    }
    Value::Object(amounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, node: Option<&str>) -> Object {
        Object::Pod(Arc::new(Pod { uid: uid.into(), node_name: node.map(Arc::from), ..Pod::default() }))
    }

    fn apply(objects: &WholeObjects, object: &Object, given: &Value) {
        objects.applied(object, Some(&serde_json::value::to_raw_value(given).expect("JSON")));
    }

    fn text(objects: &WholeObjects, uid: &str) -> Value {
        let pod = Pod { uid: uid.into(), ..Pod::default() };
        serde_json::from_str(&objects.pod(&pod)).expect("JSON")
    }

    #[test]
    fn an_object_is_sent_as_it_was_given_without_its_type_and_managed_fields() {
        let objects = WholeObjects::new(Wanted { pods: true, bound_pods: true, nodes: true });
        let given = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "uid": "1", "annotations": { "a": "b" }, "managedFields": [{}] }, "spec": { "hostname": "h" },
        });
        apply(&objects, &pod("1", None), &given);
        let want = json!({ "metadata": { "uid": "1", "annotations": { "a": "b" } }, "spec": { "hostname": "h" } });
        assert_eq!(text(&objects, "1"), want);
        objects.deleted(&pod("1", None));
        assert_ne!(text(&objects, "1"), want, "it is described from now on");
    }

    #[test]
    fn pods_on_nodes_are_kept_for_those_who_preempt_alone() {
        let objects = WholeObjects::new(Wanted { pods: true, ..Wanted::default() });
        let given = json!({ "metadata": { "uid": "1", "annotations": {} } });
        apply(&objects, &pod("1", None), &given);
        assert_eq!(text(&objects, "1"), given);
        apply(&objects, &pod("1", Some("n")), &given);
        assert_ne!(text(&objects, "1"), given);
    }

    #[test]
    fn a_node_made_again_under_its_name_outlives_the_end_of_the_old_one() {
        let objects = WholeObjects::new(Wanted { nodes: true, ..Wanted::default() });
        let node = |uid: &str| Object::Node(Arc::new(Node { name: "n".into(), uid: uid.into(), ..Node::default() }));
        let given = |uid: &str| json!({ "metadata": { "name": "n", "uid": uid } });
        apply(&objects, &node("1"), &given("1"));
        apply(&objects, &node("2"), &given("2"));
        objects.deleted(&node("1"));
        assert_eq!(*objects.node(&"n".into()), given("2").to_string());
    }
}
