//! Jobs from their first pod to their last condition, on a cluster made of values.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::runtime::pod::tests::at;

use super::backoff::Backoff;
use super::plan::{Plan, TRACKING, is_finished, plan};

struct World {
    job: Job,
    pods: Vec<Arc<Pod>>,
    backoff: Backoff,
    made: usize,
    events: Vec<String>,
}

impl World {
    fn new(spec: JobSpec) -> Self {
        let mut job = Job { spec: Some(spec), ..Job::default() };
        job.metadata.name = Some("j".to_owned());
        Self { job, pods: Vec::new(), backoff: Backoff::default(), made: 0, events: Vec::new() }
    }

    /// One reconcile, carried out in full.
    fn step(&mut self, now: Timestamp) -> Plan {
        if is_finished(&self.job) {
            return Plan::default();
        }
        let plan = plan(&self.job, &self.pods, &mut self.backoff, true, now);
        for index in &plan.create {
            let mut pod = super::new_pod(&self.job, *index);
            pod.metadata.uid = Some(format!("p{}", self.made));
            pod.metadata.name = pod.metadata.uid.clone();
            pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
            self.made += 1;
            self.pods.push(Arc::new(pod));
        }
        for gone in &plan.delete {
            self.pods.retain(|pod| pod.metadata.uid != gone.metadata.uid);
        }
        self.job.status = Some(plan.status.clone());
        for freed in &plan.release {
            for pod in self.pods.iter_mut().filter(|pod| pod.metadata.uid == freed.metadata.uid) {
                Arc::make_mut(pod).metadata.finalizers = None;
            }
        }
        self.events.extend(plan.events.iter().map(|(_, reason, _)| reason.clone()));
        plan
    }

    fn settle(&mut self, now: Timestamp) {
        for _ in 0..6 {
            self.step(now);
        }
    }

    fn end(&mut self, phase: &str) {
        for pod in &mut self.pods {
            if crate::runtime::pod::is_active(pod) {
                Arc::make_mut(pod).status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
            }
        }
    }

    fn conditions(&self) -> Vec<String> {
        let conditions = self.job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.map(|it| format!("{}={} {}", it.type_, it.status, it.reason.clone().unwrap_or_default())).collect()
    }
}

fn spec(completions: Option<i32>, parallelism: i32) -> JobSpec {
    JobSpec { completions, parallelism: Some(parallelism), backoff_limit: Some(6), ..JobSpec::default() }
}

#[test]
fn a_job_runs_counts_and_completes() {
    let mut world = World::new(spec(Some(3), 2));
    world.step(at(0));
    assert_eq!(world.pods.len(), 2);
    assert!(world.pods[0].metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING));
    world.end("Succeeded");
    world.settle(at(1));
    assert_eq!((world.pods.len(), is_finished(&world.job)), (3, false));
    world.end("Succeeded");
    world.settle(at(2));
    assert_eq!(world.conditions(), ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]);
    let status = world.job.status.clone().unwrap_or_default();
    assert_eq!((status.succeeded, status.active, status.ready, status.terminating), (Some(3), None, Some(0), Some(0)));
    assert_eq!(world.events, ["Completed"]);
}

#[test]
fn a_failing_job_backs_off_and_gives_up() {
    let mut world = World::new(JobSpec { backoff_limit: Some(1), ..spec(Some(1), 1) });
    world.step(at(0));
    world.end("Failed");
    let waits = world.step(at(1));
    assert!(waits.create.is_empty() && waits.again_after.is_some());
    world.settle(at(5));
    assert_eq!(world.pods.len(), 1, "10 s are not over");
    world.settle(at(11));
    assert_eq!(world.pods.len(), 2);
    world.end("Failed");
    world.settle(at(12));
    assert_eq!(world.conditions(), ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]);
    assert_eq!(world.job.status.clone().unwrap_or_default().failed, Some(2));
    assert_eq!(world.events, ["BackoffLimitExceeded"]);
}

#[test]
fn a_deadline_ends_a_running_job() {
    let mut world = World::new(JobSpec { active_deadline_seconds: Some(2), ..spec(Some(1), 1) });
    let first = world.step(at(0));
    assert_eq!(first.again_after, Some(std::time::Duration::from_secs(2)));
    world.settle(at(2));
    assert_eq!(world.conditions(), ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"]);
    assert!(world.pods.is_empty());
}

#[test]
fn a_suspended_job_has_no_pods_and_starts_anew_when_resumed() {
    let mut world = World::new(JobSpec { suspend: Some(true), ..spec(Some(1), 1) });
    world.settle(at(0));
    assert_eq!((world.pods.len(), world.conditions()), (0, vec!["Suspended=True JobSuspended".to_owned()]));
    world.job.spec.as_mut().expect("made with a spec").suspend = Some(false);
    world.settle(at(5));
    assert_eq!((world.pods.len(), world.conditions()), (1, vec!["Suspended=False JobResumed".to_owned()]));
    assert_eq!(world.events, ["Suspended", "Resumed"]);
}

#[test]
fn an_indexed_job_gives_every_index_one_success() {
    let mut world = World::new(JobSpec { completion_mode: Some("Indexed".to_owned()), ..spec(Some(4), 2) });
    world.step(at(0));
    world.end("Succeeded");
    world.settle(at(1));
    assert_eq!(world.job.status.clone().unwrap_or_default().completed_indexes.as_deref(), Some("0,1"));
    world.end("Succeeded");
    world.settle(at(2));
    assert_eq!(world.job.status.clone().unwrap_or_default().completed_indexes.as_deref(), Some("0-3"));
    assert!(is_finished(&world.job));
}

#[test]
fn an_index_that_fails_too_often_fails_alone() {
    let mut world = World::new(JobSpec {
        completion_mode: Some("Indexed".to_owned()),
        backoff_limit_per_index: Some(0),
        backoff_limit: Some(i32::MAX),
        ..spec(Some(2), 1)
    });
    world.step(at(0));
    world.end("Failed");
    world.settle(at(1));
    assert_eq!(world.job.status.clone().unwrap_or_default().failed_indexes.as_deref(), Some("0"));
    world.end("Succeeded");
    world.settle(at(2));
    assert_eq!(world.conditions(), ["FailureTarget=True FailedIndexes", "Failed=True FailedIndexes"]);
}
