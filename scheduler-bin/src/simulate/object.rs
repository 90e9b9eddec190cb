//! One Kubernetes object as the simulation needs it: a pod, a workload, something that decisions depend on, or nothing of these.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use scheduler_core::model::{self, Object, Quantity};
use serde_json::{Value, json};

use super::admission::Admission;
use super::workload::{self, Workload};

/// What an object is to the simulation.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A pod, and how long it works.
    Pod(Arc<model::Pod>, Option<Duration>),
    /// A workload that makes its own pods.
    Workload(Box<Workload>),
    /// Something else that decisions depend on.
    Object(Object),
    /// A kind that no decision depends on.
    Other,
}

/// Reads an object. One that a cluster has given a uid keeps the pods that stand beside it: it makes none.
/// What is odd but usable is added to `odd`.
///
/// # Errors
/// The object is not what its kind says.
pub(crate) fn parse(mut object: Value, admission: &Admission, odd: &mut Vec<String>) -> Result<Parsed, String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let group =
        object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group).to_owned();
    if let Some((want, _)) = KINDS.iter().find(|(_, known)| *known == kind)
        && group != *want
    {
        // Another group's kind of the same name, such as a Knative Service.
        return Ok(Parsed::Other);
    }
    let from_cluster = object["metadata"]["uid"].is_string();
    odd.extend(workload::admit(&mut object, admission));
    refuse_negative(&object)?;
    if kind == "Pod" {
        return pod(object);
    }
    if workload::is_workload(&kind) && !from_cluster {
        return workload::parse(&object).map(|workload| Parsed::Workload(Box::new(workload)));
    }
    macro_rules! convert {
        ($kind:ty => $model:ident) => {{
            let object: $kind = serde_json::from_value(object).map_err(|error| error.to_string())?;
            Parsed::Object(model::$model::try_from(&object).map_err(|error| error.to_string())?.into())
        }};
    }
    fill_in_volume(&kind, &mut object);
    if kind == "Node" && object["status"]["allocatable"].is_null() && object["status"]["capacity"].is_object() {
        // Upstream: apis/core/v1 `SetDefaults_NodeStatus` (v1.36.2).
        object["status"]["allocatable"] = object["status"]["capacity"].clone();
    }
    if matches!(&*kind, "Service" | "PersistentVolumeClaim" | "PodDisruptionBudget") {
        object["metadata"]["namespace"] = json!(workload::namespace_of(&object));
    }
    Ok(match &*kind {
        "Node" => convert!(Node => Node),
        "Namespace" => convert!(Namespace => Namespace),
        "Service" => convert!(Service => Service),
        "ReplicationController" => convert!(ReplicationController => ReplicationController),
        "ReplicaSet" => convert!(ReplicaSet => ReplicaSet),
        "StatefulSet" => convert!(StatefulSet => StatefulSet),
        "PodDisruptionBudget" => convert!(PodDisruptionBudget => PodDisruptionBudget),
        "PersistentVolume" => convert!(PersistentVolume => PersistentVolume),
        "PersistentVolumeClaim" => convert!(PersistentVolumeClaim => PersistentVolumeClaim),
        "StorageClass" => convert!(StorageClass => StorageClass),
        "CSINode" => convert!(CSINode => CsiNode),
        "CSIDriver" => convert!(CSIDriver => CsiDriver),
        "CSIStorageCapacity" => convert!(CSIStorageCapacity => CsiStorageCapacity),
        _ => Parsed::Other,
    })
}

/// Amounts below zero, wherever requests, limits or what a node offers may stand; the fault begins with its path.
/// Upstream: `ValidateNonnegativeQuantity` (v1.36.2 apis/core/validation).
fn refuse_negative(value: &Value) -> Result<(), String> {
    const AMOUNTS: [&str; 6] = ["requests", "limits", "capacity", "allocatable", "overhead", "podFixed"];
    let below = |parent: &str, fault: &str| {
        let dot = if fault.starts_with('[') { "" } else { "." };
        format!("{parent}{dot}{fault}")
    };
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            let answer = match value.as_object().filter(|_| AMOUNTS.contains(&key.as_str())) {
                Some(amounts) => amounts.iter().try_for_each(|(name, amount)| refuse_negative_amount(name, amount)),
                None => refuse_negative(value),
            };
            answer.map_err(|fault| below(key, &fault))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| refuse_negative(item).map_err(|fault| below(&format!("[{at}]"), &fault))),
        _ => Ok(()),
    }
}

fn refuse_negative_amount(name: &str, amount: &Value) -> Result<(), String> {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    match Quantity::parse(&text) {
        Ok(quantity) if quantity < Quantity::ZERO => Err(format!("[{name}] is {text}, expected 0 or more")),
        // What is no quantity is found, and said, where it is read.
        _ => Ok(()),
    }
}

/// Groups of the kinds that are read.
const KINDS: [(&str, &str); 17] = [
    ("", "Pod"),
    ("", "Node"),
    ("", "Namespace"),
    ("", "Service"),
    ("", "ReplicationController"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("policy", "PodDisruptionBudget"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIDriver"),
];

/// What the API server and the volume controller would have made of a new volume or claim.
fn fill_in_volume(kind: &str, object: &mut Value) {
    let phase = match kind {
        "PersistentVolume" if object["spec"]["claimRef"].is_null() => "Available",
        "PersistentVolumeClaim" => "Pending",
        _ => return,
    };
    if object["status"]["phase"].is_null() {
        object["status"]["phase"] = json!(phase);
    }
    if !object["metadata"]["uid"].is_string() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["metadata"]["uid"] = json!(format!("{kind}/{}/{name}", workload::namespace_of(object)));
    }
}

fn pod(mut object: Value) -> Result<Parsed, String> {
    let namespace = workload::namespace_of(&object);
    let metadata = &mut object["metadata"];
    metadata["namespace"] = json!(namespace);
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default().to_owned();
    metadata["name"] = json!(name);
    if metadata["uid"].as_str().unwrap_or_default().is_empty() {
        metadata["uid"] = json!(format!("{namespace}/{name}"));
    }
    let duration = workload::duration_of(metadata)?;
    let pod: Pod = serde_json::from_value(object).map_err(|error| error.to_string())?;
    let pod = model::Pod::try_from(&pod).map_err(|error| error.to_string())?;
    Ok(Parsed::Pod(pod.into(), duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(object: Value) -> Parsed {
        parse(object, &Admission::default(), &mut Vec::new()).expect("it is well formed")
    }

    #[test]
    fn kinds_go_by_group() {
        let service =
            |version: &str| parsed(json!({"apiVersion": version, "kind": "Service", "metadata": {"name": "s"}}));
        assert!(matches!(service("v1"), Parsed::Object(Object::Service(_))));
        assert!(matches!(service("serving.knative.dev/v1"), Parsed::Other));
        assert!(matches!(parsed(json!({"apiVersion": "v1", "kind": "ConfigMap"})), Parsed::Other));
    }

    #[test]
    fn a_workload_of_a_cluster_makes_no_pods() {
        let set = |uid: Value| {
            let template = json!({"spec": {"containers": []}});
            let spec = json!({"template": template, "selector": {"matchLabels": {"a": "b"}}});
            parsed(
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s", "uid": uid}, "spec": spec}),
            )
        };
        assert!(matches!(set(Value::Null), Parsed::Workload(_)));
        assert!(matches!(set(json!("u")), Parsed::Object(Object::ReplicaSet(_))));
    }

    #[test]
    fn a_node_without_allocatable_offers_its_capacity() {
        let node = |status: Value| match parsed(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}),
        ) {
            Parsed::Object(Object::Node(node)) => node.allocatable.milli_cpu,
            other => panic!("{other:?}"),
        };
        assert_eq!(node(json!({"capacity": {"cpu": "4"}})), 4000);
        assert_eq!(node(json!({"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}})), 3000);
        assert_eq!(node(json!({})), 0);
    }

    #[test]
    fn a_pod_gets_a_namespace_and_an_identity() {
        let Parsed::Pod(pod, duration) = parsed(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "annotations": {"plimsoll.io/duration": "5"}}, "spec": {"containers": []}}))
        else {
            panic!("a pod")
        };
        assert_eq!((&*pod.namespace, &*pod.uid, duration), ("default", "default/p", Some(Duration::from_secs(5))));
    }
}
