//! Scoring without a list of nodes: each tile by slot, right after the filters or once all feasible nodes are known.
//! Decides as `score_nodes` does; a failure of any plugin is left to it.
//!
//! Scores of slots without a feasible node are computed and thrown away where that is cheaper than to single them out:
//! every sum, range and comparison is masked by the feasible slots.

use smallvec::SmallVec;

use super::algorithm::Algorithm;
use super::rng::draw;
use super::scratch::Scratch;
use super::tiles::{Best, Extremes, Listed, SLOTS_PER_BLOCK, Tile, WORDS_PER_BLOCK, WORDS_PER_TILE};
use crate::cache::{LANES, Lanes, NodeIdx, SlotRun, vectorized};
use crate::framework::{CycleState, MAX_NODE_SCORE, PluginError, Result, ScoreStates};

/// A score plugin by its position in the profile, with its weight.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    at: usize,
    weight: i64,
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

/// Scores by slot of one block.
type Block = [i64; SLOTS_PER_BLOCK];

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
        Some(self.select_in_tiles(scratch))
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
                self.plan_of(states, shared)
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
        Some(self.plan_of(states, shared))
    }

    /// What is to be done after PreScore.
    fn plan_of(&self, states: ScoreStates, shared: &CycleState) -> ScorePlan {
        let mut plan = ScorePlan { states, plain: SmallVec::new(), normalizing: SmallVec::new() };
        for &at in &self.profile.score_order {
            if plan.states.slots[at].is_skipped() {
                continue;
            }
            let entry = &self.profile.scores[at];
            let plugin = Weighted { at, weight: entry.weight.unwrap_or(1) };
            match entry.plugin.uniform_score(&plan.states, at, self.cycle, shared) {
                Some(score) if (0..=MAX_NODE_SCORE).contains(&score) => {}
                _ if entry.plugin.normalizes() => plan.normalizing.push(plugin),
                _ => plan.plain.push(plugin),
            }
        }
        plan
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
        let (mut scores, mut feasible) = ([0; SLOTS_PER_BLOCK], [0; SLOTS_PER_BLOCK]);
        for (block, words) in words.chunks(WORDS_PER_BLOCK).enumerate() {
            let slots = SlotRun::new(first_word + block * WORDS_PER_BLOCK, words);
            if slots.n_feasible() == 0 {
                continue;
            }
            vectorized(Expand { words, feasible: &mut feasible });
            if self.score_block(plan, shared, slots, block, &feasible, &mut scores, tile).is_err() {
                tile.is_broken = true;
                return;
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "buffers are lent one by one")]
    fn score_block(
        &self,
        plan: &ScorePlan,
        shared: &CycleState,
        slots: SlotRun<'_>,
        block: usize,
        feasible: &Block,
        scores: &mut Block,
        tile: &mut Tile,
    ) -> Result<()> {
        let n_slots = slots.range().len();
        let n_slots_of_tile = tile.totals.len();
        let Tile { totals, raws, extremes, bests, listed, .. } = tile;
        let first = block * SLOTS_PER_BLOCK;
        let totals = &mut totals[first..first + n_slots];
        totals.fill(0);
        listed.nodes.clear();
        for &Weighted { at, weight } in &plan.plain {
            let scores = &mut scores[..n_slots];
            self.score_slots(plan, at, shared, slots, listed, scores)?;
            add(totals, scores, feasible, weight)?;
        }
        for (nth, (&Weighted { at, .. }, extremes)) in plan.normalizing.iter().zip(extremes).enumerate() {
            let first = nth * n_slots_of_tile + first;
            let raws = &mut raws[first..first + n_slots];
            self.score_slots(plan, at, shared, slots, listed, raws)?;
            *extremes = extremes.and(vectorized(ExtremesOf { scores: raws, feasible }));
        }
        if plan.normalizing.is_empty() {
            bests[block] = vectorized(BestOf { totals, feasible });
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
            let mut feasible = [0; SLOTS_PER_BLOCK];
            let n_slots_of_tile = tile.totals.len();
            let blocks = words.chunks(WORDS_PER_BLOCK).zip(tile.totals.chunks_mut(SLOTS_PER_BLOCK)).enumerate();
            for (block, (words, totals)) in blocks {
                if words.iter().all(|word| *word == 0) {
                    continue;
                }
                vectorized(Expand { words, feasible: &mut feasible });
                for &(nth, Weighted { at, weight }, extremes) in &by_slot {
                    let first = nth * n_slots_of_tile + block * SLOTS_PER_BLOCK;
                    let scores = &mut tile.raws[first..first + totals.len()];
                    if let Some(Extremes { lowest, highest }) = extremes {
                        // What is normalised is among the extremes.
                        vectorized(Replace { scores, feasible: &feasible, by: lowest });
                        self.profile.scores[at]
                            .plugin
                            .normalize_between(&plan.states, at, lowest, highest, scores);
                    }
                    add(totals, scores, &feasible, weight)?;
                }
                tile.bests[block] = vectorized(BestOf { totals, feasible: &feasible });
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
            (tile, nth * tiles[tile].totals.len() + slot)
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

    /// One draw a decision: rank r of the t nodes with the highest total, in node order.
    fn select_in_tiles(&self, scratch: &Scratch) -> NodeIdx {
        let blocks = || {
            let tiles = scratch.mask.chunks(WORDS_PER_TILE).zip(&scratch.tiles).enumerate();
            tiles.filter(|(_, (_, tile))| tile.n_feasible > 0).flat_map(|(at, (words, tile))| {
                let blocks = words.chunks(WORDS_PER_BLOCK).zip(tile.totals.chunks(SLOTS_PER_BLOCK)).zip(tile.bests);
                blocks.enumerate().map(move |(block, ((words, totals), best))| {
                    (SlotRun::new(at * WORDS_PER_TILE + block * WORDS_PER_BLOCK, words), totals, best)
                })
            })
        };
        let best = blocks().map(|(_, _, best)| best).fold(Best::NONE, Best::or);
        let mut rank = u32::try_from(draw(self.cycle.seed, best.n_ties as usize)).expect("there are u32 ties");
        for (slots, totals, of_block) in blocks().filter(|(_, _, of_block)| of_block.total == best.total) {
            if rank >= of_block.n_ties {
                rank -= of_block.n_ties;
                continue;
            }
            let mut ties = slots.iter().filter(|(at, _)| totals[*at] == best.total).map(|(_, node)| node);
            return ties.nth(rank as usize).expect("the block has more ties than the rank");
        }
        unreachable!("the rank is below the number of ties")
    }
}

/// Adds weighted scores of the feasible slots to totals.
fn add(totals: &mut [i64], scores: &[i64], feasible: &Block, weight: i64) -> Result<()> {
    match vectorized(AddScores { totals, scores, feasible, weight }) {
        true => Ok(()),
        false => Err(PluginError::new("a score is out of range")),
    }
}

/// All bits of a slot's number are set if the slot is feasible, none if not.
struct Expand<'a> {
    words: &'a [u64],
    feasible: &'a mut Block,
}

impl Lanes for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (word, feasible) in self.words.iter().zip(self.feasible.as_chunks_mut::<LANES>().0) {
            for (lane, feasible) in (0_u64..).zip(feasible) {
                *feasible = (word >> lane & 1).cast_signed().wrapping_neg();
            }
        }
    }
}

/// The output is false if a score of a feasible slot is not in 0..=100.
struct AddScores<'a> {
    totals: &'a mut [i64],
    scores: &'a [i64],
    feasible: &'a Block,
    weight: i64,
}

impl Lanes for AddScores<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut out_of_range = 0;
        for ((total, &score), feasible) in self.totals.iter_mut().zip(self.scores).zip(self.feasible) {
            let score = score & feasible;
            // Negative if one of the two is.
            out_of_range |= score | MAX_NODE_SCORE.wrapping_sub(score);
            *total = total.wrapping_add(self.weight.wrapping_mul(score));
        }
        out_of_range >= 0
    }
}

/// Gives the slots that are not feasible a harmless score.
struct Replace<'a> {
    scores: &'a mut [i64],
    feasible: &'a Block,
    by: i64,
}

impl Lanes for Replace<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (score, feasible) in self.scores.iter_mut().zip(self.feasible) {
            *score = (*score & feasible) | (self.by & !feasible);
        }
    }
}

/// The extremes of the feasible slots' scores.
struct ExtremesOf<'a> {
    scores: &'a [i64],
    feasible: &'a Block,
}

impl Lanes for ExtremesOf<'_> {
    type Output = Extremes;

    #[inline(always)]
    fn run(self) -> Extremes {
        let Extremes { mut lowest, mut highest } = Extremes::NONE;
        for (score, feasible) in self.scores.iter().zip(self.feasible) {
            lowest = lowest.min((score & feasible) | (i64::MAX & !feasible));
            highest = highest.max((score & feasible) | (i64::MIN & !feasible));
        }
        Extremes { lowest, highest }
    }
}

/// The best of the feasible slots' totals.
struct BestOf<'a> {
    totals: &'a [i64],
    feasible: &'a Block,
}

impl Lanes for BestOf<'_> {
    type Output = Best;

    #[inline(always)]
    fn run(self) -> Best {
        let totals = self.totals.iter().zip(self.feasible);
        let total = totals.clone().fold(i64::MIN, |best, (total, feasible)| {
            best.max((total & feasible) | (i64::MIN & !feasible))
        });
        let n_ties = totals.fold(0_i64, |n, (other, feasible)| n - (feasible & -i64::from(*other == total)));
        Best { total, n_ties: u32::try_from(n_ties).expect("a block has fewer slots") }
    }
}
