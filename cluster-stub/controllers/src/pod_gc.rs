//! The pod garbage collector: deletes pods that nobody else will, such as those of nodes that are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use serde_json::json;

use super::node_lifecycle::taints;
use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::key::ObjectKey;
use super::runtime::pod;
use super::runtime::story_log;

const NAME: &str = "pod-garbage-collector";
/// Pause between two passes. Upstream: gc_controller.go v1.36.2 `gcCheckPeriod`.
const PERIOD: Duration = Duration::from_secs(20);
/// A missing node may come back within this time. Upstream: gc_controller.go v1.36.2 `quarantineTime`.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Starts the pod garbage collector.
pub(super) fn start(context: &Context) {
    let (context, api) = (context.clone(), context.api(NAME));
    context.tasks.clone().spawn(async move {
        let work = async {
            context.informers.synced().await;
            let mut missing_since = HashMap::new();
            loop {
                pass(&context, &api, &mut missing_since).await;
                tokio::time::sleep(PERIOD).await;
            }
        };
        tokio::select! {
            () = context.shutdown.cancelled() => {}
            () = work => {}
        }
    });
}

/// Upstream: gc_controller.go v1.36.2 `gc`.
async fn pass(context: &Context, api: &ApiClient, missing_since: &mut HashMap<String, Instant>) {
    let pods = context.informers.pods.list();
    let node = |name: &str| context.informers.nodes.get(&ObjectKey::new("", name));
    for pod in surplus(&pods, context.options.terminated_pod_gc_threshold) {
        delete(context, api, &pod, None).await;
    }
    let mut gone_nodes: HashMap<String, bool> = HashMap::new();
    missing_since.retain(|name, _| node(name).is_none());
    for pod in &pods {
        let name = pod::node_name(pod);
        if name.is_empty() {
            if pod.metadata.deletion_timestamp.is_some() {
                delete(context, api, pod, None).await;
            }
            continue;
        }
        match node(name) {
            Some(node) => {
                if pod::is_terminating(pod) && is_out_of_service(&node) {
                    delete(context, api, pod, None).await;
                }
            }
            None => {
                let since = missing_since.entry(name.to_owned()).or_insert_with(Instant::now);
                if since.elapsed() < QUARANTINE {
                    continue;
                }
                let gone = match gone_nodes.get(name) {
                    Some(gone) => *gone,
                    None => {
                        // Only the API server's own word that the node is gone is good enough.
                        let gone = matches!(api.get::<Node>(&ObjectKey::new("", name)).await, Ok(None));
                        gone_nodes.insert(name.to_owned(), gone);
                        gone
                    }
                };
                if gone {
                    delete(context, api, pod, Some(("DeletionByPodGC", "PodGC: node no longer exists"))).await;
                }
            }
        }
    }
}

fn is_out_of_service(node: &Node) -> bool {
    let ready = taints::condition(node, "Ready").is_some_and(|ready| ready.status == "True");
    !ready && taints::taints(node).iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// The oldest ended pods beyond `threshold`, evicted ones first; 0 keeps all.
/// Upstream: gc_controller.go v1.36.2 `gcTerminated`.
fn surplus(pods: &[Arc<Pod>], threshold: usize) -> Vec<Arc<Pod>> {
    if threshold == 0 {
        return Vec::new();
    }
    let mut ended: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod::is_terminal(pod)).collect();
    let surplus = ended.len().saturating_sub(threshold);
    if surplus == 0 {
        return Vec::new();
    }
    ended.sort_by_key(|pod| {
        let evicted = pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
        (!evicted, pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone())
    });
    ended.into_iter().take(surplus).cloned().collect()
}

async fn delete(context: &Context, api: &ApiClient, pod: &Pod, why: Option<(&str, &str)>) {
    let key = ObjectKey::of(pod);
    let work = mark_failed_and_delete(api, &key, pod, why);
    match story_log::follow(&context.story, NAME, "Pod", &key, work).await {
        Err(error) if !error.is_not_found() => {
            tracing::debug!(%key, error = &error as &dyn std::error::Error, "pod not deleted, will retry");
        }
        _ => {}
    }
}

/// Upstream: gc_controller.go v1.36.2 `markFailedAndDeletePodWithCondition`.
async fn mark_failed_and_delete(
    api: &ApiClient,
    key: &ObjectKey,
    pod: &Pod,
    why: Option<(&str, &str)>,
) -> Result<(), SyncError> {
    if !pod::is_terminal(pod) {
        let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
        if let Some((reason, message)) = why {
            let condition = pod::disruption_target(pod, reason, message, Timestamp::now());
            status["conditions"] = json!([condition]);
        }
        api.patch_status::<Pod>(key, &json!({"metadata": {"uid": pod.metadata.uid}, "status": status})).await?;
    }
    api.delete::<Pod>(key, &DeleteParams::default().grace_period(0)).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::super::runtime::pod::tests::{at, running_pod};
    use super::*;

    #[test]
    fn the_oldest_ended_pods_beyond_the_threshold_go_evicted_ones_first() {
        let ended = |name: &str, age: i64, reason: Option<&str>| {
            let mut pod = running_pod(name);
            pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(age)));
            pod.status = Some(PodStatus {
                phase: Some("Failed".to_owned()),
                reason: reason.map(str::to_owned),
                ..PodStatus::default()
            });
            Arc::new(pod)
        };
        let pods = [
            ended("old", 0, None),
            ended("older", -5, None),
            ended("evicted", 9, Some("Evicted")),
            Arc::new(running_pod("runs")),
        ];
        let names = |threshold| {
            let gone = surplus(&pods, threshold);
            gone.iter().filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["evicted", "older"]);
        assert!(names(3).is_empty() && names(0).is_empty());
    }
}
