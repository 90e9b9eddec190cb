//! How many of something each node has, for things that most nodes have none of.

use rustc_hash::FxHashMap;

use super::NodeIdx;
use super::bits::{clear_bit, set_bit};

/// Numbers by node, zero for most: a map of the others, and a mask of them for whole chunks of nodes.
#[derive(Debug, Clone, Default)]
pub struct NodeCounts {
    by_node: FxHashMap<NodeIdx, u32>,
    nonzero: Vec<u64>,
}

impl NodeCounts {
    /// The node's number.
    #[inline]
    #[must_use]
    pub fn get(&self, node: NodeIdx) -> u32 {
        let slot = node.slot();
        match self.nonzero.get(slot / 64) {
            Some(word) if word >> (slot % 64) & 1 == 1 => self.by_node.get(&node).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// The nodes whose number is not zero, one bit a slot; slots beyond its end are zero.
    #[must_use]
    pub fn nonzero(&self) -> &[u64] {
        &self.nonzero
    }

    /// The nodes whose number is not zero, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeIdx, u32)> + '_ {
        self.by_node.iter().map(|(node, count)| (*node, *count))
    }

    /// Whether every number is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    pub(crate) fn add(&mut self, node: NodeIdx, n: u32) {
        if n == 0 {
            return;
        }
        let word = node.slot() / 64;
        if self.nonzero.len() <= word {
            self.nonzero.resize(word + 1, 0);
        }
        set_bit(&mut self.nonzero, node.slot());
        let count = self.by_node.entry(node).or_default();
        *count = count.saturating_add(n);
    }

    /// Takes one away; false if there was none.
    pub(crate) fn take_one(&mut self, node: NodeIdx) -> bool {
        let Some(count) = self.by_node.get_mut(&node) else { return false };
        *count -= 1;
        if *count == 0 {
            self.by_node.remove(&node);
            clear_bit(&mut self.nonzero, node.slot());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        let node = NodeIdx::from_slot;
        let mut counts = NodeCounts::default();
        assert_eq!((counts.get(node(5)), counts.is_empty()), (0, true));
        counts.add(node(70), 2);
        assert_eq!((counts.get(node(70)), counts.get(node(6)), counts.get(node(700))), (2, 0, 0));
        assert_eq!(counts.nonzero(), [0, 1 << 6]);
        assert!(counts.take_one(node(70)) && counts.take_one(node(70)));
        assert!(!counts.take_one(node(70)));
        assert_eq!((counts.nonzero(), counts.is_empty()), (&[0, 0][..], true));
    }
}
