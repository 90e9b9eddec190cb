//! The TTL-after-finished controller: deletes Jobs some time after they ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions};

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "ttl-after-finished-controller";

struct TtlAfterFinished {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the TTL-after-finished controller.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(TtlAfterFinished {
        api: context.api(NAME),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.jobs.on_change(move |delta| {
        if expiry(delta.object()).is_some() && !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&controller, 5);
}

/// When `job` is to be deleted; `None` if it has not ended or has no time to live.
/// Upstream: ttlafterfinished_controller.go v1.36.2 `getFinishAndExpireTime`.
fn expiry(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let end = conditions.iter().find(|it| (it.type_ == "Complete" || it.type_ == "Failed") && it.status == "True")?;
    let ended = end.last_transition_time.as_ref()?.0;
    job.metadata.deletion_timestamp.is_none().then(|| ended + SignedDuration::from_secs(i64::from(ttl)))
}

impl Reconcile for TtlAfterFinished {
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
        let Some(job) = self.informers.jobs.get(key) else { return Ok(()) };
        let Some(expiry) = expiry(&job) else { return Ok(()) };
        let left = Duration::try_from(expiry.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            self.queue.add_after(key.clone(), left);
            return Ok(());
        }
        // The cache may be behind: somebody may just have given the Job more time.
        let Some(fresh) = self.api.get::<Job>(key).await? else { return Ok(()) };
        if self::expiry(&fresh) != Some(expiry) || fresh.metadata.uid != job.metadata.uid {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: fresh.metadata.uid, resource_version: None }),
            ..DeleteParams::foreground()
        };
        match self.api.delete::<Job>(key, &params).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::{JobCondition, JobSpec, JobStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn only_an_ended_job_with_a_time_to_live_expires() {
        let end = JobCondition {
            type_: "Complete".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(Timestamp::UNIX_EPOCH)),
            ..JobCondition::default()
        };
        let job = |ttl, conditions| Job {
            spec: Some(JobSpec { ttl_seconds_after_finished: ttl, ..JobSpec::default() }),
            status: Some(JobStatus { conditions, ..JobStatus::default() }),
            ..Job::default()
        };
        let seconds = |job: &Job| expiry(job).map(Timestamp::as_second);
        assert_eq!(seconds(&job(Some(5), Some(vec![end.clone()]))), Some(5));
        assert_eq!(seconds(&job(None, Some(vec![end]))), None);
        assert_eq!(seconds(&job(Some(5), None)), None);
    }
}
