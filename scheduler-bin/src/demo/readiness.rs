//! Whether applied objects run, and if not, why: read from their status only.

use kube::Client;
use serde_json::Value;

use crate::counted::counted;

/// What an object is still waiting for; `None` when it runs.
pub(crate) fn waits_for(object: &Value) -> Option<String> {
    let status = &object["status"];
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let observed = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => {
            let phase = status["phase"].as_str().unwrap_or("Pending");
            (!["Running", "Succeeded"].contains(&phase)).then(|| format!("phase {phase}"))
        }
        "Deployment" => {
            let (ready, updated) = (number(&status["readyReplicas"]), number(&status["updatedReplicas"]));
            (!observed || ready < wanted || updated < wanted)
                .then(|| format!("{ready} of {} ready", counted(wanted, "pod")))
        }
        "ReplicaSet" | "ReplicationController" | "StatefulSet" => {
            let ready = number(&status["readyReplicas"]);
            (!observed || ready < wanted).then(|| format!("{ready} of {} ready", counted(wanted, "pod")))
        }
        "DaemonSet" => {
            let (ready, wanted) = (number(&status["numberReady"]), number(&status["desiredNumberScheduled"]));
            (!observed || ready < wanted).then(|| format!("{ready} of {} ready", counted(wanted, "pod")))
        }
        "Job" => {
            let complete = condition(object, "Complete").is_some();
            let started = number(&status["ready"]) > 0;
            (!complete && !started).then(|| "no pod ready or complete".to_owned())
        }
        _ => None,
    }
}

/// The state of a pod in one word and, unless it runs, the most telling message about it.
pub(crate) fn pod_problem(pod: &Value) -> Option<String> {
    waits_for(pod)?;
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled["status"] == "False"
    {
        let text = |key: &str| scheduled[key].as_str().unwrap_or_default().to_owned();
        return Some(format!("{}: {}", text("reason"), text("message")));
    }
    for container in pod["status"]["initContainerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(pod["status"]["containerStatuses"].as_array().into_iter().flatten())
    {
        let waiting = &container["state"]["waiting"];
        if let Some(reason) = waiting["reason"].as_str()
            && !["ContainerCreating", "PodInitializing"].contains(&reason)
        {
            return Some(format!(
                "container {}: {reason}: {}",
                container["name"].as_str().unwrap_or_default(),
                waiting["message"].as_str().unwrap_or_default()
            ));
        }
    }
    Some(format!("phase {}", pod["status"]["phase"].as_str().unwrap_or("Pending")))
}

/// Whether a node takes pods.
pub(crate) fn is_ready_node(node: &Value) -> bool {
    let tainted = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|taint| taint["key"] == "node.kubernetes.io/not-ready");
    !tainted && condition(node, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Whether the scheduler said that the pod fits nowhere.
pub(crate) fn is_unschedulable(pod: &Value) -> bool {
    condition(pod, "PodScheduled")
        .is_some_and(|condition| condition["status"] == "False" && condition["reason"] == "Unschedulable")
}

/// Why a workload cannot even make its pods, if it says so.
pub(crate) fn replica_failure(object: &Value) -> Option<String> {
    let failure = condition(object, "ReplicaFailure").or_else(|| condition(object, "FailedCreate"))?;
    (failure["status"] == "True").then(|| failure["message"].as_str().unwrap_or_default().to_owned())
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

/// The newest state of the object or list at `path`.
///
/// # Errors
/// The server cannot be reached or the object is gone.
pub(crate) async fn refresh(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_kind_runs_when_its_status_says_so() {
        for (name, object, want) in [
            ("a pending pod", json!({"kind": "Pod"}), Some("phase Pending")),
            ("a running pod", json!({"kind": "Pod", "status": {"phase": "Running"}}), None),
            (
                "an unobserved deployment",
                json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 0}}),
                Some("0 of 0 pods ready"),
            ),
            (
                "a deployment",
                json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 2},
                    "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 2}}),
                Some("1 of 2 pods ready"),
            ),
            (
                "a ready deployment",
                json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 2},
                    "status": {"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 2}}),
                None,
            ),
            ("a config map", json!({"kind": "ConfigMap"}), None),
        ] {
            assert_eq!(waits_for(&object).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn a_pods_problem_is_its_most_telling_message() {
        let unschedulable = json!({"kind": "Pod", "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}});
        assert_eq!(pod_problem(&unschedulable).as_deref(), Some("Unschedulable: 0/3 nodes are available"));
        assert!(is_unschedulable(&unschedulable));
        let image = json!({"kind": "Pod", "status": {"phase": "Pending", "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}});
        assert_eq!(pod_problem(&image).as_deref(), Some("container c: ErrImagePull: no such image"));
        assert_eq!(pod_problem(&json!({"kind": "Pod", "status": {"phase": "Running"}})), None);
    }
}
