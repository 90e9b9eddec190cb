//! Which of the feasible nodes is best: PreScore, Score, NormalizeScore, the weighted sum, the draw among equals.

use std::sync::Arc;

use rayon::prelude::*;
use smallvec::SmallVec;

use super::algorithm::Algorithm;
use super::find_nodes::NODES_PER_TASK;
use super::record::{DecisionRecord, PluginScores};
use super::rng::draw;
use super::scratch::Scratch;
use crate::cache::{Lanes, NodeIdx, vectorized};
use crate::framework::{CycleState, DynScore, MAX_NODE_SCORE, PluginError, Result, ScoreStates};

/// Nodes whose scores are added up at one time: all their scores together stay in the nearest cache.
pub(super) const NODES_PER_BLOCK: usize = 512;

/// The highest total among some nodes, and how many of them have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) total: i64,
    pub(super) n_ties: u32,
}

impl Best {
    /// Of no nodes.
    pub(super) const NONE: Self = Self { total: i64::MIN, n_ties: 0 };

    /// Of two groups of nodes together.
    #[inline]
    pub(super) fn or(self, other: Self) -> Self {
        match self.total.cmp(&other.total) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => Self { total: self.total, n_ties: self.n_ties + other.n_ties },
        }
    }
}

impl Algorithm<'_> {
    /// Leaves the weighted sums in `scratch.totals`, and the best of each block. Upstream: `prioritizeNodes` (v1.36.2
    /// schedule_one.go).
    pub(super) fn prioritize(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        record: Option<&mut DecisionRecord>,
    ) -> Result<()> {
        let mut states = ScoreStates::default();
        states.slots.resize_with(self.profile.scores.len(), Default::default);
        self.pre_score(&mut states, &scratch.feasible, shared)?;
        scratch.totals.resize(scratch.feasible.len(), 0);
        // Which error comes first is defined by the order of the plugins, so a failure is left to the plain way.
        if record.is_some() || self.score_by_block(scratch, &states, shared).is_err() {
            self.score_by_plugin(scratch, &states, shared, record)?;
        }
        self.add_extender_scores(scratch);
        Ok(())
    }

    /// The plain way: one plugin after the other, each over all nodes.
    fn score_by_plugin(
        &self,
        scratch: &mut Scratch,
        states: &ScoreStates,
        shared: &CycleState,
        mut record: Option<&mut DecisionRecord>,
    ) -> Result<()> {
        let n_nodes = scratch.feasible.len();
        scratch.totals.fill(0);
        for &at in &self.profile.score_order {
            let entry = &self.profile.scores[at];
            let weight = entry.weight.unwrap_or(1);
            let skipped = states.slots[at].is_skipped();
            let mut kept = record.is_some().then(|| PluginScores::new(entry.plugin.name(), weight, skipped, n_nodes));
            if !skipped {
                self.score_plugin(at, states, shared, &scratch.feasible, &mut scratch.scores)?;
                if let Some(kept) = &mut kept {
                    kept.raw.copy_from_slice(&scratch.scores);
                }
                self.normalize_plugin(&*entry.plugin, states, at, &scratch.feasible, &mut scratch.scores)?;
                if let Some(kept) = &mut kept {
                    kept.normalized.copy_from_slice(&scratch.scores);
                }
                for (total, score) in scratch.totals.iter_mut().zip(&scratch.scores) {
                    *total += weight * score;
                }
            }
            if let (Some(record), Some(kept)) = (record.as_deref_mut(), kept) {
                record.scores.push(kept);
            }
        }
        scratch.bests.clear();
        scratch.bests.extend(scratch.totals.chunks(NODES_PER_BLOCK).map(|totals| vectorized(BestOf(totals))));
        Ok(())
    }

    /// The fast way: all plugins that do not normalise over one block after the other; then those that do, each over all
    /// nodes. A score that all nodes share is only added.
    fn score_by_block(&self, scratch: &mut Scratch, states: &ScoreStates, shared: &CycleState) -> Result<()> {
        let mut uniform = 0;
        let (mut plain, mut normalizing) = (SmallVec::<[usize; 8]>::new(), SmallVec::<[usize; 8]>::new());
        for &at in self.profile.score_order.iter().filter(|at| !states.slots[**at].is_skipped()) {
            let entry = &self.profile.scores[at];
            match entry.plugin.uniform_score(states, at, self.cycle) {
                Some(score) if (0..=MAX_NODE_SCORE).contains(&score) => uniform += entry.weight.unwrap_or(1) * score,
                _ if entry.plugin.normalizes() => normalizing.push(at),
                _ => plain.push(at),
            }
        }
        let Scratch { feasible, totals, scores, bests, .. } = scratch;
        bests.clear();
        bests.resize(feasible.len().div_ceil(NODES_PER_BLOCK), Best::NONE);
        let sum = |nodes: &[NodeIdx], totals: &mut [i64], bests: &mut [Best]| {
            let blocks = nodes.chunks(NODES_PER_BLOCK).zip(totals.chunks_mut(NODES_PER_BLOCK)).zip(bests);
            for ((nodes, totals), best) in blocks {
                totals.fill(uniform);
                let mut scores = [0; NODES_PER_BLOCK];
                let scores = &mut scores[..nodes.len()];
                for &at in &plain {
                    let entry = &self.profile.scores[at];
                    entry.plugin.score_chunk(states, at, self.cycle, shared, nodes, scores)?;
                    let weight = entry.weight.unwrap_or(1);
                    if !vectorized(AddScores { totals, scores, weight }) {
                        return Err(PluginError::new("a score is out of range"));
                    }
                }
                *best = vectorized(BestOf(totals));
            }
            Ok(())
        };
        self.in_tasks(feasible, totals, bests, sum)?;
        for at in normalizing {
            let entry = &self.profile.scores[at];
            self.score_plugin(at, states, shared, feasible, scores)?;
            entry.plugin.normalize(states, at, self.cycle, feasible, scores)?;
            let weight = entry.weight.unwrap_or(1);
            let blocks = totals.chunks_mut(NODES_PER_BLOCK).zip(scores.chunks(NODES_PER_BLOCK)).zip(bests.iter_mut());
            for ((totals, scores), best) in blocks {
                if !vectorized(AddScores { totals, scores, weight }) {
                    return Err(PluginError::new("a score is out of range"));
                }
                *best = vectorized(BestOf(totals));
            }
        }
        Ok(())
    }

    /// Runs `work` on tasks of whole blocks, on several threads if there are enough nodes. The first error in node order.
    fn in_tasks(
        &self,
        nodes: &[NodeIdx],
        totals: &mut [i64],
        bests: &mut [Best],
        work: impl Fn(&[NodeIdx], &mut [i64], &mut [Best]) -> Result<()> + Sync,
    ) -> Result<()> {
        let per_task = self.nodes_per_task(nodes.len());
        if self.n_threads == 1 || nodes.len() <= per_task {
            return work(nodes, totals, bests);
        }
        let tasks = nodes.par_chunks(per_task).zip(totals.par_chunks_mut(per_task));
        let tasks = tasks.zip(bests.par_chunks_mut(per_task / NODES_PER_BLOCK));
        let error =
            tasks.map(|((nodes, totals), bests)| work(nodes, totals, bests).err()).find_map_first(|error| error);
        error.map_or(Ok(()), Err)
    }

    /// A whole number of blocks.
    fn nodes_per_task(&self, n_nodes: usize) -> usize {
        NODES_PER_TASK.max(n_nodes.div_ceil(2 * self.n_threads)).next_multiple_of(NODES_PER_BLOCK)
    }

    pub(super) fn pre_score(&self, states: &mut ScoreStates, feasible: &[NodeIdx], shared: &CycleState) -> Result<()> {
        for &at in &self.profile.pre_score_order {
            let plugin = &self.profile.scores[at].plugin;
            plugin
                .pre_score(self.cycle, feasible, shared, states, at)
                .map_err(|error| PluginError::new(format!("running PreScore plugin {:?}: {error}", plugin.name())))?;
        }
        Ok(())
    }

    /// Leaves one plugin's raw scores in `scores`.
    fn score_plugin(
        &self,
        at: usize,
        states: &ScoreStates,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut Vec<i64>,
    ) -> Result<()> {
        let plugin = &*self.profile.scores[at].plugin;
        scores.resize(nodes.len(), 0);
        let per_task = self.nodes_per_task(nodes.len());
        let run =
            |nodes: &[NodeIdx], scores: &mut [i64]| plugin.score_chunk(states, at, self.cycle, shared, nodes, scores);
        let error = if self.n_threads == 1 || nodes.len() <= per_task {
            run(nodes, scores).err()
        } else {
            let tasks = nodes.par_chunks(per_task).zip(scores.par_chunks_mut(per_task));
            tasks.map(|(nodes, scores)| run(nodes, scores)).find_map_first(std::result::Result::err)
        };
        match error {
            None => Ok(()),
            Some(error) => {
                Err(PluginError::new(format!("running Score plugins: plugin {:?} failed with: {error}", plugin.name())))
            }
        }
    }

    pub(super) fn normalize_plugin(
        &self,
        plugin: &dyn DynScore,
        states: &ScoreStates,
        at: usize,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        plugin.normalize(states, at, self.cycle, nodes, scores).map_err(|error| {
            PluginError::new(format!(
                "running Normalize on Score plugins: plugin {:?} failed with: {error}",
                plugin.name()
            ))
        })?;
        // One pass without a branch per node; the culprit is looked for only when there is one.
        let (lowest, highest) =
            scores.iter().fold((0, 0), |(low, high), score| (score.min(&low).to_owned(), score.max(&high).to_owned()));
        if lowest >= 0 && highest <= MAX_NODE_SCORE {
            return Ok(());
        }
        let culprit = scores.iter().find(|score| !(0..=MAX_NODE_SCORE).contains(*score)).copied().unwrap_or(0);
        Err(PluginError::new(format!(
            "applying score defaultWeights on Score plugins: plugin {:?} returns an invalid score {culprit}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing",
            plugin.name()
        )))
    }

    /// Scores of extenders are 0..=10; one that fails scores nothing.
    fn add_extender_scores(&self, scratch: &mut Scratch) {
        let snapshot = self.cycle.snapshot;
        for extender in self.extenders.iter().filter(|extender| extender.weight() != 0) {
            if !extender.is_interested(self.cycle.pod) {
                continue;
            }
            let names: Vec<Arc<str>> =
                scratch.feasible.iter().map(|node| Arc::clone(&snapshot.node(*node).name)).collect();
            for (name, score) in extender.prioritize(self.cycle.pod, &names).unwrap_or_default() {
                let node = snapshot.find(&name).and_then(|node| scratch.feasible.binary_search(&node).ok());
                if let Some(at) = node {
                    scratch.totals[at] += score * extender.weight() * (MAX_NODE_SCORE / 10);
                }
            }
            scratch.bests.clear();
            scratch.bests.extend(scratch.totals.chunks(NODES_PER_BLOCK).map(|totals| vectorized(BestOf(totals))));
        }
    }

    /// One draw a decision: rank r of the t nodes with the highest total, in node order.
    pub(super) fn select_host(&self, scratch: &Scratch, record: Option<&mut DecisionRecord>) -> NodeIdx {
        let best = scratch.bests.iter().copied().fold(Best::NONE, Best::or);
        let mut rank = u32::try_from(draw(self.cycle.seed, best.n_ties as usize)).expect("there are u32 ties");
        if let Some(record) = record {
            record.add_totals(self.cycle.snapshot, scratch.feasible.iter().copied(), &scratch.totals, best.total);
        }
        for (block, of_block) in scratch.bests.iter().enumerate().filter(|(_, of_block)| of_block.total == best.total) {
            if rank >= of_block.n_ties {
                rank -= of_block.n_ties;
                continue;
            }
            let first = block * NODES_PER_BLOCK;
            let nodes = scratch.feasible[first..].iter().zip(&scratch.totals[first..]);
            let mut ties = nodes.filter(|(_, total)| **total == best.total).map(|(node, _)| *node);
            return ties.nth(rank as usize).expect("the block has more ties than the rank");
        }
        unreachable!("the rank is below the number of ties")
    }
}

/// Adds weighted scores to totals. False if a score is not in 0..=100.
struct AddScores<'a> {
    totals: &'a mut [i64],
    scores: &'a [i64],
    weight: i64,
}

impl Lanes for AddScores<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut out_of_range = false;
        for (total, &score) in self.totals.iter_mut().zip(self.scores) {
            out_of_range |= !(0..=MAX_NODE_SCORE).contains(&score);
            *total += self.weight * score;
        }
        !out_of_range
    }
}

/// The best of a block's totals.
struct BestOf<'a>(&'a [i64]);

impl Lanes for BestOf<'_> {
    type Output = Best;

    #[inline(always)]
    fn run(self) -> Best {
        let total = self.0.iter().copied().fold(i64::MIN, i64::max);
        let n_ties = self.0.iter().fold(0, |n, &other| n + u32::from(other == total));
        Best { total, n_ties }
    }
}
