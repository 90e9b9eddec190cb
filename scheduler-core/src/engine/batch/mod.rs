//! Signature batching: pods that are alike to every plugin share what was computed for one of them.
//!
//! A *batch* belongs to one signature. It holds the feasible nodes in groups (see `groups`): what plugins that share by
//! node said of each node, summed up. The next pod with the signature computes anew only the nodes that the change log
//! names since the last one, then looks at one node of each group instead of at all nodes. Of replicas that follow each
//! other, plugins are asked once what does not depend on nodes (see `replicas`).
//!
//! Invariants, which together make a batch decide as the full pass does:
//! - A node's verdict, plain scores and group key, as far as plugins that share [by node](Sharing::ByNode) made them, are
//!   those that the plugins would give it now: whatever they look at is in the signature, or the node is in the change
//!   log.
//! - Nodes of one group get the same raw scores from every plugin that normalises, and have the same class for every
//!   plugin that shares [by class](Sharing::ByClass): one of them can stand for all.
//! - The node is drawn as the full pass draws it: the same rank among the nodes with the highest total, in node order.
//!
//! Whatever cannot be shared falls back to the full pass: pods of plugins that sign [`Sharing::Never`], nominated pods,
//! interested extenders, node sets of PreFilter, sampling, kept records, an error, no feasible node, too many groups.

mod groups;
mod replicas;
mod rows;

use smallvec::SmallVec;

use self::groups::{GroupId, Groups};
use self::replicas::Replicas;
use self::rows::{Parts, Refresh, Sharings};
use super::algorithm::{Algorithm, Decision};
use super::rng::draw;
use crate::cache::NodeIdx;
use crate::framework::{
    CycleState, FilterStates, MAX_NODE_SCORE, PluginError, Result, ScoreStates, Sharing, Signature,
};

/// Batches are kept for so many signatures, the latest used ones.
const MAX_BATCHES: usize = 32;
/// A batch is begun for a signature that one of so many last pods had: building it costs more than one full pass.
const N_RECENT: usize = 64;

/// The batches of one scheduler.
#[derive(Debug)]
pub(super) struct Batches {
    /// With the hashes of their signatures. They are few: the hashes are looked through.
    all: Vec<(u64, Signature, Batch)>,
    /// Hashes of the signatures of the last pods that had no batch.
    recent: [u64; N_RECENT],
    n_seen: usize,
    signature: Signature,
    clock: u64,
    replicas: Option<Box<Replicas>>,
    /// Whether pods share at all.
    pub(super) enabled: bool,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            recent: [0; N_RECENT],
            n_seen: 0,
            signature: Signature::default(),
            clock: 0,
            replicas: None,
            enabled: true,
        }
    }
}

/// What is kept for one signature.
#[derive(Debug, Default)]
struct Batch {
    /// `None` before the first time, and for good after there were too many groups.
    groups: Option<Groups>,
    parts: Parts,
    totals: Totals,
    is_unfit: bool,
    /// How much of the change log is in the groups.
    n_changes: u64,
    last_used: u64,
}

impl Batches {
    /// Position of the batch of the signature just written, if it has one or is worth one.
    fn find(&mut self) -> Option<usize> {
        self.clock += 1;
        let hash = self.signature.hash();
        let known = self.all.iter().position(|(known, signature, _)| *known == hash && *signature == self.signature);
        let at = match known {
            Some(at) => at,
            None => {
                if !self.recent.contains(&hash) {
                    self.recent[self.n_seen % N_RECENT] = hash;
                    self.n_seen += 1;
                    return None;
                }
                self.make_room();
                self.all.push((hash, self.signature.clone(), Batch::default()));
                self.all.len() - 1
            }
        };
        let batch = &mut self.all[at].2;
        batch.last_used = self.clock;
        (!batch.is_unfit).then_some(at)
    }

    fn make_room(&mut self) {
        if self.all.len() >= MAX_BATCHES
            && let Some(oldest) = (0..self.all.len()).min_by_key(|at| self.all[*at].2.last_used)
        {
            self.all.swap_remove(oldest);
        }
    }
}

/// What the groups got from the scores that normalise and share by node: that holds as long as the same groups come into
/// question, since normalising depends only on which raw scores there are.
#[derive(Debug, Default)]
struct Totals {
    /// [`Groups::n_comings`] at that time.
    n_comings: u64,
    of_groups: SmallVec<[(GroupId, i64); 4]>,
}

impl Totals {
    /// Gives the candidates what they got, if that is known.
    fn give(&self, n_comings: u64, candidates: &mut [Candidate]) -> bool {
        let known = self.n_comings == n_comings && self.of_groups.len() == candidates.len();
        if !known || candidates.iter().zip(&self.of_groups).any(|(candidate, (group, _))| candidate.group != *group) {
            return false;
        }
        for (candidate, (_, total)) in candidates.iter_mut().zip(&self.of_groups) {
            candidate.total = *total;
        }
        true
    }

    fn keep(&mut self, n_comings: u64, candidates: &[Candidate]) {
        self.n_comings = n_comings;
        self.of_groups = candidates.iter().map(|candidate| (candidate.group, candidate.total)).collect();
    }
}

/// A group of feasible nodes, as one of them speaks for it.
struct Candidate {
    group: GroupId,
    node: NodeIdx,
    /// Weighted sum of the scores that normalise.
    total: i64,
}

impl Algorithm<'_> {
    /// Chooses a node through the batch of the pod's signature; `None` means that the full pass must. The states are not
    /// needed any more when it has: replicas that follow may get them.
    pub(super) fn schedule_alike(
        &self,
        batches: &mut Batches,
        shared: &CycleState,
        states: &mut FilterStates,
        start_index: &mut usize,
    ) -> Option<Decision> {
        if !self.may_share(batches) {
            return None;
        }
        let sharings = self.sign(shared, &mut batches.signature)?;
        let at = batches.find()?;
        let batch = &mut batches.all[at].2;
        let mut score_states = ScoreStates::default();
        score_states.slots.resize_with(self.profile.scores.len(), Default::default);
        let by_node = self.profile.pre_score_order.iter().filter(|at| sharings.scores[**at] == Sharing::ByNode);
        let decision = self.pre_score_by_node(by_node, shared, &mut score_states).and_then(|()| {
            if !batch.parts.update(self, &sharings, shared, states, &score_states) {
                batch.groups = None;
            }
            self.decide_in(batch, shared, states, &mut score_states)
        });
        let decision = match decision {
            Ok(decision) => decision?,
            Err(_) => {
                // The full pass will meet the error again, and report it, if it is real.
                *batch = Batch { is_unfit: true, last_used: batch.last_used, ..Batch::default() };
                return None;
            }
        };
        *start_index %= decision.n_evaluated.max(1);
        batches.replicas = self.keep_for_replicas(at, sharings, shared, (states, score_states));
        Some(decision)
    }

    /// Whether what was computed for other pods may serve this one at all.
    fn may_share(&self, batches: &Batches) -> bool {
        let pod = self.cycle.pod;
        batches.enabled
            && pod.nominated_node_name.is_none()
            && self.filters.nominations().is_empty()
            && !self.extenders.iter().any(|extender| extender.is_interested(pod))
    }

    /// Runs PreScore of plugins that share by node: they do not look at the feasible nodes.
    fn pre_score_by_node<'p>(
        &self,
        plugins: impl IntoIterator<Item = &'p usize>,
        shared: &CycleState,
        states: &mut ScoreStates,
    ) -> Result<()> {
        for &at in plugins {
            self.profile.scores[at].plugin.pre_score(self.cycle, &[], shared, states, at)?;
        }
        Ok(())
    }

    /// Writes the pod's signature; `None` if a plugin does not share.
    fn sign(&self, shared: &CycleState, signature: &mut Signature) -> Option<Sharings> {
        signature.clear();
        signature.add_part(&*self.profile.scheduler_name);
        let mut sharings = Sharings::default();
        for entry in &self.profile.filters {
            let sharing = entry.plugin.sign(self.cycle, shared, signature);
            signature.add_part(&(sharing == Sharing::ByClass));
            sharings.filters.push(sharing);
        }
        for (entry, twin) in self.profile.scores.iter().zip(&self.profile.score_twins) {
            let sharing = match twin {
                Some(at) => sharings.filters[*at],
                None => {
                    let sharing = entry.plugin.sign(self.cycle, shared, signature);
                    signature.add_part(&(sharing == Sharing::ByClass));
                    sharing
                }
            };
            sharings.scores.push(sharing);
        }
        (!sharings.filters.iter().chain(&sharings.scores).any(|sharing| *sharing == Sharing::Never)).then_some(sharings)
    }

    fn decide_in(
        &self,
        batch: &mut Batch,
        shared: &CycleState,
        states: &FilterStates,
        score_states: &mut ScoreStates,
    ) -> Result<Option<Decision>> {
        let snapshot = self.cycle.snapshot;
        let refresh = Refresh { algorithm: self, shared, filter_states: states, score_states, parts: &batch.parts };
        let known = batch.groups.as_ref().filter(|groups| groups.n_slots() == snapshot.n_slots());
        let changed = known.and_then(|_| snapshot.changes().since(batch.n_changes));
        match (changed.filter(|changed| changed.len() <= snapshot.n_nodes() / 8 + 8), &mut batch.groups) {
            (Some(changed), Some(groups)) => refresh.only(groups, changed)?,
            (_, groups) => {
                batch.totals = Totals::default();
                refresh.all(groups.insert(Groups::new(snapshot.n_slots())))?;
            }
        }
        batch.n_changes = snapshot.changes().n_changes();
        let Batch { groups: Some(groups), parts, totals, .. } = batch else { return Ok(None) };

        let mut candidates = self.feasible_groups(groups, parts, states)?;
        let n_feasible = candidates.iter().map(|candidate| groups.n_nodes(candidate.group)).sum::<usize>();
        if n_feasible == 0 || n_feasible > self.n_feasible_nodes_to_find(snapshot.n_nodes()) {
            return Ok(None);
        }
        if n_feasible > 1 {
            if !totals.give(groups.n_comings(), &mut candidates) {
                self.score_keys(&mut candidates, (groups, parts), score_states)?;
                totals.keep(groups.n_comings(), &candidates);
            }
            if !parts.scores_by_class.is_empty() {
                self.score_classes(&mut candidates, (groups, parts), shared, score_states)?;
            }
        }
        let node = self.select_in(&candidates, groups);
        Ok(Some(Decision { node, n_evaluated: snapshot.n_nodes(), n_feasible }))
    }

    /// The groups that plugins sharing by class let pass.
    fn feasible_groups(
        &self,
        groups: &Groups,
        parts: &Parts,
        states: &FilterStates,
    ) -> Result<SmallVec<[Candidate; 16]>> {
        let mut candidates = SmallVec::new();
        'groups: for group in groups.iter() {
            let node = groups.representative(group);
            for &at in &parts.filters_by_class {
                let view = self.cycle.snapshot.view(node);
                if !self.profile.filters[at].plugin.filter(states, at, self.cycle, view)?.is_success() {
                    continue 'groups;
                }
            }
            candidates.push(Candidate { group, node, total: 0 });
        }
        Ok(candidates)
    }

    /// Gives each group its weighted sum of the scores that normalise and share by node.
    fn score_keys(
        &self,
        candidates: &mut [Candidate],
        (groups, parts): (&Groups, &Parts),
        states: &ScoreStates,
    ) -> Result<()> {
        let nodes: SmallVec<[NodeIdx; 16]> = candidates.iter().map(|candidate| candidate.node).collect();
        for (n_before, &at) in parts.normalizing.iter().enumerate() {
            if states.slots[at].is_skipped() {
                continue;
            }
            let keys = candidates.iter().map(|candidate| groups.key(candidate.group));
            let mut scores = keys.map(|key| key[n_before]).collect::<SmallVec<[i64; 16]>>();
            self.add_normalized(at, candidates, (&nodes, &mut scores), states)?;
        }
        Ok(())
    }

    /// Adds the scores that normalise and share by class.
    fn score_classes(
        &self,
        candidates: &mut [Candidate],
        (groups, parts): (&Groups, &Parts),
        shared: &CycleState,
        states: &mut ScoreStates,
    ) -> Result<()> {
        let nodes: SmallVec<[NodeIdx; 16]> = candidates.iter().map(|candidate| candidate.node).collect();
        let classes: SmallVec<[(NodeIdx, usize); 16]> =
            candidates.iter().map(|candidate| (candidate.node, groups.n_nodes(candidate.group))).collect();
        for &at in &parts.pre_scores_by_class {
            self.profile.scores[at].plugin.pre_score_classes(self.cycle, &classes, shared, states, at)?;
        }
        let mut scores: SmallVec<[i64; 16]> = smallvec::smallvec![0; candidates.len()];
        for &at in &parts.scores_by_class {
            if !states.slots[at].is_skipped() {
                let plugin = &self.profile.scores[at].plugin;
                plugin.score_chunk(states, at, self.cycle, shared, &nodes, &mut scores)?;
                self.add_normalized(at, candidates, (&nodes, &mut scores), states)?;
            }
        }
        Ok(())
    }

    /// Normalises what one plugin gave the candidates, and adds it to their totals.
    fn add_normalized(
        &self,
        at: usize,
        candidates: &mut [Candidate],
        (nodes, scores): (&[NodeIdx], &mut [i64]),
        states: &ScoreStates,
    ) -> Result<()> {
        let entry = &self.profile.scores[at];
        entry.plugin.normalize(states, at, self.cycle, nodes, scores)?;
        for (candidate, score) in candidates.iter_mut().zip(scores) {
            if !(0..=MAX_NODE_SCORE).contains(score) {
                return Err(PluginError::new("a score is out of range"));
            }
            candidate.total += entry.weight.unwrap_or(1) * *score;
        }
        Ok(())
    }

    /// As [`Algorithm::select_host`], over groups; there must be one.
    fn select_in(&self, candidates: &[Candidate], groups: &Groups) -> NodeIdx {
        let total = |candidate: &Candidate| candidate.total + i64::from(groups.head(candidate.group).rest);
        let highest = candidates.iter().map(total).max();
        let best: SmallVec<[GroupId; 16]> = candidates
            .iter()
            .filter(|candidate| Some(total(candidate)) == highest)
            .map(|candidate| candidate.group)
            .collect();
        let n_ties: u32 = best.iter().map(|group| groups.head(*group).n_ties).sum();
        let rank = u32::try_from(draw(self.cycle.seed, n_ties as usize)).expect("it is below the number of ties");
        groups.tie(&best, rank)
    }
}
