//! What controllers ask about a pod: phase, conditions, readiness, which one to delete first. Reads pods only.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Annotation that makes a pod cheaper (lower) or dearer (higher) to delete on scale-down; an integer.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The phase of `pod`, empty if it has none yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The condition `kind` of `pod`.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// The node that `pod` is bound to, empty if there is none.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Whether the pod ended, for good or bad. Upstream: pkg/api/v1/pod/util.go v1.36.2 `IsPodTerminal`.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod neither ended nor is being deleted. Upstream: controller_utils.go v1.36.2 `IsPodActive`.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod is being deleted but still runs. Upstream: controller_utils.go v1.36.2 `IsPodTerminating`.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod's Ready condition is true. Upstream: pkg/api/v1/pod/util.go v1.36.2 `IsPodReady`.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Whether the pod has been ready for `min_ready_seconds`. Upstream: pkg/api/v1/pod/util.go v1.36.2 `IsPodAvailable`.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    until_available(pod, min_ready_seconds, now).is_some_and(|wait| wait.is_zero())
}

/// How long a ready pod still has to stay ready to be available: zero if it is, `None` if it is not ready.
pub(crate) fn until_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let since = ready.last_transition_time.as_ref()?.0;
    let available_at = since + jiff::SignedDuration::from_secs(i64::from(min_ready_seconds));
    Some(Duration::try_from(available_at.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// The order in which a controller gives pods up: the first is deleted first. `related` counts the pods of the same
/// group on a pod's node; `now` is when the decision is made.
/// Upstream: controller_utils.go v1.36.2 `ActivePodsWithRanks.Less`, with PodDeletionCost and LogarithmicScaleDown on.
pub(crate) fn deletion_order(a: (&Pod, usize), b: (&Pod, usize), now: Timestamp) -> Ordering {
    let ((a, a_rank), (b, b_rank)) = (a, b);
    let assigned = |pod: &Pod| !node_name(pod).is_empty();
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| b_rank.cmp(&a_rank)) // more related pods on the node: sooner
        .then_with(|| {
            if !(is_ready(a) && is_ready(b)) {
                return Ordering::Equal;
            }
            newer_first(ready_since(a), ready_since(b), now)
        })
        .then_with(|| restarts(b).cmp(&restarts(a))) // more restarts: sooner
        .then_with(|| {
            let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            newer_first(created(a), created(b), now)
        })
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0, // Pending, or no phase yet
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Ages are compared by their power of two of seconds, so that pods of about one age are chosen by uid instead.
/// Upstream: controller_utils.go v1.36.2 `logarithmicRankDiff` and `afterOrZero`.
fn newer_first(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => age_rank(a, now).cmp(&age_rank(b, now)),
    }
}

fn age_rank(since: Timestamp, now: Timestamp) -> i64 {
    match now.duration_since(since).as_nanos() {
        age if age <= 0 => -1,
        age => i64::from(i128::BITS - 1 - age.leading_zeros()),
    }
}

fn restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let of = |statuses: &Option<Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        statuses.iter().flatten().map(|status| status.restart_count).max().unwrap_or_default()
    };
    of(&status.container_statuses).max(of(&status.init_container_statuses))
}

/// The condition that says why something is about to delete `pod`.
/// Upstream: pkg/api/v1/pod/util.go v1.36.2 `UpdatePodCondition` with DisruptionTarget.
pub(crate) fn disruption_target(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodCondition {
    let since = condition(pod, "DisruptionTarget").filter(|current| current.status == "True");
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: since.and_then(|since| since.last_transition_time.clone()).or(Some(Time(now))),
        last_probe_time: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec, PodStatus};
    use kube::api::ObjectMeta;

    use super::*;

    /// A running, ready pod on a node; the base of the cases below and of the reconcilers' tests.
    pub(crate) fn running_pod(name: &str) -> Pod {
        let time = Some(Time(at(0)));
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                uid: Some(format!("uid-{name}")),
                creation_timestamp: time.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { node_name: Some("n".to_owned()), ..PodSpec::default() }),
            status: Some(PodStatus {
                phase: Some("Running".to_owned()),
                conditions: Some(vec![PodCondition {
                    type_: "Ready".to_owned(),
                    status: "True".to_owned(),
                    last_transition_time: time,
                    ..PodCondition::default()
                }]),
                container_statuses: Some(vec![ContainerStatus::default()]),
                ..PodStatus::default()
            }),
        }
    }

    pub(crate) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
    }

    #[test]
    fn pods_are_given_up_in_upstreams_order() {
        let now = at(10_000);
        let change = |name: &str, change: fn(&mut Pod)| {
            let mut pod = running_pod(name);
            change(&mut pod);
            pod
        };
        // Each pod is given up before all that follow it.
        let order = [
            change("unassigned", |pod| pod.spec = Some(PodSpec::default())),
            change("pending", |pod| {
                pod.status = Some(PodStatus { phase: Some("Pending".into()), ..PodStatus::default() })
            }),
            change("unknown", |pod| {
                pod.status = Some(PodStatus { phase: Some("Unknown".into()), ..PodStatus::default() })
            }),
            change("not-ready", |pod| {
                pod.status = Some(PodStatus { phase: Some("Running".into()), ..PodStatus::default() })
            }),
            change("cheap", |pod| {
                pod.metadata.annotations = Some([(DELETION_COST.to_owned(), "-5".to_owned())].into());
            }),
            change("restarted", |pod| {
                if let Some(status) = &mut pod.status {
                    status.container_statuses =
                        Some(vec![ContainerStatus { restart_count: 3, ..ContainerStatus::default() }]);
                }
            }),
            change("young", |pod| pod.metadata.creation_timestamp = Some(Time(at(9_990)))),
            change("a-plain-old-one", |pod| pod.metadata.uid = Some("uid-a".into())),
            change("dear", |pod| {
                pod.metadata.annotations = Some([(DELETION_COST.to_owned(), "5".to_owned())].into());
            }),
        ];
        for (i, first) in order.iter().enumerate() {
            for second in &order[i + 1..] {
                let names = (first.metadata.name.as_deref(), second.metadata.name.as_deref());
                assert_eq!(deletion_order((first, 1), (second, 1), now), Ordering::Less, "{names:?}");
                assert_eq!(deletion_order((second, 1), (first, 1), now), Ordering::Greater, "{names:?}");
            }
        }
        let (a, b) = (running_pod("a"), running_pod("b"));
        assert_eq!(deletion_order((&b, 2), (&a, 1), now), Ordering::Less, "two of the group on the node");
    }

    #[test]
    fn a_pod_is_available_after_min_ready_seconds() {
        let pod = running_pod("a");
        assert!(is_available(&pod, 0, at(0)));
        assert!(!is_available(&pod, 10, at(9)));
        assert!(is_available(&pod, 10, at(10)));
        assert_eq!(until_available(&pod, 10, at(4)), Some(Duration::from_secs(6)));
        assert_eq!(until_available(&Pod::default(), 10, at(4)), None);
    }
}
