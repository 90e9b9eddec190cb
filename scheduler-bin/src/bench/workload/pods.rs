//! Names, namespaces and labels of the objects of a workload. Upstream makes names up; here they are counted, so that two
//! runs are the same.

use serde_json::{Value, json};

use super::template::Template;

/// The label that every node has.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Counts names that begin alike.
#[derive(Debug, Default)]
pub(super) struct Names {
    n_nodes: usize,
    n_objects: usize,
}

impl Names {
    /// Gives `object` the namespace, and a name if it has none.
    pub(super) fn place(&mut self, object: &mut Value, namespace: Option<&str>) {
        let metadata = &mut object["metadata"];
        if metadata["name"].is_null() {
            let prefix = metadata["generateName"].as_str().unwrap_or("object-");
            let name = format!("{prefix}{:07}", self.n_objects);
            self.n_objects += 1;
            metadata["name"] = json!(name);
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("generateName");
        }
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
    }

    /// Nodes of `createNodes`.
    pub(super) fn nodes(
        &mut self,
        count: usize,
        template: Option<&Template>,
        label: Option<&(String, Vec<String>)>,
        unique_label: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let mut nodes = Vec::with_capacity(count);
        for index in 0..count {
            let mut node = template.map_or_else(|| Ok(default_node()), |template| template.object(index, count))?;
            self.place(&mut node, None);
            let name = node["metadata"]["name"].clone();
            let labels = &mut node["metadata"]["labels"];
            labels[HOSTNAME] = name;
            if let Some((key, values)) = label {
                // Upstream's strategy gives the values in turn.
                labels[key] = json!(values[self.n_nodes % values.len()]);
            }
            if let Some(key) = unique_label {
                labels[key] = json!(format!("unique-{}", self.n_nodes));
            }
            self.n_nodes += 1;
            nodes.push(node);
        }
        Ok(nodes)
    }
}

/// The node that upstream makes without a template.
fn default_node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "generateName": "scheduler-perf-" },
        "spec": {},
        "status": {
            "capacity": { "pods": "110", "cpu": "4", "memory": "32Gi" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// A namespace of this name, made from a template if there is one.
pub(super) fn namespace(name: &str, template: Option<&Template>) -> Result<Value, String> {
    let mut namespace = template.map_or_else(
        || Ok(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} })),
        |template| template.object(0, 1),
    )?;
    if let Some(metadata) = namespace["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    namespace["metadata"]["name"] = json!(name);
    Ok(namespace)
}

/// Fills in what the API server would, where nobody else does.
pub(super) fn complete(object: &mut Value) {
    if object["kind"] == "Node" && object["status"]["allocatable"].is_null() {
        object["status"]["allocatable"] = object["status"]["capacity"].clone();
    }
    if object["kind"] == "Pod" && object["spec"]["schedulerName"].is_null() {
        object["spec"]["schedulerName"] = json!("default-scheduler");
    }
}

/// Whether the pod is held back from the queue.
pub(super) fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_a_hostname_and_labels_in_turn() {
        let label = ("zone".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let mut names = Names::default();
        let nodes = names.nodes(3, None, Some(&label), Some("u")).expect("no template can fail");
        let text = |node: &Value, key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
        assert_eq!(nodes[1]["metadata"]["name"], "scheduler-perf-0000001");
        assert_eq!(text(&nodes[1], HOSTNAME), "scheduler-perf-0000001");
        assert_eq!(nodes.iter().map(|node| text(node, "zone")).collect::<Vec<_>>(), ["a", "b", "a"]);
        assert_eq!(text(&nodes[2], "u"), "unique-2");
        let more = names.nodes(1, None, Some(&label), None).expect("no template can fail");
        assert_eq!(text(&more[0], "zone"), "b", "counted on");
    }

    #[test]
    fn a_given_name_stays() {
        let mut object = json!({ "metadata": { "name": "n" } });
        Names::default().place(&mut object, Some("ns"));
        assert_eq!(object, json!({ "metadata": { "name": "n", "namespace": "ns" } }));
    }
}
