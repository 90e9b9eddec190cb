//! What extenders add to a decision: nodes that they reject, scores that they give. Whom they speak to is the host's affair.
//! Their say in preemption is in DefaultPreemption, binding in `binding_cycle`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::algorithm::Algorithm;
use crate::cache::NodeIdx;
use crate::framework::{Extender, FilterStatus, MAX_NODE_SCORE, Reasons, Result};

/// Highest score of an extender. Upstream: extender/v1 `MaxExtenderPriority` (v1.36.2).
const MAX_EXTENDER_PRIORITY: i64 = 10;

/// What extenders said against nodes.
#[derive(Default)]
pub(super) struct ByExtenders {
    /// Nodes with a message. As upstream, also such as a plugin had rejected already, or as were not asked about.
    pub(super) rejected: BTreeMap<NodeIdx, (FilterStatus, Reasons)>,
    /// The nodes that fitted before and do not any more, in node order.
    pub(super) lost: Vec<NodeIdx>,
}

impl ByExtenders {
    /// The verdict on a node; one that was lost without a message is lost for good.
    pub(super) fn verdict(&self, node: NodeIdx) -> Option<(FilterStatus, Reasons)> {
        let is_lost = || self.lost.binary_search(&node).is_ok();
        let silent = || is_lost().then(|| (FilterStatus::UnschedulableAndUnresolvable, Vec::new()));
        self.rejected.get(&node).cloned().or_else(silent)
    }
}

impl<'a> Algorithm<'a> {
    /// The extenders that filter nodes for this pod, in their order.
    pub(super) fn filtering_extenders(&self) -> impl Iterator<Item = &'a Arc<dyn Extender>> {
        let pod = self.cycle.pod;
        self.extenders.iter().filter(move |extender| extender.is_filter() && extender.is_interested(pod))
    }

    /// Takes out of `feasible`, which is in node order, what extenders reject; each sees what those before it left.
    /// Upstream: `findNodesThatPassExtenders` (v1.36.2 schedule_one.go).
    pub(super) fn run_extenders(&self, feasible: &mut Vec<NodeIdx>) -> Result<ByExtenders> {
        let snapshot = self.cycle.snapshot;
        let before = feasible.clone();
        let mut rejected = BTreeMap::new();
        for extender in self.filtering_extenders() {
            if feasible.is_empty() {
                break;
            }
            let result = match extender.filter(self.cycle.pod, &self.names(feasible)) {
                Ok(result) => result,
                Err(_) if extender.is_ignorable() => continue,
                Err(error) => return Err(error),
            };
            for (failed, status) in [
                (&result.failed, FilterStatus::Unschedulable),
                (&result.failed_and_unresolvable, FilterStatus::UnschedulableAndUnresolvable),
            ] {
                let known = failed.iter().filter_map(|(name, message)| Some((snapshot.find(name)?, message)));
                rejected.extend(known.map(|(node, message)| (node, (status, vec![message.clone().into()]))));
            }
            let remaining: BTreeSet<NodeIdx> = result.nodes.iter().filter_map(|name| snapshot.find(name)).collect();
            feasible.retain(|node| remaining.contains(node));
        }
        let lost = before.into_iter().filter(|node| feasible.binary_search(node).is_err()).collect();
        Ok(ByExtenders { rejected, lost })
    }

    /// What extenders add to the scores of `nodes`, which are in node order; `None` if none is asked. All are asked at the
    /// same time; one that fails adds nothing. Upstream: `prioritizeNodes` (v1.36.2 schedule_one.go).
    pub(super) fn extender_scores(&self, nodes: &[NodeIdx]) -> Option<Vec<i64>> {
        let pod = self.cycle.pod;
        let is_asked = |extender: &&Arc<dyn Extender>| extender.weight() != 0 && extender.is_interested(pod);
        let asked: Vec<&Arc<dyn Extender>> = self.extenders.iter().filter(is_asked).collect();
        let (last, others) = asked.split_last()?;
        let names = self.names(nodes);
        let ask = |extender: &Arc<dyn Extender>| extender.prioritize(pod, &names).unwrap_or_default();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|extender| scope.spawn(|| ask(extender))).collect();
            let last = ask(last);
            // One that panics adds nothing, as one that fails.
            let others = others.into_iter().map(|answer| answer.join().unwrap_or_default());
            others.chain([last]).collect()
        });
        let mut scores = vec![0_i64; nodes.len()];
        for (extender, answer) in asked.iter().zip(&answers) {
            let factor = extender.weight().saturating_mul(MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY);
            for (name, score) in answer {
                let node = self.cycle.snapshot.find(name).and_then(|node| nodes.binary_search(&node).ok());
                if let Some(at) = node {
                    scores[at] = scores[at].saturating_add(score.saturating_mul(factor));
                }
            }
        }
        Some(scores)
    }

    fn names(&self, nodes: &[NodeIdx]) -> Vec<Arc<str>> {
        nodes.iter().map(|node| Arc::clone(self.cycle.snapshot.name(*node))).collect()
    }
}
