//! One reconcile of a StatefulSet as a function: which pods to make, to delete, and the new status. Sends nothing.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};

use crate::runtime::intstr::scaled;
use crate::runtime::pod;

use super::identity::{identify, new_pod, ordinal, revision, start};

/// A revision: its name and its template.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    /// Name of the ControllerRevision.
    pub(super) name: String,
    /// Its template.
    pub(super) template: PodTemplateSpec,
}

/// Something to do, in order.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Make this pod, and its claims first.
    Create(i32, Box<Pod>),
    /// Make the claims of a pod that waits for them.
    Claims(i32, Arc<Pod>),
    /// Give a pod back its identity.
    Update(Box<Pod>),
    /// Delete this pod.
    Delete(Arc<Pod>),
}

/// What one reconcile does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In order.
    pub(super) actions: Vec<Action>,
    /// Pods of the set, and whether the set has become too small for them; their claims follow the retention policy.
    pub(super) condemned: Vec<Arc<Pod>>,
    /// The new status.
    pub(super) status: StatefulSetStatus,
    /// When a ready pod becomes available.
    pub(super) again_after: Option<Duration>,
}

/// Plans a reconcile of `set` over its `pods`.
/// Upstream: stateful_set_control.go v1.36.2 `updateStatefulSet`.
pub(super) fn plan(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    current: &Revision,
    update: &Revision,
    now: Timestamp,
) -> Plan {
    let spec = set.spec.clone().unwrap_or_default();
    let (first, count) = (start(set), spec.replicas.unwrap_or(1).max(0));
    let in_range = |ordinal: i32| ordinal >= first && ordinal < first + count;
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let mut members: Vec<(i32, &Arc<Pod>)> = pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, pod))).collect();
    members.sort_by_key(|(ordinal, _)| *ordinal);
    let (alive, mut condemned): (Vec<_>, Vec<_>) = members.into_iter().partition(|(ordinal, _)| in_range(*ordinal));
    condemned.reverse();
    let mut plan = Plan {
        condemned: condemned.iter().map(|(_, pod)| Arc::clone(pod)).collect(),
        status: status(set, pods, current, update, now),
        ..Plan::default()
    };
    plan.again_after =
        pods.iter().filter_map(|pod| pod::until_available(pod, min_ready, now)).filter(|wait| !wait.is_zero()).min();
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let monotonic = spec.pod_management_policy.as_deref() != Some("Parallel");
    let unavailable = |pod: &Pod| !is_available(pod, min_ready, now) || pod.metadata.deletion_timestamp.is_some();
    let first_unhealthy = alive
        .iter()
        .find(|(_, pod)| unavailable(pod))
        .or_else(|| condemned.iter().rev().find(|(_, pod)| unavailable(pod)))
        .and_then(|(_, pod)| pod.metadata.uid.clone());
    let missing = (first..first + count).any(|n| !alive.iter().any(|(ordinal, _)| *ordinal == n));

    for n in first..first + count {
        let pod = alive.iter().find(|(ordinal, _)| *ordinal == n).map(|(_, pod)| Arc::clone(pod));
        if !replica(set, n, pod.as_ref(), current, update, &mut plan) {
            continue;
        }
        let blocks = pod.is_none_or(|pod| {
            pod::is_terminal(&pod) || pod.metadata.deletion_timestamp.is_some() || !is_available(&pod, min_ready, now)
        });
        if monotonic && blocks {
            return plan;
        }
    }
    for (_, pod) in &condemned {
        if pod.metadata.deletion_timestamp.is_some() {
            if monotonic {
                return plan;
            }
            continue;
        }
        let is_first_unhealthy = !missing && pod.metadata.uid == first_unhealthy;
        if monotonic && !is_available(pod, min_ready, now) && !is_first_unhealthy {
            return plan;
        }
        plan.actions.push(Action::Delete(Arc::clone(pod)));
        if monotonic {
            return plan;
        }
    }
    if !plan.actions.iter().any(|action| matches!(action, Action::Delete(_) | Action::Create(..))) {
        roll(set, &alive, update, &unavailable, &mut plan);
    }
    plan
}

/// One replica: makes it, replaces it if it ended, or repairs it. Whether the later ones may have to wait for it.
/// Upstream: stateful_set_control.go v1.36.2 `processReplica`.
fn replica(
    set: &StatefulSet,
    n: i32,
    pod: Option<&Arc<Pod>>,
    current: &Revision,
    update: &Revision,
    plan: &mut Plan,
) -> bool {
    let Some(pod) = pod else {
        let rolling = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let is_rolling = rolling.and_then(|rolling| rolling.type_.as_deref()) != Some("OnDelete");
        let keeps = match rolling.and_then(|rolling| rolling.rolling_update.as_ref()) {
            Some(rolling) => start(set) + rolling.partition.unwrap_or_default(),
            None if is_rolling => {
                start(set) + set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default()
            }
            None => 0,
        };
        let revision = if n < keeps { current } else { update };
        let pod = new_pod(set, &revision.template, &revision.name, n);
        let count = |counter: &mut Option<i32>| *counter = Some(counter.unwrap_or_default() + 1);
        plan.status.replicas += 1;
        if revision.name == current.name {
            count(&mut plan.status.current_replicas);
        }
        if revision.name == update.name {
            count(&mut plan.status.updated_replicas);
        }
        plan.actions.push(Action::Create(n, Box::new(pod)));
        return true;
    };
    if pod::is_terminal(pod) {
        if pod.metadata.deletion_timestamp.is_none() {
            plan.actions.push(Action::Delete(Arc::clone(pod)));
        }
        return true;
    }
    if pod::phase(pod) == "Pending" {
        plan.actions.push(Action::Claims(n, Arc::clone(pod)));
    }
    let mut identified = pod.as_ref().clone();
    if pod.metadata.deletion_timestamp.is_none() && identify(&mut identified, n) {
        plan.actions.push(Action::Update(Box::new(identified)));
    }
    true
}

/// Deletes pods of an old revision, the highest ordinal first, never more at once than may be unavailable.
/// Upstream: stateful_set_control.go v1.36.2 `updateStatefulSet`, last part.
fn roll(
    set: &StatefulSet,
    alive: &[(i32, &Arc<Pod>)],
    update: &Revision,
    unavailable: &dyn Fn(&Pod) -> bool,
    plan: &mut Plan,
) {
    let spec = set.spec.clone().unwrap_or_default();
    let strategy = spec.update_strategy.unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return;
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let partition = start(set) + rolling.partition.unwrap_or_default();
    let most = rolling.max_unavailable.as_ref().and_then(|most| scaled(Some(most), spec.replicas.unwrap_or(1), false));
    let mut allowed = most.unwrap_or(1).max(1);
    if rolling.max_unavailable.is_some() {
        allowed -= i32::try_from(alive.iter().filter(|(_, pod)| unavailable(pod)).count()).unwrap_or(i32::MAX);
    }
    for (n, pod) in alive.iter().rev() {
        if *n < partition || allowed <= 0 {
            return;
        }
        if revision(pod) != update.name && pod.metadata.deletion_timestamp.is_none() {
            plan.actions.push(Action::Delete(Arc::clone(pod)));
            plan.status.current_replicas =
                plan.status.current_replicas.map(|count| count - 1).filter(|count| *count > 0);
            allowed -= 1;
        } else if unavailable(pod) && rolling.max_unavailable.is_none() {
            return;
        }
    }
}

fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod::phase(pod) == "Running" && pod::is_available(pod, min_ready_seconds, now)
}

/// Upstream: stateful_set_control.go v1.36.2 `updateStatus`, stateful_set_utils.go `completeRollingUpdate`.
fn status(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    current: &Revision,
    update: &Revision,
    now: Timestamp,
) -> StatefulSetStatus {
    let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let count = |test: &dyn Fn(&Pod) -> bool| {
        let count = pods.iter().filter(|pod| ordinal(set, pod).is_some() && test(pod)).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let some = |count: i32| Some(count).filter(|count| *count > 0);
    let running = |pod: &Pod| pod::phase(pod) == "Running" && pod::is_ready(pod);
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    let of = |name: &str| count(&|pod: &Pod| stays(pod) && revision(pod) == name);
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: some(count(&running)),
        available_replicas: Some(count(&|pod| is_available(pod, min_ready, now))),
        current_replicas: some(of(&current.name)),
        updated_replicas: some(of(&update.name)),
        current_revision: Some(current.name.clone()),
        update_revision: Some(update.name.clone()),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
        collision_count: None,
    }
}

/// Once all pods are of the update revision and ready, it is the current one.
pub(super) fn complete(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let rolling = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()).and_then(|it| it.type_.as_deref())
        != Some("OnDelete");
    let replicas = Some(status.replicas).filter(|replicas| *replicas > 0);
    if rolling && status.updated_replicas == replicas && status.ready_replicas == replicas {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSetSpec, StatefulSetUpdateStrategy};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use crate::runtime::pod::tests::{at, running_pod};

    use super::*;

    fn set(replicas: i32) -> StatefulSet {
        let mut set = StatefulSet { spec: Some(StatefulSetSpec::default()), ..StatefulSet::default() };
        set.metadata.name = Some("db".to_owned());
        let spec = set.spec.get_or_insert_default();
        spec.replicas = Some(replicas);
        spec.update_strategy = Some(StatefulSetUpdateStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateStatefulSetStrategy { partition: Some(0), max_unavailable: None }),
        });
        set
    }

    fn revision_named(name: &str) -> Revision {
        Revision { name: name.to_owned(), template: PodTemplateSpec::default() }
    }

    fn member(n: i32, revision: &str, phase: &str) -> Arc<Pod> {
        let mut pod = running_pod(&format!("db-{n}"));
        identify(&mut pod, n);
        pod.metadata
            .labels
            .get_or_insert_default()
            .insert(super::super::identity::REVISION.to_owned(), revision.to_owned());
        let status = pod.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        if phase != "Running" {
            status.conditions = None;
        }
        Arc::new(pod)
    }

    fn run(set: &StatefulSet, pods: &[Arc<Pod>], update: &str) -> Vec<String> {
        let plan = plan(set, pods, &revision_named("old"), &revision_named(update), at(100));
        let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
        let text = |action: &Action| match action {
            Action::Create(_, pod) => format!("+{}@{}", name(pod), revision(pod)),
            Action::Delete(pod) => format!("-{}", name(pod)),
            Action::Claims(n, _) => format!("claims {n}"),
            Action::Update(pod) => format!("fix {}", name(pod)),
        };
        plan.actions.iter().map(text).collect()
    }

    #[test]
    fn pods_come_one_after_the_other_and_go_in_reverse() {
        let up = |n| member(n, "old", "Running");
        assert_eq!(run(&set(2), &[], "old"), ["+db-0@old"]);
        assert_eq!(run(&set(2), &[member(0, "old", "Pending")], "old"), ["claims 0"]);
        assert_eq!(run(&set(2), &[up(0)], "old"), ["+db-1@old"]);
        assert!(run(&set(2), &[up(0), up(1)], "old").is_empty());
        assert_eq!(run(&set(1), &[up(0), up(1), up(2)], "old"), ["-db-2"]);
        assert_eq!(run(&set(2), &[up(0), member(1, "old", "Failed")], "old"), ["-db-1"]);
        assert!(run(&set(1), &[member(0, "old", "Running"), going(1)], "old").is_empty(), "one is going already");
    }

    fn going(n: i32) -> Arc<Pod> {
        let mut pod = member(n, "old", "Running").as_ref().clone();
        pod.metadata.deletion_timestamp = Some(Time(at(0)));
        Arc::new(pod)
    }

    #[test]
    fn a_parallel_set_does_all_at_once() {
        let mut set = set(3);
        set.spec.get_or_insert_default().pod_management_policy = Some("Parallel".to_owned());
        assert_eq!(run(&set, &[], "old"), ["+db-0@old", "+db-1@old", "+db-2@old"]);
        set.spec.get_or_insert_default().replicas = Some(0);
        assert_eq!(run(&set, &[member(0, "old", "Running"), member(1, "old", "Pending")], "old"), ["-db-1", "-db-0"]);
    }

    #[test]
    fn an_update_goes_from_the_highest_ordinal_down_to_the_partition() {
        let (old, new) = (|n| member(n, "old", "Running"), |n| member(n, "new", "Running"));
        assert_eq!(run(&set(3), &[old(0), old(1), old(2)], "new"), ["-db-2"]);
        assert_eq!(run(&set(3), &[old(0), old(1), new(2)], "new"), ["-db-1"]);
        assert_eq!(run(&set(3), &[old(0), old(1), member(2, "new", "Pending")], "new"), ["claims 2"]);
        assert_eq!(run(&set(3), &[old(0), old(1)], "new"), ["+db-2@new"]);
        let mut parted = set(3);
        let strategy = parted.spec.get_or_insert_default().update_strategy.get_or_insert_default();
        strategy.rolling_update = Some(RollingUpdateStatefulSetStrategy { partition: Some(2), max_unavailable: None });
        assert!(run(&parted, &[old(0), old(1), new(2)], "new").is_empty());
        assert_eq!(run(&parted, &[old(0), new(2)], "new"), ["+db-1@old"]);
        parted.spec.get_or_insert_default().update_strategy.get_or_insert_default().type_ = Some("OnDelete".to_owned());
        assert!(run(&parted, &[old(0), old(1), old(2)], "new").is_empty());
    }

    #[test]
    fn a_finished_update_makes_the_new_revision_current() {
        let pods = [member(0, "new", "Running"), member(1, "new", "Running")];
        let mut status = plan(&set(2), &pods, &revision_named("old"), &revision_named("new"), at(0)).status;
        assert_eq!((status.current_replicas, status.updated_replicas), (None, Some(2)));
        complete(&set(2), &mut status);
        assert_eq!((status.current_replicas, status.current_revision.as_deref()), (Some(2), Some("new")));
    }
}
