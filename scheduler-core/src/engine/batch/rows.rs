//! Computing nodes of a batch anew: what plugins that share by node say of them, and the classes of the others.

use smallvec::SmallVec;

use super::groups::{Groups, TooManyGroups};
use crate::cache::{Candidates, NodeIdx};
use crate::engine::algorithm::Algorithm;
use crate::framework::{
    CycleState, FilterSlot, FilterStates, FilterStatus, MAX_NODE_SCORE, PluginError, Result, ScoreSlot, ScoreStates,
    Sharing,
};

/// Words that are computed at one time.
const WORDS_PER_RUN: usize = 8;
/// So many nodes are asked about one by one: what chunk methods prepare costs more than they save.
const FEW_NODES: u32 = 4;

/// How each plugin of the profile shares for the pod, by position.
#[derive(Debug, Default)]
pub(super) struct Sharings {
    pub(super) filters: SmallVec<[Sharing; 16]>,
    pub(super) scores: SmallVec<[Sharing; 16]>,
}

/// Which plugins take part in computing a node anew, and how.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Which plugins are skipped, in the order of their positions: the rest follows from it, and from the signature.
    skipped: SmallVec<[bool; 32]>,
    /// Filters that share by node.
    filters: SmallVec<[usize; 16]>,
    /// Scores that share by node and do not normalise: their weighted sum is the rest.
    plain: SmallVec<[usize; 8]>,
    /// Scores that share by node and normalise: raw, they are the first part of the key.
    normalizing: SmallVec<[usize; 8]>,
    /// Plugins that share by class: their classes are the second part of the key.
    filter_classes: SmallVec<[usize; 4]>,
    score_classes: SmallVec<[usize; 4]>,
}

impl Parts {
    /// Brings the parts up to date with what is skipped for this pod.
    pub(super) fn update(
        &mut self,
        algorithm: &Algorithm<'_>,
        sharings: &Sharings,
        filter_states: &FilterStates,
        score_states: &ScoreStates,
    ) {
        let skips = || {
            let filters = filter_states.slots.iter().map(FilterSlot::is_skipped);
            filters.chain(score_states.slots.iter().map(ScoreSlot::is_skipped))
        };
        if skips().eq(self.skipped.iter().copied()) {
            return;
        }
        let profile = algorithm.profile;
        let by_node = |at: &usize| sharings.scores[*at] == Sharing::ByNode && !score_states.slots[*at].is_skipped();
        let (normalizing, plain) =
            profile.score_order.iter().copied().filter(by_node).partition(|at| profile.scores[*at].plugin.normalizes());
        let filters = profile.filter_order.iter().copied();
        let classes = |sharings: &[Sharing]| {
            let positions = (0..sharings.len()).filter(|at| sharings[*at] == Sharing::ByClass);
            positions.collect::<SmallVec<[usize; 4]>>()
        };
        let mut score_classes = classes(&sharings.scores);
        score_classes.retain(|at| profile.score_twins[*at].is_none());
        *self = Self {
            skipped: skips().collect(),
            filters: filters
                .filter(|at| sharings.filters[*at] == Sharing::ByNode && !filter_states.slots[*at].is_skipped())
                .collect(),
            plain,
            normalizing,
            filter_classes: classes(&sharings.filters),
            score_classes,
        };
    }
}

/// Everything that computing nodes anew needs.
pub(super) struct Refresh<'a> {
    pub(super) algorithm: &'a Algorithm<'a>,
    pub(super) shared: &'a CycleState,
    pub(super) filter_states: &'a FilterStates,
    pub(super) score_states: &'a ScoreStates,
    pub(super) parts: &'a Parts,
}

impl Refresh<'_> {
    /// Computes all nodes.
    pub(super) fn all(&self, groups: &mut Groups) -> Result<()> {
        let n_words = self.algorithm.cycle.snapshot.live().len();
        let every_slot = [u64::MAX; WORDS_PER_RUN];
        for first in (0..n_words).step_by(WORDS_PER_RUN) {
            self.run(groups, first, &every_slot[..WORDS_PER_RUN.min(n_words - first)])?;
        }
        groups.settle();
        Ok(())
    }

    /// Computes the nodes that changed, those of one word of slots together.
    pub(super) fn only(&self, groups: &mut Groups, changed: impl Iterator<Item = NodeIdx>) -> Result<()> {
        let mut slots: SmallVec<[usize; 8]> = changed.map(NodeIdx::slot).collect();
        if slots.is_empty() {
            return Ok(());
        }
        slots.sort_unstable();
        for of_word in slots.chunk_by(|a, b| a / 64 == b / 64) {
            let slots = of_word.iter().fold(0, |slots, slot| slots | 1 << (slot % 64));
            self.run(groups, of_word[0] / 64, &[slots])?;
        }
        groups.settle();
        Ok(())
    }

    /// Raw scores of one plugin.
    fn score(&self, at: usize, nodes: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
        let Algorithm { profile, cycle, .. } = *self.algorithm;
        let (plugin, states) = (&profile.scores[at].plugin, self.score_states);
        if nodes.len() > FEW_NODES as usize {
            return plugin.score_chunk(states, at, cycle, self.shared, nodes, scores);
        }
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = plugin.score(states, at, cycle, self.shared, cycle.snapshot.view(*node))?;
        }
        Ok(())
    }

    /// Computes the given slots of some words.
    fn run(&self, groups: &mut Groups, first_word: usize, slots: &[u64]) -> Result<()> {
        let Algorithm { profile, cycle, .. } = *self.algorithm;
        let parts = self.parts;
        let mut mask = [0; WORDS_PER_RUN];
        let mask = &mut mask[..slots.len()];
        for ((mask, live), slots) in mask.iter_mut().zip(&cycle.snapshot.live()[first_word..]).zip(slots) {
            *mask = live & slots;
        }
        let mut candidates = Candidates::new(first_word, mask);
        let are_few = slots.iter().map(|slots| slots.count_ones()).sum::<u32>() <= FEW_NODES;
        for &at in &parts.filters {
            let (plugin, states) = (&profile.filters[at].plugin, self.filter_states);
            if are_few {
                candidates.try_retain(|node| {
                    plugin.filter(states, at, cycle, cycle.snapshot.view(node)).map(FilterStatus::is_success)
                })?;
            } else {
                plugin.filter_chunk(states, at, cycle, &mut candidates)?;
            }
        }
        let nodes: SmallVec<[NodeIdx; 64]> = candidates.iter().collect();

        let mut scores: SmallVec<[i64; 64]> = smallvec::smallvec![0; nodes.len()];
        let mut rest: SmallVec<[i64; 64]> = smallvec::smallvec![0; nodes.len()];
        for &at in &parts.plain {
            let entry = &profile.scores[at];
            self.score(at, &nodes, &mut scores)?;
            for (rest, score) in rest.iter_mut().zip(&scores) {
                if !(0..=MAX_NODE_SCORE).contains(score) {
                    return Err(PluginError::new("a score is out of range"));
                }
                *rest += entry.weight.unwrap_or(1) * score;
            }
        }

        // The keys of the nodes, one after the other; a key has at least one part, so that it can be cut out.
        let n_parts = (parts.normalizing.len() + parts.filter_classes.len() + parts.score_classes.len()).max(1);
        let mut keys: SmallVec<[i64; 256]> = smallvec::smallvec![0; nodes.len() * n_parts];
        let mut part = 0;
        let mut add_part = |values: &mut dyn Iterator<Item = i64>| {
            for (key, value) in keys[part.min(nodes.len() * n_parts)..].iter_mut().step_by(n_parts).zip(values) {
                *key = value;
            }
            part += 1;
        };
        for &at in &parts.normalizing {
            self.score(at, &nodes, &mut scores)?;
            add_part(&mut scores.iter().copied());
        }
        let mut classes: SmallVec<[u64; 64]> = smallvec::smallvec![0; nodes.len()];
        for &at in &parts.filter_classes {
            profile.filters[at].plugin.classify(cycle, self.shared, &nodes, &mut classes);
            add_part(&mut classes.iter().map(|class| class.cast_signed()));
        }
        for &at in &parts.score_classes {
            profile.scores[at].plugin.classify(cycle, self.shared, &nodes, &mut classes);
            add_part(&mut classes.iter().map(|class| class.cast_signed()));
        }

        let mut rows = nodes.iter().zip(keys.chunks_exact(n_parts)).zip(&rest).peekable();
        for (word, slots) in (first_word..).zip(slots) {
            let end = (word + 1) * 64;
            let of_word = std::iter::from_fn(|| rows.next_if(|((node, _), _)| node.slot() < end));
            let of_word = of_word.map(|((node, key), rest)| (*node, key, i32::try_from(*rest).unwrap_or(i32::MAX)));
            groups
                .set_slots(word, *slots, of_word)
                .map_err(|TooManyGroups| PluginError::new("there are too many groups"))?;
        }
        Ok(())
    }
}
