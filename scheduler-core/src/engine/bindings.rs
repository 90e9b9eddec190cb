//! The pods on their way to their nodes. An event or the time finds those that wait for it without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::binding_cycle::BindingCycle;
use crate::framework::{ClusterEvent, EventResource};
use crate::model::Timestamp;

/// Binding cycles by the UID of their pods. What a cycle waits for must not change while it is here.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    by_uid: FxHashMap<Arc<str>, Box<BindingCycle>>,
    by_time: BTreeSet<(Timestamp, Arc<str>)>,
    /// Under each resource that an awaited event may be about.
    by_resource: BTreeMap<EventResource, BTreeSet<Arc<str>>>,
}

impl Bindings {
    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn insert(&mut self, cycle: Box<BindingCycle>) {
        let uid = Arc::clone(cycle.uid());
        for (events, until) in cycle.waits_for() {
            self.by_time.insert((until, Arc::clone(&uid)));
            for filter in events {
                self.by_resource.entry(filter.resource).or_default().insert(Arc::clone(&uid));
            }
        }
        self.by_uid.insert(uid, cycle);
    }

    pub(super) fn get(&self, uid: &str) -> Option<&BindingCycle> {
        self.by_uid.get(uid).map(|cycle| &**cycle)
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Box<BindingCycle>> {
        let cycle = self.by_uid.remove(uid)?;
        for (events, until) in cycle.waits_for() {
            self.by_time.remove(&(until, Arc::clone(cycle.uid())));
            for filter in events {
                if let Some(waiting) = self.by_resource.get_mut(&filter.resource) {
                    waiting.remove(uid);
                    if waiting.is_empty() {
                        self.by_resource.remove(&filter.resource);
                    }
                }
            }
        }
        Some(cycle)
    }

    /// The earliest time that a cycle waits for.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Cycles whose time has come, in UID order.
    pub(super) fn due(&self, now: Timestamp) -> BTreeSet<Arc<str>> {
        self.by_time.iter().take_while(|(until, _)| *until <= now).map(|(_, uid)| Arc::clone(uid)).collect()
    }

    /// Cycles that wait for such an event, in UID order.
    pub(super) fn due_on(&self, event: &ClusterEvent) -> BTreeSet<Arc<str>> {
        if self.by_resource.is_empty() {
            return BTreeSet::new();
        }
        let waiting = self.by_resource.iter().filter(|(resource, _)| resource.covers(event.resource));
        let awaits = |uid: &&Arc<str>| {
            let mut filters = self.by_uid.get(&***uid).into_iter().flat_map(|cycle| cycle.waits_for());
            filters.any(|(events, _)| events.iter().any(|filter| filter.matches(event)))
        };
        waiting.flat_map(|(_, uids)| uids).filter(awaits).cloned().collect()
    }
}
