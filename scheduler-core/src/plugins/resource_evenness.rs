//! How evenly CPU and memory of every node are used as it is: kept from event to event, so that a cycle computes only how
//! it would be with the pod.

use std::ops::Range;

use super::resource_allocation::evenness;
use crate::cache::{ClusterIndex, LANES, NodeIdx};
use crate::model::{Node, Pod, Resources};

/// CPU and memory of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Amounts {
    allocatable: [i64; 2],
    requested: [i64; 2],
}

/// The score of each slot without a further pod, 0 to 100. The formula is symmetric in the two resources.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Evenness {
    amounts: Vec<Amounts>,
    scores: Vec<u8>,
}

impl Evenness {
    /// Of a run of slots; `None` where no node has been yet.
    pub(super) fn of_slots(&self, slots: Range<usize>) -> Option<&[u8]> {
        self.scores.get(slots)
    }

    fn change(&mut self, node: NodeIdx, change: impl FnOnce(&mut Amounts)) {
        let slot = node.slot();
        if slot >= self.amounts.len() {
            // Slots are asked for in whole words.
            let n_slots = (slot + 1).next_multiple_of(LANES);
            self.amounts.resize(n_slots, Amounts::default());
            self.scores.resize(n_slots, evenness([0; 2], [0; 2]));
        }
        let amounts = &mut self.amounts[slot];
        change(amounts);
        self.scores[slot] = evenness(amounts.allocatable, amounts.requested);
    }

    fn add(&mut self, node: NodeIdx, pod: &Pod, apply: impl Fn(i64, i64) -> i64) {
        self.change(node, |amounts| {
            for (requested, amount) in amounts.requested.iter_mut().zip(of(pod.resources.used())) {
                *requested = apply(*requested, amount);
            }
        });
    }
}

fn of(resources: &Resources) -> [i64; 2] {
    [resources.milli_cpu, resources.memory]
}

// Wrapping, as the columns of the cache do.
impl ClusterIndex for Evenness {
    fn pod_added(&mut self, node: NodeIdx, pod: &Pod) {
        self.add(node, pod, i64::wrapping_add);
    }

    fn pod_removed(&mut self, node: NodeIdx, pod: &Pod) {
        self.add(node, pod, i64::wrapping_sub);
    }

    /// It asks for as much as before.
    fn pod_confirmed(&mut self, _: NodeIdx, _: &Pod, _: &Pod) {}

    fn node_changed(&mut self, idx: NodeIdx, node: Option<&Node>) {
        self.change(idx, |amounts| amounts.allocatable = node.map_or([0; 2], |node| of(&node.allocatable)));
    }
}
