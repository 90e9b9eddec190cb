//! Entities that were popped and not yet done, and the events since the first of them was popped.
//! Upstream v1.36.2: backend/queue/active_queue.go inFlightPods, inFlightEvents.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::framework::ClusterEvent;
use crate::model::Pod;

/// What became of an entity while it was in flight.
#[derive(Debug)]
pub(super) struct Flight {
    start: u64,
    /// The pod as last seen, if it changed.
    pub(super) latest: Option<Arc<Pod>>,
    /// Whether it was deleted or bound by somebody else.
    pub(super) gone: bool,
}

/// Events are kept as long as an entity is in flight that was popped before them.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    flights: FxHashMap<Arc<str>, Flight>,
    starts: BTreeSet<u64>,
    events: VecDeque<(u64, ClusterEvent)>,
    next: u64,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.flights.contains_key(uid)
    }

    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut Flight> {
        self.flights.get_mut(uid)
    }

    #[cfg(test)]
    pub(super) fn uids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.flights.keys()
    }

    #[cfg(test)]
    pub(super) fn n_events(&self) -> usize {
        self.events.len()
    }

    pub(super) fn start(&mut self, uid: Arc<str>) {
        let start = self.tick();
        self.starts.insert(start);
        self.flights.insert(uid, Flight { start, latest: None, gone: false });
    }

    /// Remembers the event for all that are in flight.
    pub(super) fn record(&mut self, event: &ClusterEvent) {
        if !self.flights.is_empty() {
            let at = self.tick();
            self.events.push_back((at, event.clone()));
        }
    }

    /// Events since the entity was popped, oldest first.
    pub(super) fn events_since_pop(&self, uid: &str) -> impl Iterator<Item = &ClusterEvent> {
        let start = self.flights.get(uid).map_or(u64::MAX, |flight| flight.start);
        let first = self.events.partition_point(|(at, _)| *at < start);
        self.events.range(first..).map(|(_, event)| event)
    }

    /// The entity is no longer in flight; events that nobody else needs are forgotten.
    pub(super) fn done(&mut self, uid: &str) -> Option<Flight> {
        let flight = self.flights.remove(uid)?;
        self.starts.remove(&flight.start);
        match self.starts.first() {
            None => self.events.clear(),
            Some(oldest) => {
                let n_old = self.events.partition_point(|(at, _)| at < oldest);
                self.events.drain(..n_old);
            }
        }
        Some(flight)
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
