//! Computing nodes of a batch anew: what plugins that share by node say of them, and the classes of the others.

use smallvec::SmallVec;

use super::groups::{Groups, Key, TooManyGroups};
use crate::cache::{Candidates, NodeChange, NodeIdx};
use crate::engine::algorithm::Algorithm;
use crate::framework::{
    CycleState, FilterSlot, FilterStates, MAX_NODE_SCORE, PluginError, Result, ScoreStates, Sharing,
};

/// Words that are computed at one time.
const WORDS_PER_RUN: usize = 8;
/// So many nodes are asked about one by one: what chunk methods prepare costs more than they save.
const FEW_NODES: usize = 4;

/// How each plugin of the profile shares for the pod, by position.
#[derive(Debug, Default)]
pub(super) struct Sharings {
    pub(super) filters: SmallVec<[Sharing; 16]>,
    pub(super) scores: SmallVec<[Sharing; 16]>,
}

/// Which plugins take part in computing a node anew, and how.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Which plugins are skipped, and which give every node the same score, in the order of their positions: the rest
    /// follows from it, and from the signature.
    idle: SmallVec<[bool; 32]>,
    /// Filters that share by node.
    filters: SmallVec<[usize; 16]>,
    /// Those of them that look at pods.
    filters_of_pods: SmallVec<[usize; 16]>,
    /// Scores that share by node and do not normalise: their weighted sum is the rest.
    plain: SmallVec<[usize; 8]>,
    /// Scores that share by node and normalise: raw, they are the first part of the key.
    pub(super) normalizing: SmallVec<[usize; 8]>,
    /// Which of them look at pods.
    normalizing_looks_at_pods: SmallVec<[bool; 8]>,
    /// Plugins that share by class: their classes are the second part of the key.
    filter_classes: SmallVec<[usize; 4]>,
    score_classes: SmallVec<[usize; 4]>,
    /// Filters that share by class and are not skipped, in their order.
    pub(super) filters_by_class: SmallVec<[usize; 4]>,
    /// Scores that share by class, in the order of PreScore and in that of Score.
    pub(super) pre_scores_by_class: SmallVec<[usize; 4]>,
    pub(super) scores_by_class: SmallVec<[usize; 4]>,
}

impl Parts {
    /// Brings the parts up to date with who has nothing to do for this pod. False if what was computed with them before
    /// does not hold.
    pub(super) fn update(
        &mut self,
        algorithm: &Algorithm<'_>,
        sharings: &Sharings,
        shared: &CycleState,
        filter_states: &FilterStates,
        score_states: &ScoreStates,
    ) -> bool {
        let Algorithm { profile, cycle, .. } = *algorithm;
        // Scores that are the same everywhere change no choice.
        let is_uniform = |at: usize| {
            sharings.scores[at] == Sharing::ByNode
                && profile.scores[at].plugin.uniform_score(score_states, at, cycle, shared).is_some()
        };
        let filters = filter_states.slots.iter().map(FilterSlot::is_skipped);
        let scores = score_states.slots.iter().enumerate().map(|(at, slot)| slot.is_skipped() || is_uniform(at));
        let idle: SmallVec<[bool; 32]> = filters.chain(scores).collect();
        if idle == self.idle {
            return true;
        }
        let idle_scores = &idle[filter_states.slots.len()..];
        let by_node = |at: &usize| sharings.scores[*at] == Sharing::ByNode && !idle_scores[*at];
        let (normalizing, plain): (SmallVec<[usize; 8]>, SmallVec<[usize; 8]>) =
            profile.score_order.iter().copied().filter(by_node).partition(|at| profile.scores[*at].plugin.normalizes());
        let filters = profile.filter_order.iter().copied().filter(|at| !filter_states.slots[*at].is_skipped());
        let scores_by_class =
            |order: &[usize]| order.iter().copied().filter(|at| sharings.scores[*at] == Sharing::ByClass).collect();
        let classes = |sharings: &[Sharing]| {
            let positions = (0..sharings.len()).filter(|at| sharings[*at] == Sharing::ByClass);
            positions.collect::<SmallVec<[usize; 4]>>()
        };
        let mut score_classes = classes(&sharings.scores);
        score_classes.retain(|at| profile.score_twins[*at].is_none());
        let filters_by_node = filters.clone().filter(|at| sharings.filters[*at] == Sharing::ByNode);
        let of_pods = |at: &usize| profile.filters[*at].plugin.looks_at_pods();
        *self = Self {
            filters_of_pods: filters_by_node.clone().filter(of_pods).collect(),
            filters: filters_by_node.collect(),
            normalizing_looks_at_pods: normalizing
                .iter()
                .map(|&at: &usize| profile.scores[at].plugin.looks_at_pods())
                .collect(),
            filters_by_class: filters.filter(|at| sharings.filters[*at] == Sharing::ByClass).collect(),
            pre_scores_by_class: scores_by_class(&profile.pre_score_order),
            scores_by_class: scores_by_class(&profile.score_order),
            plain,
            normalizing,
            filter_classes: classes(&sharings.filters),
            score_classes,
            idle,
        };
        false
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

    /// Computes the nodes that changed, many of one word of slots together.
    pub(super) fn only(
        &self,
        groups: &mut Groups,
        mut changed: impl ExactSizeIterator<Item = NodeChange>,
    ) -> Result<()> {
        if changed.len() > 1 {
            return self.several(groups, changed.map(|change| change.node));
        }
        // Most often a replica came to it.
        changed.next().map_or(Ok(()), |change| self.one(groups, change))
    }

    #[cold]
    fn several(&self, groups: &mut Groups, changed: impl Iterator<Item = NodeIdx>) -> Result<()> {
        let mut slots: SmallVec<[usize; 64]> = changed.map(NodeIdx::slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let by_word = || slots.chunk_by(|a, b| a / 64 == b / 64);
        for of_word in by_word().filter(|of_word| of_word.len() > FEW_NODES) {
            let slots = of_word.iter().fold(0_u64, |slots, slot| slots | 1 << (slot % 64));
            self.run(groups, of_word[0] / 64, &[slots])?;
        }
        groups.settle();
        for slot in by_word().filter(|of_word| of_word.len() <= FEW_NODES).flatten() {
            self.one(groups, NodeChange { node: NodeIdx::from_slot(*slot), of_pods: false })?;
        }
        Ok(())
    }

    /// Computes one node.
    fn one(&self, groups: &mut Groups, NodeChange { node, of_pods }: NodeChange) -> Result<()> {
        let mut key = Key::new();
        let known = if of_pods { groups.key_of(node) } else { None };
        let rest = self.row(node, known, &mut key)?;
        groups.set_node(node, rest.map(|rest| (&key[..], rest))).map_err(too_many)
    }

    /// The rest of one node, and the key of its group; `None` if it is not feasible. With the key that it had, if it was
    /// feasible and only its pods changed: whoever does not look at pods is not asked again.
    fn row(&self, node: NodeIdx, known: Option<&Key>, key: &mut Key) -> Result<Option<i32>> {
        let Algorithm { profile, cycle, .. } = *self.algorithm;
        let parts = self.parts;
        if cycle.snapshot.live()[node.slot() / 64] >> (node.slot() % 64) & 1 == 0 {
            return Ok(None);
        }
        let view = cycle.snapshot.view(node);
        for &at in if known.is_some() { &parts.filters_of_pods } else { &parts.filters } {
            if !profile.filters[at].plugin.filter(self.filter_states, at, cycle, view)?.is_success() {
                return Ok(None);
            }
        }
        let score = |at: usize| profile.scores[at].plugin.score(self.score_states, at, cycle, self.shared, view);
        let mut rest = 0;
        for &at in &parts.plain {
            rest += profile.scores[at].weight.unwrap_or(1) * in_range(score(at)?)?;
        }
        for (part, (&at, &looks_at_pods)) in parts.normalizing.iter().zip(&parts.normalizing_looks_at_pods).enumerate()
        {
            key.push(match known {
                Some(known) if !looks_at_pods => known[part],
                _ => score(at)?,
            });
        }
        let mut class = [0];
        for &at in &parts.filter_classes {
            profile.filters[at].plugin.classify(cycle, self.shared, &[node], &mut class);
            key.push(class[0].cast_signed());
        }
        for &at in &parts.score_classes {
            profile.scores[at].plugin.classify(cycle, self.shared, &[node], &mut class);
            key.push(class[0].cast_signed());
        }
        if key.is_empty() {
            key.push(0);
        }
        Ok(Some(i32::try_from(rest).unwrap_or(i32::MAX)))
    }

    /// Raw scores of one plugin.
    fn score(&self, at: usize, nodes: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
        let Algorithm { profile, cycle, .. } = *self.algorithm;
        profile.scores[at].plugin.score_chunk(self.score_states, at, cycle, self.shared, nodes, scores)
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
        for &at in &parts.filters {
            profile.filters[at].plugin.filter_chunk(self.filter_states, at, cycle, &mut candidates)?;
        }
        let nodes: SmallVec<[NodeIdx; 64]> = candidates.iter().collect();

        let mut scores: SmallVec<[i64; 64]> = smallvec::smallvec![0; nodes.len()];
        let mut rest: SmallVec<[i64; 64]> = smallvec::smallvec![0; nodes.len()];
        for &at in &parts.plain {
            let entry = &profile.scores[at];
            self.score(at, &nodes, &mut scores)?;
            for (rest, score) in rest.iter_mut().zip(&scores) {
                *rest += entry.weight.unwrap_or(1) * in_range(*score)?;
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
            groups.set_slots(word, *slots, of_word).map_err(too_many)?;
        }
        Ok(())
    }
}

fn in_range(score: i64) -> Result<i64> {
    match score {
        0..=MAX_NODE_SCORE => Ok(score),
        _ => Err(PluginError::new("a score is out of range")),
    }
}

fn too_many(_: TooManyGroups) -> PluginError {
    PluginError::new("there are too many groups")
}
