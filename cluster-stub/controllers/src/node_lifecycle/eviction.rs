//! The taint eviction controller: deletes pods that do not tolerate their node's NoExecute taints, when their time is up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::informers::{Informers, on_node};
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::recorder::{EventRecorder, NORMAL};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use super::taints::{self, Eviction};

const NAME: &str = "taint-eviction-controller";
/// Reconciles at once. Upstream: taint_eviction.go v1.36.2 `UpdateWorkerSize`.
const WORKERS: usize = 8;

struct TaintEviction {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    /// Pods whose time runs: their uid and since when.
    running: Mutex<HashMap<ObjectKey, (String, Timestamp)>>,
}

/// Starts the taint eviction controller, which writes through `api`.
pub(super) fn start(context: &Context, api: ApiClient) {
    let controller = Arc::new(TaintEviction {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        running: Mutex::default(),
    });
    let watcher = Arc::clone(&controller);
    context.informers.nodes.on_change(move |delta| {
        let changed = delta.old().is_none_or(|old| taints::taints(old) != taints::taints(delta.object()));
        if changed && (has_no_execute(delta.object()) || delta.old().is_some_and(|old| has_no_execute(old))) {
            for pod in
                watcher.informers.pods.list_term(&on_node(delta.object().metadata.name.as_deref().unwrap_or_default()))
            {
                watcher.queue.add(ObjectKey::of(pod.as_ref()));
            }
        }
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| {
        let pod = delta.object();
        let key = ObjectKey::of(pod.as_ref());
        let concerned =
            watcher.running().contains_key(&key) || watcher.node(pod).is_some_and(|node| has_no_execute(&node));
        if concerned {
            watcher.queue.add(key);
        }
    });
    context.run(&controller, WORKERS);
}

fn has_no_execute(node: &Node) -> bool {
    taints::taints(node).iter().any(|taint| taint.effect == "NoExecute")
}

impl TaintEviction {
    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectKey, (String, Timestamp)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, pod: &Pod) -> Option<Arc<Node>> {
        Some(pod::node_name(pod))
            .filter(|node| !node.is_empty())
            .and_then(|node| self.informers.nodes.get(&ObjectKey::new("", node)))
    }

    fn tell(&self, key: &ObjectKey, message: String) {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectReference::default()
        };
        self.recorder.event_about(reference, NORMAL, "TaintManagerEviction", message);
    }

    /// Upstream: taint_eviction.go v1.36.2 `addConditionAndDeletePod`.
    async fn evict(&self, key: &ObjectKey, pod: &Pod) -> Result<(), SyncError> {
        self.tell(key, format!("Marking for deletion Pod {key}"));
        let reason = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        let condition = pod::disruption_target(pod, reason.0, reason.1, Timestamp::now());
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        match self.api.patch_status::<Pod>(key, &patch).await {
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api.delete::<Pod>(key, &params).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Reconcile for TaintEviction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "Pod"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let pod = self.informers.pods.get(key).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else {
            self.running().remove(key);
            return Ok(());
        };
        let now = Timestamp::now();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = self.node(&pod);
        let taints = node.as_ref().map(|node| taints::taints(node)).unwrap_or_default();
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        match taints::eviction(taints, tolerations) {
            Eviction::Never => {
                if self.running().remove(key).is_some() {
                    self.tell(key, format!("Cancelling deletion of Pod {key}"));
                }
                Ok(())
            }
            Eviction::Now => {
                self.evict(key, &pod).await?;
                self.running().remove(key);
                Ok(())
            }
            Eviction::After(wait) => {
                let since = {
                    let mut running = self.running();
                    let entry = running.entry(key.clone()).or_insert_with(|| (uid.clone(), now));
                    if entry.0 != uid {
                        *entry = (uid, now);
                    }
                    entry.1
                };
                let passed = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
                if passed < wait {
                    self.queue.add_after(key.clone(), wait - passed);
                    return Ok(());
                }
                self.evict(key, &pod).await?;
                self.running().remove(key);
                Ok(())
            }
        }
    }
}
