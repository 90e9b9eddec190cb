//! SmallestFirst: of equal priority, the pod that asks for less CPU is tried first.
use scheduler_core::framework::{self, QueuedEntity};

pub struct SmallestFirst;

impl framework::Plugin for SmallestFirst {}

impl framework::QueueSortPlugin for SmallestFirst {
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> std::cmp::Ordering {
        let key = |entity: &QueuedEntity| (-i64::from(entity.pod.priority), entity.pod.resources.requests.milli_cpu);
        key(a).cmp(&key(b)).then(a.timestamp.cmp(&b.timestamp))
    }
}
