//! How many pods to make, which ones to give up, and what the status says of it. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::runtime::pod;
use crate::runtime::selector::Selector;

use super::workload::Workload;

/// Most pods made or deleted in one reconcile. Upstream: replica_set.go v1.36.2 `BurstReplicas`.
const BURST: usize = 500;
/// Condition that says that pods could not be made or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What to do about the number of pods.
#[derive(Debug)]
pub(super) enum Scale {
    /// It is right.
    Keep,
    /// Make so many more.
    Create(usize),
    /// Give these up.
    Delete(Vec<Arc<Pod>>),
}

/// Decides for `want` replicas, of which `active` exist. `related` are the active pods of all sets of the same owner: the
/// more of them share a node with a pod, the sooner that pod goes.
/// Upstream: replica_set.go v1.36.2 `manageReplicas`, `getPodsToDelete`.
pub(super) fn decide(want: i32, mut active: Vec<Arc<Pod>>, related: &[Arc<Pod>], now: Timestamp) -> Scale {
    let want = usize::try_from(want).unwrap_or_default();
    if active.len() < want {
        return Scale::Create((want - active.len()).min(BURST));
    }
    let surplus = (active.len() - want).min(BURST);
    if surplus == 0 {
        return Scale::Keep;
    }
    if surplus < active.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|pod| pod::is_active(pod)) {
            *on_node.entry(pod::node_name(pod)).or_default() += 1;
        }
        let rank = |pod: &Pod| on_node.get(pod::node_name(pod)).copied().unwrap_or_default();
        active.sort_by(|a, b| pod::deletion_order((a, rank(a)), (b, rank(b)), now));
        active.truncate(surplus);
    }
    Scale::Delete(active)
}

/// The status of `workload` over its `active` and `terminating` pods; `failure` is why pods could not be made or deleted.
/// Upstream: replica_set_utils.go v1.36.2 `calculateStatus`.
pub(super) fn status<W: Workload>(
    workload: &W,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let mut status = workload.status();
    let labels = workload.template().metadata.and_then(|meta| meta.labels);
    let template = Selector::from_labels(labels.as_ref());
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let count = |test: &dyn Fn(&Pod) -> bool| {
        Some(number(active.iter().filter(|pod| test(pod)).count())).filter(|count| *count > 0)
    };
    let conditions = status.conditions.get_or_insert_default();
    let failed = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        Some(message) if !failed => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(
                if number(active.len()) < workload.replicas() { "FailedCreate" } else { "FailedDelete" }.to_owned(),
            ),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        }),
        None if failed => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        _ => {}
    }
    if conditions.is_empty() {
        status.conditions = None;
    }
    status.replicas = number(active.len());
    status.fully_labeled_replicas = count(&|pod| template.matches(pod.metadata.labels.as_ref()));
    status.ready_replicas = count(&pod::is_ready);
    status.available_replicas = count(&|pod| pod::is_available(pod, workload.min_ready_seconds(), now));
    status.terminating_replicas = W::COUNTS_TERMINATING.then(|| number(terminating));
    status.observed_generation = workload.meta().generation;
    status
}

/// When the next ready pod becomes available, if any has yet to.
/// Upstream: controller_utils.go v1.36.2 `FindMinNextPodAvailabilityCheck`.
pub(super) fn next_availability(active: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    active
        .iter()
        .filter_map(|pod| pod::until_available(pod, min_ready_seconds, now))
        .filter(|wait| !wait.is_zero())
        .min()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};

    use crate::runtime::pod::tests::{at, running_pod};

    use super::*;

    fn pods(names: &[&str]) -> Vec<Arc<Pod>> {
        names.iter().map(|name| Arc::new(running_pod(name))).collect()
    }

    fn set(replicas: i32) -> ReplicaSet {
        let mut set = ReplicaSet { spec: Some(ReplicaSetSpec::default()), ..ReplicaSet::default() };
        set.metadata.generation = Some(2);
        if let Some(spec) = set.spec.as_mut() {
            spec.replicas = Some(replicas);
        }
        set
    }

    #[test]
    fn the_number_of_pods_is_brought_to_what_is_wanted() {
        assert!(matches!(decide(2, pods(&["a", "b"]), &[], at(0)), Scale::Keep));
        assert!(matches!(decide(5, pods(&["a", "b"]), &[], at(0)), Scale::Create(3)));
        assert!(matches!(decide(2000, Vec::new(), &[], at(0)), Scale::Create(BURST)));
        assert!(matches!(decide(-1, pods(&["a"]), &[], at(0)), Scale::Delete(gone) if gone.len() == 1));
    }

    #[test]
    fn the_fullest_node_gives_up_a_pod_first() {
        let on = |name: &str, node: &str| {
            let mut pod = running_pod(name);
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            Arc::new(pod)
        };
        let active = vec![on("a", "one"), on("b", "two")];
        let related = [active.clone(), vec![on("other", "two")]].concat();
        let Scale::Delete(gone) = decide(1, active, &related, at(0)) else { panic!("one is too many") };
        assert_eq!(gone[0].metadata.name.as_deref(), Some("b"));
    }

    #[test]
    fn the_status_counts_and_remembers_a_failure_until_it_is_over() {
        let mut set = set(3);
        let failed = status(&set, &pods(&["a", "b"]), 1, Some("quota".to_owned()), at(0));
        let counts = (failed.replicas, failed.ready_replicas, failed.available_replicas, failed.terminating_replicas);
        assert_eq!(counts, (2, Some(2), Some(2), Some(1)));
        assert_eq!(failed.observed_generation, Some(2));
        let condition = failed.conditions.as_ref().map(|conditions| &conditions[0]);
        let texts = condition.map(|condition| (condition.reason.as_deref(), condition.message.as_deref()));
        assert_eq!(texts, Some((Some("FailedCreate"), Some("quota"))));
        set.status = Some(failed.clone());
        assert_eq!(status(&set, &pods(&["a", "b"]), 1, Some("other".to_owned()), at(9)), failed, "the first one stays");
        assert_eq!(status(&set, &pods(&["a", "b"]), 1, None, at(9)).conditions, None);
    }

    #[test]
    fn the_next_look_is_when_a_ready_pod_becomes_available() {
        let pods = pods(&["a"]);
        assert_eq!(next_availability(&pods, 10, at(4)), Some(Duration::from_secs(6)));
        assert_eq!(next_availability(&pods, 10, at(10)), None);
        assert_eq!(next_availability(&pods, 0, at(0)), None);
    }
}
