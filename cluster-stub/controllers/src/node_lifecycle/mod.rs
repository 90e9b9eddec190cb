//! The node lifecycle controller: notices silent nodes and keeps the taints that follow from conditions.

pub(super) mod eviction;
mod health;
pub(super) mod taints;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Taint};
use serde_json::json;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::informers::{Informers, on_node};
use crate::runtime::key::ObjectKey;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use crate::runtime::story_log;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use health::Health;

/// Name in the story; the service account and the events say `node-controller`.
const NAME: &str = "node-lifecycle-controller";
/// Reconciles at once. Upstream: node_lifecycle_controller.go v1.36.2 `UpdateWorkerSize`.
const WORKERS: usize = 8;
/// Namespace of the nodes' Leases.
const LEASES: &str = "kube-node-lease";

struct NodeLifecycle {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    health: Mutex<Health>,
}

/// Starts the node lifecycle controller and the taint eviction controller.
pub(super) fn start(context: &Context) {
    let api = context.api("node-controller");
    let controller = Arc::new(NodeLifecycle {
        recorder: context.recorder(&api, "node-controller"),
        api: api.clone(),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        health: Mutex::default(),
    });
    let queue = controller.queue.clone();
    context.informers.nodes.on_change(move |delta| {
        if !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&controller, WORKERS);
    let monitor_context = context.clone();
    context.tasks.spawn(async move {
        let context = monitor_context;
        let work = async {
            context.informers.synced().await;
            let mut ticks = tokio::time::interval(context.options.node_monitor_period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                controller.monitor(&context).await;
            }
        };
        tokio::select! {
            () = context.shutdown.cancelled() => {}
            () = work => {}
        }
    });
    eviction::start(context, api);
}

impl Reconcile for NodeLifecycle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "Node"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Keeps the NoSchedule taints and the beta labels, which follow from the object alone.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(node) = self.informers.nodes.get(key) else { return Ok(()) };
        if let Some(taints) = taints::no_schedule(&node, Timestamp::now()) {
            self.replace_taints(&node, &taints).await?;
        }
        Ok(())
    }
}

impl NodeLifecycle {
    async fn replace_taints(&self, node: &Node, taints: &[Taint]) -> Result<(), SyncError> {
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        match self.api.patch::<Node>(&ObjectKey::of(node), &patch).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// One pass over all nodes. Upstream: node_lifecycle_controller.go v1.36.2 `monitorNodeHealth`.
    async fn monitor(&self, context: &Context) {
        let now = Timestamp::now();
        let nodes = self.informers.nodes.list();
        let names: Vec<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let mut silent = Vec::new();
        {
            let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            health.begin_pass(now, context.options.node_monitor_period);
            for name in health.forget_missing(&names) {
                self.tell(&name, None, "RemovingNode", &format!("Removing Node {name} from Controller"));
            }
            for node in &nodes {
                let name = node.metadata.name.clone().unwrap_or_default();
                if !health.knows(&name) {
                    let message = format!("Registered Node {name} in Controller");
                    self.tell(&name, node.metadata.uid.clone(), "RegisteredNode", &message);
                }
                let lease = self.informers.leases.get(&ObjectKey::new(LEASES, name));
                let lease = lease.as_ref().and_then(|lease| lease.spec.as_ref());
                if let Some(changed) = health.check(node, lease, context.options.node_monitor_grace_period, now) {
                    silent.push((Arc::clone(node), changed));
                }
            }
        }
        let work = silent.iter().map(|(node, changed)| async {
            let key = ObjectKey::of(node.as_ref());
            let work = self.mark_silent(node, changed);
            if let Err(error) = story_log::follow(&context.story, NAME, "Node", &key, work).await {
                tracing::debug!(%key, error = &error as &dyn std::error::Error, "node not updated, will retry");
            }
        });
        join_all(work).await;
        self.give_up(context, &nodes, now).await;
    }

    /// A node went silent: say so, and say that its pods are not ready.
    async fn mark_silent(&self, node: &Node, changed: &Node) -> Result<(), SyncError> {
        self.api.update_status(changed).await?;
        let was_ready = taints::condition(node, "Ready").is_some_and(|ready| ready.status == "True");
        if !was_ready {
            return Ok(());
        }
        let name = node.metadata.name.clone().unwrap_or_default();
        let message = format!("Node {name} status is now: NodeNotReady");
        self.recorder.event_about(node_reference(&name, node.metadata.uid.clone()), NORMAL, "NodeNotReady", message);
        let pods = self.informers.pods.list_term(&on_node(&name));
        join_all(pods.iter().map(|pod| self.mark_pod(pod))).await.into_iter().collect()
    }

    /// Upstream: pkg/controller/util/node v1.36.2 `MarkPodsNotReady`.
    async fn mark_pod(&self, pod: &Pod) -> Result<(), SyncError> {
        let mut changed = pod.clone();
        let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
        let Some(ready) = conditions.iter_mut().find(|condition| condition.type_ == "Ready") else { return Ok(()) };
        if ready.status == "False" {
            return Ok(());
        }
        ready.status = "False".to_owned();
        ready.last_transition_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
        match self.api.update_status(&changed).await {
            Ok(_) => {
                self.recorder.event(pod, WARNING, "NodeNotReady", "Node is not ready".to_owned());
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Taints what is not ready NoExecute, a zone's nodes one by one; takes the taint away from what is ready again.
    async fn give_up(&self, context: &Context, nodes: &[Arc<Node>], now: Timestamp) {
        let mut zones: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let (mut recovered, mut candidates) = (Vec::new(), BTreeMap::new());
        for node in nodes {
            let Some(ready) = taints::condition(node, "Ready") else { continue };
            let is_ready = ready.status == "True";
            let zone = health::zone(node);
            let count = zones.entry(zone.clone()).or_default();
            *(if is_ready { &mut count.0 } else { &mut count.1 }) += 1;
            let Some(wanted) = taints::no_execute(node, now) else { continue };
            let already_out = taints::taints(node).iter().any(|taint| {
                taint.effect == "NoExecute" && (taint.key == taints::NOT_READY || taint.key == taints::UNREACHABLE)
            });
            if is_ready || already_out {
                recovered.push((Arc::clone(node), wanted));
            } else {
                let name = node.metadata.name.clone().unwrap_or_default();
                candidates.insert((zone, name), (Arc::clone(node), wanted));
            }
        }
        let names: Vec<(String, String)> = candidates.keys().cloned().collect();
        let allowed = self.health.lock().unwrap_or_else(PoisonError::into_inner).may_give_up(&names, &zones, now);
        let given_up = candidates.into_iter().filter(|((_, name), _)| allowed.contains(name)).map(|(_, work)| work);
        for (node, wanted) in recovered.into_iter().chain(given_up) {
            let key = ObjectKey::of(node.as_ref());
            let work = self.replace_taints(&node, &wanted);
            if let Err(error) = story_log::follow(&context.story, NAME, "Node", &key, work).await {
                tracing::debug!(%key, error = &error as &dyn std::error::Error, "node not tainted, will retry");
            }
        }
    }

    fn tell(&self, name: &str, uid: Option<String>, reason: &str, what: &str) {
        let message = format!("Node {name} event: {what}");
        self.recorder.event_about(node_reference(name, uid), NORMAL, reason, message);
    }
}

fn node_reference(name: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}
