//! The ReplicaSet controller, which is the ReplicationController's as well: keeps the wanted number of pods.

mod scale;
mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{claim_all, controller_of};
use crate::runtime::expectations::Expectations;
use crate::runtime::informer::{Delta, Informer};
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::pod_control::{PodControl, pod_from_template};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use scale::Scale;
use workload::Workload;

/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-replicaset-syncs`.
const WORKERS: usize = 5;

struct ReplicaController<W> {
    api: ApiClient,
    pods: PodControl,
    informers: Arc<Informers>,
    workloads: Informer<W>,
    queue: WorkQueue<ObjectKey>,
    expectations: Expectations,
}

/// Starts the controllers of ReplicaSets and ReplicationControllers.
pub(super) fn start(context: &Context) {
    start_for::<ReplicaSet>(context);
    start_for::<ReplicationController>(context);
}

fn start_for<W: Workload>(context: &Context) {
    let api = context.api(W::CONTROLLER);
    let recorder = context.recorder(&api, W::COMPONENT);
    let workloads = W::informer(&context.informers).clone();
    let controller = Arc::new(ReplicaController {
        pods: PodControl { api: api.clone(), recorder },
        api,
        informers: Arc::clone(&context.informers),
        workloads: workloads.clone(),
        queue: WorkQueue::default(),
        expectations: Expectations::default(),
    });
    let watcher = Arc::clone(&controller);
    workloads.on_change(move |delta| {
        let key = ObjectKey::of(delta.object().as_ref());
        if delta.is_deleted() {
            watcher.expectations.forget(&key);
        }
        watcher.queue.add(key);
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| watcher.pod_changed(delta));
    context.run(&controller, WORKERS);
}

impl<W: Workload> ReplicaController<W> {
    /// Upstream: replica_set.go v1.36.2 `addPod`, `updatePod`, `deletePod`.
    fn pod_changed(&self, delta: Delta<'_, Pod>) {
        let pod = delta.object();
        let owner = self.owner(pod);
        if let Some(old) = delta.old() {
            let old_owner = self.owner(old);
            if old_owner != owner
                && let Some(old_owner) = old_owner
            {
                self.queue.add(old_owner);
            }
        }
        let going = delta.is_deleted() || pod.metadata.deletion_timestamp.is_some();
        match owner {
            Some(owner) => {
                if going {
                    self.expectations.deletion_observed(&owner, pod.metadata.uid.as_deref().unwrap_or_default());
                }
                if matches!(delta, Delta::Added(_)) && !going {
                    self.expectations.creation_observed(&owner);
                }
                self.queue.add(owner.clone());
            }
            // An orphan that appears, or whose labels changed, may find an owner.
            None if !going && controller_of(&pod.metadata).is_none() => {
                let relabelled = delta.old().is_none_or(|old| {
                    old.metadata.labels != pod.metadata.labels
                        || old.metadata.owner_references != pod.metadata.owner_references
                });
                if relabelled {
                    self.enqueue_matching(pod);
                }
            }
            None => {}
        }
    }

    fn owner(&self, pod: &Pod) -> Option<ObjectKey> {
        let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == W::KIND)?;
        Some(ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
    }

    fn enqueue_matching(&self, pod: &Pod) {
        for workload in self.workloads.list_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            if workload
                .selector()
                .is_some_and(|selector| !selector.is_everything() && selector.matches(pod.metadata.labels.as_ref()))
            {
                self.queue.add(ObjectKey::of(workload.as_ref()));
            }
        }
    }

    /// The pods of all workloads that share `workload`'s owner.
    /// Upstream: replica_set.go v1.36.2 `getIndirectlyRelatedPods`.
    fn related_pods(&self, workload: &W) -> Vec<Arc<Pod>> {
        let own_uid = workload.meta().uid.clone().unwrap_or_default();
        let siblings: BTreeSet<String> = match controller_of(workload.meta()) {
            Some(owner) => self
                .workloads
                .list_owned_by(&owner.uid)
                .iter()
                .filter_map(|sibling| sibling.meta().uid.clone())
                .chain([own_uid])
                .collect(),
            None => [own_uid].into(),
        };
        siblings.iter().flat_map(|uid| self.informers.pods.list_owned_by(uid)).collect()
    }

    async fn scale(&self, key: &ObjectKey, workload: &W, active: Vec<Arc<Pod>>) -> Result<(), SyncError> {
        let too_many = i32::try_from(active.len()).unwrap_or(i32::MAX) > workload.replicas();
        let related = if too_many { self.related_pods(workload) } else { Vec::new() };
        match scale::decide(workload.replicas(), active, &related, Timestamp::now()) {
            Scale::Keep => Ok(()),
            Scale::Create(count) => self.create(key, workload, count).await,
            Scale::Delete(pods) => self.delete(key, workload, &pods).await,
        }
    }

    /// Creates in batches of 1, 2, 4, …, so that a refusal (a quota, say) costs one request and not hundreds.
    /// Upstream: replica_set.go v1.36.2 `slowStartBatch`.
    async fn create(&self, key: &ObjectKey, workload: &W, count: usize) -> Result<(), SyncError> {
        let pod = pod_from_template(&workload.template(), workload);
        self.expectations.expect_creations(key, count);
        let (mut remaining, mut batch) = (count, 1);
        while remaining > 0 {
            batch = batch.min(remaining);
            let results = join_all((0..batch).map(|_| self.pods.create(&pod, workload))).await;
            remaining -= batch;
            batch *= 2;
            let mut failure = None;
            for error in results.into_iter().filter_map(Result::err) {
                self.expectations.creation_observed(key);
                if !error.is_namespace_terminating() {
                    failure = Some(error);
                }
            }
            if let Some(error) = failure {
                for _ in 0..remaining {
                    self.expectations.creation_observed(key);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete(&self, key: &ObjectKey, workload: &W, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        self.expectations.expect_deletions(key, pods.iter().map(|pod| uid(pod)));
        let results = join_all(pods.iter().map(|pod| async move {
            self.pods.delete(&ObjectKey::of(pod.as_ref()), workload).await.inspect_err(|_| {
                self.expectations.deletion_observed(key, &uid(pod));
            })
        }))
        .await;
        results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found()).map_or(Ok(()), Err)
    }
}

impl<W: Workload> Reconcile for ReplicaController<W> {
    fn name(&self) -> &'static str {
        W::CONTROLLER
    }

    fn kind(&self) -> &'static str {
        W::KIND
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: replica_set.go v1.36.2 `syncReplicaSet`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(workload) = self.workloads.get(key) else {
            self.expectations.forget(key);
            return Ok(());
        };
        let satisfied = self.expectations.satisfied(key);
        let Some(selector) = workload.selector() else {
            return Err(SyncError::Unready(format!("{} {key} has a selector with an unknown operator", W::KIND)));
        };
        let uid = workload.meta().uid.as_deref().unwrap_or_default();
        let pods = self.informers.pods_for_owner(&key.namespace, uid);
        let (active, rest): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod::is_active(pod));
        let active = claim_all(&self.api, workload.as_ref(), &selector, active, |_| true).await?;
        let terminating = rest
            .iter()
            .filter(|pod| pod::is_terminating(pod) && controller_of(&pod.metadata).is_some())
            .filter(|pod| selector.matches(pod.metadata.labels.as_ref()))
            .count();
        let failure = if satisfied && workload.meta().deletion_timestamp.is_none() {
            self.scale(key, &workload, active.clone()).await.err()
        } else {
            None
        };
        let now = Timestamp::now();
        let status =
            scale::status(workload.as_ref(), &active, terminating, failure.as_ref().map(SyncError::message), now);
        if status != workload.status() {
            let mut changed = workload.as_ref().clone();
            changed.set_status(status);
            self.api.update_status(&changed).await?;
        }
        if let Some(wait) = scale::next_availability(&active, workload.min_ready_seconds(), now) {
            self.queue.add_after(key.clone(), wait);
        }
        failure.map_or(Ok(()), Err)
    }
}
