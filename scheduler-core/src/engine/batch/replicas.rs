//! Replicas that follow each other: what plugins said for the first of them, before they looked at nodes, is not asked of
//! them again.
//!
//! Invariant: [`Replicas`] are those of the last pod that was tried; it was decided on through its batch, and nothing but
//! such pods has come to a node since, nor has a node or other object changed. Whoever breaks it forgets them: see
//! [`Batches::forget_replicas`].

use smallvec::SmallVec;

use super::rows::Sharings;
use super::{Algorithm, Batches, Decision};
use crate::framework::{CycleState, FilterStates, PreFilterVerdict, Reuse, ScoreSlot, ScoreStates, Sharing};

/// What plugins left for the last pod, for its replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    /// Position of their batch.
    batch: usize,
    /// How long the change log is while nothing but their placement has happened.
    n_changes: u64,
    sharings: Sharings,
    shared: CycleState,
    filter_states: FilterStates,
    score_states: ScoreStates,
    /// Plugins whose PreFilter, or PreScore though they share by node, runs for each of them.
    filters_again: SmallVec<[usize; 2]>,
    scores_again: SmallVec<[usize; 2]>,
}

impl Batches {
    /// Something has happened that plugins may care about.
    pub(in crate::engine) fn forget_replicas(&mut self) {
        self.replicas = None;
    }

    /// The pod just decided on was placed, which is the latest of so many changes.
    pub(in crate::engine) fn note_placed(&mut self, n_changes: u64) {
        self.replicas = self.replicas.take().filter(|replicas| replicas.n_changes + 1 == n_changes);
        if let Some(replicas) = &mut self.replicas {
            replicas.n_changes = n_changes;
        }
    }
}

impl Algorithm<'_> {
    /// Chooses a node for a pod that is a replica of the last one; `None`, and the replicas forgotten, if it has to be
    /// done in another way.
    pub(in crate::engine) fn schedule_replica(
        &self,
        batches: &mut Batches,
        shared: &mut CycleState,
        start_index: &mut usize,
    ) -> Option<Decision> {
        let mut replicas = batches.replicas.take()?;
        if replicas.n_changes != self.cycle.snapshot.changes().n_changes() || !self.may_share(batches) {
            return None;
        }
        let Replicas { filters_again, shared: left, filter_states, .. } = &mut *replicas;
        for &at in &*filters_again {
            let was_skipped = filter_states.slots[at].is_skipped();
            let goes_on = match self.filters.pre_filter(at, self.cycle, left, filter_states) {
                Ok(PreFilterVerdict::Skip) => was_skipped,
                Ok(PreFilterVerdict::Success(None)) => !was_skipped,
                _ => false,
            };
            if !goes_on {
                return None;
            }
        }
        let Replicas { batch, sharings, filter_states, score_states, scores_again, shared: left, .. } = &mut *replicas;
        for (slot, sharing) in score_states.slots.iter_mut().zip(&sharings.scores) {
            if *sharing != Sharing::ByNode {
                *slot = ScoreSlot::Absent;
            }
        }
        for &at in &*scores_again {
            let was_skipped = score_states.slots[at].is_skipped();
            self.pre_score_by_node([&at], left, score_states).ok()?;
            if score_states.slots[at].is_skipped() != was_skipped {
                return None;
            }
        }

        batches.clock += 1;
        let batch = &mut batches.all[*batch].2;
        batch.last_used = batches.clock;
        let decision = self.decide_in(batch, left, filter_states, score_states).ok()??;
        *start_index %= decision.n_evaluated.max(1);
        *shared = left.clone();
        batches.replicas = Some(replicas);
        Some(decision)
    }

    /// What is kept of a decision through the batch at this position; `None` if a plugin wants to be asked again.
    pub(super) fn keep_for_replicas(
        &self,
        batch: usize,
        sharings: Sharings,
        shared: &CycleState,
        states: (&mut FilterStates, ScoreStates),
    ) -> Option<Box<Replicas>> {
        let (filters, scores) = (&self.profile.filters, &self.profile.scores);
        let of_filters: SmallVec<[Reuse; 16]> =
            filters.iter().map(|entry| entry.plugin.reuse(self.cycle, shared)).collect();
        let of_scores: SmallVec<[Reuse; 16]> =
            scores.iter().map(|entry| entry.plugin.reuse(self.cycle, shared)).collect();
        if of_filters.iter().chain(&of_scores).any(|reuse| *reuse == Reuse::Nothing) {
            return None;
        }
        let filters_again = self.profile.pre_filter_order.iter().copied();
        let scores_again = self.profile.pre_score_order.iter().copied();
        Some(Box::new(Replicas {
            batch,
            n_changes: self.cycle.snapshot.changes().n_changes(),
            filters_again: filters_again.filter(|at| of_filters[*at] != Reuse::Everything).collect(),
            scores_again: scores_again
                .filter(|at| of_scores[*at] != Reuse::Everything && sharings.scores[*at] == Sharing::ByNode)
                .collect(),
            sharings,
            shared: shared.clone(),
            filter_states: std::mem::take(states.0),
            score_states: states.1,
        }))
    }
}
