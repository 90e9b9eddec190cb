//! Reads the Alibaba GPU cluster trace of 2023 ("openb"): one CSV of nodes, one of pods. Whole GPUs become `nvidia.com/gpu`.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler_core::model::{self, Timestamp};
use serde_json::json;

use super::csv::{Row, Rows};
use crate::simulate::script::{Happening, InputError, Leaves, Script, Timed};

const GPU: &str = "nvidia.com/gpu";
const MODEL: &str = "model";

/// The nodes: `sn,cpu_milli,memory_mib,gpu,model`.
///
/// # Errors
/// The file cannot be read, a column is missing, or a value is no number; file and line are named.
pub(crate) fn nodes(path: &Path) -> Result<Vec<model::Node>, InputError> {
    let mut nodes = Vec::new();
    for row in Rows::open(path, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])? {
        let row = row?;
        let name = row.text("sn");
        let mut shape = BTreeMap::from([
            ("cpu".to_owned(), json!(format!("{}m", row.number("cpu_milli")?))),
            ("memory".to_owned(), json!(format!("{}Mi", row.number("memory_mib")?))),
            // The trace does not limit pods by number.
            ("pods".to_owned(), json!("100000")),
        ]);
        if row.number("gpu")? > 0 {
            shape.insert(GPU.to_owned(), json!(row.number("gpu")?.to_string()));
        }
        let mut labels = BTreeMap::from([("kubernetes.io/hostname", name)]);
        if !row.text("model").is_empty() {
            labels.insert(MODEL, row.text("model"));
        }
        let node: Node = row.object(json!({
            "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"capacity": shape, "allocatable": shape},
        }))?;
        nodes.push(model::Node::try_from(&node).map_err(|error| row.wrong(error))?);
    }
    Ok(nodes)
}

/// The pods in file order: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,…,creation_time,deletion_time,…`.
/// `pod_phase` is what became of them in the trace and no input.
///
/// # Errors
/// The file cannot be opened or a column is missing; the rest as [`nodes`], when its row is read.
pub(crate) fn pods(path: &Path) -> Result<Script<'static>, InputError> {
    let columns = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "creation_time", "deletion_time"];
    Ok(Box::new(Rows::open(path, &columns)?.map(|row| row.and_then(|row| pod(&row)))))
}

fn pod(row: &Row) -> Result<Timed, InputError> {
    let name = row.text("name");
    let mut requests = BTreeMap::from([
        ("cpu".to_owned(), json!(format!("{}m", row.number("cpu_milli")?))),
        ("memory".to_owned(), json!(format!("{}Mi", row.number("memory_mib")?))),
    ]);
    if row.number("num_gpu")? > 0 {
        requests.insert(GPU.to_owned(), json!(row.number("num_gpu")?.to_string()));
    }
    let mut spec = json!({"containers": [{"name": "main", "image": "trace", "resources": {"requests": requests, "limits": requests}}]});
    let models: Vec<&str> = row.text("gpu_spec").split('|').filter(|model| !model.is_empty()).collect();
    if !models.is_empty() {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}],
        }}});
    }
    let pod: Pod =
        row.object(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}))?;
    let pod = model::Pod::try_from(&pod).map_err(|error| row.wrong(error))?;
    let leaves = match row.text("deletion_time") {
        "" => Leaves::Never,
        _ => Leaves::At(Timestamp::from_secs(row.number("deletion_time")?)),
    };
    let at = Timestamp::from_secs(row.number("creation_time")?);
    Ok(Timed { at, what: Happening::Pod(pod.into(), leaves), line: row.line() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\n";
    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";

    fn pods_of(text: &str) -> Result<Vec<Timed>, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("t.csv");
        std::fs::write(&path, text).expect("the file can be written");
        let all = pods(&path).and_then(Iterator::collect);
        all.map_err(|error| error.to_string().replace(&path.display().to_string(), "t.csv"))
    }

    #[test]
    fn rows_become_nodes_and_pods() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("n.csv");
        std::fs::write(&path, format!("{NODES}n0,32000,1024,2,T4\n")).expect("the file can be written");
        let nodes = nodes(&path).expect("one node");
        assert_eq!((&*nodes[0].name, nodes[0].allocatable.scalar(GPU)), ("n0", 2));
        let pods =
            pods_of(&format!("{PODS}p0,12000,16384,1,1000,V100M16|V100M32|V100M32,LS,Failed,5,9,\n")).expect("one pod");
        assert_eq!(pods[0].at, Timestamp::from_secs(5));
        let Happening::Pod(pod, leaves) = &pods[0].what else { panic!("a pod") };
        assert_eq!(*leaves, Leaves::At(Timestamp::from_secs(9)));
        assert!(!pod.is_terminal(), "the phase of the trace is no input");
        assert!(pod.affinity.is_some(), "GPU models are a node affinity");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, want) in [
            ("name,cpu_milli\n", "t.csv:1: column memory_mib is missing"),
            ("", "t.csv:1: empty"),
            (&*format!("{PODS}p0,lots,1,0,0,,LS,Running,0,1,\n"), "t.csv:2: cpu_milli is \"lots\""),
            (&*format!("{PODS}p0,-1,1,0,0,,LS,Running,0,1,\n"), "t.csv:2: cpu_milli is \"-1\""),
            (&*format!("{PODS}p0,1,1\n"), "t.csv:2: 3 cells, expected 11"),
        ] {
            let error = pods_of(text).expect_err(want);
            assert!(error.starts_with(want), "{error}");
        }
    }
}
