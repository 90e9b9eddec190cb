//! Node objects as kubelets register and keep them: the default nodes, what a kubelet adds to a node that lacks it, and
//! which nodes of others it takes over. Objects only; sending them is the fleet's.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use uuid::Uuid;

/// A node with this annotation and the value `ignore` is left alone by the kubelets here.
pub const KUBELET_ANNOTATION: &str = "plimsoll.io/kubelet";
/// The version that the kubelets report.
pub const KUBELET_VERSION: &str = "v1.36.2";

/// What a node has unless it says otherwise.
const SHAPE: &[(&str, &str)] = &[
    ("cpu", "4"),
    ("ephemeral-storage", "100Gi"),
    ("hugepages-1Gi", "0"),
    ("hugepages-2Mi", "0"),
    ("memory", "16Gi"),
    ("pods", "110"),
];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// `n` nodes of 4 CPU, 16Gi and 110 pods: `node-a`, `node-b`, … in turn in the zones `zone-a` to `zone-c` of `region-1`.
pub fn default_nodes(n: usize) -> Vec<Node> {
    (0..n).map(|i| node(&format!("node-{}", letters(i)), ZONES[i % ZONES.len()])).collect()
}

/// a, b, …, z, aa, ab, …
fn letters(i: usize) -> String {
    let mut i = i + 1;
    let mut text = Vec::new();
    while i > 0 {
        i -= 1;
        text.push(b"abcdefghijklmnopqrstuvwxyz"[i % 26]);
        i /= 26;
    }
    text.iter().rev().copied().map(char::from).collect()
}

fn node(name: &str, zone: &str) -> Node {
    let labels = [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("topology.kubernetes.io/region", "region-1"),
        ("topology.kubernetes.io/zone", zone),
    ];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec::default()),
        status: None,
    }
}

/// What a kubelet does with a node that it did not register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It runs the node's pods, renews its Lease and keeps its conditions fresh.
    TakeOver,
    /// It runs the node's pods only: the node says nothing about itself yet, as one that is being made by hand.
    PodsOnly,
    /// Not ours.
    Ignore,
}

/// Decides about a node that somebody else created.
pub(crate) fn claim(node: &Node) -> Claim {
    let annotation = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(KUBELET_ANNOTATION));
    if annotation.is_some_and(|value| value == "ignore") {
        return Claim::Ignore;
    }
    let says_something = node.status.as_ref().is_some_and(|status| {
        status.allocatable.as_ref().or(status.capacity.as_ref()).is_some_and(|resources| !resources.is_empty())
    });
    if says_something { Claim::TakeOver } else { Claim::PodsOnly }
}

/// Completes the status of a node of our own: what it says stays, what it leaves open is filled in. `address` is used if
/// it has none.
pub(crate) fn complete(node: &mut Node, address: &str, runtime_version: &str, now: Timestamp) {
    let name = node.metadata.name.clone().unwrap_or_default();
    let status = node.status.get_or_insert_default();
    let given = status.capacity.clone().or_else(|| status.allocatable.clone()).unwrap_or_default();
    let capacity = with_shape(given);
    let allocatable = match status.allocatable.take() {
        Some(allocatable) => with_shape_of(allocatable, &capacity),
        None => capacity.clone(),
    };
    status.capacity = Some(capacity);
    status.allocatable = Some(allocatable);
    if status.addresses.as_ref().is_none_or(Vec::is_empty) {
        let of_type = |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
        status.addresses = Some(vec![of_type("InternalIP", address), of_type("Hostname", &name)]);
    }
    if status.daemon_endpoints.is_none() {
        status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }) });
    }
    if status.node_info.is_none() {
        status.node_info = Some(system_info(&name, runtime_version));
    }
    status.conditions = Some(refreshed(status, now));
}

fn with_shape(mut resources: BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
    for (name, value) in SHAPE {
        resources.entry((*name).to_owned()).or_insert_with(|| Quantity((*value).to_owned()));
    }
    resources
}

fn with_shape_of(
    mut allocatable: BTreeMap<String, Quantity>,
    capacity: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    for (name, value) in capacity {
        allocatable.entry(name.clone()).or_insert_with(|| value.clone());
    }
    allocatable
}

fn system_info(name: &str, runtime_version: &str) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: "amd64".to_owned(),
        boot_id: Uuid::from_u128(stable_bits(name, "boot")).to_string(),
        container_runtime_version: runtime_version.to_owned(),
        kernel_version: "6.1.0".to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: format!("{:032x}", stable_bits(name, "machine")),
        operating_system: "linux".to_owned(),
        os_image: "Plimsoll Simulated Linux".to_owned(),
        system_uuid: Uuid::from_u128(stable_bits(name, "system")).to_string(),
        ..NodeSystemInfo::default()
    }
}

/// The same bits for the same node in every run.
fn stable_bits(name: &str, purpose: &str) -> u128 {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{purpose}/{name}"));
    digest.iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

/// The conditions that a healthy kubelet reports. Upstream: pkg/kubelet/nodestatus v1.36.2.
const HEALTHY: &[(&str, &str, &str, &str)] = &[
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The node's conditions with fresh heartbeats. One that is missing or that the node controller gave up on (`Unknown`)
/// becomes healthy; what somebody set to another value stays as it is.
pub(crate) fn refreshed(status: &NodeStatus, now: Timestamp) -> Vec<NodeCondition> {
    let mut conditions = status.conditions.clone().unwrap_or_default();
    for (type_, healthy, reason, message) in HEALTHY {
        let known = conditions.iter_mut().find(|condition| condition.type_ == *type_);
        match known {
            Some(condition) if condition.status != "Unknown" => {
                condition.last_heartbeat_time = Some(Time(now));
                if condition.last_transition_time.is_none() {
                    condition.last_transition_time = Some(Time(now));
                }
            }
            Some(condition) => *condition = condition_at(type_, healthy, reason, message, now),
            None => conditions.push(condition_at(type_, healthy, reason, message, now)),
        }
    }
    conditions
}

/// Whether the conditions need to be sent at once, not only with the next heartbeat.
pub(crate) fn wants_conditions(status: Option<&NodeStatus>) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    HEALTHY.iter().any(|(type_, ..)| {
        conditions.iter().find(|condition| condition.type_ == *type_).is_none_or(|found| found.status == "Unknown")
    })
}

fn condition_at(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// The node's own address, as its pods' `hostIP`.
pub(crate) fn internal_ip(node: &Node) -> Option<&str> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP").map(|address| address.address.as_str())
}

/// The address of the n-th node: 10.0.0.11 and on.
pub(crate) fn nth_address(n: u32) -> String {
    std::net::Ipv4Addr::from(0x0A00_000B_u32.wrapping_add(n)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_nodes_are_named_and_spread_over_three_zones() {
        let nodes = default_nodes(29);
        let name = |i: usize| nodes[i].metadata.name.as_deref().unwrap();
        let zone = |i: usize| nodes[i].metadata.labels.as_ref().unwrap()["topology.kubernetes.io/zone"].as_str();
        assert_eq!((name(0), zone(0)), ("node-a", "zone-a"));
        assert_eq!((name(2), zone(2)), ("node-c", "zone-c"));
        assert_eq!((name(3), zone(3)), ("node-d", "zone-a"));
        assert_eq!((name(25), name(26), name(28)), ("node-z", "node-aa", "node-ac"));
    }

    #[test]
    fn completion_keeps_what_the_node_says() {
        let mut node = default_nodes(1).remove(0);
        let eight = BTreeMap::from([("cpu".to_owned(), Quantity("8".to_owned()))]);
        node.status = Some(NodeStatus { capacity: Some(eight), ..NodeStatus::default() });
        complete(&mut node, "10.0.0.11", "containerd://2.0.0", Timestamp::UNIX_EPOCH);
        let status = node.status.as_ref().unwrap();
        assert_eq!(status.allocatable.as_ref().unwrap()["cpu"].0, "8");
        assert_eq!(status.allocatable.as_ref().unwrap()["pods"].0, "110");
        assert_eq!(internal_ip(&node), Some("10.0.0.11"));
        assert_eq!(status.conditions.as_ref().unwrap().len(), 4);
        assert!(!wants_conditions(Some(status)));
    }

    #[test]
    fn condition_of_others_stays_but_unknown_is_healed() {
        let now = Timestamp::from_second(100).unwrap();
        let not_ready = condition_at("Ready", "False", "Broken", "on purpose", Timestamp::UNIX_EPOCH);
        let unknown = condition_at("DiskPressure", "Unknown", "NodeStatusUnknown", "", Timestamp::UNIX_EPOCH);
        let status = NodeStatus { conditions: Some(vec![not_ready, unknown]), ..NodeStatus::default() };
        assert!(wants_conditions(Some(&status)));
        let conditions = refreshed(&status, now);
        let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        assert_eq!((of("Ready").status.as_str(), of("Ready").last_heartbeat_time.clone()), ("False", Some(Time(now))));
        assert_eq!(of("Ready").last_transition_time, Some(Time(Timestamp::UNIX_EPOCH)));
        assert_eq!(of("DiskPressure").status, "False");
        assert_eq!(conditions.len(), 4);
    }

    #[test]
    fn only_nodes_that_say_what_they_have_are_taken_over() {
        let mut node = default_nodes(1).remove(0);
        assert_eq!(claim(&node), Claim::PodsOnly);
        let cpu = BTreeMap::from([("cpu".to_owned(), Quantity("8".to_owned()))]);
        node.status = Some(NodeStatus { allocatable: Some(cpu), ..NodeStatus::default() });
        assert_eq!(claim(&node), Claim::TakeOver);
        node.metadata.annotations = Some(BTreeMap::from([(KUBELET_ANNOTATION.to_owned(), "ignore".to_owned())]));
        assert_eq!(claim(&node), Claim::Ignore);
    }
}
