//! A priority queue of entity slots that removes from the head and from the middle. The order is passed to each call; entities are not here.

use std::collections::VecDeque;

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

/// Gaps that a line may have besides as many as items; then they are closed.
const SPARE_GAPS: usize = 64;

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Absent,
    /// Index in the heap.
    Heap(u32),
    /// Index in the line, counted from the first item that was ever there.
    Line(u64),
}

/// Push, remove and re-order in O(log n), in O(1) as long as items come in order; membership in O(1).
///
/// Most items come in order: a new pod has waited for the shortest time. These stand in a line, which is sorted; the others
/// are in a binary heap. The first of all is the first of the one or of the other.
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Item>,
    /// `None` where an item was taken out of the middle; never at the ends.
    line: VecDeque<Option<Item>>,
    /// How many have left the line at its front.
    n_passed: u64,
    n_in_line: usize,
    /// Where each slot is. Slots beyond the end are nowhere.
    positions: Vec<Position>,
    head: Option<Slot>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.items.len() + self.n_in_line
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<Slot> {
        self.head
    }

    /// In no particular order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.items.iter().chain(self.line.iter().flatten()).map(|item| item.slot)
    }

    pub(super) fn push(&mut self, item: Item, less: impl Fn(&Item, &Item) -> bool) {
        let slot = item.slot.0 as usize;
        if self.positions.len() <= slot {
            self.positions.resize(slot + 1, Position::Absent);
        }
        if self.line.back().and_then(Option::as_ref).is_none_or(|last| !less(&item, last)) {
            self.positions[slot] = Position::Line(self.n_passed + self.line.len() as u64);
            self.line.push_back(Some(item));
            self.n_in_line += 1;
        } else {
            let at = self.items.len();
            self.items.push(item);
            self.place(at);
            self.sift_up(at, &less);
        }
        self.find_head(&less);
    }

    #[cfg(test)]
    pub(super) fn pop(&mut self, less: impl Fn(&Item, &Item) -> bool) -> Option<Slot> {
        let head = self.peek()?;
        self.remove(head, less);
        Some(head)
    }

    /// Whether the slot was there.
    pub(super) fn remove(&mut self, slot: Slot, less: impl Fn(&Item, &Item) -> bool) -> bool {
        match self.position(slot) {
            Position::Absent => return false,
            Position::Line(at) => self.leave_line(at),
            Position::Heap(at) => {
                let at = at as usize;
                self.items.swap_remove(at);
                if at < self.items.len() {
                    self.place(at);
                    self.restore(at, &less);
                }
            }
        }
        self.positions[slot.0 as usize] = Position::Absent;
        self.find_head(&less);
        true
    }

    /// Restores the order after the entity in the slot changed to `item`.
    pub(super) fn fix(&mut self, item: Item, less: impl Fn(&Item, &Item) -> bool) {
        if self.remove(item.slot, &less) {
            self.push(item, less);
        }
    }

    fn position(&self, slot: Slot) -> Position {
        self.positions.get(slot.0 as usize).copied().unwrap_or(Position::Absent)
    }

    fn leave_line(&mut self, at: u64) {
        let at = usize::try_from(at - self.n_passed).expect("a line does not outgrow memory");
        self.line[at] = None;
        self.n_in_line -= 1;
        while self.line.front().is_some_and(Option::is_none) {
            self.line.pop_front();
            self.n_passed += 1;
        }
        while self.line.back().is_some_and(Option::is_none) {
            self.line.pop_back();
        }
        if self.line.len() > 2 * self.n_in_line + SPARE_GAPS {
            self.close_gaps();
        }
    }

    /// The first may stay for ever while those behind it come and go, as with a scheduler that does not lead.
    fn close_gaps(&mut self) {
        self.line.retain(Option::is_some);
        for (at, item) in self.line.iter().flatten().enumerate() {
            self.positions[item.slot.0 as usize] = Position::Line(self.n_passed + at as u64);
        }
    }

    #[inline]
    fn find_head(&mut self, less: &impl Fn(&Item, &Item) -> bool) {
        let in_line = self.line.front().and_then(Option::as_ref);
        let first = match (in_line, self.items.first()) {
            (Some(in_line), Some(in_heap)) if less(in_heap, in_line) => Some(in_heap),
            (None, in_heap) => in_heap,
            (in_line, _) => in_line,
        };
        self.head = first.map(|item| item.slot);
    }

    /// Writes down where the item at this position of the heap is.
    fn place(&mut self, at: usize) {
        let slot = self.items[at].slot.0 as usize;
        let at = u32::try_from(at).expect("there are no more items than slots, and these are u32");
        self.positions[slot] = Position::Heap(at);
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

    #[test]
    fn a_line_whose_first_stays_does_not_grow_with_those_that_went() {
        let mut heap = Heap::default();
        let by_sequence = |a: &Item, b: &Item| a.sequence < b.sequence;
        let item = |slot: u32, sequence: u64| Item { slot: Slot(slot), rank: None, sequence };
        heap.push(item(0, 0), by_sequence);
        heap.push(item(1, 1), by_sequence);
        for round in 2..10_000_u32 {
            heap.push(item(1 + (round + 1) % 2, u64::from(round)), by_sequence);
            assert!(heap.remove(Slot(1 + round % 2), by_sequence), "the one before goes");
        }
        assert!(heap.line.len() <= 2 * heap.len() + super::SPARE_GAPS, "{} places", heap.line.len());
        let order: Vec<_> = std::iter::from_fn(|| heap.pop(by_sequence)).map(|slot| slot.0).collect();
        assert_eq!(order, [0, 1]);
    }

    #[test]
    fn gaps_are_closed_in_order() {
        let mut heap = Heap::default();
        let by_sequence = |a: &Item, b: &Item| a.sequence < b.sequence;
        for slot in 0..1_000 {
            heap.push(Item { slot: Slot(slot), rank: None, sequence: u64::from(slot) }, by_sequence);
        }
        for slot in (0..1_000).filter(|slot| slot % 9 != 0 && *slot != 999) {
            assert!(heap.remove(Slot(slot), by_sequence));
        }
        assert!(heap.line.len() <= 2 * heap.len() + super::SPARE_GAPS, "{} places", heap.line.len());
        assert!(heap.remove(Slot(9), by_sequence) && !heap.remove(Slot(9), by_sequence));
        let order: Vec<_> = std::iter::from_fn(|| heap.pop(by_sequence)).map(|slot| slot.0).collect();
        let want: Vec<_> = (0..1_000).filter(|slot| slot % 9 == 0 && *slot != 9).collect();
        assert_eq!(order, want);
    }
}
