//! The CronJob controller: makes Jobs when their time comes, and clears up after them.

mod schedule;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::DeleteParams;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::{controller_of, is_controlled_by, new_controller_ref};
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING, reference};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use schedule::Schedule;

const NAME: &str = "cronjob-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-cron-job-syncs`.
const WORKERS: usize = 5;
/// Annotation of a Job with the time that it was due.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct CronJobController {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the CronJob controller.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(CronJobController {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.cron_jobs.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    let queue = controller.queue.clone();
    context.informers.jobs.on_change(move |delta| {
        let meta = &delta.object().metadata;
        if let Some(owner) = controller_of(meta).filter(|owner| owner.kind == "CronJob") {
            queue.add(ObjectKey::new(meta.namespace.clone().unwrap_or_default(), owner.name.clone()));
        }
    });
    context.run(&controller, WORKERS);
}

/// `Complete` or `Failed` of a Job that ended.
fn ended(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let end = conditions.iter().find(|it| (it.type_ == "Complete" || it.type_ == "Failed") && it.status == "True")?;
    Some(end.type_.as_str())
}

/// When a CronJob is due. Upstream: cronjob/utils.go v1.36.2 `nextScheduleTime`.
fn due(
    cron_job: &CronJob,
    spec: &CronJobSpec,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) -> (Option<Timestamp>, usize) {
    let status = cron_job.status.as_ref();
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut earliest = status.and_then(|status| status.last_schedule_time.as_ref()).map_or(created, |time| time.0);
    if let Some(deadline) = spec.starting_deadline_seconds {
        earliest = earliest.max(now - SignedDuration::from_secs(deadline));
    }
    schedule.last(earliest, now, zone)
}

/// The Job of `cron_job` that was due at `at`. Upstream: cronjob/utils.go v1.36.2 `getJobFromTemplate2`.
fn job_at(cron_job: &CronJob, spec: &CronJobSpec, at: Timestamp, zone: &TimeZone) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    let local = at.to_zoned(zone.clone());
    let text = if zone == &TimeZone::UTC {
        local.strftime("%Y-%m-%dT%H:%M:%SZ")
    } else {
        local.strftime("%Y-%m-%dT%H:%M:%S%:z")
    };
    annotations.insert(SCHEDULED_AT.to_owned(), text.to_string());
    let name = cron_job.metadata.name.as_deref().unwrap_or_default();
    Job {
        metadata: ObjectMeta {
            // The minute is part of the name, so that one firing can never become two Jobs.
            name: Some(format!("{name}-{}", at.as_second() / 60)),
            namespace: cron_job.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![new_controller_ref(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

impl CronJobController {
    /// Brings status.active in line with the Jobs. What the watches have not brought yet is asked for.
    /// Upstream: cronjob_controllerv2.go v1.36.2 `syncCronJob`, first part.
    async fn note_jobs(&self, key: &ObjectKey, cron_job: &mut CronJob, jobs: &[Arc<Job>]) -> Result<(), SyncError> {
        let reported = cron_job.clone();
        let lists = |cron_job: &CronJob, job: &Job| {
            let active = cron_job.status.as_ref().and_then(|status| status.active.as_ref());
            active.into_iter().flatten().any(|reference| reference.uid == job.metadata.uid)
        };
        for job in jobs {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            match ended(job) {
                None if !lists(cron_job, job) => {
                    let current: Option<CronJob> = self.api.get(key).await?;
                    if let Some(current) = current.filter(|current| lists(current, job)) {
                        *cron_job = current;
                        continue;
                    }
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.recorder.event(&reported, WARNING, "UnexpectedJob", message);
                }
                None => {}
                Some(condition) => {
                    let was_listed = lists(cron_job, job);
                    let status = cron_job.status.get_or_insert_default();
                    if was_listed {
                        status.active.iter_mut().for_each(|active| active.retain(|r| r.uid != job.metadata.uid));
                        let message = format!("Saw completed job: {name}, condition: {condition}");
                        self.recorder.event(&reported, NORMAL, "SawCompletedJob", message);
                    }
                    let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                    if condition == "Complete" && completed > status.last_successful_time {
                        status.last_successful_time = completed;
                    }
                }
            }
        }
        let status = cron_job.status.get_or_insert_default();
        let mut there = Vec::new();
        for reference in status.active.take().unwrap_or_default() {
            let known = jobs.iter().any(|job| job.metadata.uid == reference.uid);
            let name = reference.name.clone().unwrap_or_default();
            if known || self.has_job(key, &name, reference.uid.as_deref()).await? {
                there.push(reference);
            } else {
                let message = format!("Active job went missing: {name}");
                self.recorder.event(&reported, NORMAL, "MissingJob", message);
            }
        }
        status.active = (!there.is_empty()).then_some(there);
        Ok(())
    }

    async fn has_job(&self, key: &ObjectKey, name: &str, uid: Option<&str>) -> Result<bool, SyncError> {
        let job: Option<Job> = self.api.get(&ObjectKey { namespace: key.namespace.clone(), name: name.into() }).await?;
        Ok(job.is_some_and(|job| job.metadata.uid.as_deref() == uid))
    }

    /// Makes the Job that is due, if any; answers how long to wait for the next.
    async fn fire(
        &self,
        key: &ObjectKey,
        cron_job: &mut CronJob,
        jobs: &[Arc<Job>],
    ) -> Result<Option<Duration>, SyncError> {
        let spec = cron_job.spec.clone();
        let now = Timestamp::now();
        let (schedule, prefix) = match schedule::parse(&spec.schedule) {
            Ok(parsed) => parsed,
            Err(why) => {
                let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
                self.recorder.event(cron_job, WARNING, "UnparseableSchedule", message);
                return Ok(None);
            }
        };
        let zone = match spec.time_zone.as_ref().or(prefix.as_ref()) {
            None => TimeZone::UTC,
            Some(name) => match TimeZone::get(name) {
                Ok(zone) => zone,
                Err(why) => {
                    let message = format!("invalid timeZone: {name:?}: {why}");
                    self.recorder.event(cron_job, WARNING, "UnknownTimeZone", message);
                    return Ok(None);
                }
            },
        };
        let wait = |schedule: &Schedule| {
            let next = schedule.next(now, &zone)?;
            // A little later, so that the clock has surely passed the minute.
            Duration::try_from(next.duration_since(now)).ok().map(|wait| wait + Duration::from_millis(100))
        };
        let (due, missed) = due(cron_job, &spec, &schedule, &zone, now);
        if missed > 100 {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.recorder.event(cron_job, WARNING, "TooManyMissedTimes", message.to_owned());
        }
        let Some(at) = due else { return Ok(wait(&schedule)) };
        let job = job_at(cron_job, &spec, at, &zone);
        let active = cron_job.status.as_ref().and_then(|status| status.active.clone()).unwrap_or_default();
        let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        if active.iter().any(|reference| reference.name == job.metadata.name) || last.is_some_and(|last| last.0 == at) {
            return Ok(wait(&schedule));
        }
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.recorder.event(cron_job, NORMAL, "JobAlreadyActive", message.to_owned());
                return Ok(wait(&schedule));
            }
            Some("Replace") => {
                for running in
                    jobs.iter().filter(|job| active.iter().any(|reference| reference.uid == job.metadata.uid))
                {
                    self.delete_job(cron_job, running).await?;
                }
                cron_job.status.get_or_insert_default().active = None;
            }
            _ => {}
        }
        let created = match self.api.create(&job).await {
            Ok(created) => {
                let message = format!("Created job {}", created.metadata.name.as_deref().unwrap_or_default());
                self.recorder.event(cron_job, NORMAL, "SuccessfulCreate", message);
                created
            }
            Err(error) if error.is_already_exists() => {
                let existing: Option<Job> = self.api.get(&ObjectKey::of(&job)).await?;
                match existing.filter(|existing| is_controlled_by(&existing.metadata, cron_job)) {
                    Some(existing) => existing,
                    None => return Ok(wait(&schedule)),
                }
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.recorder.event(
                        cron_job,
                        WARNING,
                        "FailedCreate",
                        format!("Error creating job: {}", error.message()),
                    );
                }
                return Err(error);
            }
        };
        tracing::debug!(%key, %at, "job started");
        let status = cron_job.status.get_or_insert_default();
        let reference: ObjectReference = reference(&created);
        status.active.get_or_insert_default().push(reference);
        status.last_schedule_time = Some(Time(at));
        Ok(wait(&schedule))
    }

    async fn delete_job(&self, cron_job: &CronJob, job: &Job) -> Result<(), SyncError> {
        match self.api.delete::<Job>(&ObjectKey::of(job), &DeleteParams::background()).await {
            Err(error) if !error.is_not_found() => {
                self.recorder.event(cron_job, WARNING, "FailedDelete", format!("Deleted job: {}", error.message()));
                Err(error)
            }
            _ => {
                let message = format!("Deleted job {}", job.metadata.name.as_deref().unwrap_or_default());
                self.recorder.event(cron_job, NORMAL, "SuccessfulDelete", message);
                Ok(())
            }
        }
    }

    /// Deletes the oldest ended Jobs beyond the limits. Upstream: cronjob_controllerv2.go v1.36.2 `cleanupFinishedJobs`.
    async fn clean_up(&self, cron_job: &CronJob, jobs: &[Arc<Job>]) -> Result<(), SyncError> {
        let spec = &cron_job.spec;
        for (end, limit) in
            [("Failed", spec.failed_jobs_history_limit), ("Complete", spec.successful_jobs_history_limit)]
        {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let mut old: Vec<&Arc<Job>> = jobs.iter().filter(|job| ended(job) == Some(end)).collect();
            old.sort_by_key(|job| {
                let started = job.status.as_ref().and_then(|status| status.start_time.clone());
                (started, job.metadata.name.clone())
            });
            let surplus = old.len().saturating_sub(limit);
            for job in old.into_iter().take(surplus) {
                self.delete_job(cron_job, job).await?;
            }
        }
        Ok(())
    }
}

impl Reconcile for CronJobController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "CronJob"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(original) = self.informers.cron_jobs.get(key) else { return Ok(()) };
        let jobs = self.informers.jobs.list_owned_by(original.metadata.uid.as_deref().unwrap_or_default());
        let jobs: Vec<Arc<Job>> =
            jobs.into_iter().filter(|job| is_controlled_by(&job.metadata, original.as_ref())).collect();
        let mut cron_job = original.as_ref().clone();
        self.note_jobs(key, &mut cron_job, &jobs).await?;
        let suspended = original.spec.suspend == Some(true) || original.metadata.deletion_timestamp.is_some();
        let fired = if suspended { Ok(None) } else { self.fire(key, &mut cron_job, &jobs).await };
        if cron_job.status != original.status
            && !(original.status.is_none() && cron_job.status == Some(Default::default()))
        {
            self.api.update_status(&cron_job).await?;
        }
        if let Some(wait) = fired? {
            self.queue.add_after(key.clone(), wait);
        }
        self.clean_up(&original, &jobs).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("valid")
    }

    #[test]
    fn a_cron_job_is_due_since_its_last_firing_or_its_creation_within_the_deadline() {
        let (schedule, _) = schedule::parse("* * * * *").expect("valid");
        let mut cron_job = CronJob::default();
        cron_job.metadata.creation_timestamp = Some(Time(at("2026-01-01T00:00:10Z")));
        let mut spec = CronJobSpec::default();
        let due = |cron_job: &CronJob, spec: &CronJobSpec, now: &str| {
            super::due(cron_job, spec, &schedule, &TimeZone::UTC, at(now)).0.map(|due| due.to_string())
        };
        assert_eq!(due(&cron_job, &spec, "2026-01-01T00:00:50Z"), None);
        assert_eq!(due(&cron_job, &spec, "2026-01-01T00:01:05Z").as_deref(), Some("2026-01-01T00:01:00Z"));
        cron_job.status.get_or_insert_default().last_schedule_time = Some(Time(at("2026-01-01T00:01:00Z")));
        assert_eq!(due(&cron_job, &spec, "2026-01-01T00:01:30Z"), None);
        spec.starting_deadline_seconds = Some(10);
        assert_eq!(due(&cron_job, &spec, "2026-01-01T00:02:30Z"), None, "missed by more than the deadline");
    }

    #[test]
    fn a_job_is_named_after_its_minute() {
        let mut cron_job = CronJob::default();
        cron_job.metadata.name = Some("cj".to_owned());
        let job = job_at(&cron_job, &CronJobSpec::default(), at("2026-01-01T00:01:00Z"), &TimeZone::UTC);
        assert_eq!(job.metadata.name.as_deref(), Some("cj-29453761"));
        let annotations = job.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get(SCHEDULED_AT).map(String::as_str), Some("2026-01-01T00:01:00Z"));
    }
}
