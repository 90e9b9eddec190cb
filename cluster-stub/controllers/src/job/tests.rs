//! Jobs from their first pod to their last condition, on a cluster made of values.

use k8s_openapi::api::core::v1::PodStatus;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::runtime::pod::tests::at;

use super::plan::{Plan, is_finished, plan};
use super::*;

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

/// A controller whose API server answers every write with what it was sent, at version 11; and the writes it got.
fn controller() -> (JobController, Arc<Mutex<Vec<String>>>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&writes);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            log.lock().expect("no panic").push(format!("{} {}", request.method(), request.uri().path()));
            let body = request.into_body().collect_bytes().await?;
            let mut object: Value = serde_json::from_slice(&body)?;
            object["metadata"]["resourceVersion"] = json!("11");
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(http::Response::new(Body::from(
                object.to_string().into_bytes(),
            )))
        }
    });
    let api = ApiClient::new(kube::Client::new(service, "default"), NAME);
    let (recorder, _) = EventRecorder::new(api.clone(), NAME, CancellationToken::new());
    let controller = JobController {
        pods: PodControl { api: api.clone(), recorder: recorder.clone() },
        api,
        recorder,
        informers: Informers::new(),
        queue: WorkQueue::default(),
        expectations: Expectations::default(),
        consistency: Consistency::default(),
        backoffs: Mutex::default(),
    };
    (controller, writes)
}

#[tokio::test]
async fn a_job_whose_status_comes_back_late_makes_no_second_pod() {
    let (controller, writes) = controller();
    let job: Job = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "j", "uid": "job", "resourceVersion": "10"},
        "spec": {"completions": 1, "parallelism": 1, "selector": {"matchLabels": {"job": "j"}}, "template": {}},
    }))
    .expect("a job");
    let pod = |finalizers: Value| -> Arc<Pod> {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true});
        let pod = serde_json::from_value(json!({
            "metadata": {
                "namespace": "default", "name": "j-1", "uid": "p", "labels": {"job": "j"},
                "ownerReferences": [owner], "finalizers": finalizers,
            },
            "status": {"phase": "Succeeded"},
        }));
        Arc::new(pod.expect("a pod"))
    };
    let key = ObjectKey::new("default", "j");
    let informers = &controller.informers;
    informers.jobs.put(&Arc::new(job.clone()));
    informers.pods.put(&pod(json!([TRACKING])));
    controller.reconcile(&key).await.expect("the pod is counted");
    let counted = ["PUT /apis/batch/v1/namespaces/default/jobs/j/status", "PATCH /api/v1/namespaces/default/pods/j-1"];
    assert_eq!(std::mem::take(&mut *writes.lock().expect("no panic")), counted);

    // The pod's release is seen before the status in which it is counted.
    informers.pods.put(&pod(json!([])));
    controller.reconcile(&key).await.expect("it waits");
    assert_eq!(*writes.lock().expect("no panic"), [""; 0]);
}
