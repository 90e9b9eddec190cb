//! Taints that follow from a node's conditions, and what they mean for a pod on it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition type, condition status, the NoSchedule taint that they lead to.
/// Upstream: node_lifecycle_controller.go v1.36.2 `nodeConditionToTaintKeyStatusMap`.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// The condition `kind` of `node`.
pub(crate) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// The taints of `node`.
pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// The taints that `node` should have, if they differ from those it has: NoSchedule taints follow its conditions and
/// `spec.unschedulable`; all others stay. Upstream: node_lifecycle_controller.go v1.36.2 `doNoScheduleTaintingPass`.
pub(super) fn no_schedule(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let mut want: Vec<&str> = CONDITION_TAINTS
        .iter()
        .filter(|(kind, status, _)| condition(node, kind).is_some_and(|condition| condition.status == *status))
        .map(|(_, _, key)| *key)
        .collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        want.push(UNSCHEDULABLE);
    }
    let ours = |taint: &Taint| {
        taint.effect == "NoSchedule"
            && (taint.key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, key)| *key == taint.key))
    };
    replace(node, "NoSchedule", &want, ours, now)
}

/// The taints that `node` should have, if they differ from those it has: NoExecute for a node that is not ready or silent.
/// Upstream: node_lifecycle_controller.go v1.36.2 `processTaintBaseEviction`.
pub(super) fn no_execute(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let ready = condition(node, "Ready")?;
    let want: &[&str] = match ready.status.as_str() {
        "False" => &[NOT_READY],
        "Unknown" => &[UNREACHABLE],
        _ => &[],
    };
    let ours = |taint: &Taint| taint.effect == "NoExecute" && (taint.key == NOT_READY || taint.key == UNREACHABLE);
    replace(node, "NoExecute", want, ours, now)
}

fn replace(
    node: &Node,
    effect: &str,
    want: &[&str],
    ours: impl Fn(&Taint) -> bool,
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let have = taints(node);
    let stays = |taint: &&Taint| !ours(taint) || want.contains(&taint.key.as_str());
    let mut new: Vec<Taint> = have.iter().filter(stays).cloned().collect();
    let missing = want.iter().filter(|key| !have.iter().any(|taint| ours(taint) && taint.key == **key));
    new.extend(missing.map(|key| Taint {
        key: (*key).to_owned(),
        effect: effect.to_owned(),
        time_added: Some(Time(now)),
        value: None,
    }));
    (new != have).then_some(new)
}

/// What NoExecute taints mean for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// It may stay for ever.
    Never,
    /// It must go now.
    Now,
    /// It must go this long after it was first seen with these taints.
    After(Duration),
}

/// Upstream: taint_eviction.go v1.36.2 `processPodOnNode`, `getMinTolerationTime`.
pub(super) fn eviction(taints: &[Taint], tolerations: &[Toleration]) -> Eviction {
    let mut shortest: Option<i64> = None;
    for taint in taints.iter().filter(|taint| taint.effect == "NoExecute") {
        // The first toleration that matches counts, as upstream has it.
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Eviction::Now;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest {
        None => Eviction::Never,
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds) if seconds > 0 => Eviction::After(Duration::from_secs(seconds)),
            _ => Eviction::Now,
        },
    }
}

/// Upstream: k8s.io/component-helpers v1.36.2 `ToleratesTaint`.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
        Some("Exists") => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{NodeSpec, NodeStatus};

    use super::*;

    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)], unschedulable: bool) -> Node {
        let conditions = conditions.iter().map(|(kind, status)| NodeCondition {
            type_: (*kind).to_owned(),
            status: (*status).to_owned(),
            ..NodeCondition::default()
        });
        Node {
            spec: Some(NodeSpec {
                unschedulable: unschedulable.then_some(true),
                taints: Some(taints.iter().map(|(key, effect)| taint(key, effect)).collect()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus { conditions: Some(conditions.collect()), ..NodeStatus::default() }),
            ..Node::default()
        }
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
    }

    fn names(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        taints.map(|taints| taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }

    #[test]
    fn no_schedule_taints_follow_the_conditions() {
        let now = Timestamp::UNIX_EPOCH;
        for (name, node, want) in [
            (
                "ready: the admission's taint goes",
                node(&[("Ready", "True")], &[(NOT_READY, "NoSchedule")], false),
                Some(vec![]),
            ),
            ("ready and clean", node(&[("Ready", "True")], &[], false), None),
            ("no condition yet: the taint goes", node(&[], &[(NOT_READY, "NoSchedule")], false), Some(vec![])),
            (
                "cordoned, with a user's taint",
                node(&[("Ready", "True")], &[("mine", "NoSchedule")], true),
                Some(vec!["mine:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]),
            ),
            (
                "silent and short of memory",
                node(&[("Ready", "Unknown"), ("MemoryPressure", "True")], &[(NOT_READY, "NoExecute")], false),
                Some(vec![
                    "node.kubernetes.io/not-ready:NoExecute",
                    "node.kubernetes.io/unreachable:NoSchedule",
                    "node.kubernetes.io/memory-pressure:NoSchedule",
                ]),
            ),
        ] {
            let want = want.map(|want| want.into_iter().map(str::to_owned).collect());
            assert_eq!(names(no_schedule(&node, now)), want, "{name}");
        }
    }

    #[test]
    fn no_execute_taints_swap_with_the_ready_condition() {
        let now = Timestamp::UNIX_EPOCH;
        for (status, have, want) in [
            ("Unknown", None, Some("node.kubernetes.io/unreachable:NoExecute")),
            ("False", Some(UNREACHABLE), Some("node.kubernetes.io/not-ready:NoExecute")),
            ("True", Some(UNREACHABLE), Some("")),
            ("True", None, None),
            ("Unknown", Some(UNREACHABLE), None),
        ] {
            let taints: Vec<(&str, &str)> = have.into_iter().map(|key| (key, "NoExecute")).collect();
            let got = names(no_execute(&node(&[("Ready", status)], &taints, false), now)).map(|names| names.join(","));
            assert_eq!(got.as_deref(), want, "{status} with {have:?}");
        }
        assert_eq!(no_execute(&node(&[], &[(UNREACHABLE, "NoExecute")], false), now), None, "nothing is known");
    }

    #[test]
    fn a_pod_stays_as_long_as_its_shortest_toleration() {
        let toleration = |key: Option<&str>, seconds: Option<i64>| Toleration {
            key: key.map(str::to_owned),
            operator: Some("Exists".to_owned()),
            toleration_seconds: seconds,
            ..Toleration::default()
        };
        let bad = [taint("a", "NoExecute"), taint("b", "NoExecute"), taint("c", "NoSchedule")];
        for (name, tolerations, want) in [
            ("none", vec![], Eviction::Now),
            ("only one of two", vec![toleration(Some("a"), None)], Eviction::Now),
            ("both, for ever", vec![toleration(None, None)], Eviction::Never),
            (
                "the shorter counts",
                vec![toleration(Some("a"), Some(30)), toleration(Some("b"), Some(10))],
                Eviction::After(Duration::from_secs(10)),
            ),
            ("zero seconds", vec![toleration(None, Some(0))], Eviction::Now),
        ] {
            assert_eq!(eviction(&bad, &tolerations), want, "{name}");
        }
        assert_eq!(eviction(&[taint("c", "NoSchedule")], &[]), Eviction::Never);
    }
}
