//! The Deployment controller: keeps ReplicaSets for the revisions of a Deployment and moves pods from one to the next.

mod plan;
mod revision;
mod rolling;
mod status;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{claim_all, controller_of, is_controlled_by};
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use crate::runtime::selector::Selector;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use plan::{Action, Plan};

/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-deployment-syncs`.
const WORKERS: usize = 5;

struct DeploymentController {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the Deployment controller.
pub(super) fn start(context: &Context) {
    let api = context.api("deployment-controller");
    let controller = Arc::new(DeploymentController {
        recorder: context.recorder(&api, "deployment-controller"),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.deployments.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    let watcher = Arc::clone(&controller);
    context.informers.replica_sets.on_change(move |delta| {
        if let Some(old) = delta.old()
            && controller_of(&old.metadata) != controller_of(&delta.object().metadata)
        {
            watcher.enqueue_owner(old);
        }
        watcher.enqueue_owner(delta.object());
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| {
        if delta.is_deleted() {
            watcher.enqueue_waiting_for(delta.object());
        }
    });
    context.run(&controller, WORKERS);
}

impl DeploymentController {
    /// Enqueues the Deployment that controls `set`, or those that might adopt it.
    fn enqueue_owner(&self, set: &ReplicaSet) {
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        if let Some(owner) = controller_of(&set.metadata) {
            if owner.kind == "Deployment" {
                self.queue.add(ObjectKey::new(namespace, owner.name.clone()));
            }
            return;
        }
        if set.metadata.deletion_timestamp.is_some() {
            return;
        }
        for deployment in self.informers.deployments.list_namespace(&namespace) {
            let selector = deployment.spec.as_ref().map(|spec| &spec.selector);
            if Selector::from_label_selector(selector)
                .is_some_and(|selector| !selector.is_everything() && selector.matches(set.metadata.labels.as_ref()))
            {
                self.queue.add(ObjectKey::of(deployment.as_ref()));
            }
        }
    }

    /// A Deployment that recreates its pods waits for the last old one to go.
    fn enqueue_waiting_for(&self, pod: &Pod) {
        let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else { return };
        let key = ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone());
        let Some(set) = self.informers.replica_sets.get(&key) else { return };
        let Some(deployment) = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment") else { return };
        let key = ObjectKey::new(key.namespace, deployment.name.clone());
        if self.informers.deployments.get(&key).is_some_and(|deployment| !rolling::is_rolling(&deployment)) {
            self.queue.add(key);
        }
    }

    async fn perform(&self, deployment: &Deployment, plan: Plan) -> Result<(), SyncError> {
        for action in plan.actions {
            match action {
                Action::Create(set) => self.create(deployment, &set).await?,
                Action::Update { set, from } => {
                    self.api.update(set.as_ref()).await?;
                    if let Some(from) = from {
                        self.tell_scaled(deployment, &set, from);
                    }
                }
                Action::Delete(set) => {
                    match self.api.delete::<ReplicaSet>(&ObjectKey::of(set.as_ref()), &DeleteParams::default()).await {
                        Err(error) if !error.is_not_found() => return Err(error),
                        _ => {}
                    }
                }
                Action::UpdateStatus(changed) => {
                    self.api.update_status(changed.as_ref()).await?;
                }
                Action::UpdateDeployment(changed) => {
                    self.api.update(changed.as_ref()).await?;
                }
                Action::Event(event_type, reason, message) => {
                    self.recorder.event(deployment, event_type, reason, message);
                }
            }
        }
        Ok(())
    }

    fn tell_scaled(&self, deployment: &Deployment, set: &ReplicaSet, from: i32) {
        let to = rolling::set_replicas(set);
        let direction = if from < to { "up" } else { "down" };
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.recorder.event(deployment, NORMAL, "ScalingReplicaSet", message);
    }

    /// Creates the ReplicaSet of a new revision. If the name is taken by another, the hash gets another salt.
    /// Upstream: deployment/sync.go v1.36.2 `getNewReplicaSet`.
    async fn create(&self, deployment: &Deployment, set: &ReplicaSet) -> Result<(), SyncError> {
        let error = match self.api.create(set).await {
            Ok(created) => {
                if rolling::set_replicas(&created) > 0 {
                    self.tell_scaled(deployment, &created, 0);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            let existing: Option<ReplicaSet> = self.api.get(&ObjectKey::of(set)).await?;
            let template = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone());
            let ours = existing.as_ref().is_some_and(|existing| {
                is_controlled_by(&existing.metadata, deployment)
                    && revision::same_template(template(existing).as_ref(), template(set).as_ref())
            });
            if !ours && existing.is_some() {
                let mut changed = deployment.clone();
                let status = changed.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
                self.api.update_status(&changed).await?;
            }
            // Ours, but not in the cache yet: the retry will find it there.
            return Err(error);
        }
        if !error.is_namespace_terminating() {
            let name = set.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Failed to create new replica set {name:?}: {}", error.message());
            if status::progress_deadline(deployment).is_some() {
                let mut changed = deployment.clone();
                let condition = status::new_condition(
                    status::PROGRESSING,
                    "False",
                    "ReplicaSetCreateError",
                    message.clone(),
                    Timestamp::now(),
                );
                status::set_condition(changed.status.get_or_insert_default(), condition);
                if changed.status != deployment.status {
                    self.api.update_status(&changed).await?;
                }
            }
            self.recorder.event(deployment, WARNING, "ReplicaSetCreateError", message);
        }
        Err(error)
    }
}

impl Reconcile for DeploymentController {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn kind(&self) -> &'static str {
        "Deployment"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(deployment) = self.informers.deployments.get(key) else { return Ok(()) };
        let selector = deployment.spec.as_ref().map(|spec| &spec.selector);
        let Some(selector) = Selector::from_label_selector(selector) else {
            return Err(SyncError::Unready(format!("Deployment {key} has a selector with an unknown operator")));
        };
        let sets = if selector.is_everything() {
            Vec::new()
        } else {
            let candidates = self.informers.replica_sets.list_namespace(&key.namespace);
            claim_all(&self.api, deployment.as_ref(), &selector, candidates, |_| true).await?
        };
        let pods: Vec<Arc<Pod>> = sets
            .iter()
            .filter_map(|set| set.metadata.uid.as_deref())
            .flat_map(|uid| self.informers.pods.list_owned_by(uid))
            .collect();
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
        let sets = sets.iter().map(|set| set.as_ref().clone()).collect();
        let plan = plan::plan(&deployment, sets, &pods, Timestamp::now());
        if let Some(after) = plan.again_after {
            self.queue.add_after(key.clone(), after);
        }
        self.perform(&deployment, plan).await
    }
}

#[cfg(test)]
mod tests;
