//! Status and conditions of a Deployment, computed from its ReplicaSets.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::rolling::{max_unavailable, replicas, set_replicas};

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(super) const PAUSED: &str = "DeploymentPaused";

/// A condition that changed at `now`.
pub(super) fn new_condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// The condition `kind` in `status`.
pub(super) fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Takes the condition `kind` out.
pub(super) fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
}

/// Puts `condition` in, last, unless one with its status and reason is there already.
/// Upstream: deployment_util.go v1.36.2 `SetDeploymentCondition`.
pub(super) fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(current) = condition(status, &new.type_) {
        if current.status == new.status && current.reason == new.reason {
            return;
        }
        if current.status == new.status {
            new.last_transition_time.clone_from(&current.last_transition_time);
        }
    }
    remove_condition(status, &new.type_);
    status.conditions.get_or_insert_default().push(new);
}

/// Whether the Deployment has a deadline for progress.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

/// Counts and the Available condition. Upstream: deployment/sync.go v1.36.2 `calculateStatus`.
pub(super) fn calculate(
    deployment: &Deployment,
    sets: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let sum = |count: fn(&ReplicaSet) -> i32| sets.iter().map(count).sum::<i32>();
    let available = sum(|set| set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default());
    let total = sum(set_replicas);
    let non_zero = |count: i32| Some(count).filter(|count| *count != 0);
    let actual = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: non_zero(sum(actual)),
        updated_replicas: non_zero(new.map_or(0, actual)),
        ready_replicas: non_zero(sum(|set| {
            set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
        })),
        available_replicas: non_zero(available),
        unavailable_replicas: non_zero((total - available).max(0)),
        terminating_replicas: terminating(sets),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let condition = if available >= replicas(deployment) - max_unavailable(deployment) {
        let message = "Deployment has minimum availability.".to_owned();
        new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.".to_owned();
        new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    };
    set_condition(&mut status, condition);
    status
}

/// Upstream: deployment_util.go v1.36.2 `GetTerminatingReplicaCountForReplicaSets`.
fn terminating(sets: &[ReplicaSet]) -> Option<i32> {
    let mut total = 0;
    for set in sets {
        let status = set.status.clone().unwrap_or_default();
        match status.terminating_replicas {
            Some(count) => total += count,
            None if status.observed_generation.unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(total)
}

/// Whether all replicas are new, available, and nothing else is left.
/// Upstream: deployment_util.go v1.36.2 `DeploymentComplete`.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let want = replicas(deployment);
    let count = |count: Option<i32>| count.unwrap_or_default();
    count(status.updated_replicas) == want
        && count(status.replicas) == want
        && count(status.available_replicas) == want
        && status.observed_generation >= deployment.metadata.generation
}

/// Upstream: deployment_util.go v1.36.2 `DeploymentProgressing`.
fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or_default();
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// Upstream: deployment_util.go v1.36.2 `DeploymentTimedOut`.
fn is_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let (Some(deadline), Some(condition)) = (progress_deadline(deployment), condition(status, PROGRESSING)) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => condition
            .last_update_time
            .as_ref()
            .is_some_and(|from| now.duration_since(from.0) > jiff::SignedDuration::from_secs(i64::from(deadline))),
    }
}

/// The status of a rollout: counts, Available, Progressing, ReplicaFailure.
/// Upstream: deployment/progress.go v1.36.2 `syncRolloutStatus`.
pub(super) fn rollout(
    deployment: &Deployment,
    sets: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = calculate(deployment, sets, new, now);
    let subject = || match new {
        Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
        None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
    };
    if progress_deadline(deployment).is_none() {
        remove_condition(&mut status, PROGRESSING);
    } else {
        let current = condition(&old, PROGRESSING).cloned();
        let was_complete = status.replicas == status.updated_replicas
            && current.as_ref().is_some_and(|current| current.reason.as_deref() == Some(NEW_SET_AVAILABLE));
        if !was_complete {
            if is_complete(deployment, &status) {
                let message = format!("{} has successfully progressed.", subject());
                set_condition(&mut status, new_condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now));
            } else if is_progressing(&old, &status) {
                let message = format!("{} is progressing.", subject());
                let mut condition = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
                if let Some(current) = current {
                    if current.status == "True" {
                        condition.last_transition_time = current.last_transition_time;
                    }
                    // Out and in again, so that the update time moves although nothing else changes.
                    remove_condition(&mut status, PROGRESSING);
                }
                set_condition(&mut status, condition);
            } else if is_timed_out(deployment, &status, now) {
                let message = format!("{} has timed out progressing.", subject());
                set_condition(&mut status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now));
            }
        }
    }
    match replica_failure(sets, new) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

/// The new ReplicaSet's failure, or else any other's. Upstream: deployment/progress.go v1.36.2 `getReplicaFailures`.
fn replica_failure(sets: &[ReplicaSet], new: Option<&ReplicaSet>) -> Option<DeploymentCondition> {
    let failure = |set: &ReplicaSet| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let failure = conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: failure.type_.clone(),
            status: failure.status.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            last_update_time: failure.last_transition_time.clone(),
            last_transition_time: failure.last_transition_time.clone(),
        })
    };
    new.and_then(failure).or_else(|| sets.iter().find_map(failure))
}

/// When to look again at a rollout that does not move, so that its deadline is noticed.
/// Upstream: deployment/progress.go v1.36.2 `requeueStuckDeployment`.
pub(super) fn check_again_after(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = progress_deadline(deployment)?;
    let condition = condition(status, PROGRESSING)?;
    if is_complete(deployment, status) || condition.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let at = condition.last_update_time.as_ref()?.0 + jiff::SignedDuration::from_secs(i64::from(deadline));
    // A second later, since stored times have no fraction.
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    Some(wait + Duration::from_secs(1))
}
