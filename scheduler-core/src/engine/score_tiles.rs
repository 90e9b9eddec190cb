//! Scoring without a list of nodes: each tile by slot, right after the filters or once all feasible nodes are known.
//! Decides as `score_nodes` does; a failure of any plugin is left to it.
//!
//! Scores of slots without a feasible node are computed and thrown away where that is cheaper than to single them out:
//! every sum, range and comparison is masked by the feasible slots.

use smallvec::SmallVec;

use super::algorithm::Algorithm;
use super::blocks::{self, Block};
use super::rng::draw;
use super::scratch::Scratch;
use super::tiles::{Best, Extremes, Listed, SLOTS_PER_BLOCK, Tile, WORDS_PER_BLOCK, WORDS_PER_TILE};
use crate::cache::{LANES, NodeIdx, SlotRun};
use crate::framework::{CycleState, MAX_NODE_SCORE, Result, ScoreStates};

/// A score plugin by its position in the profile, with its weight.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    at: usize,
    weight: u32,
}

/// Which plugins score this pod, after PreScore. Those that give all nodes the same are left out: they change no choice.
pub(super) struct ScorePlan {
    states: ScoreStates,
    /// Plugins whose scores are right as they are.
    plain: SmallVec<[Weighted; 8]>,
    normalizing: SmallVec<[Weighted; 4]>,
}

/// From this share of feasible slots on, the scores of all slots are computed.
const MIN_DENSITY: (usize, usize) = (3, 8);

/// What one block needs while it is scored.
struct Buffers {
    /// Of one plugin.
    scores: Block,
    /// Weighted sums of those that need no normalising.
    totals: Block,
    /// The mask of the feasible slots.
    feasible: Block,
}

impl Buffers {
    fn new() -> Self {
        Self { scores: [0; SLOTS_PER_BLOCK], totals: [0; SLOTS_PER_BLOCK], feasible: [0; SLOTS_PER_BLOCK] }
    }
}

impl Algorithm<'_> {
    /// Chooses among the nodes of the mask, of which there are some; `None` if that must be done plugin by plugin. `scored`
    /// is the plan by which the tiles have been scored already.
    pub(super) fn choose_in_tiles(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        scored: Option<ScorePlan>,
    ) -> Option<NodeIdx> {
        let plan = match scored {
            Some(plan) => plan,
            None => self.score_tiles(scratch, shared)?,
        };
        let is_broken = scratch.tiles.iter().any(|tile| tile.n_feasible > 0 && tile.is_broken);
        if is_broken || self.normalize_tiles(&plan, scratch).is_err() {
            return None;
        }
        self.select_in_tiles(&plan, shared, scratch)
    }

    /// Scores every tile, once all feasible nodes are known.
    fn score_tiles(&self, scratch: &mut Scratch, shared: &CycleState) -> Option<ScorePlan> {
        let plan = match self.plan_scores(Some(&scratch.mask), shared) {
            Some(plan) => plan,
            None => {
                let mut states = ScoreStates::default();
                states.slots.resize_with(self.profile.scores.len(), Default::default);
                scratch.list_feasible();
                self.pre_score(&mut states, &scratch.feasible, shared).ok()?;
                self.plan_of(states, shared)?
            }
        };
        let Scratch { mask, tiles, .. } = scratch;
        tiles.resize_with(mask.len().div_ceil(WORDS_PER_TILE), Tile::new);
        let scored = self.for_each_tile(mask, tiles, |first_word, words, tile| {
            tile.n_feasible = words.iter().map(|word| word.count_ones() as usize).sum();
            self.score_tile(&plan, shared, first_word, words, tile);
            Ok(())
        });
        scored.is_ok().then_some(plan)
    }

    /// Runs PreScore with what is known of the feasible nodes; `None` if a plugin needs to know more, or fails.
    pub(super) fn plan_scores(&self, feasible: Option<&[u64]>, shared: &CycleState) -> Option<ScorePlan> {
        let mut states = ScoreStates::default();
        states.slots.resize_with(self.profile.scores.len(), Default::default);
        for &at in &self.profile.pre_score_order {
            let plugin = &self.profile.scores[at].plugin;
            if !plugin.pre_score_mask(self.cycle, feasible, shared, &mut states, at).unwrap_or(false) {
                return None;
            }
        }
        self.plan_of(states, shared)
    }

    /// What is to be done after PreScore; `None` if a weight is out of range.
    fn plan_of(&self, states: ScoreStates, shared: &CycleState) -> Option<ScorePlan> {
        let mut plan = ScorePlan { states, plain: SmallVec::new(), normalizing: SmallVec::new() };
        for &at in &self.profile.score_order {
            if plan.states.slots[at].is_skipped() {
                continue;
            }
            let entry = &self.profile.scores[at];
            let plugin = Weighted { at, weight: u32::try_from(entry.weight.unwrap_or(1)).ok()? };
            match entry.plugin.uniform_score(&plan.states, at, self.cycle, shared) {
                Some(score) if (0..=MAX_NODE_SCORE).contains(&score) => {}
                _ if entry.plugin.normalizes() => plan.normalizing.push(plugin),
                _ => plan.plain.push(plugin),
            }
        }
        Some(plan)
    }

    /// Adds up the scores that need no normalising, and keeps the raw ones of those that do.
    pub(super) fn score_tile(
        &self,
        plan: &ScorePlan,
        shared: &CycleState,
        first_word: usize,
        words: &[u64],
        tile: &mut Tile,
    ) {
        tile.clear(words.len() * LANES, plan.normalizing.len());
        let mut buffers = Buffers::new();
        for (block, words) in words.chunks(WORDS_PER_BLOCK).enumerate() {
            let slots = SlotRun::new(first_word + block * WORDS_PER_BLOCK, words);
            if slots.n_feasible() == 0 {
                continue;
            }
            if self.score_block(plan, shared, slots, block, &mut buffers, tile).is_err() {
                tile.is_broken = true;
                return;
            }
        }
    }

    fn score_block(
        &self,
        plan: &ScorePlan,
        shared: &CycleState,
        slots: SlotRun<'_>,
        block: usize,
        buffers: &mut Buffers,
        tile: &mut Tile,
    ) -> Result<()> {
        let n_slots = slots.range().len();
        let Tile { totals: kept, raws, extremes, bests, listed, n_slots: n_slots_of_tile, .. } = tile;
        let Buffers { scores, totals, feasible } = buffers;
        let first = block * SLOTS_PER_BLOCK;
        let totals = &mut totals[..n_slots];
        totals.fill(0);
        blocks::expand(slots.feasible(), feasible);
        listed.nodes.clear();
        for &Weighted { at, weight } in &plan.plain {
            let scores = &mut scores[..n_slots];
            self.score_slots(plan, at, shared, slots, listed, scores)?;
            blocks::add(totals, scores, feasible, weight)?;
        }
        for (nth, (&Weighted { at, .. }, extremes)) in plan.normalizing.iter().zip(extremes).enumerate() {
            let first = nth * *n_slots_of_tile + first;
            let raws = &mut raws[first..first + n_slots];
            self.score_slots(plan, at, shared, slots, listed, raws)?;
            *extremes = extremes.and(blocks::extremes(raws, feasible));
        }
        if plan.normalizing.is_empty() {
            bests[block] = blocks::best(totals, feasible);
        } else {
            kept[first..first + n_slots].copy_from_slice(totals);
        }
        Ok(())
    }

    /// Leaves one plugin's raw scores of the feasible slots: of all slots as they lie, or of those that are listed, where
    /// that is less work.
    fn score_slots(
        &self,
        plan: &ScorePlan,
        at: usize,
        shared: &CycleState,
        slots: SlotRun<'_>,
        listed: &mut Listed,
        scores: &mut [i64],
    ) -> Result<()> {
        let plugin = &self.profile.scores[at].plugin;
        let is_dense = slots.n_feasible() * MIN_DENSITY.1 >= scores.len() * MIN_DENSITY.0;
        if is_dense && plugin.score_slots(&plan.states, at, self.cycle, shared, slots, scores)? {
            return Ok(());
        }
        let Listed { nodes, scores: of_nodes } = listed;
        if nodes.is_empty() {
            nodes.extend(slots.iter().map(|(_, node)| node));
        }
        of_nodes.resize(nodes.len(), 0);
        plugin.score_chunk(&plan.states, at, self.cycle, shared, nodes, of_nodes)?;
        let first = slots.range().start;
        for (node, score) in nodes.iter().zip(&*of_nodes) {
            scores[node.slot() - first] = *score;
        }
        Ok(())
    }

    /// Normalises what is to be normalised, and finds the best of each block. Every tile has its raw scores.
    fn normalize_tiles(&self, plan: &ScorePlan, scratch: &mut Scratch) -> Result<()> {
        if plan.normalizing.is_empty() {
            return Ok(());
        }
        let mut extremes: SmallVec<[Extremes; 4]> = SmallVec::from_elem(Extremes::NONE, plan.normalizing.len());
        for tile in scratch.tiles.iter().filter(|tile| tile.n_feasible > 0) {
            for (all, of_tile) in extremes.iter_mut().zip(&tile.extremes) {
                *all = all.and(*of_tile);
            }
        }
        let mut by_slot: SmallVec<[(usize, Weighted, Option<Extremes>); 4]> = SmallVec::new();
        for (nth, (&plugin, &Extremes { lowest, highest })) in plan.normalizing.iter().zip(&extremes).enumerate() {
            let at = plugin.at;
            let mut only = [lowest];
            let normalize = |scores: &mut [i64]| {
                self.profile.scores[at].plugin.normalize_between(&plan.states, at, lowest, highest, scores)
            };
            if !normalize(&mut []) {
                self.normalize_listed(plan, nth, scratch)?;
                by_slot.push((nth, plugin, None));
                continue;
            }
            let is_uniform = lowest == highest && normalize(&mut only) && (0..=MAX_NODE_SCORE).contains(&only[0]);
            if !is_uniform {
                by_slot.push((nth, plugin, Some(Extremes { lowest, highest })));
            }
        }
        let Scratch { mask, tiles, .. } = scratch;
        self.for_each_tile(mask, tiles, |_, words, tile| {
            let n_slots_of_tile = tile.n_slots;
            let mut feasible = [0; SLOTS_PER_BLOCK];
            let blocks = words.chunks(WORDS_PER_BLOCK).zip(tile.totals.chunks_mut(SLOTS_PER_BLOCK)).enumerate();
            for (block, (words, totals)) in blocks {
                if words.iter().all(|word| *word == 0) {
                    continue;
                }
                blocks::expand(words, &mut feasible);
                for &(nth, Weighted { at, weight }, extremes) in &by_slot {
                    let first = nth * n_slots_of_tile + block * SLOTS_PER_BLOCK;
                    let scores = &mut tile.raws[first..first + totals.len()];
                    if let Some(Extremes { lowest, highest }) = extremes {
                        // What is normalised is among the extremes.
                        blocks::replace(scores, &feasible, lowest);
                        self.profile.scores[at].plugin.normalize_between(&plan.states, at, lowest, highest, scores);
                    }
                    blocks::add(totals, scores, &feasible, weight)?;
                }
                tile.bests[block] = blocks::best(totals, &feasible);
            }
            Ok(())
        })
    }

    /// One plugin that has to see all its scores at one time.
    fn normalize_listed(&self, plan: &ScorePlan, nth: usize, scratch: &mut Scratch) -> Result<()> {
        scratch.list_feasible();
        let Scratch { feasible, scores, tiles, .. } = scratch;
        let slots_per_tile = WORDS_PER_TILE * LANES;
        let place = |tiles: &[Tile], node: &NodeIdx| {
            let (tile, slot) = (node.slot() / slots_per_tile, node.slot() % slots_per_tile);
            (tile, nth * tiles[tile].n_slots + slot)
        };
        scores.clear();
        scores.extend(feasible.iter().map(|node| {
            let (tile, slot) = place(tiles, node);
            tiles[tile].raws[slot]
        }));
        let at = plan.normalizing[nth].at;
        self.profile.scores[at].plugin.normalize(&plan.states, at, self.cycle, feasible, scores)?;
        for (node, score) in feasible.iter().zip(&*scores) {
            let (tile, slot) = place(tiles, node);
            tiles[tile].raws[slot] = *score;
        }
        Ok(())
    }

    /// One draw a decision: rank r of the t nodes with the highest total, in node order. The totals of the block where it
    /// falls are computed once more, if they were not kept.
    fn select_in_tiles(&self, plan: &ScorePlan, shared: &CycleState, scratch: &mut Scratch) -> Option<NodeIdx> {
        let Scratch { mask, tiles, .. } = scratch;
        let bests = || tiles.iter().filter(|tile| tile.n_feasible > 0).flat_map(|tile| tile.bests);
        let best = bests().fold(Best::NONE, Best::or);
        let mut rank = u32::try_from(draw(self.cycle.seed, best.n_ties as usize)).expect("there are u32 ties");
        for (at, (words, tile)) in mask.chunks(WORDS_PER_TILE).zip(tiles).enumerate() {
            for block in 0..words.len().div_ceil(WORDS_PER_BLOCK) {
                let of_block = tile.bests[block];
                if tile.n_feasible == 0 || of_block.total != best.total {
                    continue;
                }
                if rank >= of_block.n_ties {
                    rank -= of_block.n_ties;
                    continue;
                }
                let words = words.chunks(WORDS_PER_BLOCK).nth(block)?;
                let slots = SlotRun::new(at * WORDS_PER_TILE + block * WORDS_PER_BLOCK, words);
                let mut buffers = Buffers::new();
                let totals = if plan.normalizing.is_empty() {
                    self.score_block(plan, shared, slots, block, &mut buffers, tile).ok()?;
                    &buffers.totals[..]
                } else {
                    &tile.totals[block * SLOTS_PER_BLOCK..]
                };
                let mut ties = slots.iter().filter(|(at, _)| totals[*at] == best.total).map(|(_, node)| node);
                return ties.nth(rank as usize);
            }
        }
        None
    }
}
