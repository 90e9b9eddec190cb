//! Which of the feasible nodes is best: PreScore, Score, NormalizeScore, the weighted sum, the draw among equals. This is the
//! plain way, plugin by plugin; `score_tiles` does the same without a list of nodes.

use rayon::prelude::*;

use super::algorithm::Algorithm;
use super::record::{DecisionRecord, PluginScores};
use super::rng::draw;
use super::scratch::Scratch;
use crate::cache::NodeIdx;
use crate::framework::{CycleState, DynScore, EXTENDER, MAX_NODE_SCORE, PluginError, Result, ScoreStates};

/// Nodes of one parallel task at least.
const NODES_PER_TASK: usize = 4_096;

impl Algorithm<'_> {
    /// Leaves the weighted sums of the listed nodes in `scratch.totals`. Upstream: `prioritizeNodes` (v1.36.2
    /// schedule_one.go).
    pub(super) fn prioritize(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        mut record: Option<&mut DecisionRecord>,
    ) -> Result<()> {
        let mut states = ScoreStates::default();
        states.slots.resize_with(self.profile.scores.len(), Default::default);
        self.pre_score(&mut states, &scratch.feasible, shared)?;
        self.score_by_plugin(scratch, &states, shared, record.as_deref_mut())?;
        if let Some(scores) = self.extender_scores(&scratch.feasible) {
            for (total, score) in scratch.totals.iter_mut().zip(&scores) {
                *total = total.saturating_add(*score);
            }
            if let Some(record) = record {
                let (raw, normalized) = (scores.clone(), scores);
                record.scores.push(PluginScores { plugin: EXTENDER, weight: 1, skipped: false, raw, normalized });
            }
        }
        Ok(())
    }

    /// One plugin after the other, each over all nodes.
    fn score_by_plugin(
        &self,
        scratch: &mut Scratch,
        states: &ScoreStates,
        shared: &CycleState,
        mut record: Option<&mut DecisionRecord>,
    ) -> Result<()> {
        let n_nodes = scratch.feasible.len();
        scratch.totals.clear();
        scratch.totals.resize(n_nodes, 0);
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
        let run =
            |nodes: &[NodeIdx], scores: &mut [i64]| plugin.score_chunk(states, at, self.cycle, shared, nodes, scores);
        let error = if self.n_threads == 1 {
            run(nodes, scores).err()
        } else {
            let tasks = nodes.par_chunks(NODES_PER_TASK).zip(scores.par_chunks_mut(NODES_PER_TASK));
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

    /// One draw a decision: rank r of the t nodes with the highest total, in node order.
    pub(super) fn select_host(&self, scratch: &Scratch, record: Option<&mut DecisionRecord>) -> NodeIdx {
        let best = scratch.totals.iter().copied().fold(i64::MIN, i64::max);
        let n_ties = scratch.totals.iter().filter(|total| **total == best).count();
        if let Some(record) = record {
            record.add_totals(self.cycle.snapshot, scratch.feasible.iter().copied(), &scratch.totals, best);
        }
        let nodes = scratch.feasible.iter().zip(&scratch.totals);
        let mut ties = nodes.filter(|(_, total)| **total == best).map(|(node, _)| *node);
        ties.nth(draw(self.cycle.seed, n_ties)).expect("the rank is below the number of ties")
    }
}
