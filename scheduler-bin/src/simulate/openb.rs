//! Reads the Alibaba GPU cluster trace of 2023 ("openb"): one CSV of nodes, one of pods. Whole GPUs become `nvidia.com/gpu`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler_core::model;
use serde_json::json;

use super::events::Arrival;

const GPU: &str = "nvidia.com/gpu";
const MODEL: &str = "model";

/// Why a trace cannot be used.
#[derive(Debug)]
pub(crate) struct TraceError {
    place: String,
    problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// The nodes: `sn,cpu_milli,memory_mib,gpu,model`.
///
/// # Errors
/// The file cannot be read, a column is missing, or a value is no number; file and line are named.
pub(crate) fn nodes(path: &Path) -> Result<Vec<model::Node>, TraceError> {
    let mut nodes = Vec::new();
    read(path, &["sn", "cpu_milli", "memory_mib", "gpu", "model"], |row| {
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
        Ok(())
    })?;
    Ok(nodes)
}

/// The pods in file order: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,…,creation_time,deletion_time,…`.
/// `pod_phase` is what became of them in the trace and no input.
///
/// # Errors
/// As [`nodes`].
pub(crate) fn pods(path: &Path) -> Result<Vec<Arrival>, TraceError> {
    let columns = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "creation_time", "deletion_time"];
    let mut arrivals = Vec::new();
    read(path, &columns, |row| {
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
        arrivals.push(Arrival {
            at_seconds: row.number("creation_time")?,
            pod: model::Pod::try_from(&pod).map_err(|error| row.wrong(error))?.into(),
            leaves_at_seconds: if row.text("deletion_time").is_empty() {
                None
            } else {
                Some(row.number("deletion_time")?)
            },
        });
        Ok(())
    })?;
    Ok(arrivals)
}

struct Row<'a> {
    place: String,
    columns: &'a BTreeMap<String, usize>,
    cells: Vec<&'a str>,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|&index| self.cells.get(index)).map_or("", |cell| cell.trim())
    }

    fn number(&self, column: &str) -> Result<i64, TraceError> {
        let text = self.text(column);
        // Some exports write whole numbers as 1.0.
        let whole = text.strip_suffix(".0").unwrap_or(text);
        match whole.parse() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(self.wrong(format_args!("{column} is {text:?}, expected a whole number of 0 or more"))),
        }
    }

    fn object<T: serde::de::DeserializeOwned>(&self, value: serde_json::Value) -> Result<T, TraceError> {
        serde_json::from_value(value).map_err(|error| self.wrong(error))
    }

    fn wrong(&self, problem: impl fmt::Display) -> TraceError {
        TraceError { place: self.place.clone(), problem: problem.to_string() }
    }
}

fn read(
    path: &Path,
    wanted: &[&str],
    mut take: impl FnMut(&Row<'_>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let name = path.display();
    let wrong = |line: usize, problem: String| TraceError { place: format!("{name}:{line}"), problem };
    let file = File::open(path).map_err(|error| TraceError { place: name.to_string(), problem: error.to_string() })?;
    let mut lines = BufReader::new(file).lines().enumerate();
    let head = match lines.next() {
        Some((_, line)) => line.map_err(|error| wrong(1, error.to_string()))?,
        None => return Err(wrong(1, format!("empty, expected a head with {}", wanted.join(",")))),
    };
    let columns: BTreeMap<String, usize> = head
        .trim_start_matches('\u{feff}')
        .split(',')
        .enumerate()
        .map(|(index, column)| (column.trim().to_owned(), index))
        .collect();
    if let Some(missing) = wanted.iter().find(|column| !columns.contains_key(**column)) {
        return Err(wrong(1, format!("column {missing} is missing, expected {}", wanted.join(","))));
    }
    for (index, line) in lines {
        let number = index + 1;
        let line = line.map_err(|error| wrong(number, error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != columns.len() {
            return Err(wrong(number, format!("{} cells, expected {}", cells.len(), columns.len())));
        }
        take(&Row { place: format!("{name}:{number}"), columns: &columns, cells })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_file<T>(text: &str, read: impl Fn(&Path) -> Result<T, TraceError>) -> Result<T, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("t.csv");
        std::fs::write(&path, text).expect("the file can be written");
        read(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "t.csv"))
    }

    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";

    #[test]
    fn rows_become_nodes_and_pods() {
        let nodes = in_file("sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,2,T4\n", nodes).expect("one node");
        assert_eq!(&*nodes[0].name, "n0");
        let pods = in_file(&format!("{PODS}p0,12000,16384,1,1000,V100M16|V100M32|V100M32,LS,Failed,5,9,\n"), pods)
            .expect("one pod");
        assert_eq!((pods[0].at_seconds, pods[0].leaves_at_seconds), (5, Some(9)));
        assert!(!pods[0].pod.is_terminal(), "the phase of the trace is no input");
        assert!(pods[0].pod.affinity.is_some(), "GPU models are a node affinity");
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
            let error = in_file(text, pods).expect_err(want);
            assert!(error.starts_with(want), "{error}");
        }
    }
}
