//! Which node's victims go: the order of importance of pods, and the choice among candidates.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use super::Candidate;
use crate::model::{Pod, Timestamp};

/// Most important first: higher priority, then longer running. A pod that has not started counts as started now.
/// Upstream v1.36.2: scheduler/util MoreImportantPod.
pub(super) fn by_importance(a: &Arc<Pod>, b: &Arc<Pod>, now: Timestamp) -> Ordering {
    b.priority.cmp(&a.priority).then_with(|| started(a, now).cmp(&started(b, now)))
}

fn started(pod: &Pod, now: Timestamp) -> Timestamp {
    pod.start_time.unwrap_or(now)
}

/// The candidates that are as good as any other: fewest disruption budgets violated, then the lowest highest priority,
/// then the lowest sum of priorities, then the fewest victims, then those whose most important victims started last.
/// Upstream v1.36.2: framework/preemption pickOneNodeForPreemption.
pub fn best_candidates(candidates: &[Candidate], now: Timestamp) -> Vec<&Candidate> {
    let costs: Vec<Cost> = candidates.iter().map(|candidate| cost(candidate, now)).collect();
    let best = costs.iter().min();
    candidates.iter().zip(&costs).filter(|(_, cost)| Some(*cost) == best).map(|(candidate, _)| candidate).collect()
}

type Cost = (usize, i32, i64, usize, Reverse<Timestamp>);

fn cost(candidate: &Candidate, now: Timestamp) -> Cost {
    /// Added to each priority, so that one more victim is never cheaper, however low its priority.
    const OFFSET: i64 = i32::MAX as i64 + 1;
    let victims = &candidate.victims;
    let highest = victims.first().map_or(i32::MIN, |pod| pod.priority);
    let sum = victims.iter().map(|pod| i64::from(pod.priority) + OFFSET).sum();
    let most_important = victims.iter().filter(|pod| pod.priority == highest);
    let earliest = most_important.map(|pod| started(pod, now)).min().unwrap_or(now);
    (candidate.n_pdb_violations, highest, sum, victims.len(), Reverse(earliest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{best_candidates, by_importance};
    use crate::model::{Pod, PodTemplate, Timestamp};
    use crate::plugins::default_preemption::Candidate;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn pod(priority: i32, started: Option<i64>) -> Arc<Pod> {
        let template = PodTemplate { priority, ..PodTemplate::default() };
        Arc::new(Pod { start_time: started.map(Timestamp::from_secs), ..template.into() })
    }

    fn candidate(node: &str, n_pdb_violations: usize, victims: &[(i32, Option<i64>)]) -> Candidate {
        let victims = victims.iter().map(|&(priority, started)| pod(priority, started)).collect();
        Candidate { node_name: node.into(), victims, n_pdb_violations }
    }

    #[test]
    fn importance_is_priority_then_age_and_unstarted_is_youngest() {
        let mut pods = [pod(1, None), pod(1, Some(5)), pod(2, Some(9)), pod(1, Some(3)), pod(-1, Some(0))];
        pods.sort_by(|a, b| by_importance(a, b, NOW));
        let order: Vec<_> =
            pods.iter().map(|pod| (pod.priority, pod.start_time.map(|t| t.as_micros() / 1_000_000))).collect();
        assert_eq!(order, [(2, Some(9)), (1, Some(3)), (1, Some(5)), (1, None), (-1, Some(0))]);
    }

    #[test]
    fn each_criterion_decides_when_those_before_it_are_equal() {
        let cases = [
            ("violations", candidate("a", 0, &[(9, None), (9, None)]), candidate("b", 1, &[(1, None)])),
            ("highest priority", candidate("a", 0, &[(1, None), (1, None)]), candidate("b", 0, &[(2, None)])),
            (
                "sum of priorities",
                candidate("a", 0, &[(5, None), (1, None)]),
                candidate("b", 0, &[(5, None), (2, None)]),
            ),
            (
                "one victim less, though the sum is lower",
                candidate("a", 0, &[(-5, None)]),
                candidate("b", 0, &[(-5, None), (-9, None)]),
            ),
            (
                "latest start of the most important",
                candidate("a", 0, &[(5, Some(9)), (1, Some(1))]),
                candidate("b", 0, &[(5, Some(8)), (1, Some(9))]),
            ),
            ("never started is latest", candidate("a", 0, &[(5, None)]), candidate("b", 0, &[(5, Some(9))])),
        ];
        for (name, want, other) in cases {
            for pair in [[want.clone(), other.clone()], [other, want]] {
                let best: Vec<_> = best_candidates(&pair, NOW).iter().map(|c| c.node_name.to_string()).collect();
                assert_eq!(best, ["a"], "{name}");
            }
        }
    }

    #[test]
    fn a_full_tie_leaves_all() {
        let same = |node| candidate(node, 0, &[(1, Some(1))]);
        assert_eq!(best_candidates(&[same("a"), same("b"), candidate("c", 0, &[(2, None)])], NOW).len(), 2);
        assert!(best_candidates(&[], NOW).is_empty());
    }
}
