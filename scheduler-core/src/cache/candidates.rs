//! A chunk of nodes during Filter: a run of mask words, one bit a node, cleared where the pod does not fit.

use super::NodeIdx;
use super::bits::ones;

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
    pub fn retain_dense(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (at, word) in self.words.iter_mut().enumerate() {
            if *word == 0 {
                continue;
            }
            let first = (self.first_word + at) * 64;
            let mut mask = 0_u64;
            for bit in 0..64 {
                mask |= u64::from(keep(first + bit)) << bit;
            }
            *word &= mask;
        }
    }

    /// Keeps what is set in `bits`, a mask over all slots.
    pub fn intersect(&mut self, bits: &[u64]) {
        for (word, bits) in self.words.iter_mut().zip(&bits[self.first_word..]) {
            *word &= bits;
        }
    }

    /// Drops what is set in `bits`, a mask over all slots.
    pub fn subtract(&mut self, bits: &[u64]) {
        for (word, bits) in self.words.iter_mut().zip(&bits[self.first_word..]) {
            *word &= !bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
