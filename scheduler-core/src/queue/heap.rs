//! A binary heap of entity slots that removes from the head and from the middle. The order is passed to each call; entities are not here.

use super::Slot;

/// An entity in a heap, with what most comparisons look at: they need not fetch the entity itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) slot: Slot,
    /// See [`super::QueueRules::rank`].
    pub(super) rank: Option<u128>,
    /// Order of arrival.
    pub(super) sequence: u64,
}

/// Push, remove and re-order in O(log n); membership in O(1).
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Item>,
    /// Where each slot is in `items`; [`Heap::ABSENT`] for slots that are elsewhere. Slots beyond the end are, too.
    positions: Vec<u32>,
}

impl Heap {
    const ABSENT: u32 = u32::MAX;

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn peek(&self) -> Option<Slot> {
        self.items.first().map(|item| item.slot)
    }

    /// In no particular order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.items.iter().map(|item| item.slot)
    }

    pub(super) fn push(&mut self, item: Item, less: impl Fn(&Item, &Item) -> bool) {
        let slot = item.slot.0 as usize;
        if self.positions.len() <= slot {
            self.positions.resize(slot + 1, Self::ABSENT);
        }
        let at = self.items.len();
        self.items.push(item);
        self.place(at);
        self.sift_up(at, &less);
    }

    #[cfg(test)]
    pub(super) fn pop(&mut self, less: impl Fn(&Item, &Item) -> bool) -> Option<Slot> {
        let head = self.peek()?;
        self.remove(head, less);
        Some(head)
    }

    /// Whether the slot was there.
    pub(super) fn remove(&mut self, slot: Slot, less: impl Fn(&Item, &Item) -> bool) -> bool {
        let Some(at) = self.position(slot) else { return false };
        self.positions[slot.0 as usize] = Self::ABSENT;
        self.items.swap_remove(at);
        if at < self.items.len() {
            self.place(at);
            self.restore(at, &less);
        }
        true
    }

    /// Restores the order after the entity in the slot changed to `item`.
    pub(super) fn fix(&mut self, item: Item, less: impl Fn(&Item, &Item) -> bool) {
        if let Some(at) = self.position(item.slot) {
            self.items[at] = item;
            self.restore(at, &less);
        }
    }

    fn position(&self, slot: Slot) -> Option<usize> {
        self.positions.get(slot.0 as usize).filter(|at| **at != Self::ABSENT).map(|at| *at as usize)
    }

    /// Writes down where the item at this position is.
    fn place(&mut self, at: usize) {
        let slot = self.items[at].slot.0 as usize;
        self.positions[slot] = u32::try_from(at).expect("there are no more items than slots, and these are u32");
    }

    fn restore(&mut self, at: usize, less: &impl Fn(&Item, &Item) -> bool) {
        let at = self.sift_up(at, less);
        self.sift_down(at, less);
    }

    fn sift_up(&mut self, mut at: usize, less: &impl Fn(&Item, &Item) -> bool) -> usize {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !less(&self.items[at], &self.items[parent]) {
                break;
            }
            self.swap(at, parent);
            at = parent;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize, less: &impl Fn(&Item, &Item) -> bool) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut first = at;
            for child in [left, right] {
                if child < self.items.len() && less(&self.items[child], &self.items[first]) {
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
        self.place(a);
        self.place(b);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Heap, Item, Slot};

    proptest! {
        #[test]
        fn pops_in_order_whatever_was_removed_and_changed(
            mut keys in prop::collection::vec(0_i32..20, 1..60),
            steps in prop::collection::vec((0_usize..60, 0_i32..20, any::<bool>()), 0..60),
        ) {
            let mut heap = Heap::default();
            let mut present = vec![true; keys.len()];
            let item = |index: usize| Item { slot: Slot(index as u32), rank: None, sequence: index as u64 };
            let order = |keys: &[i32], a: &Item, b: &Item| {
                (keys[a.slot.0 as usize], a.sequence) < (keys[b.slot.0 as usize], b.sequence)
            };
            for index in 0..keys.len() {
                heap.push(item(index), |a, b| order(&keys, a, b));
            }
            for (index, key, remove) in steps {
                let index = index % keys.len();
                let slot = Slot(index as u32);
                if remove {
                    prop_assert_eq!(heap.remove(slot, |a, b| order(&keys, a, b)), present[index]);
                    present[index] = false;
                } else if present[index] {
                    keys[index] = key;
                    heap.fix(item(index), |a, b| order(&keys, a, b));
                }
            }
            let mut want: Vec<_> = (0..keys.len()).filter(|i| present[*i]).map(|i| (keys[i], i as u32)).collect();
            want.sort_unstable();
            let got: Vec<_> = std::iter::from_fn(|| heap.pop(|a, b| order(&keys, a, b))).map(|slot| slot.0).collect();
            prop_assert_eq!(got, want.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>());
        }
    }
}
