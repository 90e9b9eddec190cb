//! Which of the feasible nodes is best: PreScore, Score, NormalizeScore, the weighted sum, the draw among equals.

use std::sync::Arc;

use rayon::prelude::*;

use super::algorithm::Algorithm;
use super::find_nodes::NODES_PER_TASK;
use super::record::{DecisionRecord, PluginScores};
use super::rng::draw;
use super::scratch::Scratch;
use crate::cache::NodeIdx;
use crate::framework::{CycleState, DynScore, MAX_NODE_SCORE, PluginError, Result, ScoreStates};

impl Algorithm<'_> {
    /// Leaves the weighted sums in `scratch.totals`. Upstream: `prioritizeNodes` (v1.36.2 schedule_one.go).
    pub(super) fn prioritize(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        mut record: Option<&mut DecisionRecord>,
    ) -> Result<()> {
        let mut states = ScoreStates::default();
        states.slots.resize_with(self.profile.scores.len(), Default::default);
        self.pre_score(&mut states, &scratch.feasible, shared)?;

        let n_nodes = scratch.feasible.len();
        scratch.totals.clear();
        scratch.totals.resize(n_nodes, 0);
        for &at in &self.profile.score_order {
            let entry = &self.profile.scores[at];
            let weight = entry.weight.unwrap_or(1);
            let skipped = states.slots[at].is_skipped();
            let mut kept = record.is_some().then(|| PluginScores::new(entry.plugin.name(), weight, skipped, n_nodes));
            if !skipped {
                scratch.scores.clear();
                scratch.scores.resize(n_nodes, 0);
                self.score_plugin(&*entry.plugin, &states, at, shared, &scratch.feasible, &mut scratch.scores)?;
                if let Some(kept) = &mut kept {
                    kept.raw.copy_from_slice(&scratch.scores);
                }
                self.normalize_plugin(&*entry.plugin, &states, at, &scratch.feasible, &mut scratch.scores)?;
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
        self.add_extender_scores(scratch);
        Ok(())
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

    fn score_plugin(
        &self,
        plugin: &dyn DynScore,
        states: &ScoreStates,
        at: usize,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let per_task = NODES_PER_TASK.max(nodes.len().div_ceil(2 * self.n_threads));
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
        }
    }

    /// One draw a decision: rank r of the t nodes with the highest total, in node order.
    pub(super) fn select_host(&self, scratch: &Scratch, record: Option<&mut DecisionRecord>) -> NodeIdx {
        let highest = scratch.totals.iter().copied().max().unwrap_or(0);
        let n_ties = scratch.totals.iter().filter(|total| **total == highest).count();
        let rank = draw(self.cycle.seed, n_ties);
        let best = |(node, total): (&NodeIdx, &i64)| (*total == highest).then_some(*node);
        let mut ties = scratch.feasible.iter().zip(&scratch.totals).filter_map(best);
        let selected = ties.nth(rank).expect("the rank is below the number of ties");
        if let Some(record) = record {
            record.add_totals(self.cycle.snapshot, scratch.feasible.iter().copied(), &scratch.totals, highest);
        }
        selected
    }
}
