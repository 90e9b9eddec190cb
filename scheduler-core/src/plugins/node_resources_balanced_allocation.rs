//! NodeResourcesBalancedAllocation: prefers nodes on which the pod evens out the use of resources.
//! Upstream: plugins/noderesources/balanced_allocation.go (v1.36.2).

use std::hash::Hash;

use super::resource_allocation::{AllocationScorer, Inputs, Strategy};
use super::resource_evenness::Evenness;
use crate::cache::{Indexes, NodeIdx, NodeView, Objects, SlotRun};
use crate::config::args::NodeResourcesBalancedAllocationArgs;
use crate::framework::{Cycle, CycleState, Plugin, PreScoreStatus, Result, Reuse, ScorePlugin, Sharing, Signature};
use crate::model::Pod;

/// Scores `50 + (50 + S(with the pod) − S(without)) / 2`, where S is 100 for even use.
#[derive(Debug)]
pub struct NodeResourcesBalancedAllocation {
    scorer: AllocationScorer,
}

impl NodeResourcesBalancedAllocation {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeResourcesBalancedAllocation";

    /// Takes the resources from the arguments.
    #[must_use]
    pub fn new(args: &NodeResourcesBalancedAllocationArgs) -> Self {
        Self { scorer: AllocationScorer::new(Strategy::Balanced, &args.resources) }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn require(&self, _: &Pod, _: &Objects, indexes: &mut Indexes<'_>) {
        if self.scorer.is_of_cpu_and_memory() {
            indexes.keep(Evenness::default);
        }
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.resources.used().hash(signature);
        Sharing::ByNode
    }

    /// Columns of other resources than the usual ones come with the first pod or node that has some.
    fn reuse(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState) -> Reuse {
        if pod.resources.has_scalars() { Reuse::Signature } else { Reuse::Everything }
    }
}

impl ScorePlugin for NodeResourcesBalancedAllocation {
    type State = Inputs;

    fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<Inputs>> {
        Ok(match self.scorer.inputs_for_balance(cycle.pod, cycle.snapshot.resources()) {
            Some(inputs) => PreScoreStatus::Success(inputs),
            None => PreScoreStatus::Skip,
        })
    }

    /// Does not look at the feasible nodes.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        _: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<Inputs>>> {
        self.pre_score(cycle, &[], shared).map(Some)
    }

    fn score(&self, state: Option<&Inputs>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        Ok(match state {
            Some(inputs) => self.scorer.score(inputs, node),
            None => self
                .scorer
                .inputs_for_balance(cycle.pod, cycle.snapshot.resources())
                .map_or(0, |inputs| self.scorer.score(&inputs, node)),
        })
    }

    fn normalizes(&self) -> bool {
        false
    }

    fn score_chunk(
        &self,
        state: Option<&Inputs>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let columns = cycle.snapshot.resources();
        match state {
            Some(inputs) => self.scorer.score_chunk(inputs, columns, nodes, scores),
            None => match self.scorer.inputs_for_balance(cycle.pod, columns) {
                Some(inputs) => self.scorer.score_chunk(&inputs, columns, nodes, scores),
                None => scores.fill(0),
            },
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&Inputs>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let Some(inputs) = state else { return Ok(false) };
        let kept = cycle.snapshot.kept::<Evenness>().filter(|_| self.scorer.is_of_cpu_and_memory());
        let without_pod = kept.and_then(|kept| kept.of_slots(slots.range()));
        Ok(self.scorer.score_slots(inputs, cycle.snapshot.resources(), without_pod, slots, scores))
    }
}
