//! The DaemonSet controller: one pod on every node that should have one.

mod nodes;
mod plan;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{claim_all, controller_of};
use crate::runtime::expectations::Expectations;
use crate::runtime::history;
use crate::runtime::informer::Delta;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::pod_control::PodControl;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use crate::runtime::selector::Selector;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

const NAME: &str = "daemon-set-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-daemonset-syncs`.
const WORKERS: usize = 2;
/// First and longest pause before a failed pod is replaced. Upstream: app/apps.go v1.36.2, 1 s and 15 min.
const FAILED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));

struct DaemonSetController {
    api: ApiClient,
    pods: PodControl,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    expectations: Expectations,
    /// By set and node: when its last failed pod was deleted, and how long the next one stays.
    failures: Mutex<HashMap<(ObjectKey, String), (Instant, Duration)>>,
}

/// Starts the DaemonSet controller.
pub(crate) fn start(context: &Context) {
    let api = context.api(NAME);
    let recorder = context.recorder(&api, "daemonset-controller");
    let controller = Arc::new(DaemonSetController {
        pods: PodControl { api: api.clone(), recorder: recorder.clone() },
        api,
        recorder,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        expectations: Expectations::default(),
        failures: Mutex::default(),
    });
    let watcher = Arc::clone(&controller);
    context.informers.daemon_sets.on_change(move |delta| {
        let key = ObjectKey::of(delta.object().as_ref());
        if delta.is_deleted() {
            watcher.expectations.forget(&key);
        }
        watcher.queue.add(key);
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| watcher.pod_changed(delta));
    let watcher = Arc::clone(&controller);
    context.informers.nodes.on_change(move |delta| {
        let node = delta.object();
        let matters =
            delta.old().is_none_or(|old| old.metadata.labels != node.metadata.labels || old.spec != node.spec);
        if matters {
            for set in watcher.informers.daemon_sets.list() {
                watcher.queue.add(ObjectKey::of(set.as_ref()));
            }
        }
    });
    context.run(&controller, WORKERS);
}

impl DaemonSetController {
    fn pod_changed(&self, delta: Delta<'_, Pod>) {
        let pod = delta.object();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let owner = |pod: &Pod| {
            let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
            Some(ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
        };
        if let Some(old) = delta.old().and_then(|old| owner(old)) {
            self.queue.add(old);
        }
        match owner(pod) {
            Some(owner) => {
                if delta.is_deleted() || pod.metadata.deletion_timestamp.is_some() {
                    self.expectations.deletion_observed(&owner, pod.metadata.uid.as_deref().unwrap_or_default());
                } else if matches!(delta, Delta::Added(_)) {
                    self.expectations.creation_observed(&owner);
                }
                self.queue.add(owner);
            }
            None if controller_of(&pod.metadata).is_none() => {
                for set in self.informers.daemon_sets.list_namespace(&namespace) {
                    if selector(&set).is_some_and(|selector| selector.matches(pod.metadata.labels.as_ref())) {
                        self.queue.add(ObjectKey::of(set.as_ref()));
                    }
                }
            }
            None => {}
        }
    }

    fn backing_off(&self, key: &ObjectKey, node: &str) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = failures.get(&(key.clone(), node.to_owned()));
        entry.is_some_and(|(since, pause)| {
            let left = pause.saturating_sub(since.elapsed());
            if !left.is_zero() {
                self.queue.add_after(key.clone(), left);
            }
            !left.is_zero()
        })
    }

    /// Tells of a pod that ended by itself, and lets the next failure on its node last longer.
    fn note_ended(&self, key: &ObjectKey, set: &DaemonSet, pod: &Pod) {
        let (name, node) = (ObjectKey::of(pod), pod::node_name(pod).to_owned());
        if pod::phase(pod) == "Succeeded" {
            let message = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
            self.recorder.event(set, NORMAL, "SucceededDaemonPod", message);
            return;
        }
        let message = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
        self.recorder.event(set, WARNING, "FailedDaemonPod", message);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, longest) = FAILED_PAUSE;
        let entry = failures.entry((key.clone(), node)).or_insert((Instant::now(), first / 2));
        // Two quiet pauses in a row and the node starts anew.
        let pause = if entry.0.elapsed() > longest * 2 { first } else { (entry.1 * 2).min(longest) };
        *entry = (Instant::now(), pause);
    }

    async fn perform(&self, key: &ObjectKey, set: &DaemonSet, plan: &plan::Plan, hash: &str) -> Result<(), SyncError> {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        self.expectations.expect_creations(key, plan.create.len());
        self.expectations.expect_deletions(key, plan.delete.iter().map(|pod| uid(pod)));
        plan.ended.iter().for_each(|pod| self.note_ended(key, set, pod));
        let (mut done, mut batch, mut failure) = (0, 1, None);
        while done < plan.create.len() {
            if failure.is_some() {
                self.expectations.creation_observed(key);
                done += 1;
                continue;
            }
            let end = (done + batch).min(plan.create.len());
            let work = plan.create[done..end].iter().map(|node| async {
                let pod = nodes::new_pod(set, hash, node);
                self.pods.create(&pod, set).await
            });
            for error in join_all(work).await.into_iter().filter_map(Result::err) {
                self.expectations.creation_observed(key);
                if !error.is_namespace_terminating() {
                    failure = Some(error);
                }
            }
            (done, batch) = (end, batch * 2);
        }
        let deletes = plan.delete.iter().map(|pod| async move {
            self.pods.delete(&ObjectKey::of(pod.as_ref()), set).await.inspect_err(|_| {
                self.expectations.deletion_observed(key, &uid(pod));
            })
        });
        let failed = join_all(deletes).await.into_iter().filter_map(Result::err).find(|error| !error.is_not_found());
        failure.or(failed).map_or(Ok(()), Err)
    }
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    let selector = Selector::from_label_selector(set.spec.as_ref().map(|spec| &spec.selector))?;
    Some(selector).filter(|selector| !selector.is_everything())
}

impl Reconcile for DaemonSetController {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn kind(&self) -> &'static str {
        "DaemonSet"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(set) = self.informers.daemon_sets.get(key) else { return Ok(()) };
        let Some(uid) = set.metadata.uid.clone() else { return Ok(()) };
        let Some(selector) = selector(&set) else {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
            self.recorder.event(set.as_ref(), WARNING, "SelectingAll", message);
            return Ok(());
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let settled = self.expectations.satisfied(key);
        let revisions = self.informers.controller_revisions.list_namespace(&key.namespace);
        let revisions: Vec<Arc<ControllerRevision>> =
            claim_all(&self.api, set.as_ref(), &selector, revisions, |_| true).await?;
        let candidates = self.informers.pods_for_owner(&key.namespace, &uid);
        let pods = claim_all(&self.api, set.as_ref(), &selector, candidates, |_| true).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let (newest, collisions) =
            history::sync(&self.api, set.as_ref(), &revisions, &nodes::template(&set), collisions).await?;
        let revision_name = newest.metadata.name.clone().unwrap_or_default();
        let hash = revision_name.rsplit('-').next().unwrap_or_default().to_owned();
        let nodes = self.informers.nodes.list();
        let mut plan = plan::plan(&set, &nodes, &pods, &hash, |node| self.backing_off(key, node), Timestamp::now());
        plan.status.collision_count = Some(collisions).filter(|collisions| *collisions > 0);
        let performed = if settled { self.perform(key, &set, &plan, &hash).await } else { Ok(()) };
        if set.status.as_ref() != Some(&plan.status) {
            let mut changed = set.as_ref().clone();
            changed.status = Some(plan.status);
            self.api.update_status(&changed).await?;
        }
        performed?;
        if let Some(after) = plan.again_after {
            self.queue.add_after(key.clone(), after);
        }
        let hash_of = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|labels| labels.get(nodes::HASH).cloned());
        let hashes: Vec<String> = pods.iter().filter_map(|pod| hash_of(pod)).collect();
        let used: Vec<&str> = revisions
            .iter()
            .filter_map(|revision| revision.metadata.name.as_deref())
            .filter(|name| *name == revision_name || hashes.iter().any(|hash| name.ends_with(&format!("-{hash}"))))
            .collect();
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        history::truncate(&self.api, &revisions, &used, usize::try_from(limit).unwrap_or_default()).await
    }
}
