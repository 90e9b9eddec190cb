//! Entities that were popped and not yet done, and the events since the first of them was popped.
//! Upstream v1.36.2: backend/queue/active_queue.go inFlightPods, inFlightEvents.

use std::collections::VecDeque;
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

/// Starts of entities that are done, kept besides as many as are in flight: the first may wait for minutes for its permit.
const SPARE_STARTS: usize = 64;

/// Events are kept as long as an entity is in flight that was popped before them.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The entity that was popped last, if it is in flight: most are done before the next one is popped.
    last: Option<(Arc<str>, Flight)>,
    /// All others.
    flights: FxHashMap<Arc<str>, Flight>,
    /// When each was popped, in order; false for those that are done, of which none is first.
    starts: VecDeque<(u64, bool)>,
    events: VecDeque<(u64, ClusterEvent)>,
    next: u64,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.flights.len() + usize::from(self.last.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.get(uid).is_some()
    }

    fn get(&self, uid: &str) -> Option<&Flight> {
        match &self.last {
            Some((last, flight)) if **last == *uid => Some(flight),
            _ => self.flights.get(uid),
        }
    }

    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut Flight> {
        match &mut self.last {
            Some((last, flight)) if **last == *uid => Some(flight),
            _ => self.flights.get_mut(uid),
        }
    }

    #[cfg(test)]
    pub(super) fn uids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.flights.keys().chain(self.last.iter().map(|(uid, _)| uid))
    }

    #[cfg(test)]
    pub(super) fn n_events(&self) -> usize {
        self.events.len()
    }

    pub(super) fn start(&mut self, uid: Arc<str>) {
        let start = self.tick();
        self.starts.push_back((start, true));
        let before = self.last.replace((uid, Flight { start, latest: None, gone: false }));
        self.flights.extend(before);
    }

    /// Remembers the event for all that are in flight.
    pub(super) fn record(&mut self, event: &ClusterEvent) {
        if !self.is_empty() {
            let at = self.tick();
            self.events.push_back((at, event.clone()));
        }
    }

    /// Events since the entity was popped, oldest first.
    pub(super) fn events_since_pop(&self, uid: &str) -> impl Iterator<Item = &ClusterEvent> {
        let start = self.get(uid).map_or(u64::MAX, |flight| flight.start);
        let first = self.events.partition_point(|(at, _)| *at < start);
        self.events.range(first..).map(|(_, event)| event)
    }

    /// The entity is no longer in flight; events that nobody else needs are forgotten.
    pub(super) fn done(&mut self, uid: &str) -> Option<Flight> {
        let (_, flight) = match self.last.take_if(|(last, _)| **last == *uid) {
            Some(last) => last,
            None => self.flights.remove_entry(uid)?,
        };
        if self.starts.back().is_some_and(|(start, _)| *start == flight.start) {
            self.starts.pop_back();
        } else if let Ok(at) = self.starts.binary_search_by_key(&flight.start, |(start, _)| *start) {
            self.starts[at].1 = false;
        }
        while self.starts.front().is_some_and(|(_, is_in_flight)| !is_in_flight) {
            self.starts.pop_front();
        }
        if self.starts.len() > 2 * self.len() + SPARE_STARTS {
            self.starts.retain(|(_, is_in_flight)| *is_in_flight);
        }
        match self.starts.front() {
            None => self.events.clear(),
            Some((oldest, _)) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_long_does_not_keep_the_starts_of_those_that_are_done() {
        let mut in_flight = InFlight::default();
        in_flight.start("waits".into());
        for pod in 0..10_000 {
            let uid: Arc<str> = pod.to_string().into();
            in_flight.start(Arc::clone(&uid));
            assert!(in_flight.done(&uid).is_some());
        }
        assert_eq!(in_flight.len(), 1);
        assert!(in_flight.starts.len() <= 2 + SPARE_STARTS, "{} starts", in_flight.starts.len());
        assert!(in_flight.done("waits").is_some() && in_flight.is_empty());
    }
}
