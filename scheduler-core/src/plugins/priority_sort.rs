//! PrioritySort: higher priority first, then the longer wait. Upstream: plugins/queuesort (v1.36.2).

use std::cmp::Ordering;

use crate::framework::{Plugin, QueueSortPlugin, QueuedEntity};

/// Orders the queue.
#[derive(Debug, Default)]
pub struct PrioritySort;

impl PrioritySort {
    /// Name in configurations.
    pub const NAME: &'static str = "PrioritySort";
}

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl QueueSortPlugin for PrioritySort {
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> Ordering {
        b.pod.priority.cmp(&a.pod.priority).then(a.timestamp.cmp(&b.timestamp))
    }

    /// The priority, counted down from the highest, above the time, counted up from the earliest.
    fn rank(&self, entity: &QueuedEntity) -> Option<u128> {
        let priority = !(entity.pod.priority.cast_unsigned() ^ (1 << 31));
        let time = entity.timestamp.as_micros().cast_unsigned() ^ (1 << 63);
        Some(u128::from(priority) << 64 | u128::from(time))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{PodTemplate, Timestamp};

    fn entity(priority: i32, at: i64) -> QueuedEntity {
        QueuedEntity::new(
            Arc::new(PodTemplate { priority, ..PodTemplate::default() }.into()),
            Timestamp::from_micros(at),
        )
    }

    proptest! {
        #[test]
        fn ranks_compare_as_the_entities_do(
            a in (prop_oneof![-2..2, any::<i32>()], prop_oneof![-2_i64..2, any::<i64>()]),
            b in (prop_oneof![-2..2, any::<i32>()], prop_oneof![-2_i64..2, any::<i64>()]),
        ) {
            let (a, b) = (entity(a.0, a.1), entity(b.0, b.1));
            prop_assert_eq!(PrioritySort.rank(&a).cmp(&PrioritySort.rank(&b)), PrioritySort.compare(&a, &b));
        }
    }

    #[test]
    fn priority_beats_time() {
        let sort = PrioritySort;
        assert_eq!(sort.compare(&entity(1, 9), &entity(0, 1)), Ordering::Less);
        assert_eq!(sort.compare(&entity(0, 1), &entity(0, 2)), Ordering::Less);
        assert_eq!(sort.compare(&entity(-1, 1), &entity(0, 2)), Ordering::Greater);
        assert_eq!(sort.compare(&entity(0, 1), &entity(0, 1)), Ordering::Equal);
    }
}
