//! The Job controller: runs pods until enough of them succeeded, and counts each exactly once.

mod backoff;
mod indexes;
mod plan;
mod policy;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use serde_json::json;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::consistency::Consistency;
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{claim_all, controller_of};
use crate::runtime::expectations::Expectations;
use crate::runtime::informer::Delta;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod_control::{PodControl, pod_from_template};
use crate::runtime::recorder::EventRecorder;
use crate::runtime::selector::Selector;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use backoff::Backoff;
use plan::{INDEX, INDEX_FAILURES, TRACKING};

const NAME: &str = "job-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-job-syncs`.
const WORKERS: usize = 5;
/// `spec.managedBy` of Jobs that are this controller's.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

struct JobController {
    api: ApiClient,
    pods: PodControl,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    expectations: Expectations,
    consistency: Consistency,
    /// By the Job's uid.
    backoffs: Mutex<HashMap<String, Backoff>>,
}

/// Starts the Job controller.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let recorder = context.recorder(&api, NAME);
    let controller = Arc::new(JobController {
        pods: PodControl { api: api.clone(), recorder: recorder.clone() },
        api,
        recorder,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        expectations: Expectations::default(),
        consistency: Consistency::default(),
        backoffs: Mutex::default(),
    });
    let watcher = Arc::clone(&controller);
    context.informers.jobs.on_change(move |delta| {
        let key = ObjectKey::of(delta.object().as_ref());
        if delta.is_deleted() {
            watcher.expectations.forget(&key);
            watcher.consistency.forget(&key);
            let uid = delta.object().metadata.uid.clone().unwrap_or_default();
            watcher.backoffs.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        }
        watcher.queue.add(key);
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| watcher.pod_changed(delta));
    context.run(&controller, WORKERS);
}

fn owner(pod: &Pod) -> Option<ObjectKey> {
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    Some(ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

impl JobController {
    fn pod_changed(&self, delta: Delta<'_, Pod>) {
        let pod = delta.object();
        if let Some(old_owner) = delta.old().and_then(|old| owner(old))
            && owner(pod).as_ref() != Some(&old_owner)
        {
            self.queue.add(old_owner);
        }
        if let Some(owner) = owner(pod) {
            if delta.is_deleted() || pod.metadata.deletion_timestamp.is_some() {
                self.expectations.deletion_observed(&owner, pod.metadata.uid.as_deref().unwrap_or_default());
            } else if matches!(delta, Delta::Added(_)) {
                self.expectations.creation_observed(&owner);
            }
            self.queue.add(owner);
        } else if controller_of(&pod.metadata).is_none() && !delta.is_deleted() {
            if plan::is_tracked(pod)
                && let Some(job) =
                    pod.metadata.labels.as_ref().and_then(|labels| labels.get("batch.kubernetes.io/job-name"))
            {
                self.queue.add(ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), job.clone()));
            }
            for job in self.informers.jobs.list_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
                let selector = selector(&job).filter(|selector| !selector.is_everything());
                if selector.is_some_and(|selector| selector.matches(pod.metadata.labels.as_ref())) {
                    self.queue.add(ObjectKey::of(job.as_ref()));
                }
            }
        }
    }

    /// Frees pods that wait to be counted by a Job that is gone. Upstream: job_controller.go v1.36.2 `syncOrphanPod`.
    async fn free_orphans(&self, key: &ObjectKey, job_uid: Option<&str>) -> Result<(), SyncError> {
        for pod in self.informers.pods.list_namespace(&key.namespace) {
            if !plan::is_tracked(&pod) {
                continue;
            }
            let labelled = pod.metadata.labels.as_ref().and_then(|labels| labels.get("batch.kubernetes.io/job-name"));
            let orphaned = match controller_of(&pod.metadata) {
                Some(owner) => owner.kind == "Job" && owner.name == key.name && Some(owner.uid.as_str()) != job_uid,
                None => labelled == Some(&key.name) && job_uid.is_none(),
            };
            if orphaned {
                self.release(&pod).await?;
            }
        }
        Ok(())
    }

    /// Takes the tracking finalizer off a pod.
    async fn release(&self, pod: &Pod) -> Result<(), SyncError> {
        let patch = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        match self.api.patch::<Pod>(&ObjectKey::of(pod), &patch).await {
            // Gone, or another object by now.
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    async fn create_pods(&self, key: &ObjectKey, job: &Job, create: &[Option<(i32, i32)>]) -> Result<(), SyncError> {
        self.expectations.expect_creations(key, create.len());
        let (mut done, mut batch) = (0, 1);
        while done < create.len() {
            let end = (done + batch).min(create.len());
            let work = create[done..end].iter().map(|index| async {
                let pod = new_pod(job, *index);
                self.pods.create(&pod, job).await
            });
            let results = join_all(work).await;
            batch *= 2;
            done = end;
            let mut failure = None;
            for error in results.into_iter().filter_map(Result::err) {
                self.expectations.creation_observed(key);
                if !error.is_namespace_terminating() {
                    failure = Some(error);
                }
            }
            if let Some(error) = failure {
                (done..create.len()).for_each(|_| self.expectations.creation_observed(key));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete_pods(&self, key: &ObjectKey, job: &Job, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        self.expectations.expect_deletions(key, pods.iter().map(|pod| uid(pod)));
        let work = pods.iter().map(|pod| async move {
            if plan::is_tracked(pod) && job.metadata.deletion_timestamp.is_some() {
                self.release(pod).await?;
            }
            self.pods.delete(&ObjectKey::of(pod.as_ref()), job).await.inspect_err(|_| {
                self.expectations.deletion_observed(key, &uid(pod));
            })
        });
        let results = join_all(work).await;
        results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found()).map_or(Ok(()), Err)
    }
}

fn selector(job: &Job) -> Option<Selector> {
    Selector::from_label_selector(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

/// A pod of `job`; with an index, the index and its earlier failures.
/// Upstream: job_controller.go v1.36.2 `manageJob`, indexed_job_utils.go `addCompletionIndexEnvVariables`.
fn new_pod(job: &Job, index: Option<(i32, i32)>) -> Pod {
    let spec = job.spec.clone().unwrap_or_default();
    let mut pod = pod_from_template(&spec.template, job);
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    if let Some((index, failures)) = index {
        let name = job.metadata.name.clone().unwrap_or_default();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX.to_owned(), index.to_string());
        if spec.backoff_limit_per_index.is_some() {
            annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
        }
        pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        pod.metadata.generate_name = Some(format!("{name}-{index}-"));
        if let Some(pod_spec) = pod.spec.as_mut() {
            pod_spec.hostname = Some(format!("{name}-{index}"));
            let containers = pod_spec.init_containers.iter_mut().flatten().chain(&mut pod_spec.containers);
            for container in containers {
                let env = container.env.get_or_insert_default();
                if !env.iter().any(|variable| variable.name == "JOB_COMPLETION_INDEX") {
                    env.push(index_variable());
                }
            }
        }
    }
    pod
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
    EnvVar {
        name: "JOB_COMPLETION_INDEX".to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    }
}

fn is_ours(spec: &JobSpec) -> bool {
    spec.managed_by.as_deref().is_none_or(|manager| manager == MANAGED_BY)
}

impl Reconcile for JobController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "Job"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let job = self.informers.jobs.get(key);
        let uid = job.as_ref().and_then(|job| job.metadata.uid.clone());
        self.free_orphans(key, uid.as_deref()).await?;
        let (Some(job), Some(uid)) = (job, uid) else { return Ok(()) };
        if !job.spec.as_ref().is_some_and(is_ours) {
            return Ok(());
        }
        // An older status does not have the pods that were counted since, and they would be counted or made again.
        if !self.consistency.is_current(key, job.as_ref()) {
            return Ok(());
        }
        // Before the pods are listed: one that is seen in between must not count as missing.
        let settled = self.expectations.satisfied(key);
        let candidates = self.informers.pods_for_owner(&key.namespace, &uid);
        if plan::is_finished(&job) {
            self.backoffs.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            for pod in candidates.iter().filter(|pod| plan::is_tracked(pod) && controller_of(&pod.metadata).is_some()) {
                self.release(pod).await?;
            }
            return Ok(());
        }
        let Some(selector) = selector(&job) else {
            return Err(SyncError::Unready(format!("Job {key} has a selector with an unknown operator")));
        };
        let pods = claim_all(&self.api, job.as_ref(), &selector, candidates, |_| true).await?;
        let plan = {
            let mut backoffs = self.backoffs.lock().unwrap_or_else(PoisonError::into_inner);
            plan::plan(&job, &pods, backoffs.entry(uid).or_default(), settled, Timestamp::now())
        };
        if let Some(after) = plan.again_after {
            self.queue.add_after(key.clone(), after);
        }
        if !plan.delete.is_empty() {
            self.delete_pods(key, &job, &plan.delete).await?;
        }
        if !plan.create.is_empty() {
            self.create_pods(key, &job, &plan.create).await?;
        }
        if job.status.as_ref() != Some(&plan.status) {
            let mut changed = job.as_ref().clone();
            changed.status = Some(plan.status);
            let written = self.api.update_status(&changed).await?;
            self.consistency.wrote(key, &written);
        }
        for (event_type, reason, message) in plan.events {
            self.recorder.event(job.as_ref(), event_type, &reason, message);
        }
        join_all(plan.release.iter().map(|pod| self.release(pod))).await.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
