//! The pods that a workload's controller would make, so that a manifest can be placed without one.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::manifest::Document;

/// The pods of a Pod, Deployment, ReplicaSet, StatefulSet, ReplicationController, Job or CronJob; none of any other kind.
/// An object of a dump that has an owner is left to that owner's pods, which the dump holds as well.
///
/// # Errors
/// The pod or its template is malformed.
pub(crate) fn pods_of(document: &Document) -> Result<Vec<Pod>, String> {
    let object = &document.object;
    let from_cluster = object["metadata"]["uid"].is_string();
    let (template, n_pods) = match document.kind() {
        "Pod" => return pod(object.clone(), document.name(), 0).map(|pod| vec![pod]),
        // What a cluster has made of it stands in the same dump.
        _ if from_cluster => return Ok(Vec::new()),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
            (&object["spec"]["template"], object["spec"]["replicas"].as_u64().unwrap_or(1))
        }
        "Job" => (&object["spec"]["template"], object["spec"]["parallelism"].as_u64().unwrap_or(1)),
        "CronJob" => (&object["spec"]["jobTemplate"]["spec"]["template"], 1),
        _ => return Ok(Vec::new()),
    };
    if !template.is_object() {
        return Err("spec.template is missing, expected a pod template".to_owned());
    }
    (0..n_pods)
        .map(|index| {
            let mut object = template.clone();
            object["metadata"]["namespace"] = document.object["metadata"]["namespace"].clone();
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": document.api_version(), "kind": document.kind(), "name": document.name(),
                "uid": format!("{}/{}", document.kind(), document.name()), "controller": true,
            }]);
            pod(object, &format!("{}-{index}", document.name()), index)
        })
        .collect()
}

fn pod(mut object: Value, name: &str, index: u64) -> Result<Pod, String> {
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(name);
    if metadata["namespace"].as_str().unwrap_or_default().is_empty() {
        metadata["namespace"] = json!("default");
    }
    if metadata["uid"].as_str().unwrap_or_default().is_empty() {
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        metadata["uid"] = json!(format!("{namespace}/{name}/{index}"));
    }
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    serde_json::from_value(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn names(text: &str) -> Vec<String> {
        let documents = manifest::parse("x", text).expect("a manifest");
        let pods = documents.iter().flat_map(|document| pods_of(document).expect("valid")).collect::<Vec<_>>();
        pods.into_iter()
            .map(|pod| {
                format!("{}/{}", pod.metadata.namespace.unwrap_or_default(), pod.metadata.name.unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn workloads_become_pods() {
        let template = "template: {spec: {containers: [{name: c}]}}";
        assert_eq!(names("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}"), ["default/a"]);
        assert_eq!(
            names(&format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: shop}}, spec: {{replicas: 2, {template}}}}}"
            )),
            ["shop/d-0", "shop/d-1"]
        );
        assert_eq!(
            names(&format!("{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: s}}, spec: {{{template}}}}}")),
            ["default/s-0"]
        );
        assert_eq!(
            names(&format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, uid: u}}, spec: {{replicas: 2, {template}}}}}"
            )),
            Vec::<String>::new(),
            "a dump holds its pods already"
        );
        assert!(names("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").is_empty());
    }
}
