//! Rules for the queue's tests: priority order, a gate by scheduling gates, and plugins that each wait for one kind of event.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::{QueueRules, SchedulingQueue};
use crate::framework::{ActionType, ClusterEvent, EventFilter, EventResource, Hint, QueuedEntity};
use crate::model::{Pod, PodTemplate, Timestamp};

/// Rejects for lack of resources: a node's allocatable, or the end of a pod, may help.
pub(super) const FIT: &str = "Fit";
/// Rejects by labels: a node's labels may help, or the pod's own.
pub(super) const AFFINITY: &str = "Affinity";
/// Holds back pods with scheduling gates.
pub(super) const GATES: &str = "Gates";

pub(super) struct TestRules;

fn filters(plugin: &str) -> Vec<EventFilter> {
    match plugin {
        FIT => vec![
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE),
            EventFilter::new(EventResource::Pod, ActionType::DELETE),
        ],
        AFFINITY => vec![
            EventFilter::new(EventResource::Node, ActionType::UPDATE_NODE_LABEL),
            EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_LABEL),
        ],
        GATES => vec![EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)],
        _ => Vec::new(),
    }
}

impl QueueRules for TestRules {
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> Ordering {
        b.pod.priority.cmp(&a.pod.priority).then(a.timestamp.cmp(&b.timestamp))
    }

    fn gate(&self, pod: &Pod, _: Option<&'static str>) -> Option<(&'static str, Vec<EventFilter>)> {
        (!pod.scheduling_gates.is_empty()).then(|| (GATES, filters(GATES)))
    }

    /// Half of the pods have a rank, so that it must agree with the order.
    fn rank(&self, entity: &QueuedEntity) -> Option<u128> {
        let time = u128::try_from(entity.timestamp.as_micros()).ok()?;
        let priority = u128::try_from(1_000 - entity.pod.priority).ok()?;
        entity.pod.uid.len().is_multiple_of(2).then_some(priority << 64 | time)
    }

    fn interested(&self, event: &ClusterEvent) -> Cow<'_, [&'static str]> {
        let matches = |plugin: &&'static str| filters(plugin).iter().any(|filter| filter.matches(event));
        [AFFINITY, FIT, GATES].into_iter().filter(matches).collect()
    }

    fn hint(&self, pod: &Pod, plugin: &'static str, event: &ClusterEvent) -> Hint {
        let registered = filters(plugin).iter().any(|filter| filter.matches(event));
        // The pod's own change helps nobody else.
        let foreign = event.resource == EventResource::UnschedulablePod
            && event.pods().1.is_some_and(|changed| changed.uid != pod.uid);
        if registered && !foreign { Hint::Queue } else { Hint::Skip }
    }
}

pub(super) fn pod(uid: &str, priority: i32) -> Arc<Pod> {
    let template = PodTemplate { priority, ..PodTemplate::default() };
    Arc::new(Pod { uid: uid.into(), name: uid.into(), ..template.into() })
}

pub(super) fn gated(uid: &str) -> Arc<Pod> {
    let mut pod = (*pod(uid, 0)).clone();
    pod.scheduling_gates = ["wait".into()].into();
    Arc::new(pod)
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

pub(super) fn node_event(action: ActionType) -> ClusterEvent {
    ClusterEvent { resource: EventResource::Node, action, old: None, new: None }
}

/// Pops the head and puts it back as rejected by the plugins (none: an error).
pub(super) fn fail(queue: &mut SchedulingQueue, plugins: &[&'static str], now: Timestamp) -> Arc<str> {
    let mut entity = queue.pop(now, &TestRules).expect("an entity is ready");
    entity.clear_rejector_plugins();
    entity.unschedulable_plugins = plugins.to_vec();
    let uid = Arc::clone(&entity.pod.uid);
    queue.add_unschedulable(entity, now, &TestRules);
    uid
}
