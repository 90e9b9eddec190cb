//! TaintToleration: keeps pods off tainted nodes, and prefers nodes with fewer soft taints.
//! Upstream: plugins/tainttoleration (v1.36.2).

use std::hash::Hash;

use smallvec::SmallVec;

use crate::cache::{Candidates, IdSet, NodeIdx, NodeView, SlotRun};
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, MAX_NODE_SCORE, Plugin, PluginError, PreScoreStatus, Reason, Result, Reuse,
    ScorePlugin, Sharing, Signature, default_normalize_score, normalize_to,
};
use crate::model::{Object, Pod, Taint, TaintEffect, Toleration};

/// Compares taints with tolerations.
#[derive(Debug, Default)]
pub struct TaintToleration;

impl TaintToleration {
    /// Name in configurations.
    pub const NAME: &'static str = "TaintToleration";
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.tolerations.hash(signature);
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

impl FilterPlugin for TaintToleration {
    type State = ();

    fn filter(&self, _: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        Ok(FilterStatus::resolvable_never_unless(cycle.pod.tolerates_all(node.taints())))
    }

    /// Decides once per class of taints.
    fn filter_chunk(&self, _: Option<&()>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        let taints = cycle.snapshot.taints();
        let tolerated: SmallVec<[bool; 32]> = taints.classes().map(|class| cycle.pod.tolerates_all(class)).collect();
        if tolerated.iter().any(|tolerated| !tolerated) {
            nodes.retain_ids(taints.of_slots(), &IdSet::new(tolerated.len(), false, |class| tolerated[class as usize]));
        }
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("node(s) had untolerated taint(s)".into());
    }
}

/// The tolerations that bear on soft taints.
#[derive(Debug)]
pub struct SoftTolerations(Vec<Toleration>);

impl SoftTolerations {
    fn n_intolerable(&self, taints: &[Taint]) -> i64 {
        let n = taints
            .iter()
            .filter(|taint| taint.effect == TaintEffect::PreferNoSchedule)
            .filter(|taint| !self.0.iter().any(|toleration| toleration.tolerates(taint)))
            .count();
        i64::try_from(n).unwrap_or(i64::MAX)
    }
}

impl ScorePlugin for TaintToleration {
    type State = SoftTolerations;

    fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<SoftTolerations>> {
        let soft = cycle
            .pod
            .tolerations
            .iter()
            .filter(|toleration| toleration.effect.is_none_or(|effect| effect == TaintEffect::PreferNoSchedule));
        Ok(PreScoreStatus::Success(SoftTolerations(soft.cloned().collect())))
    }

    /// Does not look at the feasible nodes.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        _: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<SoftTolerations>>> {
        self.pre_score(cycle, &[], shared).map(Some)
    }

    fn score(&self, state: Option<&SoftTolerations>, _: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        Ok(state.ok_or_else(PluginError::not_found)?.n_intolerable(node.taints()))
    }

    fn score_chunk(
        &self,
        state: Option<&SoftTolerations>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        let taints = cycle.snapshot.taints();
        let by_class: SmallVec<[i64; 32]> = taints.classes().map(|class| state.n_intolerable(class)).collect();
        if by_class.iter().all(|score| *score == 0) {
            scores.fill(0);
            return Ok(());
        }
        let of_slots = taints.of_slots();
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = by_class[of_slots[node.slot()] as usize];
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&SoftTolerations>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let Some(state) = state else { return Ok(false) };
        let taints = cycle.snapshot.taints();
        let by_class: SmallVec<[i64; 32]> = taints.classes().map(|class| state.n_intolerable(class)).collect();
        for (score, class) in scores.iter_mut().zip(&taints.of_slots()[slots.range()]) {
            *score = by_class[*class as usize];
        }
        Ok(true)
    }

    /// Without a soft taint that bears on the pod, no node is worse than another.
    fn uniform_score(&self, state: Option<&SoftTolerations>, cycle: Cycle<'_>, _: &CycleState) -> Option<i64> {
        let state = state?;
        let is_zero = cycle.snapshot.taints().classes().all(|class| state.n_intolerable(class) == 0);
        is_zero.then_some(MAX_NODE_SCORE)
    }

    fn normalize(&self, _: Option<&SoftTolerations>, _: Cycle<'_>, _: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
        default_normalize_score(true, scores);
        Ok(())
    }

    fn normalize_between(&self, _: Option<&SoftTolerations>, _: i64, highest: i64, scores: &mut [i64]) -> bool {
        normalize_to(highest, true, scores);
        true
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_TAINT),
            EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (old, Some(Object::Node(new))) => {
                let was_untolerated = match old {
                    Some(Object::Node(old)) => !pod.tolerates_all(&old.taints),
                    _ => true,
                };
                was_untolerated && pod.tolerates_all(&new.taints)
            }
            (_, Some(Object::Pod(new))) => new.uid == pod.uid,
            _ => false,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}
