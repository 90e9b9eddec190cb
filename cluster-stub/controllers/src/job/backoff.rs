//! How long a Job waits after failures before it makes new pods.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::pod;

/// Failures that hold new pods back. Upstream: job/backoff_utils.go v1.36.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    /// Failed pods since the last success.
    pub(super) failures: u32,
    /// When the last of them ended.
    pub(super) last: Option<Timestamp>,
    /// Pods that are counted in here.
    pub(super) seen: BTreeSet<String>,
}

impl Backoff {
    /// Takes in pods that ended.
    pub(super) fn note(&mut self, ended: &[(&Pod, bool)]) {
        let mut ended: Vec<(Timestamp, bool, String)> = ended
            .iter()
            .map(|(pod, failed)| (finished_at(pod), *failed, pod.metadata.uid.clone().unwrap_or_default()))
            .filter(|(_, _, uid)| !self.seen.contains(uid))
            .collect();
        ended.sort();
        for (at, failed, uid) in ended {
            self.seen.insert(uid);
            if failed {
                self.failures = self.failures.saturating_add(1);
                self.last = Some(at);
            } else {
                *self = Self { seen: std::mem::take(&mut self.seen), ..Self::default() };
            }
        }
    }

    /// How long new pods have to wait: 10 s, doubled per failure, 10 min at most, from the end of the last failed pod.
    pub(super) fn wait(&self, now: Timestamp) -> Duration {
        let Some(last) = self.last.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let delay = Duration::from_secs(10 << (self.failures - 1).min(6)).min(Duration::from_secs(600));
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO);
        delay.saturating_sub(passed)
    }
}

/// When a pod ended. Upstream: job/backoff_utils.go v1.36.2 `getFinishedTime`.
fn finished_at(pod: &Pod) -> Timestamp {
    let ends =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()).filter_map(|container| {
            container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
        });
    let unready = || {
        let ready = pod::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let deleted = || {
        let meta = &pod.metadata;
        let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
        meta.deletion_timestamp.as_ref().map(|time| time.0 - jiff::SignedDuration::from_secs(grace))
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    ends.max().or_else(unready).or_else(deleted).or_else(created).unwrap_or_default()
}
