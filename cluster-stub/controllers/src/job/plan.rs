//! One reconcile of a Job as a function: Job, pods and the time in, what to do out. Sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::runtime::pod;
use crate::runtime::recorder::{NORMAL, WARNING};

use super::backoff::Backoff;
use super::indexes;
use super::policy::{self, Failure};

/// Finalizer that keeps a finished pod until it is counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Label and annotation with a pod's completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with the failures of an index before this pod.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Most pods made or deleted in one reconcile. Upstream: job_controller.go v1.36.2 `MaxPodCreateDeletePerSync`.
const BURST: usize = 500;
/// Most pods that wait in the status to be counted. Upstream: job_controller.go v1.36.2 `MaxUncountedPods`.
const MAX_UNCOUNTED: usize = 500;

/// What one reconcile does, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Make these pods: the index and the earlier failures of it, where there are indexes.
    pub(super) create: Vec<Option<(i32, i32)>>,
    /// Delete these.
    pub(super) delete: Vec<Arc<Pod>>,
    /// The new status.
    pub(super) status: JobStatus,
    /// Then take the finalizer off these.
    pub(super) release: Vec<Arc<Pod>>,
    /// And tell this.
    pub(super) events: Vec<(&'static str, String, String)>,
    /// Reconcile again after this long.
    pub(super) again_after: Option<Duration>,
}

/// Plans a reconcile of `job`. `settled` says that all earlier creates and deletes were seen.
/// Upstream: job_controller.go v1.36.2 `syncJob`.
pub(super) fn plan(job: &Job, pods: &[Arc<Pod>], backoff: &mut Backoff, settled: bool, now: Timestamp) -> Plan {
    let spec = job.spec.clone().unwrap_or_default();
    let mut planner = Planner {
        job,
        spec: &spec,
        pods,
        now,
        plan: Plan { status: job.status.clone().unwrap_or_default(), ..Plan::default() },
    };
    planner.reconcile(backoff, settled);
    planner.plan
}

/// Whether a condition that ends the Job is there.
pub(super) fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| (it.type_ == "Complete" || it.type_ == "Failed") && it.status == "True")
}

/// Whether every completion has an index of its own.
pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// The completion index of `pod`.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// Whether `pod` still waits to be counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

struct Planner<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    pods: &'a [Arc<Pod>],
    now: Timestamp,
    plan: Plan,
}

impl Planner<'_> {
    fn reconcile(&mut self, backoff: &mut Backoff, settled: bool) {
        let suspended = self.spec.suspend == Some(true);
        if self.plan.status.start_time.is_none() && !suspended {
            self.plan.status.start_time = Some(Time(self.now));
        }
        let ended: Vec<(&Pod, bool)> = self
            .pods
            .iter()
            .filter(|pod| pod::phase(pod) == "Succeeded" || self.is_failed(pod))
            .map(|pod| (pod.as_ref(), pod::phase(pod) != "Succeeded"))
            .collect();
        let known = job_uids(&self.plan.status);
        let new: Vec<(&Pod, bool)> = ended
            .iter()
            .copied()
            .filter(|(pod, failed)| {
                is_tracked(pod)
                    && !known.contains(pod.metadata.uid.as_deref().unwrap_or_default())
                    && !(*failed && policy::failure(self.spec, pod) == Failure::Ignored)
            })
            .collect();
        backoff.note(&new);
        let ignored = |pod: &Pod| policy::failure(self.spec, pod) == Failure::Ignored;
        let uncounted = self.plan.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let count = |list: &Option<Vec<String>>| number(list.as_ref().map_or(0, Vec::len));
        let new_failed = new.iter().filter(|(pod, failed)| *failed && !ignored(pod)).count();
        let new_succeeded = new.iter().filter(|(_, failed)| !failed).count();
        let failed = self.plan.status.failed.unwrap_or_default() + count(&uncounted.failed) + number(new_failed);
        let done = self.done_indexes();
        let failed_indexes = self.failed_indexes(&done);
        let succeeded = if is_indexed(self.spec) {
            number(done.len())
        } else {
            self.plan.status.succeeded.unwrap_or_default() + count(&uncounted.succeeded) + number(new_succeeded)
        };
        let mut active: Vec<Arc<Pod>> = self.pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect();
        let mut terminating = self.pods.iter().filter(|pod| pod::is_terminating(pod)).count();

        let verdict = self.verdict(failed, &done, failed_indexes.as_ref());
        let mut finishing = verdict.clone();
        if verdict.is_some() {
            if settled {
                terminating += active.len();
                self.plan.delete = std::mem::take(&mut active);
            } else {
                finishing = None;
            }
        } else {
            if settled && self.job.metadata.deletion_timestamp.is_none() {
                self.manage(
                    suspended,
                    succeeded,
                    &done,
                    failed_indexes.as_ref(),
                    &mut active,
                    &mut terminating,
                    backoff,
                );
            }
            let created = number(self.plan.create.len());
            let alive = number(active.len()) + created;
            let complete = match self.spec.completions {
                Some(completions) => succeeded >= completions && alive == 0,
                None => succeeded > 0 && alive == 0,
            };
            if complete && !(suspended && self.spec.completions != Some(0) && succeeded == 0) {
                let message = "Reached expected number of succeeded pods".to_owned();
                finishing = Some(self.condition("SuccessCriteriaMet", "CompletionsReached", message));
            } else if settled {
                self.note_suspension(suspended);
            }
        }
        let ready = active.iter().filter(|pod| pod::is_ready(pod)).count();
        self.count_ended(finishing.as_ref(), &done, failed_indexes);
        let created = self.plan.create.len();
        let status = &mut self.plan.status;
        status.active = Some(number(active.len() + created)).filter(|active| *active > 0);
        status.ready = Some(number(ready));
        status.terminating = Some(number(terminating));
        if let Some(condition) = finishing {
            self.finish(condition, active.len() + terminating == 0);
        }
    }

    fn condition(&self, kind: &str, reason: &str, message: String) -> JobCondition {
        JobCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        }
    }

    /// Upstream: job_controller.go v1.36.2 `isPodFailed`.
    fn is_failed(&self, pod: &Pod) -> bool {
        if pod::phase(pod) == "Failed" {
            return true;
        }
        let only_failed =
            self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some();
        !only_failed && pod.metadata.deletion_timestamp.is_some() && pod::phase(pod) != "Succeeded"
    }

    fn done_indexes(&self) -> BTreeSet<i32> {
        let completions = self.spec.completions.unwrap_or_default();
        let mut done = indexes::parse(self.plan.status.completed_indexes.as_deref().unwrap_or_default(), completions);
        if is_indexed(self.spec) {
            let succeeded = self.pods.iter().filter(|pod| pod::phase(pod) == "Succeeded" && is_tracked(pod));
            done.extend(succeeded.filter_map(|pod| index_of(pod)).filter(|index| *index < completions));
        }
        done
    }

    /// Earlier failures per index; used with a limit per index only.
    fn index_failures(&self) -> BTreeMap<i32, i32> {
        let mut failures = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| self.is_failed(pod)) {
            let Some(index) = index_of(pod) else { continue };
            let before = pod.metadata.annotations.as_ref().and_then(|map| map.get(INDEX_FAILURES)?.parse::<i32>().ok());
            let counts = i32::from(policy::failure(self.spec, pod) != Failure::Ignored);
            let total = before.unwrap_or_default() + counts;
            failures.entry(index).and_modify(|most: &mut i32| *most = (*most).max(total)).or_insert(total);
        }
        failures
    }

    /// `None` without a limit per index.
    fn failed_indexes(&self, done: &BTreeSet<i32>) -> Option<BTreeSet<i32>> {
        let limit = self.spec.backoff_limit_per_index?;
        let completions = self.spec.completions.unwrap_or_default();
        let mut failed = indexes::parse(self.plan.status.failed_indexes.as_deref().unwrap_or_default(), completions);
        failed.extend(
            self.index_failures().into_iter().filter(|(_, failures)| *failures > limit).map(|(index, _)| index),
        );
        let by_policy = self
            .pods
            .iter()
            .filter(|pod| self.is_failed(pod) && policy::failure(self.spec, pod) == Failure::FailsIndex);
        failed.extend(by_policy.filter_map(|pod| index_of(pod)));
        failed.retain(|index| !done.contains(index) && *index < completions);
        Some(failed)
    }

    /// Why the Job ends now, if it does.
    fn verdict(
        &mut self,
        failed: i32,
        done: &BTreeSet<i32>,
        failed_indexes: Option<&BTreeSet<i32>>,
    ) -> Option<JobCondition> {
        let conditions = self.plan.status.conditions.iter().flatten();
        let earlier = conditions
            .clone()
            .find(|it| (it.type_ == "SuccessCriteriaMet" || it.type_ == "FailureTarget") && it.status == "True");
        if let Some(earlier) = earlier {
            return Some(earlier.clone());
        }
        let by_policy =
            self.pods.iter().filter(|pod| self.is_failed(pod)).find_map(|pod| match policy::failure(self.spec, pod) {
                Failure::FailsJob(message) => Some(message),
                _ => None,
            });
        if let Some(message) = by_policy {
            return Some(self.condition("FailureTarget", "PodFailurePolicy", message));
        }
        let fails = |planner: &Self, reason: &str, message: &str| {
            Some(planner.condition("FailureTarget", reason, message.to_owned()))
        };
        if failed > self.spec.backoff_limit.unwrap_or(6) || self.past_limit_on_failure() {
            return fails(self, "BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if let (Some(limit), Some(start), false) =
            (self.spec.active_deadline_seconds, &self.plan.status.start_time, self.spec.suspend == Some(true))
        {
            let left = jiff::SignedDuration::from_secs(limit) - self.now.duration_since(start.0);
            match Duration::try_from(left) {
                Ok(left) if !left.is_zero() => self.again(left),
                _ => return fails(self, "DeadlineExceeded", "Job was active longer than specified deadline"),
            }
        }
        if let Some(failed_indexes) = failed_indexes {
            let total = usize::try_from(self.spec.completions.unwrap_or_default()).unwrap_or_default();
            let most = self.spec.max_failed_indexes.and_then(|most| usize::try_from(most).ok());
            if most.is_some_and(|most| failed_indexes.len() > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return fails(self, "MaxFailedIndexesExceeded", message);
            }
            if !failed_indexes.is_empty() && failed_indexes.len() + done.len() >= total {
                return fails(self, "FailedIndexes", "Job has failed indexes");
            }
        }
        policy::success(self.spec, done).map(|message| self.condition("SuccessCriteriaMet", "SuccessPolicy", message))
    }

    /// Restarts inside the pods count when they restart themselves.
    /// Upstream: job_controller.go v1.36.2 `pastBackoffLimitOnFailure`.
    fn past_limit_on_failure(&self) -> bool {
        let on_failure =
            self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
        if !on_failure {
            return false;
        }
        let alive = self.pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
        let restarts: i32 = alive
            .flat_map(|pod| pod.status.iter())
            .flat_map(|status| {
                status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
            })
            .map(|container| container.restart_count)
            .sum();
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn again(&mut self, after: Duration) {
        self.plan.again_after = Some(self.plan.again_after.map_or(after, |earlier| earlier.min(after)));
    }

    /// Makes and deletes pods. Upstream: job_controller.go v1.36.2 `manageJob`.
    #[expect(clippy::too_many_arguments, reason = "the numbers of one reconcile, used here only")]
    fn manage(
        &mut self,
        suspended: bool,
        succeeded: i32,
        done: &BTreeSet<i32>,
        failed_indexes: Option<&BTreeSet<i32>>,
        active: &mut Vec<Arc<Pod>>,
        terminating: &mut usize,
        backoff: &Backoff,
    ) {
        if suspended {
            *terminating += active.len();
            self.plan.delete = std::mem::take(active);
            return;
        }
        let parallelism = self.spec.parallelism.unwrap_or(1);
        let want = match self.spec.completions {
            None if succeeded > 0 => number(active.len()),
            None => parallelism,
            Some(completions) => {
                (completions - succeeded - number(failed_indexes.map_or(0, BTreeSet::len))).min(parallelism).max(0)
            }
        };
        let want = usize::try_from(want).unwrap_or_default();
        // Of two pods with one index the one that is further goes on.
        active.sort_by(|a, b| pod::deletion_order((b, 1), (a, 1), self.now));
        let mut seen = BTreeSet::new();
        let completions = self.spec.completions.unwrap_or_default();
        let (keep, mut gone): (Vec<_>, Vec<_>) = std::mem::take(active).into_iter().partition(|pod| {
            !is_indexed(self.spec)
                || index_of(pod)
                    .is_some_and(|index| index < completions && !done.contains(&index) && seen.insert(index))
        });
        *active = keep;
        if active.len() > want {
            gone.extend(active.split_off(want));
        }
        gone.truncate(BURST);
        *terminating += gone.len();
        self.plan.delete = gone;
        let mut missing = want.saturating_sub(active.len());
        if self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some() {
            missing = missing.saturating_sub(*terminating);
        }
        if missing == 0 || !self.plan.delete.is_empty() {
            return;
        }
        if self.spec.backoff_limit_per_index.is_none() {
            let wait = backoff.wait(self.now);
            if !wait.is_zero() {
                return self.again(wait);
            }
        }
        missing = missing.min(BURST);
        if is_indexed(self.spec) {
            let taken: BTreeSet<i32> = active.iter().filter_map(|pod| index_of(pod)).collect();
            let failures = self.index_failures();
            let free = (0..completions).filter(|index| {
                !done.contains(index)
                    && !taken.contains(index)
                    && !failed_indexes.is_some_and(|failed| failed.contains(index))
            });
            self.plan.create = free
                .take(missing)
                .map(|index| Some((index, failures.get(&index).copied().unwrap_or_default())))
                .collect();
        } else {
            self.plan.create = vec![None; missing];
        }
    }

    /// Upstream: job_controller.go v1.36.2 `ensureJobConditionStatus` for Suspended.
    fn note_suspension(&mut self, suspended: bool) {
        let conditions = self.plan.status.conditions.get_or_insert_default();
        let current = conditions.iter_mut().find(|condition| condition.type_ == "Suspended");
        let is_suspended = current.as_ref().is_some_and(|condition| condition.status == "True");
        if is_suspended == suspended {
            if conditions.is_empty() {
                self.plan.status.conditions = None;
            }
            return;
        }
        let (status, reason, event, message) = if suspended {
            ("True", "JobSuspended", "Suspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Resumed", "Job resumed")
        };
        let new = JobCondition {
            status: status.to_owned(),
            ..JobCondition {
                type_: "Suspended".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_probe_time: Some(Time(self.now)),
                last_transition_time: Some(Time(self.now)),
                ..JobCondition::default()
            }
        };
        match current {
            Some(current) => *current = new,
            None => conditions.push(new),
        }
        self.plan.events.push((NORMAL, event.to_owned(), message.to_owned()));
        self.plan.status.start_time = (!suspended).then_some(Time(self.now));
    }

    /// Moves ended pods through the status into the counters: first their uids are written down, then their finalizer is
    /// taken off, then they are counted. Whatever fails in between, none is lost and none counted twice.
    /// Upstream: job_controller.go v1.36.2 `trackJobStatusAndRemoveFinalizers`.
    fn count_ended(
        &mut self,
        finishing: Option<&JobCondition>,
        done: &BTreeSet<i32>,
        failed_indexes: Option<BTreeSet<i32>>,
    ) {
        let indexed = is_indexed(self.spec);
        let tracked: BTreeSet<&str> =
            self.pods.iter().filter(|pod| is_tracked(pod)).filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        let mut uncounted = self.plan.status.uncounted_terminated_pods.take().unwrap_or_default();
        let flush = |list: &mut Option<Vec<String>>| {
            let uids = list.take().unwrap_or_default();
            let (waiting, counted): (Vec<String>, Vec<String>) =
                uids.into_iter().partition(|uid| tracked.contains(uid.as_str()));
            *list = Some(waiting).filter(|waiting| !waiting.is_empty());
            number(counted.len())
        };
        let (succeeded, failed) = (flush(&mut uncounted.succeeded), flush(&mut uncounted.failed));
        let add = |counter: &mut Option<i32>, count: i32| {
            let total = counter.unwrap_or_default() + count;
            *counter = Some(total).filter(|total| *total > 0);
        };
        if !indexed {
            add(&mut self.plan.status.succeeded, succeeded);
        }
        add(&mut self.plan.status.failed, failed);
        let completions = self.spec.completions.unwrap_or_default();
        let failing = finishing.is_some_and(|condition| condition.type_ == "FailureTarget");
        for pod in self.pods.iter().filter(|pod| is_tracked(pod)) {
            let considered_failed = self.is_failed(pod);
            let releasable = self.job.metadata.deletion_timestamp.is_some()
                || finishing.is_some()
                || pod::phase(pod) == "Succeeded"
                || considered_failed;
            if !releasable {
                continue;
            }
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let size = uncounted.succeeded.as_ref().map_or(0, Vec::len) + uncounted.failed.as_ref().map_or(0, Vec::len);
            if size >= MAX_UNCOUNTED {
                break;
            }
            self.plan.release.push(Arc::clone(pod));
            let valid_index = !indexed || index_of(pod).is_some_and(|index| index < completions);
            if pod::phase(pod) == "Succeeded" {
                if !indexed {
                    insert(&mut uncounted, uid, true);
                }
            } else if (considered_failed || failing)
                && valid_index
                && policy::failure(self.spec, pod) != Failure::Ignored
            {
                insert(&mut uncounted, uid, false);
            }
        }
        let status = &mut self.plan.status;
        if indexed {
            status.succeeded = Some(number(done.len())).filter(|count| *count > 0);
            status.completed_indexes = Some(indexes::format(done)).filter(|text| !text.is_empty());
            status.failed_indexes = failed_indexes.map(|failed| indexes::format(&failed));
        }
        status.uncounted_terminated_pods = Some(uncounted);
    }

    /// Writes the condition that announces the end, and the one that is the end once nothing is left to count.
    /// Upstream: job_controller.go v1.36.2 `enactJobFinished`.
    fn finish(&mut self, condition: JobCondition, nothing_runs: bool) {
        let all_counted = self.plan.status.uncounted_terminated_pods == Some(UncountedTerminatedPods::default());
        let nothing_to_release = self.plan.release.is_empty();
        let conditions = self.plan.status.conditions.get_or_insert_default();
        if !conditions.iter().any(|known| known.type_ == condition.type_) {
            conditions.push(condition.clone());
        }
        if !(all_counted && nothing_to_release && nothing_runs) {
            return;
        }
        let succeeded = condition.type_ == "SuccessCriteriaMet";
        let (reason, message) = (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
        let end = JobCondition {
            type_: if succeeded { "Complete" } else { "Failed" }.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.clone()),
            message: Some(message.clone()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        };
        conditions.push(end);
        if succeeded {
            self.plan.status.completion_time = Some(Time(self.now));
            if self
                .spec
                .completions
                .is_some_and(|completions| self.plan.status.succeeded.unwrap_or_default() > completions)
            {
                let message = "Too many succeeded pods running after completion count reached".to_owned();
                self.plan.events.push((WARNING, "TooManySucceededPods".to_owned(), message));
            }
            self.plan.events.push((NORMAL, "Completed".to_owned(), "Job completed".to_owned()));
        } else {
            self.plan.events.push((WARNING, reason, message));
        }
    }
}

fn insert(uncounted: &mut UncountedTerminatedPods, uid: String, succeeded: bool) {
    let known = |list: &Option<Vec<String>>| list.iter().flatten().any(|known| *known == uid);
    if known(&uncounted.succeeded) || known(&uncounted.failed) {
        return;
    }
    let list = if succeeded { &mut uncounted.succeeded } else { &mut uncounted.failed };
    list.get_or_insert_default().push(uid);
}

fn job_uids(status: &JobStatus) -> BTreeSet<String> {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    uncounted.succeeded.into_iter().chain(uncounted.failed).flatten().collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
