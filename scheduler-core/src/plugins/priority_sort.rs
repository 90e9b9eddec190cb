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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Pod, Timestamp};

    #[test]
    fn priority_beats_time() {
        let entity = |priority, at| QueuedEntity::new(Arc::new(Pod { priority, ..Pod::default() }), Timestamp(at));
        let sort = PrioritySort;
        assert_eq!(sort.compare(&entity(1, 9), &entity(0, 1)), Ordering::Less);
        assert_eq!(sort.compare(&entity(0, 1), &entity(0, 2)), Ordering::Less);
        assert_eq!(sort.compare(&entity(-1, 1), &entity(0, 2)), Ordering::Greater);
        assert_eq!(sort.compare(&entity(0, 1), &entity(0, 1)), Ordering::Equal);
    }
}
