//! The flags that describe the nodes of an offline cluster, and the Node objects that they stand for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Failure;
use crate::{field_validation, manifest};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Most nodes of one cluster: each takes some kilobytes and a heartbeat.
const MAX_NODES: u64 = 100_000;
const REGION: &str = "topology.kubernetes.io/region";

/// Which nodes the offline cluster starts with.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeFlags {
    /// How many nodes, or a file of Node objects; 0 starts empty. Default: 3, and none beside those that a data directory
    /// holds.
    #[arg(long, value_name = "N|FILE", help_heading = "Nodes")]
    nodes: Option<String>,

    /// CPU of each node.
    #[arg(long, value_name = "QUANTITY", default_value = "4", value_parser = quantity, help_heading = "Nodes")]
    cpu: String,

    /// Memory of each node.
    #[arg(long, value_name = "QUANTITY", default_value = "16Gi", value_parser = quantity, help_heading = "Nodes")]
    memory: String,

    /// Pods that each node takes.
    #[arg(long, value_name = "N", default_value_t = 110, help_heading = "Nodes")]
    pods: u32,

    /// Further resources of each node, for example `nvidia.com/gpu=2`.
    #[arg(long, value_name = "NAME=QUANTITY", value_delimiter = ',', value_parser = resource, help_heading = "Nodes")]
    resources: Vec<(String, String)>,

    /// Labels of each node.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = key_value, help_heading = "Nodes")]
    labels: Vec<(String, String)>,

    /// Taints of each node, for example `dedicated=batch:NoSchedule`.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", value_delimiter = ',', value_parser = taint, help_heading = "Nodes")]
    taints: Vec<Taint>,

    /// Zones; the nodes take turns.
    #[arg(
        long,
        value_name = "ZONE",
        value_delimiter = ',',
        default_value = "zone-a,zone-b,zone-c",
        help_heading = "Nodes"
    )]
    zones: Vec<String>,
}

impl NodeFlags {
    /// The Node objects; so many when nothing is said.
    ///
    /// # Errors
    /// `--nodes` is neither a number nor a file of Node objects.
    pub(crate) fn to_nodes(&self, n_default: usize) -> Result<Vec<Node>, Failure> {
        let Some(nodes) = &self.nodes else { return Ok((0..n_default).map(|index| self.node(index)).collect()) };
        match nodes.parse::<u64>() {
            Ok(n_nodes) if n_nodes > MAX_NODES => {
                Err(Failure::bad_input(format_args!("--nodes {n_nodes}: expected at most {MAX_NODES} simulated nodes")))
            }
            Ok(n_nodes) => Ok((0..n_nodes).map(|index| self.node(index as usize)).collect()),
            Err(_) => self.read_file(nodes),
        }
    }

    fn node(&self, index: usize) -> Node {
        let name = format!("node-{}", letters(index));
        let mut labels = BTreeMap::from([
            (HOSTNAME.to_owned(), name.clone()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            ("beta.kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("beta.kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            (REGION.to_owned(), "region-1".to_owned()),
        ]);
        if let Some(zone) = self.zones.get(index % self.zones.len().max(1)).filter(|zone| !zone.is_empty()) {
            labels.insert(ZONE.to_owned(), zone.clone());
        }
        labels.extend(self.labels.iter().cloned());
        Node {
            metadata: ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() },
            spec: Some(NodeSpec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(self.status()),
        }
    }

    fn status(&self) -> NodeStatus {
        let mut capacity: BTreeMap<String, Quantity> = [
            ("cpu", self.cpu.clone()),
            ("memory", self.memory.clone()),
            ("pods", self.pods.to_string()),
            ("ephemeral-storage", "100Gi".to_owned()),
            ("hugepages-1Gi", "0".to_owned()),
            ("hugepages-2Mi", "0".to_owned()),
        ]
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .collect();
        capacity.extend(self.resources.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))));
        NodeStatus { capacity: Some(capacity.clone()), allocatable: Some(capacity), ..NodeStatus::default() }
    }

    /// Nodes of a file; what they leave out of their status comes from the flags.
    fn read_file(&self, nodes: &str) -> Result<Vec<Node>, Failure> {
        let path = PathBuf::from(nodes);
        if !path.exists() {
            return Err(Failure::bad_input(format_args!(
                "--nodes {nodes}: expected a number of nodes or an existing file of Node objects"
            )));
        }
        let documents = manifest::read(&path).map_err(Failure::bad_input)?;
        let mut nodes = Vec::with_capacity(documents.len());
        let mut places = BTreeMap::new();
        for document in documents {
            if (document.api_version(), document.kind()) != ("v1", "Node") {
                let (version, kind) = (document.api_version(), document.kind());
                return Err(Failure::bad_input(format_args!(
                    "{}: found {version} {kind}, expected v1 Node",
                    document.place
                )));
            }
            let faults = field_validation::faults(&document.object);
            // What a cluster wrote may be of a newer version.
            if !faults.is_empty() && !document.object["metadata"]["uid"].is_string() {
                let (place, title) = (&document.place, document.title());
                return Err(Failure::bad_input(format_args!("{place}: {title}: {}", faults.join("; "))));
            }
            if let Some(first) = places.insert(document.name().to_owned(), document.place.clone()) {
                let (place, title) = (&document.place, document.title());
                return Err(Failure::bad_input(format_args!(
                    "{place}: {title}: stands at {first} already, expected each node once"
                )));
            }
            let mut node: Node = serde_json::from_value(document.object)
                .map_err(|error| Failure::bad_input(format_args!("{}: not a valid Node: {error}", document.place)))?;
            let status = node.status.get_or_insert_with(|| self.status());
            match (&status.capacity, &status.allocatable) {
                (None, None) => {
                    (status.capacity, status.allocatable) = (self.status().capacity, self.status().allocatable)
                }
                (None, Some(allocatable)) => status.capacity = Some(allocatable.clone()),
                (Some(capacity), None) => status.allocatable = Some(capacity.clone()),
                (Some(_), Some(_)) => {}
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}

/// `a`, `b`, … `z`, `aa`, `ab`, …: names as in a spreadsheet.
fn letters(index: usize) -> String {
    let mut name = Vec::new();
    let mut rest = index;
    loop {
        name.push(b'a' + u8::try_from(rest % 26).expect("a remainder of 26 fits"));
        if rest < 26 {
            break;
        }
        rest = rest / 26 - 1;
    }
    name.iter().rev().map(|&letter| char::from(letter)).collect()
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

fn resource(text: &str) -> Result<(String, String), String> {
    let (name, amount) = key_value(text)?;
    Ok((name, quantity(&amount)?))
}

fn quantity(text: &str) -> Result<String, String> {
    match scheduler_core::model::Quantity::parse(text) {
        Ok(_) if !text.starts_with('-') => Ok(text.to_owned()),
        _ => Err("expected a quantity such as 4, 500m or 16Gi".to_owned()),
    }
}

fn taint(text: &str) -> Result<Taint, String> {
    let expected = || "expected KEY[=VALUE]:EFFECT with effect NoSchedule, PreferNoSchedule or NoExecute".to_owned();
    let (pair, effect) = text.rsplit_once(':').ok_or_else(expected)?;
    let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value.to_owned())));
    if key.is_empty() || !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(expected());
    }
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        flags: NodeFlags,
    }

    fn nodes(arguments: &[&str]) -> Result<Vec<Node>, String> {
        let only =
            Only::try_parse_from(std::iter::once(&"test").chain(arguments)).map_err(|error| error.to_string())?;
        only.flags.to_nodes(3).map_err(|failure| failure.message)
    }

    #[test]
    fn the_default_is_three_nodes_in_three_zones() {
        let nodes = nodes(&[]).expect("defaults are valid");
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| {
                (
                    node.metadata.name.as_deref().unwrap_or_default(),
                    node.metadata.labels.as_ref().map(|l| l[ZONE].as_str()),
                )
            })
            .collect();
        assert_eq!(seen, [("node-a", Some("zone-a")), ("node-b", Some("zone-b")), ("node-c", Some("zone-c"))]);
        let capacity = nodes[0].status.as_ref().and_then(|status| status.capacity.clone()).expect("capacity is set");
        assert_eq!((&*capacity["cpu"].0, &*capacity["memory"].0, &*capacity["pods"].0), ("4", "16Gi", "110"));
    }

    #[test]
    fn shape_labels_taints_and_zones_are_taken() {
        let nodes = nodes(&[
            "--nodes=2",
            "--cpu=500m",
            "--resources=a/gpu=2",
            "--labels=x=y,z=",
            "--taints=k=v:NoSchedule,o:NoExecute",
            "--zones=one",
        ])
        .expect("valid flags");
        let labels = nodes[1].metadata.labels.as_ref().expect("labels are set");
        assert_eq!((labels["x"].as_str(), labels["z"].as_str(), labels[ZONE].as_str()), ("y", "", "one"));
        let taints = nodes[1].spec.as_ref().and_then(|spec| spec.taints.as_ref()).expect("taints are set");
        assert_eq!((taints[0].key.as_str(), taints[1].value.as_deref()), ("k", None));
        let capacity =
            nodes[1].status.as_ref().and_then(|status| status.allocatable.as_ref()).expect("allocatable is set");
        assert_eq!((&*capacity["cpu"].0, &*capacity["a/gpu"].0), ("500m", "2"));
    }

    #[test]
    fn names_go_on_after_z() {
        assert_eq!([0, 25, 26, 27, 701, 702].map(letters), ["a", "z", "aa", "ab", "zz", "aaa"]);
    }

    #[test]
    fn a_file_of_nodes_is_taken_and_completed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nodes.yaml");
        std::fs::write(&path, "apiVersion: v1\nkind: Node\nmetadata: {name: big}\nstatus: {allocatable: {cpu: '64'}}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: plain}\n")
            .expect("the file can be written");
        let nodes = nodes(&["--nodes", path.to_str().expect("a temporary path is text")]).expect("two nodes");
        let cpu = |node: &Node| node.status.as_ref().and_then(|s| s.capacity.as_ref()).map(|c| c["cpu"].0.clone());
        assert_eq!((cpu(&nodes[0]).as_deref(), cpu(&nodes[1]).as_deref()), (Some("64"), Some("4")));
    }

    #[test]
    fn wrong_input_says_what_was_expected() {
        for (arguments, want) in [
            (&["--nodes=many"][..], "expected a number of nodes or an existing file"),
            (&["--cpu=lots"][..], "expected a quantity"),
            (&["--memory=-1Gi"][..], "expected a quantity"),
            (&["--taints=a=b:Never"][..], "expected KEY[=VALUE]:EFFECT"),
            (&["--labels=a"][..], "expected KEY=VALUE"),
        ] {
            let error = nodes(arguments).expect_err("wrong input");
            assert!(error.contains(want), "{arguments:?}: {error}");
        }
    }
}
