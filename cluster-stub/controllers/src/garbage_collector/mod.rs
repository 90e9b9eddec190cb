//! The garbage collector: deletes objects whose owners are gone, and frees owners that wait for their dependents.

mod graph;
mod monitor;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::discovery::{Collection, discover};
use crate::runtime::key::ObjectKey;
use crate::runtime::recorder::{EventRecorder, WARNING};
use crate::runtime::story_log;
use crate::runtime::workqueue::WorkQueue;
use cluster_stub_base::reflector::{self, Form};

use graph::{Attention, FOREGROUND, Graph, ORPHAN, group_of};
use monitor::Monitor;

const NAME: &str = "generic-garbage-collector";
/// Workers per queue. Upstream: kube-controller-manager v1.36.2 `--concurrent-gc-syncs` is 20; in one process fewer do.
const WORKERS: usize = 8;
/// How often the served collections are looked up anew. Upstream: app/core.go v1.36.2, 30 s.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// First pause after a failed discovery.
const DISCOVERY_RETRY: Duration = Duration::from_millis(200);

/// The garbage collector's graph and queues.
struct GarbageCollector {
    api: ApiClient,
    recorder: EventRecorder,
    graph: Mutex<Graph>,
    /// Served collections by group and kind.
    collections: RwLock<HashMap<(String, String), Arc<Collection>>>,
    attempt_delete: WorkQueue<String>,
    attempt_orphan: WorkQueue<String>,
}

/// Starts the garbage collector.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let collector = Arc::new(GarbageCollector {
        recorder: context.recorder(&api, "garbage-collector-controller"),
        api,
        graph: Mutex::default(),
        collections: RwLock::default(),
        attempt_delete: WorkQueue::default(),
        attempt_orphan: WorkQueue::default(),
    });
    let watcher = Arc::clone(&collector);
    let shared = context.informers.on_metadata(move |collection, meta, deleted| {
        if deleted {
            watcher.removed(meta.uid.as_deref().unwrap_or_default());
        } else {
            watcher.observed(collection, meta);
        }
    });
    let context_of_task = context.clone();
    context.tasks.spawn(async move {
        let (context, shutdown) = (context_of_task.clone(), context_of_task.shutdown.clone());
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = run(context, collector, shared) => {}
        }
    });
}

/// Keeps a monitor for every collection that is not watched already. Work begins once all of them know their objects.
async fn run(context: Context, collector: Arc<GarbageCollector>, shared: Vec<Arc<Collection>>) {
    let mut monitors: HashMap<Collection, (CancellationToken, Arc<Monitor>)> = HashMap::new();
    let mut working = false;
    let mut pause = DISCOVERY_RETRY;
    loop {
        match discover(&collector.api).await {
            Ok(found) => {
                let complete = found.failures.is_empty();
                let wanted: Vec<Collection> = found
                    .collections
                    .into_iter()
                    .filter(|found| found.supports(&["delete", "list", "watch"]))
                    .collect();
                collector.serve(&wanted);
                monitors.retain(|collection, (stop, _)| {
                    // What could not be discovered may well still be there.
                    let keep = !complete || wanted.contains(collection);
                    if !keep {
                        stop.cancel();
                    }
                    keep
                });
                for collection in wanted {
                    let is_event = collection.plural == "events";
                    let is_shared = shared
                        .iter()
                        .any(|shared| shared.group == collection.group && shared.plural == collection.plural);
                    if !is_event && !is_shared && !monitors.contains_key(&collection) {
                        let started = start_monitor(&context, &collector, &collection);
                        monitors.insert(collection, started);
                    }
                }
                if !working {
                    context.informers.synced().await;
                    join_all(monitors.values().map(|(_, monitor)| monitor.synced())).await;
                    start_workers(&context, &collector);
                    working = true;
                }
                pause = DISCOVERY_PERIOD;
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "discovery failed");
                pause = (pause * 2).min(DISCOVERY_PERIOD);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn start_monitor(
    context: &Context,
    collector: &Arc<GarbageCollector>,
    collection: &Collection,
) -> (CancellationToken, Arc<Monitor>) {
    let monitor = Arc::new(Monitor::new(Arc::new(collection.clone()), Arc::clone(collector)));
    let stop = context.shutdown.child_token();
    let (client, path) = (collector.api.raw().clone(), collection.path(""));
    let (task_monitor, task_stop) = (Arc::clone(&monitor), stop.clone());
    context.tasks.spawn(async move {
        reflector::run(client, path, Form::Metadata, task_monitor.as_ref(), task_stop).await;
    });
    (stop, monitor)
}

fn start_workers(context: &Context, collector: &Arc<GarbageCollector>) {
    for _ in 0..WORKERS {
        for orphaning in [false, true] {
            let (context, collector) = (context.clone(), Arc::clone(collector));
            context.tasks.clone().spawn(async move {
                let queue = if orphaning { &collector.attempt_orphan } else { &collector.attempt_delete };
                loop {
                    let uid = tokio::select! {
                        () = context.shutdown.cancelled() => return,
                        uid = queue.next() => match uid {
                            Some(uid) => uid,
                            None => return,
                        },
                    };
                    match collector.attempt(&context, &uid, orphaning).await {
                        Ok(()) => queue.forget(&uid),
                        Err(error) => {
                            tracing::debug!(
                                uid,
                                error = &error as &dyn std::error::Error,
                                "collection failed, will retry"
                            );
                            queue.add_rate_limited(uid.clone());
                        }
                    }
                    queue.done(&uid);
                }
            });
        }
    }
}

/// What became of an owner.
enum Owner {
    /// It does not exist.
    Absent,
    /// It exists and waits for its dependents to go.
    Waiting,
    /// It exists.
    Solid,
}

impl GarbageCollector {
    /// An object was seen.
    fn observed(&self, collection: &Arc<Collection>, meta: &ObjectMeta) {
        let attention = self.graph().put(collection, meta);
        self.attend(attention);
    }

    /// An object is gone.
    fn removed(&self, uid: &str) {
        let attention = self.graph().remove(uid);
        self.attend(attention);
    }

    fn attend(&self, attention: Attention) {
        attention.delete.into_iter().for_each(|uid| self.attempt_delete.add(uid));
        attention.orphan.into_iter().for_each(|uid| self.attempt_orphan.add(uid));
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, collections: &[Collection]) {
        let served = collections
            .iter()
            .map(|collection| ((collection.group.clone(), collection.kind.clone()), Arc::new(collection.clone())))
            .collect();
        *self.collections.write().unwrap_or_else(PoisonError::into_inner) = served;
    }

    async fn attempt(&self, context: &Context, uid: &str, orphaning: bool) -> Result<(), SyncError> {
        let Some((kind, key)) = self.graph().get(uid).map(|node| (node.collection.kind.clone(), node.key.clone()))
        else {
            return Ok(());
        };
        let work =
            async { if orphaning { self.orphan_dependents(uid).await } else { self.attempt_to_delete(uid).await } };
        story_log::follow(&context.story, NAME, &kind, &key, work).await
    }

    /// Upstream: garbagecollector.go v1.36.2 `attemptToDeleteItem`.
    async fn attempt_to_delete(&self, uid: &str) -> Result<(), SyncError> {
        let Some(node) = self.graph().get(uid).cloned() else { return Ok(()) };
        if node.being_deleted && !node.deleting_dependents {
            return Ok(());
        }
        let latest = self.api.get_metadata(&node.collection, &node.key).await?;
        let Some(latest) = latest.filter(|latest| latest.uid.as_deref() == Some(uid)) else {
            self.removed(uid);
            return Ok(());
        };
        if node.deleting_dependents {
            return self.free_or_wait(uid, &node, &latest).await;
        }
        let owners = latest.owner_references.clone().unwrap_or_default();
        if owners.is_empty() {
            return Ok(());
        }
        let (mut solid, mut waiting) = (Vec::new(), Vec::new());
        for owner in owners {
            match self.look_up(&node, &owner).await? {
                Some(Owner::Absent) => {}
                Some(Owner::Waiting) => waiting.push(owner),
                Some(Owner::Solid) => solid.push(owner),
                None => return Ok(()), // a cluster-scoped object cannot have a namespaced owner; nothing can be known
            }
        }
        if !solid.is_empty() {
            if Some(solid.len()) == latest.owner_references.as_ref().map(Vec::len) {
                return Ok(());
            }
            let patch = json!({"metadata": {
                "uid": uid, "resourceVersion": latest.resource_version, "ownerReferences": solid,
            }});
            return ignore_missing(self.api.merge_patch(&node.collection, &node.key, &patch).await);
        }
        let has = |finalizer: &str| latest.finalizers.iter().flatten().any(|own| own == finalizer);
        let dependents: Vec<String> = self.graph().dependents(uid).cloned().collect();
        let policy = if !waiting.is_empty() && !dependents.is_empty() {
            let cycle = dependents
                .iter()
                .any(|dependent| self.graph().get(dependent).is_some_and(|node| node.deleting_dependents));
            if cycle {
                // Two objects that wait for each other would wait for ever.
                let unblocked: Vec<OwnerReference> = (latest.owner_references.clone().unwrap_or_default())
                    .into_iter()
                    .map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner })
                    .collect();
                let patch = json!({"metadata": {"uid": uid, "ownerReferences": unblocked}});
                ignore_missing(self.api.merge_patch(&node.collection, &node.key, &patch).await)?;
            }
            PropagationPolicy::Foreground
        } else if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        ignore_missing(self.api.delete_from(&node.collection, &node.key, &params).await)
    }

    /// Upstream: garbagecollector.go v1.36.2 `processDeletingDependentsItem`.
    async fn free_or_wait(&self, uid: &str, node: &graph::Node, latest: &ObjectMeta) -> Result<(), SyncError> {
        let blocking = self.graph().blocking_dependents(uid);
        if blocking.is_empty() {
            return self.remove_finalizer(node, latest, FOREGROUND).await;
        }
        for dependent in blocking {
            if !self.graph().get(&dependent).is_some_and(|node| node.deleting_dependents) {
                self.attempt_delete.add(dependent);
            }
        }
        Ok(())
    }

    async fn remove_finalizer(&self, node: &graph::Node, latest: &ObjectMeta, name: &str) -> Result<(), SyncError> {
        let finalizers = latest.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == name) {
            return Ok(());
        }
        let rest: Vec<String> = finalizers.into_iter().filter(|finalizer| finalizer != name).collect();
        let patch = json!({"metadata": {"resourceVersion": latest.resource_version, "finalizers": rest}});
        ignore_missing(self.api.merge_patch(&node.collection, &node.key, &patch).await)
    }

    /// Upstream: garbagecollector.go v1.36.2 `isDangling`, `classifyReferences`. `None` if it cannot be decided.
    async fn look_up(&self, dependent: &graph::Node, owner: &OwnerReference) -> Result<Option<Owner>, SyncError> {
        let namespace = &dependent.key.namespace;
        {
            let graph = self.graph();
            if let Some(found) = graph.get(&owner.uid) {
                if found.is(owner, namespace) {
                    return Ok(Some(if found.deleting_dependents { Owner::Waiting } else { Owner::Solid }));
                }
                if found.collection.namespaced && !namespace.is_empty() && found.key.namespace != *namespace {
                    let message = format!(
                        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
                        owner.api_version, owner.kind, owner.name, owner.uid
                    );
                    drop(graph);
                    self.recorder.event_about(reference(dependent), WARNING, "OwnerRefInvalidNamespace", message);
                }
            }
        }
        let key = (group_of(&owner.api_version).to_owned(), owner.kind.clone());
        let collection = self.collections.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let Some(collection) = collection else {
            return Err(SyncError::Unready(format!(
                "no resource of kind {} in {} is served",
                owner.kind, owner.api_version
            )));
        };
        if collection.namespaced && namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if collection.namespaced { namespace.as_str() } else { "" };
        let found = self.api.get_metadata(&collection, &ObjectKey::new(namespace, owner.name.clone())).await?;
        Ok(Some(match found {
            Some(meta) if meta.uid.as_ref() == Some(&owner.uid) => {
                let waits = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
                if meta.deletion_timestamp.is_some() && waits { Owner::Waiting } else { Owner::Solid }
            }
            _ => Owner::Absent,
        }))
    }

    /// Upstream: garbagecollector.go v1.36.2 `orphanDependents`, `processAttemptToOrphanWorker`.
    async fn orphan_dependents(&self, uid: &str) -> Result<(), SyncError> {
        let Some(node) = self.graph().get(uid).cloned() else { return Ok(()) };
        let dependents: Vec<graph::Node> = {
            let graph = self.graph();
            graph.dependents(uid).filter_map(|dependent| graph.get(dependent).cloned()).collect()
        };
        let released = join_all(dependents.iter().map(|dependent| async move {
            let Some(latest) = self.api.get_metadata(&dependent.collection, &dependent.key).await? else {
                return Ok(());
            };
            let owners = latest.owner_references.unwrap_or_default();
            let rest: Vec<&OwnerReference> = owners.iter().filter(|owner| owner.uid != uid).collect();
            if rest.len() == owners.len() {
                return Ok(());
            }
            let patch = json!({"metadata": {
                "uid": latest.uid, "resourceVersion": latest.resource_version, "ownerReferences": rest,
            }});
            ignore_missing(self.api.merge_patch(&dependent.collection, &dependent.key, &patch).await)
        }))
        .await;
        released.into_iter().collect::<Result<(), SyncError>>()?;
        match self.api.get_metadata(&node.collection, &node.key).await? {
            Some(latest) if latest.uid.as_deref() == Some(uid) => self.remove_finalizer(&node, &latest, ORPHAN).await,
            _ => Ok(()),
        }
    }
}

fn ignore_missing(result: Result<(), SyncError>) -> Result<(), SyncError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn reference(node: &graph::Node) -> ObjectReference {
    ObjectReference {
        api_version: Some(node.collection.api_version()),
        kind: Some(node.collection.kind.clone()),
        name: Some(node.key.name.clone()),
        namespace: Some(node.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        ..ObjectReference::default()
    }
}
