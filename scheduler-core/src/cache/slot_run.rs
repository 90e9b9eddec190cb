//! A run of neighbouring slots during Score: columns are read as they lie, whether a slot can take the pod or not.

use std::ops::Range;

use super::NodeIdx;
use super::bits::ones;
use super::lanes::{LANES, Lanes, vectorized};

/// Neighbouring slots, whole words of 64, and which of them hold a feasible node.
#[derive(Debug, Clone, Copy)]
pub struct SlotRun<'a> {
    first_word: usize,
    feasible: &'a [u64],
}

impl<'a> SlotRun<'a> {
    /// The slots from `64 * first_word` on, with one bit each for whether it is feasible.
    #[must_use]
    pub fn new(first_word: usize, feasible: &'a [u64]) -> Self {
        Self { first_word, feasible }
    }

    /// Positions of the slots in every column.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.first_word * 64..(self.first_word + self.feasible.len()) * 64
    }

    /// Position of the run's first word among the words of all slots.
    #[must_use]
    pub fn first_word(self) -> usize {
        self.first_word
    }

    /// One bit a slot, set for feasible nodes.
    #[must_use]
    pub fn feasible(self) -> &'a [u64] {
        self.feasible
    }

    /// Number of feasible nodes.
    #[must_use]
    pub fn n_feasible(self) -> usize {
        self.feasible.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Feasible nodes with their position in the run.
    pub fn iter(self) -> impl Iterator<Item = (usize, NodeIdx)> + Clone + 'a {
        self.where_set(&[], !0)
    }

    /// Feasible nodes that are in `mask`, a mask over all slots, with their position in the run; where the mask ends
    /// early, nothing more is set.
    pub fn iter_in(self, mask: &'a [u64]) -> impl Iterator<Item = (usize, NodeIdx)> + Clone + 'a {
        self.where_set(mask.get(self.first_word..).unwrap_or_default(), 0)
    }

    fn where_set(self, mask: &'a [u64], beyond: u64) -> impl Iterator<Item = (usize, NodeIdx)> + Clone + 'a {
        let first = self.first_word * 64;
        let mask = mask.iter().copied().chain(std::iter::repeat(beyond));
        self.feasible.iter().zip(mask).enumerate().flat_map(move |(at, (feasible, mask))| {
            ones(feasible & mask).map(move |bit| (at * 64 + bit, NodeIdx::from_slot(first + at * 64 + bit)))
        })
    }
}

/// Adds `weight` to the scores of the slots whose bit is set: `scores[i]` belongs to bit `i`.
pub fn add_where(words: &[u64], weight: i64, scores: &mut [i64]) {
    vectorized(AddWhere { words, weight, scores });
}

struct AddWhere<'a> {
    words: &'a [u64],
    weight: i64,
    scores: &'a mut [i64],
}

impl Lanes for AddWhere<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (word, scores) in self.words.iter().zip(self.scores.as_chunks_mut::<LANES>().0) {
            for (lane, score) in (0_u64..).zip(scores) {
                *score = score.wrapping_add(self.weight & (word >> lane & 1).cast_signed().wrapping_neg());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feasible_nodes_are_listed_with_their_place_in_the_run() {
        let run = SlotRun::new(2, &[0b101, 1 << 63]);
        assert_eq!(run.range(), 128..256);
        assert_eq!(run.n_feasible(), 3);
        let node = NodeIdx::from_slot;
        assert_eq!(run.iter().collect::<Vec<_>>(), [(0, node(128)), (2, node(130)), (127, node(255))]);
    }

    #[test]
    fn weights_are_added_where_the_bit_is_set() {
        let mut scores = [1; 128];
        add_where(&[0b10, 1 << 63], 5, &mut scores);
        let changed: Vec<usize> = (0..128).filter(|at| scores[*at] == 6).collect();
        assert_eq!((changed, scores.iter().sum()), (vec![1, 127], 138));
    }

    #[test]
    fn a_mask_that_ends_early_has_nothing_more() {
        let run = SlotRun::new(2, &[0b101, 1 << 63]);
        let at = |mask: &[u64]| run.iter_in(mask).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(at(&[]), [0; 0]);
        assert_eq!(at(&[!0, !0, 0b110]), [2]);
        assert_eq!(at(&[!0; 9]), [0, 2, 127]);
    }
}
