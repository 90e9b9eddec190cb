//! A binary heap of entity slots that removes from the head and from the middle. The order is passed to each call; entities are not here.

use rustc_hash::FxHashMap;

use super::Slot;

/// Push, remove and re-order in O(log n); membership in O(1).
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Slot>,
    positions: FxHashMap<Slot, usize>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn peek(&self) -> Option<Slot> {
        self.items.first().copied()
    }

    /// In no particular order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.items.iter().copied()
    }

    pub(super) fn push(&mut self, slot: Slot, less: impl Fn(Slot, Slot) -> bool) {
        let at = self.items.len();
        self.items.push(slot);
        self.positions.insert(slot, at);
        self.sift_up(at, &less);
    }

    #[cfg(test)]
    pub(super) fn pop(&mut self, less: impl Fn(Slot, Slot) -> bool) -> Option<Slot> {
        let head = self.peek()?;
        self.remove(head, less);
        Some(head)
    }

    /// Whether the slot was there.
    pub(super) fn remove(&mut self, slot: Slot, less: impl Fn(Slot, Slot) -> bool) -> bool {
        let Some(at) = self.positions.remove(&slot) else { return false };
        self.items.swap_remove(at);
        if let Some(&moved) = self.items.get(at) {
            self.positions.insert(moved, at);
            self.restore(at, &less);
        }
        true
    }

    /// Restores the order after the entity in `slot` changed.
    pub(super) fn fix(&mut self, slot: Slot, less: impl Fn(Slot, Slot) -> bool) {
        if let Some(&at) = self.positions.get(&slot) {
            self.restore(at, &less);
        }
    }

    fn restore(&mut self, at: usize, less: &impl Fn(Slot, Slot) -> bool) {
        let at = self.sift_up(at, less);
        self.sift_down(at, less);
    }

    fn sift_up(&mut self, mut at: usize, less: &impl Fn(Slot, Slot) -> bool) -> usize {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !less(self.items[at], self.items[parent]) {
                break;
            }
            self.swap(at, parent);
            at = parent;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize, less: &impl Fn(Slot, Slot) -> bool) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut first = at;
            for child in [left, right] {
                if child < self.items.len() && less(self.items[child], self.items[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.swap(at, first);
            at = first;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.positions.insert(self.items[a], a);
        self.positions.insert(self.items[b], b);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Heap, Slot};

    proptest! {
        #[test]
        fn pops_in_order_whatever_was_removed_and_changed(
            mut keys in prop::collection::vec(0_i32..20, 1..60),
            steps in prop::collection::vec((0_usize..60, 0_i32..20, any::<bool>()), 0..60),
        ) {
            let mut heap = Heap::default();
            let mut present = vec![true; keys.len()];
            let order = |keys: &[i32], a: Slot, b: Slot| (keys[a.0 as usize], a.0) < (keys[b.0 as usize], b.0);
            for index in 0..keys.len() {
                heap.push(Slot(index as u32), |a, b| order(&keys, a, b));
            }
            for (index, key, remove) in steps {
                let index = index % keys.len();
                let slot = Slot(index as u32);
                if remove {
                    prop_assert_eq!(heap.remove(slot, |a, b| order(&keys, a, b)), present[index]);
                    present[index] = false;
                } else if present[index] {
                    keys[index] = key;
                    heap.fix(slot, |a, b| order(&keys, a, b));
                }
            }
            let mut want: Vec<_> = (0..keys.len()).filter(|i| present[*i]).map(|i| (keys[i], i as u32)).collect();
            want.sort_unstable();
            let got: Vec<_> = std::iter::from_fn(|| heap.pop(|a, b| order(&keys, a, b))).map(|slot| slot.0).collect();
            prop_assert_eq!(got, want.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>());
        }
    }
}
