//! Which nodes can take the pod: Filter over tiles of the mask, nominated pods, sampling, extenders. Why a node cannot is
//! in `diagnose`.

use super::algorithm::{Algorithm, Restriction};
use super::extenders::ByExtenders;
use super::score_tiles::ScorePlan;
use super::scratch::Scratch;
use super::tiles::{Tile, WORDS_PER_TILE};
use crate::cache::{Candidates, NodeIdx, set_bit};
use crate::framework::{CycleState, FilterStates, Result};

/// Below this many nodes all are looked at; upstream: `minFeasibleNodesToFind` (v1.36.2 schedule_one.go).
const MIN_FEASIBLE_NODES_TO_FIND: usize = 100;
/// Upstream: `minFeasibleNodesPercentageToFind`.
const MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND: usize = 5;

/// What came of the search, besides the mask of feasible nodes in the scratch.
#[derive(Default)]
pub(super) struct Found {
    pub(super) n_feasible: usize,
    /// Nodes that were looked at: upstream's count of feasible nodes and rejections.
    pub(super) n_evaluated: usize,
    /// What extenders said against nodes.
    pub(super) by_extenders: ByExtenders,
    /// Set if the tiles have been scored already.
    pub(super) scored: Option<ScorePlan>,
}

impl Algorithm<'_> {
    /// Leaves the feasible nodes in `scratch.mask`. Given a plan, the nodes are scored in the same go, if all feasible ones
    /// are wanted.
    pub(super) fn find_feasible_nodes(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        states: &FilterStates,
        restriction: Option<&Restriction>,
        start_index: &mut usize,
    ) -> Result<Found> {
        let snapshot = self.cycle.snapshot;
        if let Some(nominated) = self.nominated_node(states)? {
            scratch.mask.clear();
            scratch.mask.resize(snapshot.live().len(), 0);
            set_bit(&mut scratch.mask, nominated.slot());
            let mut found = Found { n_feasible: 1, n_evaluated: 1, ..Found::default() };
            // As upstream, an error here does not end the cycle either.
            if self.narrow_by_extenders(scratch, &mut found).is_ok() && found.n_feasible > 0 {
                scratch.considered.clear();
                return Ok(found);
            }
        }

        let n_candidates = self.mark_candidates(scratch, restriction);
        let n_to_find = self.n_feasible_nodes_to_find(n_candidates);
        let is_final = n_to_find >= n_candidates && self.filters.nominations().is_empty() && self.extenders.is_empty();
        let plan = if is_final && self.has_scoring() { self.plan_scores(None, shared) } else { None };
        let n_feasible = self.filter_all(scratch, states, plan.as_ref().map(|plan| (plan, shared)))?;
        let mut found = Found { n_feasible, n_evaluated: n_candidates, scored: plan, ..Found::default() };
        if n_feasible > n_to_find {
            let keeps_unseen = self.filtering_extenders().next().is_none();
            found.n_evaluated = sample(scratch, n_candidates, n_to_find, *start_index, keeps_unseen);
            found.n_feasible = n_to_find;
        }
        *start_index = (*start_index + found.n_evaluated) % snapshot.n_nodes().max(1);
        self.narrow_by_extenders(scratch, &mut found)?;
        Ok(found)
    }

    /// The node that an earlier cycle nominated the pod to, if it fits there: then no other is looked at.
    fn nominated_node(&self, states: &FilterStates) -> Result<Option<NodeIdx>> {
        let nominated = self.cycle.pod.nominated_node_name.as_ref();
        let Some(node) = nominated.and_then(|name| self.cycle.snapshot.find(name)) else { return Ok(None) };
        let view = self.cycle.snapshot.view(node);
        // As upstream, an error here does not end the cycle: the whole search will meet it again if it is real.
        match self.filters.filter_with_nominated(states, self.cycle, view) {
            Ok(None) => Ok(Some(node)),
            Ok(Some(_)) | Err(_) => Ok(None),
        }
    }

    fn mark_candidates(&self, scratch: &mut Scratch, restriction: Option<&Restriction>) -> usize {
        let snapshot = self.cycle.snapshot;
        let Some(restriction) = restriction else {
            scratch.mask.clear();
            scratch.mask.extend_from_slice(snapshot.live());
            scratch.considered.clone_from(&scratch.mask);
            return snapshot.n_nodes();
        };
        scratch.mask.clear();
        scratch.mask.resize(snapshot.live().len(), 0);
        let mut n_nodes = 0;
        for node in restriction.nodes.iter().filter_map(|name| snapshot.find(name)) {
            scratch.mask[node.slot() / 64] |= 1 << (node.slot() % 64);
            n_nodes += 1;
        }
        scratch.considered.clone_from(&scratch.mask);
        n_nodes
    }

    /// How many feasible nodes end the search. Upstream: `numFeasibleNodesToFind` (v1.36.2 schedule_one.go).
    pub(super) fn n_feasible_nodes_to_find(&self, n_nodes: usize) -> usize {
        let needs_all = self.has_scoring() || self.extenders.iter().any(|extender| extender.is_filter());
        if !needs_all {
            return 1;
        }
        if n_nodes < MIN_FEASIBLE_NODES_TO_FIND {
            return n_nodes;
        }
        let percentage = match usize::try_from(self.profile.percentage_of_nodes_to_score).unwrap_or(0) {
            0 => 50_usize.saturating_sub(n_nodes / 125).max(MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND),
            percentage => percentage,
        };
        (n_nodes * percentage / 100).max(MIN_FEASIBLE_NODES_TO_FIND)
    }

    pub(super) fn has_scoring(&self) -> bool {
        !self.profile.score_order.is_empty() || self.extenders.iter().any(|extender| extender.weight() != 0)
    }

    /// Clears the bits of the nodes that do not fit, and scores the others if there is a plan. Returns their number.
    fn filter_all(
        &self,
        scratch: &mut Scratch,
        states: &FilterStates,
        scoring: Option<(&ScorePlan, &CycleState)>,
    ) -> Result<usize> {
        let Scratch { mask, tiles, .. } = scratch;
        tiles.resize_with(mask.len().div_ceil(WORDS_PER_TILE), Tile::new);
        self.for_each_tile(mask, tiles, |first_word, words, tile| {
            self.filters.filter_chunk(states, self.cycle, &mut Candidates::new(first_word, words))?;
            tile.n_feasible = n_ones(words);
            if let Some((plan, shared)) = scoring {
                self.score_tile(plan, shared, first_word, words, tile);
            }
            Ok(())
        })?;
        if !self.filters.nominations().is_empty() {
            self.filter_nominated_nodes(scratch, states)?;
        }
        Ok(scratch.tiles.iter().map(|tile| tile.n_feasible).sum())
    }

    /// A node with nominated pods must fit with them, too.
    fn filter_nominated_nodes(&self, scratch: &mut Scratch, states: &FilterStates) -> Result<()> {
        let snapshot = self.cycle.snapshot;
        for name in self.filters.nominations().nominated_nodes() {
            let Some(node) = snapshot.find(&name) else { continue };
            let bit = 1 << (node.slot() % 64);
            if scratch.mask[node.slot() / 64] & bit == 0 {
                continue;
            }
            let rejected = self.filters.filter_with_nominated(states, self.cycle, snapshot.view(node))?;
            if rejected.is_some() {
                scratch.mask[node.slot() / 64] &= !bit;
                scratch.tiles[node.slot() / 64 / WORDS_PER_TILE].n_feasible -= 1;
            }
        }
        Ok(())
    }

    /// Takes out of the mask what extenders reject.
    fn narrow_by_extenders(&self, scratch: &mut Scratch, found: &mut Found) -> Result<()> {
        if self.filtering_extenders().next().is_none() {
            return Ok(());
        }
        scratch.list_feasible();
        found.by_extenders = self.run_extenders(&mut scratch.feasible)?;
        scratch.mark_feasible();
        found.n_feasible = scratch.feasible.len();
        Ok(())
    }
}

/// Leaves the first `n_to_find` feasible nodes from the start index on, wrapping round; there are more. Returns how many
/// nodes the search looked at. Unless `keeps_unseen`, only these count as considered from now on: it matters to those who
/// may reject all that was found.
fn sample(
    scratch: &mut Scratch,
    n_candidates: usize,
    n_to_find: usize,
    start_index: usize,
    keeps_unseen: bool,
) -> usize {
    let start = start_index % n_candidates.max(1);
    let Scratch { mask, considered, feasible, .. } = scratch;
    let is_feasible = |node: NodeIdx| mask[node.slot() / 64] >> (node.slot() % 64) & 1 == 1;
    let candidates = Candidates::new(0, considered);
    let mut n_evaluated = 0;
    feasible.clear();
    for node in candidates.iter().skip(start).chain(candidates.iter().take(start)) {
        n_evaluated += 1;
        if is_feasible(node) {
            feasible.push(node);
            if feasible.len() == n_to_find {
                break;
            }
        }
    }
    if !keeps_unseen {
        let mut seen = vec![0; mask.len()];
        let in_order = candidates.iter().skip(start).chain(candidates.iter().take(start));
        in_order.take(n_evaluated).for_each(|node| set_bit(&mut seen, node.slot()));
        *considered = seen;
    }
    scratch.mark_feasible();
    n_evaluated
}

fn n_ones(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}
