//! The requests that kubelets send: pod status, final deletion, node registration, node status, Lease. One function each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::Outcome;
use cluster_stub_base::story::{Component, Step, Story};

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

async fn outcome<T>(request: impl Future<Output = Result<T, kube::Error>>) -> (Outcome, Option<T>) {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => (Outcome::Done, Some(answer)),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => (Outcome::Gone, None),
        Ok(Err(error)) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "request of a kubelet failed");
            (Outcome::Failed, None)
        }
        Err(_) => (Outcome::Failed, None),
    }
}

/// Sends a pod's status; the UID guards against another pod of the same name.
pub(super) async fn report_pod(
    client: kube::Client,
    pod: &Pod,
    status: &PodStatus,
    story: &Story,
    user: &Arc<str>,
) -> Outcome {
    let (namespace, name) = names(pod);
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let patch = Patch::Strategic(&patch);
    let params = PatchParams { field_manager: Some("kubelet".to_owned()), ..PatchParams::default() };
    let (outcome, answer) = outcome(api.patch_status(name, &params, &patch)).await;
    if let Some(pod) = answer {
        story.tell(|| {
            let phase = status.phase.as_deref().unwrap_or_default();
            let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            step("status", format!("reported {phase}{}", if ready { ", ready" } else { "" }), &pod, user, true)
        });
    }
    outcome
}

/// One step of a pod's story. `wrote`: it wrote the pod as given.
pub(super) fn step(stage: &'static str, what: String, pod: &Pod, user: &Arc<str>, wrote: bool) -> Step {
    let (namespace, name) = names(pod);
    Step {
        at: std::time::Instant::now(),
        component: Component::Kubelet,
        stage,
        what,
        kind: "Pod".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        resource_version: pod.metadata.resource_version.clone().filter(|_| wrote),
        user: Some(user.clone()),
    }
}

/// Deletes a pod for good.
pub(super) async fn delete_pod(client: kube::Client, pod: &Pod) -> Outcome {
    let (namespace, name) = names(pod);
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let uid = Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None });
    let params = DeleteParams { grace_period_seconds: Some(0), preconditions: uid, ..DeleteParams::default() };
    outcome(api.delete(name, &params)).await.0
}

/// Creates a node. `Gone`: it exists already.
pub(super) async fn create_node(client: kube::Client, node: &Node) -> Outcome {
    outcome(Api::<Node>::all(client).create(&PostParams::default(), node)).await.0
}

/// Sends the whole status of a node.
pub(super) async fn report_node(client: kube::Client, node: &Node) -> Outcome {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({"status": node.status});
    outcome(Api::<Node>::all(client).patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))).await.0
}

/// Sends a node's conditions and nothing else of its status.
pub(super) async fn report_conditions(client: kube::Client, name: &str, conditions: &[NodeCondition]) -> Outcome {
    let patch = json!({"status": {"conditions": conditions}});
    outcome(Api::<Node>::all(client).patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))).await.0
}

/// A node's Lease as it is to be.
pub(super) struct Renewal {
    /// Name of the node.
    pub(super) name: Arc<str>,
    /// Its UID: it owns the Lease.
    pub(super) uid: String,
    /// When the renewal was due.
    pub(super) at: Timestamp,
    /// How long the Lease holds from then on.
    pub(super) holds: Duration,
    /// Whether there is none yet, as far as is known.
    pub(super) is_first: bool,
}

/// Renews a node's Lease, or makes it.
pub(super) async fn renew_lease(client: kube::Client, renewal: &Renewal) -> Outcome {
    let (name, uid) = (&*renewal.name, &renewal.uid);
    let api: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: i32::try_from(renewal.holds.as_secs()).ok(),
        renew_time: Some(MicroTime(renewal.at)),
        ..LeaseSpec::default()
    };
    let patch = json!({"spec": &spec});
    let patch = Patch::Merge(&patch);
    let params = PatchParams::default();
    if !renewal.is_first {
        match outcome(api.patch(name, &params, &patch)).await.0 {
            Outcome::Gone => {}
            done => return done,
        }
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("kube-node-lease".to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let lease = Lease { metadata, spec: Some(spec.clone()) };
    match outcome(api.create(&PostParams::default(), &lease)).await.0 {
        // One of an earlier process is there.
        Outcome::Gone if renewal.is_first => outcome(api.patch(name, &params, &patch)).await.0,
        done => done,
    }
}

fn names(pod: &Pod) -> (&str, &str) {
    let metadata = &pod.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
