//! A chunk of nodes during Filter: a run of mask words, one bit a node, cleared where the pod does not fit.

use smallvec::SmallVec;

use super::NodeIdx;
use super::bits::ones;
use super::lanes::{LANES, Lanes, mask_of, vectorized, words};

/// The nodes of one chunk that may still take the pod. A filter plugin clears bits; it never sets one.
#[derive(Debug)]
pub struct Candidates<'a> {
    first_word: usize,
    words: &'a mut [u64],
}

impl<'a> Candidates<'a> {
    /// A chunk whose first mask word stands for the slots from `64 * first_word` on.
    #[must_use]
    pub fn new(first_word: usize, words: &'a mut [u64]) -> Self {
        Self { first_word, words }
    }

    /// Whether no node is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The remaining nodes, in node order.
    pub fn iter(&self) -> impl Iterator<Item = NodeIdx> + '_ {
        let first = self.first_word;
        self.words
            .iter()
            .enumerate()
            .flat_map(move |(at, &word)| ones(word).map(move |bit| NodeIdx::from_slot((first + at) * 64 + bit)))
    }

    /// Adds the remaining nodes to a list, in node order.
    pub fn list(&self, nodes: &mut Vec<NodeIdx>) {
        nodes.reserve(self.words.iter().map(|word| word.count_ones() as usize).sum());
        for (at, &word) in self.words.iter().enumerate() {
            let first = (self.first_word + at) * LANES;
            let mut word = word;
            while word != 0 {
                nodes.push(NodeIdx::from_slot(first + word.trailing_zeros() as usize));
                word &= word - 1;
            }
        }
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Clears one node's bit; a node outside the chunk is ignored.
    pub fn remove(&mut self, node: NodeIdx) {
        if let Some(word) = (node.slot() / 64).checked_sub(self.first_word).and_then(|at| self.words.get_mut(at)) {
            *word &= !(1 << (node.slot() % 64));
        }
    }

    /// Keeps the nodes for which the condition holds; asks only about remaining nodes.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeIdx) -> bool) {
        for (at, word) in self.words.iter_mut().enumerate() {
            for bit in ones(*word) {
                if !keep(NodeIdx::from_slot((self.first_word + at) * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// As [`Candidates::retain`], for a condition that can fail; stops at the first failure.
    ///
    /// # Errors
    /// The condition's error.
    pub fn try_retain<E>(&mut self, mut keep: impl FnMut(NodeIdx) -> Result<bool, E>) -> Result<(), E> {
        for (at, word) in self.words.iter_mut().enumerate() {
            for bit in ones(*word) {
                if !keep(NodeIdx::from_slot((self.first_word + at) * 64 + bit))? {
                    *word &= !(1 << bit);
                }
            }
        }
        Ok(())
    }

    /// Keeps the slots for which the condition holds, without a branch per node: asks about whole words of 64 slots,
    /// removed ones and empty slots included. Columns are padded to whole words, so any asked slot is in range.
    pub fn retain_dense(&mut self, keep: impl Fn(usize) -> bool) {
        self.retain_words(|at: usize| mask_of(|lane| keep(at * LANES + lane)));
    }

    /// Keeps what the mask of each word says. `mask` is asked about words that have a candidate left, by their position
    /// among the words of all slots; see [`words`] for columns in words.
    #[inline]
    pub fn retain_words(&mut self, mask: impl WordMask) {
        let first = self.first_word;
        vectorized(Words { words: self.words, first, mask });
    }

    /// Keeps the slots whose id in the column is in the set.
    pub fn retain_ids(&mut self, column: &[u32], ids: &IdSet) {
        self.select_ids(column, ids, 0);
    }

    /// Keeps the slots whose id in the column is not in the set.
    pub fn remove_ids(&mut self, column: &[u32], ids: &IdSet) {
        self.select_ids(column, ids, u64::MAX);
    }

    fn select_ids(&mut self, column: &[u32], ids: &IdSet, flip: u64) {
        let column = words(column);
        match ids {
            IdSet::Only(ids) => self.retain_listed(column, ids, flip),
            IdSet::AllBut(ids) => self.retain_listed(column, ids, !flip),
            IdSet::Table { .. } => self.retain_words(|at: usize| flip ^ mask_of(|lane| ids.contains(column[at][lane]))),
        }
    }

    /// Comparing is the fastest for a few ids: eight slots with one instruction.
    fn retain_listed(&mut self, column: &[[u32; LANES]], ids: &[u32], flip: u64) {
        let is = |at: usize, id: u32| mask_of(|lane| column[at][lane] == id);
        match *ids {
            [] => self.retain_words(|_: usize| flip),
            [only] => self.retain_words(|at: usize| flip ^ is(at, only)),
            [a, b] => self.retain_words(|at: usize| flip ^ (is(at, a) | is(at, b))),
            ref several => self.retain_words(|at: usize| flip ^ several.iter().fold(0, |all, id| all | is(at, *id))),
        }
    }

    /// Keeps what is set in `bits`, a mask over all slots; where it ends early, nothing more is set.
    pub fn intersect(&mut self, bits: &[u64]) {
        let bits = bits.get(self.first_word..).unwrap_or_default();
        let set = bits.iter().copied().chain(std::iter::repeat(0));
        for (word, set) in self.words.iter_mut().zip(set) {
            *word &= set;
        }
    }

    /// Drops what is set in `bits`, a mask over all slots; where it ends early, nothing more is set.
    pub fn subtract(&mut self, bits: &[u64]) {
        for (word, bits) in self.words.iter_mut().zip(bits.get(self.first_word..).unwrap_or_default()) {
            *word &= !bits;
        }
    }
}

/// Says which slots of a word to keep.
///
/// Every closure does. A type of its own is for masks that cost something: mark the method `#[inline(always)]`, so that it
/// is compiled for the CPU that it runs on.
pub trait WordMask {
    /// One bit a slot, for the word at this position among the words of all slots.
    fn of_word(&self, at: usize) -> u64;
}

impl<F: Fn(usize) -> u64> WordMask for F {
    #[inline(always)]
    fn of_word(&self, at: usize) -> u64 {
        self(at)
    }
}

/// The words of a chunk with what says which slots of each to keep.
struct Words<'w, M> {
    words: &'w mut [u64],
    first: usize,
    mask: M,
}

impl<M: WordMask> Lanes for Words<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            if *word != 0 {
                *word &= self.mask.of_word(self.first + at);
            }
        }
    }
}

/// A set of a column's ids: of a label's values, of classes of taints. Slots without an id have `u32::MAX`.
#[derive(Debug, Clone)]
pub enum IdSet {
    /// These few.
    Only(SmallVec<[u32; 8]>),
    /// All but these few.
    AllBut(SmallVec<[u32; 8]>),
    /// By id.
    Table {
        /// Whether each id is in the set.
        by_id: SmallVec<[bool; 64]>,
        /// Whether slots without an id are.
        none: bool,
    },
}

impl IdSet {
    /// The most ids that are listed: more are faster looked up in a table.
    pub const MAX_LISTED: usize = 6;

    /// Asks about each of the ids `0..n_ids`, and about slots without an id.
    #[must_use]
    pub fn new(n_ids: usize, none: bool, has: impl Fn(u32) -> bool) -> Self {
        let by_id: SmallVec<[bool; 64]> = (0..u32::try_from(n_ids).unwrap_or(u32::MAX)).map(has).collect();
        let list = |wanted: bool| {
            let ids = (0..).zip(&by_id).filter(|(_, has)| **has == wanted).map(|(id, _)| id);
            let listed: SmallVec<[u32; 8]> =
                ids.chain((none == wanted).then_some(u32::MAX)).take(Self::MAX_LISTED + 1).collect();
            (listed.len() <= Self::MAX_LISTED).then_some(listed)
        };
        match (list(true), list(false)) {
            (Some(ids), others) if others.as_ref().is_none_or(|others| ids.len() <= others.len()) => Self::Only(ids),
            (_, Some(others)) => Self::AllBut(others),
            _ => Self::Table { by_id, none },
        }
    }

    /// Whether the id is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        match self {
            Self::Only(ids) => ids.contains(&id),
            Self::AllBut(ids) => !ids.contains(&id),
            Self::Table { by_id, none } => by_id.get(id as usize).copied().unwrap_or(*none),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_kept_as_the_set_says_however_many_there_are(
            column in prop::collection::vec(prop_oneof![0_u32..20, Just(u32::MAX)], 128),
            accepted in prop::collection::vec(any::<bool>(), 0..20),
            rare in 0_u32..20,
            accepts_none in any::<bool>(),
            how in 0..3,
        ) {
            let accepts = |id: u32| match how {
                0 => accepted[id as usize],
                1 => id == rare,
                _ => id != rare,
            };
            let n_ids = if how == 0 { accepted.len() } else { 20 };
            let ids = IdSet::new(n_ids, accepts_none, accepts);
            let mut kept = [u64::MAX];
            Candidates::new(1, &mut kept).retain_ids(&column, &ids);
            let mut removed = [u64::MAX];
            Candidates::new(1, &mut removed).remove_ids(&column, &ids);
            for (lane, &id) in column[64..].iter().enumerate() {
                if id != u32::MAX && id as usize >= n_ids {
                    continue;
                }
                let want = if id == u32::MAX { accepts_none } else { accepts(id) };
                prop_assert_eq!(kept[0] >> lane & 1 == 1, want, "id {}", id);
                prop_assert_eq!(removed[0] >> lane & 1 == 1, !want, "id {}", id);
                prop_assert_eq!(ids.contains(id), want);
            }
        }
    }

    #[test]
    fn every_way_of_keeping_keeps_the_same() {
        let even = |slot: usize| slot.is_multiple_of(2);
        let start = [0b1111_u64, u64::MAX];
        let run = |f: &dyn Fn(&mut Candidates<'_>)| {
            let mut words = start;
            f(&mut Candidates::new(1, &mut words));
            words
        };
        let want = [0b0101, 0x5555_5555_5555_5555];
        assert_eq!(run(&|c| c.retain(|node| even(node.slot()))), want);
        assert_eq!(run(&|c| c.retain_dense(even)), want);
        assert_eq!(run(&|c| c.try_retain(|node| Ok::<_, ()>(even(node.slot()))).expect("no error")), want);
        assert_eq!(run(&|c| c.intersect(&[0, 0x5555_5555_5555_5555, 0x5555_5555_5555_5555])), want);
    }

    #[test]
    fn a_mask_that_ends_before_the_chunk_keeps_nothing() {
        for (bits, want) in
            [(&[][..], [0; 2]), (&[7, 7, 7], [0; 2]), (&[0, 0, 0, 7], [7, 0]), (&[0, 0, 0, 7, 9], [7, 9])]
        {
            let mut words = [u64::MAX; 2];
            Candidates::new(3, &mut words).intersect(bits);
            assert_eq!(words, want);
        }
    }

    #[test]
    fn a_mask_that_ends_before_the_chunk_takes_nothing_away() {
        for (bits, want) in [(&[][..], [u64::MAX; 2]), (&[7, 7, 7], [u64::MAX; 2]), (&[0, 0, 0, 7], [!7, u64::MAX])] {
            let mut words = [u64::MAX; 2];
            Candidates::new(3, &mut words).subtract(bits);
            assert_eq!(words, want);
        }
    }

    #[test]
    fn a_node_outside_the_chunk_is_not_removed() {
        let mut words = [1_u64];
        let mut candidates = Candidates::new(1, &mut words);
        candidates.remove(NodeIdx::from_slot(0));
        candidates.remove(NodeIdx::from_slot(128));
        assert_eq!(candidates.iter().collect::<Vec<_>>(), [NodeIdx::from_slot(64)]);
        candidates.remove(NodeIdx::from_slot(64));
        assert!(candidates.is_empty());
    }
}
