//! Typed plugins as the engine holds them: one virtual call per plugin and chunk, state behind a type-erased slot.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Cycle, CycleState, FilterPlugin, FilterStatus, PreFilterStatus, PreScoreStatus, Reason, ReasonCounts, Reasons,
    Result, Reuse, ScorePlugin, Sharing, Signature,
};
use crate::cache::{Candidates, Indexes, NodeIdx, NodeView, Objects, SlotRun};
use crate::model::Pod;

/// Per-cycle state of one filter plugin.
#[derive(Default)]
pub(crate) enum FilterSlot {
    /// PreFilter did not run (not enabled, or it left no state).
    #[default]
    Absent,
    /// PreFilter said Skip: Filter, AddPod and RemovePod do not run.
    Skipped,
    /// PreFilter left this state.
    Present(Box<dyn ErasedState>),
}

pub(crate) trait ErasedState: Any + Send + Sync {
    fn clone_box(&self) -> Box<dyn ErasedState>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> ErasedState for T {
    fn clone_box(&self) -> Box<dyn ErasedState> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Clone for FilterSlot {
    fn clone(&self) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Skipped => Self::Skipped,
            // Through the box: `ErasedState` is implemented for the box itself, too.
            Self::Present(state) => Self::Present((**state).clone_box()),
        }
    }
}

impl FilterSlot {
    pub(crate) fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped)
    }

    fn get<S: 'static>(&self) -> Option<&S> {
        match self {
            Self::Present(state) => (**state).as_any().downcast_ref(),
            Self::Absent | Self::Skipped => None,
        }
    }

    fn get_mut<S: 'static>(&mut self) -> Option<&mut S> {
        match self {
            Self::Present(state) => (**state).as_any_mut().downcast_mut(),
            Self::Absent | Self::Skipped => None,
        }
    }
}

/// The filter states of all plugins of a profile for one cycle; a clone is what a what-if run changes.
#[derive(Clone, Default)]
pub struct FilterStates {
    pub(crate) slots: Vec<FilterSlot>,
}

impl std::fmt::Debug for FilterStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilterStates({} slots)", self.slots.len())
    }
}

/// What PreFilter said, without the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFilterVerdict {
    /// Skip.
    Skip,
    /// Success, with the node names that alone come into question.
    Success(Option<BTreeSet<Arc<str>>>),
    /// Rejected for now.
    Unschedulable(Reasons),
    /// Rejected for good.
    UnschedulableAndUnresolvable(Reasons),
}

/// A [`FilterPlugin`] without its type. Implemented for every filter plugin; not to be implemented by hand.
pub trait DynFilter: Send + Sync {
    /// [`super::Plugin::name`].
    fn name(&self) -> &'static str;
    /// [`super::Plugin::require`].
    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>);
    /// [`super::Plugin::sign`].
    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing;
    /// [`super::Plugin::looks_at_pods`].
    fn looks_at_pods(&self) -> bool;
    /// [`super::Plugin::reuse`].
    fn reuse(&self, cycle: Cycle<'_>, shared: &CycleState) -> Reuse;
    /// [`super::Plugin::classify`].
    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]);
    #[doc(hidden)]
    fn pre_filter(
        &self,
        cycle: Cycle<'_>,
        shared: &mut CycleState,
        states: &mut FilterStates,
        at: usize,
    ) -> Result<PreFilterVerdict>;
    #[doc(hidden)]
    fn filter(&self, states: &FilterStates, at: usize, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus>;
    #[doc(hidden)]
    fn filter_chunk(
        &self,
        states: &FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &mut Candidates<'_>,
    ) -> Result<()>;
    #[doc(hidden)]
    fn reasons(&self, states: &FilterStates, at: usize, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>);
    #[doc(hidden)]
    fn diagnose_chunk(
        &self,
        states: &FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) -> Result<()>;
    /// [`FilterPlugin::follows_pods`], if it left a state that follows.
    #[doc(hidden)]
    fn follows_pods(&self, states: &FilterStates, at: usize) -> bool;
    #[doc(hidden)]
    fn add_pod(
        &self,
        states: &mut FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        pod: &Pod,
        node: NodeView<'_>,
    ) -> Result<()>;
    #[doc(hidden)]
    fn remove_pod(
        &self,
        states: &mut FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        pod: &Pod,
        node: NodeView<'_>,
    ) -> Result<()>;
}

impl<P: FilterPlugin> DynFilter for P {
    fn name(&self) -> &'static str {
        super::Plugin::name(self)
    }

    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        super::Plugin::require(self, pod, objects, indexes);
    }

    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing {
        super::Plugin::sign(self, cycle, shared, signature)
    }

    fn looks_at_pods(&self) -> bool {
        super::Plugin::looks_at_pods(self)
    }

    fn reuse(&self, cycle: Cycle<'_>, shared: &CycleState) -> Reuse {
        super::Plugin::reuse(self, cycle, shared)
    }

    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        super::Plugin::classify(self, cycle, shared, nodes, classes);
    }

    fn pre_filter(
        &self,
        cycle: Cycle<'_>,
        shared: &mut CycleState,
        states: &mut FilterStates,
        at: usize,
    ) -> Result<PreFilterVerdict> {
        let (slot, verdict) = match FilterPlugin::pre_filter(self, cycle, shared)? {
            PreFilterStatus::Skip => (FilterSlot::Skipped, PreFilterVerdict::Skip),
            PreFilterStatus::Success { state, nodes } => {
                (FilterSlot::Present(Box::new(state)), PreFilterVerdict::Success(nodes))
            }
            PreFilterStatus::Unschedulable { state, reasons } => {
                let slot = state.map_or(FilterSlot::Absent, |state| FilterSlot::Present(Box::new(state)));
                (slot, PreFilterVerdict::Unschedulable(reasons))
            }
            PreFilterStatus::UnschedulableAndUnresolvable { reasons } => {
                (FilterSlot::Absent, PreFilterVerdict::UnschedulableAndUnresolvable(reasons))
            }
        };
        states.slots[at] = slot;
        Ok(verdict)
    }

    fn filter(&self, states: &FilterStates, at: usize, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        FilterPlugin::filter(self, states.slots[at].get(), cycle, node)
    }

    fn filter_chunk(
        &self,
        states: &FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &mut Candidates<'_>,
    ) -> Result<()> {
        FilterPlugin::filter_chunk(self, states.slots[at].get(), cycle, nodes)
    }

    fn reasons(&self, states: &FilterStates, at: usize, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        FilterPlugin::reasons(self, states.slots[at].get(), cycle, node, out);
    }

    fn diagnose_chunk(
        &self,
        states: &FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) -> Result<()> {
        FilterPlugin::diagnose_chunk(self, states.slots[at].get(), cycle, nodes, statuses, reasons)
    }

    fn follows_pods(&self, states: &FilterStates, at: usize) -> bool {
        matches!(states.slots[at], FilterSlot::Present(_)) && FilterPlugin::follows_pods(self)
    }

    fn add_pod(
        &self,
        states: &mut FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        pod: &Pod,
        node: NodeView<'_>,
    ) -> Result<()> {
        match states.slots[at].get_mut() {
            Some(state) => FilterPlugin::add_pod(self, state, cycle, pod, node),
            None => Ok(()),
        }
    }

    fn remove_pod(
        &self,
        states: &mut FilterStates,
        at: usize,
        cycle: Cycle<'_>,
        pod: &Pod,
        node: NodeView<'_>,
    ) -> Result<()> {
        match states.slots[at].get_mut() {
            Some(state) => FilterPlugin::remove_pod(self, state, cycle, pod, node),
            None => Ok(()),
        }
    }
}

/// Per-cycle state of one score plugin.
#[derive(Default)]
pub(crate) enum ScoreSlot {
    /// PreScore did not run.
    #[default]
    Absent,
    /// PreScore said Skip: every node gets 0.
    Skipped,
    /// PreScore left this state.
    Present(Box<dyn Any + Send + Sync>),
}

impl ScoreSlot {
    fn of<S: Send + Sync + 'static>(status: PreScoreStatus<S>) -> Self {
        match status {
            PreScoreStatus::Skip => Self::Skipped,
            PreScoreStatus::Success(state) => Self::Present(Box::new(state)),
        }
    }

    pub(crate) fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped)
    }

    fn get<S: 'static>(&self) -> Option<&S> {
        match self {
            Self::Present(state) => state.downcast_ref(),
            Self::Absent | Self::Skipped => None,
        }
    }
}

/// The score states of all plugins of a profile for one cycle.
#[derive(Default)]
pub struct ScoreStates {
    pub(crate) slots: Vec<ScoreSlot>,
}

impl std::fmt::Debug for ScoreStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScoreStates({} slots)", self.slots.len())
    }
}

/// A [`ScorePlugin`] without its type. Implemented for every score plugin; not to be implemented by hand.
pub trait DynScore: Send + Sync {
    /// [`super::Plugin::name`].
    fn name(&self) -> &'static str;
    /// [`super::Plugin::require`].
    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>);
    /// [`super::Plugin::sign`].
    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing;
    /// [`super::Plugin::looks_at_pods`].
    fn looks_at_pods(&self) -> bool;
    /// [`super::Plugin::reuse`].
    fn reuse(&self, cycle: Cycle<'_>, shared: &CycleState) -> Reuse;
    /// [`super::Plugin::classify`].
    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]);
    #[doc(hidden)]
    fn pre_score(
        &self,
        cycle: Cycle<'_>,
        feasible: &[NodeIdx],
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<()>;
    #[doc(hidden)]
    fn pre_score_classes(
        &self,
        cycle: Cycle<'_>,
        feasible: &[(NodeIdx, usize)],
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<()>;
    /// Whether the plugin took part: see [`ScorePlugin::pre_score_mask`].
    #[doc(hidden)]
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        feasible: Option<&[u64]>,
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<bool>;
    #[doc(hidden)]
    fn score(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        node: NodeView<'_>,
    ) -> Result<i64>;
    #[doc(hidden)]
    fn score_chunk(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()>;
    #[doc(hidden)]
    fn score_slots(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool>;
    #[doc(hidden)]
    fn uniform_score(&self, states: &ScoreStates, at: usize, cycle: Cycle<'_>, shared: &CycleState) -> Option<i64>;
    /// [`ScorePlugin::normalizes`].
    fn normalizes(&self) -> bool;
    #[doc(hidden)]
    fn normalize(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()>;
    #[doc(hidden)]
    fn normalize_between(&self, states: &ScoreStates, at: usize, lowest: i64, highest: i64, scores: &mut [i64])
    -> bool;
}

impl<P: ScorePlugin> DynScore for P {
    fn name(&self) -> &'static str {
        super::Plugin::name(self)
    }

    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        super::Plugin::require(self, pod, objects, indexes);
    }

    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing {
        super::Plugin::sign(self, cycle, shared, signature)
    }

    fn looks_at_pods(&self) -> bool {
        super::Plugin::looks_at_pods(self)
    }

    fn reuse(&self, cycle: Cycle<'_>, shared: &CycleState) -> Reuse {
        super::Plugin::reuse(self, cycle, shared)
    }

    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        super::Plugin::classify(self, cycle, shared, nodes, classes);
    }

    fn pre_score(
        &self,
        cycle: Cycle<'_>,
        feasible: &[NodeIdx],
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<()> {
        states.slots[at] = ScoreSlot::of(ScorePlugin::pre_score(self, cycle, feasible, shared)?);
        Ok(())
    }

    fn pre_score_classes(
        &self,
        cycle: Cycle<'_>,
        feasible: &[(NodeIdx, usize)],
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<()> {
        states.slots[at] = ScoreSlot::of(ScorePlugin::pre_score_classes(self, cycle, feasible, shared)?);
        Ok(())
    }

    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        feasible: Option<&[u64]>,
        shared: &CycleState,
        states: &mut ScoreStates,
        at: usize,
    ) -> Result<bool> {
        let status = ScorePlugin::pre_score_mask(self, cycle, feasible, shared)?;
        Ok(status.map(|status| states.slots[at] = ScoreSlot::of(status)).is_some())
    }

    fn score(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        node: NodeView<'_>,
    ) -> Result<i64> {
        ScorePlugin::score(self, states.slots[at].get(), cycle, shared, node)
    }

    fn score_chunk(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        ScorePlugin::score_chunk(self, states.slots[at].get(), cycle, shared, nodes, scores)
    }

    fn score_slots(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        shared: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        ScorePlugin::score_slots(self, states.slots[at].get(), cycle, shared, slots, scores)
    }

    fn uniform_score(&self, states: &ScoreStates, at: usize, cycle: Cycle<'_>, shared: &CycleState) -> Option<i64> {
        ScorePlugin::uniform_score(self, states.slots[at].get(), cycle, shared)
    }

    fn normalizes(&self) -> bool {
        ScorePlugin::normalizes(self)
    }

    fn normalize(
        &self,
        states: &ScoreStates,
        at: usize,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        ScorePlugin::normalize(self, states.slots[at].get(), cycle, nodes, scores)
    }

    fn normalize_between(
        &self,
        states: &ScoreStates,
        at: usize,
        lowest: i64,
        highest: i64,
        scores: &mut [i64],
    ) -> bool {
        ScorePlugin::normalize_between(self, states.slots[at].get(), lowest, highest, scores)
    }
}
