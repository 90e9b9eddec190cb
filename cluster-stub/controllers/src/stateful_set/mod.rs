//! The StatefulSet controller: pods with names and volumes of their own, made and replaced in order.

mod identity;
mod plan;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{claim_all, controller_of};
use crate::runtime::history;
use crate::runtime::informer::Delta;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use crate::runtime::selector::Selector;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use plan::{Action, Revision};

const NAME: &str = "statefulset-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-statefulset-syncs`.
const WORKERS: usize = 5;

struct StatefulSetController {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the StatefulSet controller.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(StatefulSetController {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.stateful_sets.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| watcher.pod_changed(delta));
    let watcher = Arc::clone(&controller);
    context.informers.controller_revisions.on_change(move |delta| {
        if let Some(owner) = controller_of(&delta.object().metadata).filter(|owner| owner.kind == "StatefulSet") {
            let namespace = delta.object().metadata.namespace.clone().unwrap_or_default();
            watcher.queue.add(ObjectKey::new(namespace, owner.name.clone()));
        }
    });
    context.run(&controller, WORKERS);
}

impl StatefulSetController {
    fn pod_changed(&self, delta: Delta<'_, Pod>) {
        for pod in [Some(delta.object()), delta.old()].into_iter().flatten() {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            match controller_of(&pod.metadata) {
                Some(owner) if owner.kind == "StatefulSet" => {
                    self.queue.add(ObjectKey::new(namespace, owner.name.clone()))
                }
                Some(_) => {}
                None => {
                    for set in self.informers.stateful_sets.list_namespace(&namespace) {
                        let matches =
                            selector(&set).is_some_and(|selector| selector.matches(pod.metadata.labels.as_ref()));
                        if matches && identity::ordinal(&set, pod).is_some() {
                            self.queue.add(ObjectKey::of(set.as_ref()));
                        }
                    }
                }
            }
        }
    }

    /// Makes the claims that are missing and brings the owners of all in line with the retention policy.
    async fn claims(&self, set: &StatefulSet, ordinal: i32, pod: &Pod, condemned: bool) -> Result<(), SyncError> {
        for claim in identity::claims(set, ordinal).into_values() {
            let key = ObjectKey::of(&claim);
            match self.informers.persistent_volume_claims.get(&key) {
                Some(existing) if existing.metadata.deletion_timestamp.is_some() => {
                    return Err(SyncError::Unready(format!("pvc {key} is being deleted")));
                }
                Some(existing) => self.own_claim(set, &existing, pod, condemned).await?,
                None if condemned => {}
                None => self.create_claim(set, claim, pod).await?,
            }
        }
        Ok(())
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        mut claim: PersistentVolumeClaim,
        pod: &Pod,
    ) -> Result<(), SyncError> {
        if let Some(owner) = identity::claim_owner(set, pod, false) {
            claim.metadata.owner_references = Some(vec![owner]);
        }
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let (claim_name, pod_name, set_name) =
            (name(&claim.metadata.name), name(&pod.metadata.name), name(&set.metadata.name));
        match self.api.create(&claim).await {
            Ok(_) => {
                let message = format!("Create Claim {claim_name} Pod {pod_name} in StatefulSet {set_name} success");
                self.recorder.event(set, NORMAL, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                let why = error.message();
                let message = format!(
                    "Create Claim {claim_name} for Pod {pod_name} in StatefulSet {set_name} failed error: {why}"
                );
                self.recorder.event(set, WARNING, "FailedCreate", message);
                Err(error)
            }
        }
    }

    async fn own_claim(
        &self,
        set: &StatefulSet,
        claim: &PersistentVolumeClaim,
        pod: &Pod,
        condemned: bool,
    ) -> Result<(), SyncError> {
        let wanted = identity::claim_owner(set, pod, condemned);
        let owners = claim.metadata.owner_references.clone().unwrap_or_default();
        // Owners that somebody else added stay.
        let ours = |kind: &str| kind == "StatefulSet" || kind == "Pod";
        let mut new: Vec<_> = owners.iter().filter(|owner| !ours(&owner.kind)).cloned().collect();
        new.extend(wanted.clone());
        let same = owners.iter().map(|owner| &owner.uid).eq(new.iter().map(|owner| &owner.uid));
        if same {
            return Ok(());
        }
        let mut changed = claim.clone();
        changed.metadata.owner_references = Some(new).filter(|new| !new.is_empty());
        self.api.update(&changed).await.map(|_| ())
    }

    fn tell(&self, set: &StatefulSet, verb: &str, pod: &Pod, result: Result<(), &SyncError>) {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let what = format!("{verb} Pod {} in StatefulSet {}", name(&pod.metadata.name), name(&set.metadata.name));
        match result {
            Ok(()) => self.recorder.event(set, NORMAL, &format!("Successful{verb}"), format!("{what} successful")),
            Err(error) => {
                let message = format!("{what} failed error: {}", error.message());
                self.recorder.event(set, WARNING, &format!("Failed{verb}"), message);
            }
        }
    }

    async fn perform(&self, set: &StatefulSet, actions: Vec<Action>) -> Result<(), SyncError> {
        for action in actions {
            match action {
                Action::Create(ordinal, pod) => {
                    self.claims(set, ordinal, &pod, false).await?;
                    match self.api.create(pod.as_ref()).await {
                        Ok(_) => self.tell(set, "Create", &pod, Ok(())),
                        Err(error) if error.is_already_exists() || error.is_namespace_terminating() => {
                            return Err(error);
                        }
                        Err(error) => {
                            self.tell(set, "Create", &pod, Err(&error));
                            return Err(error);
                        }
                    }
                }
                Action::Claims(ordinal, pod) => self.claims(set, ordinal, &pod, false).await?,
                Action::Update(pod) => {
                    let result = self.api.update(pod.as_ref()).await;
                    self.tell(set, "Update", &pod, result.as_ref().map(|_| ()));
                    result?;
                }
                Action::Delete(pod) => {
                    match self.api.delete::<Pod>(&ObjectKey::of(pod.as_ref()), &DeleteParams::default()).await {
                        Ok(()) => self.tell(set, "Delete", &pod, Ok(())),
                        Err(error) if error.is_not_found() => {}
                        Err(error) => {
                            self.tell(set, "Delete", &pod, Err(&error));
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    let selector = Selector::from_label_selector(set.spec.as_ref().map(|spec| &spec.selector))?;
    Some(selector).filter(|selector| !selector.is_everything())
}

impl Reconcile for StatefulSetController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "StatefulSet"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(set) = self.informers.stateful_sets.get(key) else { return Ok(()) };
        let (Some(selector), Some(uid)) = (selector(&set), set.metadata.uid.clone()) else { return Ok(()) };
        let revisions = self.informers.controller_revisions.list_namespace(&key.namespace);
        let revisions: Vec<Arc<ControllerRevision>> =
            claim_all(&self.api, set.as_ref(), &selector, revisions, |_| true).await?;
        let candidates = self.informers.pods_for_owner(&key.namespace, &uid);
        let member = |pod: &Pod| identity::ordinal(&set, pod).is_some();
        let pods = claim_all(&self.api, set.as_ref(), &selector, candidates, member).await?;
        let template = set.spec.clone().unwrap_or_default().template;
        let old_status = set.status.clone().unwrap_or_default();
        let collisions = old_status.collision_count.unwrap_or_default();
        let (newest, collisions) = history::sync(&self.api, set.as_ref(), &revisions, &template, collisions).await?;
        let update = Revision { name: newest.metadata.name.clone().unwrap_or_default(), template };
        let current = revisions
            .iter()
            .find(|revision| revision.metadata.name.is_some() && revision.metadata.name == old_status.current_revision)
            .and_then(|revision| {
                let template = history::template_of(revision)?;
                Some(Revision { name: revision.metadata.name.clone().unwrap_or_default(), template })
            })
            .unwrap_or_else(|| update.clone());
        let mut plan = plan::plan(&set, &pods, &current, &update, Timestamp::now());
        plan.status.collision_count = Some(collisions);
        plan::complete(&set, &mut plan.status);
        for pod in &plan.condemned {
            if let Some(ordinal) = identity::ordinal(&set, pod) {
                self.claims(&set, ordinal, pod, true).await?;
            }
        }
        let performed = self.perform(&set, plan.actions).await;
        if set.status.as_ref() != Some(&plan.status) && performed.is_ok() {
            let mut changed = set.as_ref().clone();
            changed.status = Some(plan.status);
            self.api.update_status(&changed).await?;
        }
        performed?;
        if let Some(after) = plan.again_after {
            self.queue.add_after(key.clone(), after);
        }
        let used: Vec<&str> = pods
            .iter()
            .map(|pod| identity::revision(pod))
            .chain([current.name.as_str(), update.name.as_str()])
            .collect();
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        history::truncate(&self.api, &revisions, &used, usize::try_from(limit).unwrap_or_default()).await
    }
}
