//! What is sent to extenders and what they answer, as JSON. Field names are those of the Go structs, which have no tags.
//! Upstream v1.36.2: staging/src/k8s.io/kube-scheduler/extender/v1/types.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use scheduler_core::framework::{ExtenderFilterResult, MetaVictims, Victims};
use scheduler_core::model::{ObjectRef, Pod};
use serde_json::{Value, json};

use super::go_json::{Struct, kind};
use super::objects::WholeObjects;

/// ExtenderArgs: the pod, and the nodes as whole objects or as names.
pub(super) fn extender_args(objects: &WholeObjects, pod: &Pod, nodes: &[Arc<str>], names_only: bool) -> Bytes {
    let pod = objects.pod(pod);
    if names_only {
        let names = Value::from_iter(nodes.iter().map(|name| &**name));
        return Bytes::from(format!(r#"{{"Pod":{pod},"Nodes":null,"NodeNames":{names}}}"#));
    }
    let nodes: Vec<Arc<str>> = nodes.iter().map(|name| objects.node(name)).collect();
    let length: usize = nodes.iter().map(|node| node.len() + 1).sum();
    let mut text = String::with_capacity(pod.len() + length + 64);
    text.push_str(r#"{"Pod":"#);
    text.push_str(&pod);
    text.push_str(r#","Nodes":{"metadata":{},"items":"#);
    push_list(&mut text, &nodes);
    text.push_str(r#"},"NodeNames":null}"#);
    Bytes::from(text)
}

/// ExtenderPreemptionArgs: the pod, and the victims as whole objects or as UIDs.
pub(super) fn preemption_args(
    objects: &WholeObjects,
    pod: &Pod,
    victims: &BTreeMap<Arc<str>, Victims>,
    uids_only: bool,
) -> Bytes {
    let pod = objects.pod(pod);
    if uids_only {
        let meta = |victims: &Victims| {
            let pods: Vec<Value> = victims.pods.iter().map(|pod| json!({ "UID": *pod.uid })).collect();
            json!({ "Pods": pods, "NumPDBViolations": victims.n_pdb_violations })
        };
        let by_node: serde_json::Map<String, Value> =
            victims.iter().map(|(node, victims)| (node.to_string(), meta(victims))).collect();
        let by_node = Value::Object(by_node);
        return Bytes::from(format!(r#"{{"Pod":{pod},"NodeNameToVictims":null,"NodeNameToMetaVictims":{by_node}}}"#));
    }
    let mut text = format!(r#"{{"Pod":{pod},"NodeNameToVictims":{{"#);
    for (at, (node, victims)) in victims.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(&**node).to_string());
        text.push_str(r#":{"Pods":"#);
        let pods: Vec<Arc<str>> = victims.pods.iter().map(|pod| objects.pod(pod)).collect();
        push_list(&mut text, &pods);
        text.push_str(&format!(r#","NumPDBViolations":{}}}"#, victims.n_pdb_violations));
    }
    text.push_str(r#"},"NodeNameToMetaVictims":null}"#);
    Bytes::from(text)
}

/// ExtenderBindingArgs.
pub(super) fn binding_args(pod: &ObjectRef, node: &str) -> Bytes {
    let args = json!({ "PodName": *pod.name, "PodNamespace": *pod.namespace, "PodUID": *pod.uid, "Node": node });
    Bytes::from(args.to_string())
}

fn push_list(text: &mut String, items: &[Arc<str>]) {
    text.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(item);
    }
    text.push(']');
}

/// Reads an ExtenderFilterResult about the nodes `sent` by the extender at `url`.
///
/// # Errors
/// The extender says that it failed, names a node that was not sent, or the answer has another form.
pub(super) fn filter_result(
    answer: &Value,
    url: &str,
    sent: &[Arc<str>],
    names_only: bool,
) -> Result<ExtenderFilterResult, String> {
    const NAME: &str = "ExtenderFilterResult";
    let answer = Struct::new(NAME, answer)?;
    let nodes = match answer.get("Nodes") {
        None => None,
        Some(list) if list.is_object() => {
            let items = Struct::new("NodeList", list)?.list("items", "[]v1.Node")?.map_or(&[][..], Vec::as_slice);
            Some(items.iter().map(node_name).collect::<Result<Vec<&str>, String>>()?)
        }
        Some(other) => return Err(answer.mismatch("Nodes", other, "v1.NodeList")),
    };
    let name = |name: &'_ Value| match name {
        Value::String(name) => Ok(name.clone()),
        other => Err(answer.mismatch("NodeNames", other, "string")),
    };
    let names = answer.list("NodeNames", "[]string")?;
    let names = names.map(|names| names.iter().map(name).collect::<Result<Vec<String>, String>>()).transpose()?;
    let failed_nodes = |field: &'static str| -> Result<BTreeMap<Arc<str>, String>, String> {
        let entries = answer.map(field, "v1.FailedNodesMap")?;
        let message = |(node, message): (&str, &Value)| match message {
            Value::String(message) => Ok((Arc::from(node), message.clone())),
            Value::Null => Ok((Arc::from(node), String::new())),
            other => Err(answer.mismatch(field, other, "string")),
        };
        entries.map(message).collect()
    };
    let failed = failed_nodes("FailedNodes")?;
    let failed_and_unresolvable = failed_nodes("FailedAndUnresolvableNodes")?;
    let error = answer.text("Error")?;
    if !error.is_empty() {
        return Err(error.to_owned());
    }
    let remaining: Vec<&str> = match (&names, &nodes) {
        (Some(names), _) if names_only => names.iter().map(String::as_str).collect(),
        (_, Some(nodes)) => nodes.clone(),
        _ => Vec::new(),
    };
    let known: rustc_hash::FxHashMap<&str, &Arc<str>> = sent.iter().map(|name| (&**name, name)).collect();
    let find = |name: &&str| match known.get(name) {
        Some(known) => Ok(Arc::clone(known)),
        None => {
            Err(format!("extender {url:?} claims a filtered node {name:?} which is not found in the input node list"))
        }
    };
    let nodes = remaining.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    Ok(ExtenderFilterResult { nodes, failed, failed_and_unresolvable })
}

fn node_name(node: &Value) -> Result<&str, String> {
    let node = Struct::new("Node", node)?;
    match node.get("metadata") {
        None => Ok(""),
        Some(metadata) => Struct::new("ObjectMeta", metadata)?.text("name"),
    }
}

/// Reads a HostPriorityList.
///
/// # Errors
/// The answer has another form.
pub(super) fn host_priorities(answer: &Value) -> Result<Vec<(Arc<str>, i64)>, String> {
    let items = match answer {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => {
            return Err(format!("json: cannot unmarshal {} into Go value of type v1.HostPriorityList", kind(other)));
        }
    };
    let priority = |item: &Value| {
        let item = Struct::new("HostPriority", item)?;
        Ok((Arc::from(item.text("Host")?), item.int64("Score")?))
    };
    items.iter().map(priority).collect()
}

/// Reads an ExtenderPreemptionResult: the victims by node.
///
/// # Errors
/// The answer has another form.
pub(super) fn preemption_result(answer: &Value) -> Result<BTreeMap<Arc<str>, MetaVictims>, String> {
    let answer = Struct::new("ExtenderPreemptionResult", answer)?;
    let entries = answer.map("NodeNameToMetaVictims", "map[string]*v1.MetaVictims")?;
    let meta_victims = |(node, victims): (&str, &Value)| {
        let victims = Struct::new("MetaVictims", victims)?;
        let uid = |pod: &Value| Ok(Arc::from(Struct::new("MetaPod", pod)?.text("UID")?));
        let pods = victims.list("Pods", "[]*v1.MetaPod")?.map_or(&[][..], Vec::as_slice);
        let uids = pods.iter().map(uid).collect::<Result<Vec<_>, String>>()?;
        let n_pdb_violations = usize::try_from(victims.int64("NumPDBViolations")?).unwrap_or(0);
        Ok((Arc::from(node), MetaVictims { uids, n_pdb_violations }))
    };
    entries.map(meta_victims).collect()
}

/// Reads an ExtenderBindingResult.
///
/// # Errors
/// The extender says that it failed, or the answer has another form.
pub(super) fn binding_result(answer: &Value) -> Result<(), String> {
    match Struct::new("ExtenderBindingResult", answer)?.text("Error")? {
        "" => Ok(()),
        error => Err(error.to_owned()),
    }
}
