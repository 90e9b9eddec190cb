//! The arithmetic of a rolling update: how far each ReplicaSet may grow or must shrink. Pure.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use crate::runtime::intstr::scaled;

use super::revision::{MAX_REPLICAS, replicas_annotation};

/// Replicas that the Deployment asks for.
pub(super) fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Replicas that `set` asks for.
pub(super) fn set_replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Available replicas of `set`.
pub(super) fn set_available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// Whether the Deployment replaces pods a few at a time.
pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    strategy(deployment) != "Recreate"
}

fn strategy(deployment: &Deployment) -> &str {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
}

/// Surge and unavailability as numbers; never both 0, or a rollout could not move.
/// Upstream: deployment_util.go v1.36.2 `ResolveFenceposts`.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let rolling = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref()?.rolling_update.as_ref());
    let total = replicas(deployment);
    // A value that is no percentage cannot pass validation; it counts as absent.
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), total, true).unwrap_or_default();
    let unavailable =
        scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), total, false).unwrap_or_default();
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Pods that may exist beyond the wanted number. Upstream: deployment_util.go v1.36.2 `MaxSurge`.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { fenceposts(deployment).0 } else { 0 }
}

/// Pods that may be missing. Upstream: deployment_util.go v1.36.2 `MaxUnavailable`.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    if !is_rolling(deployment) || replicas(deployment) == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(replicas(deployment))
}

/// The size of the new ReplicaSet that now has `current` replicas while all sets together have `all`.
/// Upstream: deployment_util.go v1.36.2 `NewRSNewReplicas`.
pub(super) fn new_set_size(deployment: &Deployment, all: i32, current: i32) -> i32 {
    let want = replicas(deployment);
    if !is_rolling(deployment) {
        return want;
    }
    let room = want + max_surge(deployment) - all;
    if room <= 0 { current } else { current + room.min(want - current) }
}

/// New sizes of the old sets (`old`, oldest first) in one step of a rolling update; only those that shrink are named.
/// Upstream: deployment/rolling.go v1.36.2 `reconcileOldReplicaSets`.
pub(super) fn shrink_old(deployment: &Deployment, old: &[&ReplicaSet], new: &ReplicaSet) -> Vec<(String, i32)> {
    let old_pods: i32 = old.iter().map(|set| set_replicas(set)).sum();
    let min_available = replicas(deployment) - max_unavailable(deployment);
    let new_unavailable = set_replicas(new) - set_available(new);
    let may_go = old_pods + set_replicas(new) - min_available - new_unavailable;
    if old_pods == 0 || may_go <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = old.iter().map(|set| set_replicas(set)).collect();
    // Pods that serve nobody go first, whatever their age.
    let (mut gone, mut outdated) = (0, false);
    for (set, size) in old.iter().zip(&mut sizes) {
        if gone >= may_go {
            break;
        }
        // More pods available than wanted: the set has not come down to its last size yet, and its status counts pods
        // that are about to go. Nothing more is taken on the strength of that.
        outdated = set_available(set) > *size;
        if outdated {
            break;
        }
        let unhealthy = (*size - set_available(set)).min(may_go - gone);
        *size -= unhealthy;
        gone += unhealthy;
    }
    if !outdated {
        let available: i32 = old.iter().map(|set| set_available(set)).sum::<i32>() + set_available(new);
        let mut surplus = (available - min_available).max(0);
        for size in &mut sizes {
            let step = (*size).min(surplus);
            *size -= step;
            surplus -= step;
        }
    }
    let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap_or_default();
    old.iter()
        .zip(sizes)
        .filter(|(set, size)| *size != set_replicas(set))
        .map(|(set, size)| (name(set), size))
        .collect()
}

/// New sizes of several active sets when the Deployment itself is scaled in the middle of a rollout; in the order in which
/// they are to be scaled. Upstream: deployment/sync.go v1.36.2 `scale`.
pub(super) fn scale_proportionally(deployment: &Deployment, active: &[&ReplicaSet]) -> Vec<(String, i32)> {
    let want = replicas(deployment);
    let allowed = if want > 0 { want + max_surge(deployment) } else { 0 };
    let to_add = allowed - active.iter().map(|set| set_replicas(set)).sum::<i32>();
    let mut sets: Vec<&ReplicaSet> = active.to_vec();
    // The largest takes the rest of the rounding: the newest of them when growing, the oldest when shrinking.
    sets.sort_by(|a, b| {
        let age = super::revision::by_age(a, b);
        set_replicas(b).cmp(&set_replicas(a)).then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::with_capacity(sets.len());
    for set in &sets {
        let share = if to_add == 0 { 0 } else { proportion(deployment, set, to_add, added) };
        added += share;
        sizes.push(set_replicas(set) + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sets.iter().map(|set| set.metadata.name.clone().unwrap_or_default()).zip(sizes).collect()
}

/// Upstream: deployment_util.go v1.36.2 `GetReplicaSetProportion`, `getReplicaSetFraction`.
fn proportion(deployment: &Deployment, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    let size = set_replicas(set);
    if size == 0 || to_add == added {
        return 0;
    }
    let fraction = if replicas(deployment) == 0 {
        -size
    } else {
        let before = replicas_annotation(set, MAX_REPLICAS)
            .filter(|before| *before != 0)
            .unwrap_or_else(|| deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default());
        if before == 0 {
            0
        } else {
            let now = i64::from(replicas(deployment) + max_surge(deployment));
            round_half_away(i64::from(size) * now, i64::from(before)) - size
        }
    };
    if to_add > 0 { fraction.min(to_add - added) } else { fraction.max(to_add - added) }
}

fn round_half_away(numerator: i64, denominator: i64) -> i32 {
    i32::try_from((2 * numerator + denominator) / (2 * denominator)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{
        DeploymentSpec, DeploymentStrategy, ReplicaSetSpec, ReplicaSetStatus, RollingUpdateDeployment,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;

    fn value(text: &str) -> IntOrString {
        text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
    }

    fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
        Deployment {
            spec: Some(DeploymentSpec {
                replicas: Some(replicas),
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".to_owned()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(value(surge)),
                        max_unavailable: Some(value(unavailable)),
                    }),
                }),
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn set(name: &str, replicas: i32, available: i32) -> ReplicaSet {
        ReplicaSet {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(ReplicaSetSpec { replicas: Some(replicas), ..ReplicaSetSpec::default() }),
            status: Some(ReplicaSetStatus {
                replicas,
                available_replicas: Some(available),
                ..ReplicaSetStatus::default()
            }),
        }
    }

    #[test]
    fn surge_rounds_up_unavailability_down_and_never_are_both_zero() {
        for (replicas, surge, unavailable, want) in [
            (3, "25%", "25%", (1, 0)),
            (4, "25%", "25%", (1, 1)),
            (10, "25%", "25%", (3, 2)),
            (1, "25%", "25%", (1, 0)),
            (2, "0", "0", (0, 1)),
            (3, "0%", "10%", (0, 1)),
            (2, "1", "5", (1, 2)),
            (0, "25%", "25%", (0, 0)),
        ] {
            let deployment = deployment(replicas, surge, unavailable);
            let got = (max_surge(&deployment), max_unavailable(&deployment));
            assert_eq!(got, want, "{replicas} {surge} {unavailable}");
        }
    }

    #[test]
    fn the_new_set_grows_into_the_room_that_is_left() {
        let deployment = deployment(10, "25%", "25%");
        for (all, current, want) in [(10, 0, 3), (13, 3, 3), (12, 4, 5), (5, 5, 10), (20, 0, 0)] {
            assert_eq!(new_set_size(&deployment, all, current), want, "{current} of {all}");
        }
    }

    #[test]
    fn old_sets_shrink_unhealthy_first_and_keep_the_minimum_available() {
        let deployment = deployment(10, "25%", "25%");
        for (name, old, new, want) in [
            ("all healthy, new ones not up yet", vec![set("a", 10, 10)], set("n", 3, 0), vec![("a", 8)]),
            ("two new ones are up", vec![set("a", 8, 8)], set("n", 5, 2), vec![("a", 6)]),
            (
                "an unhealthy one goes even with nothing to spare",
                vec![set("a", 8, 4), set("b", 4, 4)],
                set("n", 1, 0),
                vec![("a", 4)],
            ),
            ("nothing may go", vec![set("a", 8, 8)], set("n", 5, 0), vec![]),
            ("nothing is left", vec![set("a", 0, 0)], set("n", 10, 10), vec![]),
            ("its status is older than its size", vec![set("a", 7, 11)], set("n", 5, 0), vec![]),
            (
                "what went before such a set stays gone",
                vec![set("b", 3, 1), set("a", 8, 11)],
                set("n", 5, 2),
                vec![("b", 1)],
            ),
            ("the last step", vec![set("a", 2, 2)], set("n", 10, 10), vec![("a", 0)]),
        ] {
            let old: Vec<&ReplicaSet> = old.iter().collect();
            let got = shrink_old(&deployment, &old, &new);
            let want: Vec<(String, i32)> = want.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn scaling_in_the_middle_of_a_rollout_keeps_the_proportions() {
        let annotated = |name: &str, replicas: i32, max: i32| {
            let mut set = set(name, replicas, replicas);
            super::super::revision::annotate_replicas(&mut set, max, max);
            set
        };
        for (name, replicas, sets, want) in [
            ("10 to 12 over 5 and 5", 12, [("a", 5, 10), ("b", 5, 10)], [("b", 6), ("a", 6)]),
            ("10 to 8 over 8 and 2", 8, [("a", 8, 10), ("b", 2, 10)], [("a", 6), ("b", 2)]),
            ("to nothing", 0, [("a", 8, 10), ("b", 2, 10)], [("a", 0), ("b", 0)]),
        ] {
            let deployment = deployment(replicas, "0", "25%");
            let sets: Vec<ReplicaSet> = sets.iter().map(|(name, size, max)| annotated(name, *size, *max)).collect();
            let got = scale_proportionally(&deployment, &sets.iter().collect::<Vec<_>>());
            let want: Vec<(String, i32)> = want.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
            assert_eq!(got, want, "{name}");
        }
    }
}
