//! The lowest priority among the pods of each node: whether anybody there can be evicted, without a look at the pods.

use std::sync::Arc;

use super::growth::lengthen;
use crate::model::Pod;

/// For each node slot the lowest priority of the pods there, and how many have it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LowestPriorities {
    of_slots: Vec<Lowest>,
}

#[derive(Debug, Clone, Copy)]
struct Lowest {
    /// [`i32::MAX`] where there are no pods: no priority is higher.
    priority: i32,
    n_pods: u32,
}

impl Lowest {
    const OF_NONE: Self = Self { priority: i32::MAX, n_pods: 0 };

    fn add(&mut self, priority: i32) {
        match priority.cmp(&self.priority) {
            std::cmp::Ordering::Less => *self = Self { priority, n_pods: 1 },
            std::cmp::Ordering::Equal => self.n_pods += 1,
            std::cmp::Ordering::Greater => {}
        }
    }
}

impl LowestPriorities {
    /// The lowest priority in the slot; the highest possible one where there are no pods.
    pub(crate) fn get(&self, slot: usize) -> i32 {
        self.of_slots[slot].priority
    }

    pub(crate) fn grow(&mut self, n_slots: usize) {
        lengthen(&mut self.of_slots, n_slots, Lowest::OF_NONE);
    }

    pub(crate) fn add_pod(&mut self, slot: usize, pod: &Pod) {
        self.of_slots[slot].add(pod.priority);
    }

    /// The pod has left; `others` are those that stay.
    pub(crate) fn remove_pod(&mut self, slot: usize, pod: &Pod, others: &[Arc<Pod>]) {
        let lowest = &mut self.of_slots[slot];
        if pod.priority > lowest.priority {
            return;
        }
        lowest.n_pods = lowest.n_pods.saturating_sub(1);
        if lowest.n_pods == 0 {
            *lowest = Lowest::OF_NONE;
            others.iter().for_each(|pod| lowest.add(pod.priority));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::PodTemplate;

    proptest! {
        #[test]
        fn it_is_that_of_the_pods_that_are_there(steps in prop::collection::vec((any::<bool>(), 0_usize..9, -2_i32..3), 0..60)) {
            let mut lowest = LowestPriorities::default();
            lowest.grow(64);
            let mut pods: Vec<Arc<Pod>> = Vec::new();
            for (comes, at, priority) in steps {
                if comes || pods.is_empty() {
                    let priority = if priority == 2 { i32::MAX } else { priority };
                    pods.push(Arc::new(PodTemplate { priority, ..PodTemplate::default() }.into()));
                    lowest.add_pod(5, &pods[pods.len() - 1]);
                } else {
                    let pod = pods.swap_remove(at % pods.len());
                    lowest.remove_pod(5, &pod, &pods);
                }
                let want = pods.iter().map(|pod| pod.priority).min().unwrap_or(i32::MAX);
                prop_assert_eq!(lowest.get(5), want);
            }
        }
    }
}
