//! The scheduling queue: which pod is tried next, and which one waits for what. No clock: `now` is an argument.
//! No plugin is named here: order, gates and hints come in as [`QueueRules`].
//!
//! ```text
//!              add, update           pop                     done (bound, deleted)
//!   new pod ───────┬────────▶ active ─────▶ in flight ─────────────────────────────▶
//!                  │ gated     ▲  ▲ ▲           │ add_unschedulable
//!                  ▼           │  │ │           ├── error, or an event since pop may help ──▶ backoff (or active)
//!            unschedulable ────┘  │ └─ backoff ◀┘                                              │
//!              (and gated) ◀──────┼──────────────── nothing helps ──────────────────────────────
//!                  └── event that may help, activate, 5 minutes
//! ```
//!
//! An entity is in exactly one place. When the active queue is empty, an entity that is in back-off because it was
//! unschedulable is popped at once; one that is there because of an error serves its time.
//! Upstream v1.36.2: backend/queue/scheduling_queue.go PriorityQueue.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::framework::{ClusterEvent, EventResource, NominatedNode, QueuedEntity};
use crate::model::{Pod, Timestamp};

mod backoff;
mod heap;
mod in_flight;
mod moves;
mod nominator;
mod pod_change;
mod rules;
mod unschedulable;

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod test_rules;
#[cfg(test)]
mod tests;

pub use nominator::Nominator;
pub use pod_change::pod_update_actions;
pub use rules::{EventMap, ProfileRules, QueueRules};

use backoff::{Backoff, release_time};
use heap::Heap;
use in_flight::InFlight;
use moves::Strategy;
use unschedulable::Unschedulable;

/// Durations of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// First back-off. Default 1 s.
    pub initial_backoff: Duration,
    /// Longest back-off; zero turns it off. Default 10 s.
    pub max_backoff: Duration,
    /// An entity that was unschedulable for longer is tried again. Default 5 min.
    pub max_in_unschedulable: Duration,
    /// How often that is looked at. Default 30 s.
    pub flush_period: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_in_unschedulable: Duration::from_secs(300),
            flush_period: Duration::from_secs(30),
        }
    }
}

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Waiting for the next cycle.
    Active,
    /// Waiting for its back-off to end, after a rejection.
    Backoff,
    /// Waiting for its back-off to end, after an error.
    ErrorBackoff,
    /// Waiting for an event, or gated.
    Unschedulable,
    /// Popped and not done.
    InFlight,
}

/// How many entities are where; for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// In the active queue.
    pub active: usize,
    /// In back-off, after rejections and errors.
    pub backoff: usize,
    /// Unschedulable, without the gated ones.
    pub unschedulable: usize,
    /// Held back by a PreEnqueue plugin.
    pub gated: usize,
    /// Popped and not done.
    pub in_flight: usize,
}

/// Index of an entity in the queue's storage, reused after it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Slot(u32);

#[derive(Debug)]
struct Entry {
    entity: QueuedEntity,
    place: Place,
    /// Order of arrival: decides where rules leave two entities equal.
    sequence: u64,
}

/// The queue of all profiles. Every operation costs O(log n) for each entity that it moves.
#[derive(Debug)]
pub struct SchedulingQueue {
    backoff_rule: Backoff,
    max_in_unschedulable: Duration,
    flush_period: Duration,
    next_flush: Option<Timestamp>,
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    slots: FxHashMap<Arc<str>, Slot>,
    next_sequence: u64,
    active: Heap,
    backoff: Heap,
    error_backoff: Heap,
    unschedulable: Unschedulable,
    n_gated: usize,
    in_flight: InFlight,
    nominator: Nominator,
}

impl SchedulingQueue {
    /// An empty queue.
    pub fn new(options: QueueOptions) -> Self {
        Self {
            backoff_rule: Backoff { initial: options.initial_backoff, max: options.max_backoff },
            max_in_unschedulable: options.max_in_unschedulable,
            flush_period: options.flush_period,
            next_flush: None,
            entries: Vec::new(),
            free: Vec::new(),
            slots: FxHashMap::default(),
            next_sequence: 0,
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            unschedulable: Unschedulable::default(),
            n_gated: 0,
            in_flight: InFlight::default(),
            nominator: Nominator::default(),
        }
    }

    /// Adds a pod that was just created. A pod that is known already is updated.
    pub fn add(&mut self, pod: Arc<Pod>, now: Timestamp, rules: &dyn QueueRules) {
        if self.place(&pod.uid).is_some() {
            self.update(None, pod, now, rules);
            return;
        }
        self.nominator.remove(&pod.uid);
        let entity = QueuedEntity::new(pod, now);
        self.move_to_active(entity, now, rules, true, true);
    }

    /// A waiting pod changed. In flight, the change is replayed when the attempt fails; in the active or back-off queue
    /// the pod keeps its place; an unschedulable pod moves if a rejecting plugin says that the change may help.
    pub fn update(&mut self, old: Option<&Pod>, new: Arc<Pod>, now: Timestamp, rules: &dyn QueueRules) {
        let uid = Arc::clone(&new.uid);
        let events = update_events(old, &new);
        if let Some(flight) = self.in_flight.get_mut(&uid) {
            flight.latest = Some(new);
            for event in &events {
                self.in_flight.record(event);
            }
            return;
        }
        let Some(&slot) = self.slots.get(&uid) else {
            let entity = QueuedEntity::new(new, now);
            self.move_to_active(entity, now, rules, true, true);
            return;
        };
        self.entry_mut(slot).entity.pod = Arc::clone(&new);
        self.nominator.update(old, &new);
        match self.entry(slot).place {
            Place::Unschedulable => self.requeue_updated(slot, &events, now, rules),
            place => self.fix(slot, place, rules),
        }
    }

    /// A pod was deleted, or bound by somebody else. It is gone from every place; in flight, it will not come back.
    pub fn delete(&mut self, uid: &str, rules: &dyn QueueRules) {
        self.nominator.remove(uid);
        if let Some(flight) = self.in_flight.get_mut(uid) {
            flight.gone = true;
        }
        if let Some(&slot) = self.slots.get(uid) {
            self.take(slot, rules);
        }
    }

    /// The entity to try now. It is in flight until [`done`](Self::done) or [`add_unschedulable`](Self::add_unschedulable).
    pub fn pop(&mut self, now: Timestamp, rules: &dyn QueueRules) -> Option<QueuedEntity> {
        self.flush_backoff(now, rules);
        let slot = self.active.peek().or_else(|| self.backoff.peek())?;
        Some(self.start(slot, now, rules))
    }

    /// As [`pop`](Self::pop), but this pod, whoever's turn it is; `None` if it does not wait, or is gated.
    pub fn pop_pod(&mut self, uid: &str, now: Timestamp, rules: &dyn QueueRules) -> Option<QueuedEntity> {
        let slot = *self.slots.get(uid)?;
        (!self.entry(slot).entity.is_gated()).then(|| self.start(slot, now, rules))
    }

    fn start(&mut self, slot: Slot, now: Timestamp, rules: &dyn QueueRules) -> QueuedEntity {
        let mut entity = self.take(slot, rules);
        if entity.initial_attempt_timestamp.is_none() {
            entity.initial_attempt_timestamp = Some(now);
        }
        entity.attempts = entity.attempts.saturating_add(1);
        self.in_flight.start(Arc::clone(&entity.pod.uid));
        entity
    }

    /// The attempt is over for good: the pod is bound, or gone.
    pub fn done(&mut self, uid: &str) {
        self.in_flight.done(uid);
    }

    /// Puts a popped entity back after a failed attempt. Its rejecting plugins are set by the engine; without any, the
    /// attempt counts as an error. Returns where it is now; `None` if the pod was deleted in the meantime.
    pub fn add_unschedulable(
        &mut self,
        mut entity: QueuedEntity,
        now: Timestamp,
        rules: &dyn QueueRules,
    ) -> Option<Place> {
        let uid = Arc::clone(&entity.pod.uid);
        if self.slots.contains_key(&uid) {
            self.in_flight.done(&uid);
            return self.place(&uid);
        }
        if entity.unschedulable_plugins.is_empty() && entity.pending_plugins.is_empty() {
            entity.consecutive_errors_count = entity.consecutive_errors_count.saturating_add(1);
        } else {
            entity.unschedulable_count = entity.unschedulable_count.saturating_add(1);
            entity.consecutive_errors_count = 0;
        }
        entity.timestamp = now;
        entity.backoff_expiration = None;
        entity.was_flushed_from_unschedulable = false;
        let strategy = self.strategy_after_attempt(&entity, rules);
        let Some(flight) = self.in_flight.done(&uid) else {
            // Its binding failed after the queue had been told that it is done: nothing was replayed, so it is retried.
            return Some(self.requeue(entity, Strategy::AfterBackoff, now, rules));
        };
        if flight.gone {
            self.nominator.remove(&uid);
            return None;
        }
        if let Some(latest) = flight.latest {
            self.nominator.update(Some(&entity.pod), &latest);
            entity.pod = latest;
        }
        Some(self.requeue(entity, strategy, now, rules))
    }

    /// Moves pods to the active queue whatever their back-off, as a plugin may ask. For one in flight the request is kept.
    pub fn activate(&mut self, pods: &[Arc<Pod>], now: Timestamp, rules: &dyn QueueRules) {
        for pod in pods {
            match self.slots.get(&pod.uid).map(|&slot| (slot, self.entry(slot).place)) {
                None if self.in_flight.contains(&pod.uid) => {
                    let event = ClusterEvent { new: Some(Arc::clone(pod).into()), ..ClusterEvent::wild_card() };
                    self.in_flight.record(&event);
                }
                None | Some((_, Place::Active)) => {}
                Some((slot, place)) => {
                    let entity = self.take(slot, rules);
                    self.move_to_active(entity, now, rules, place == Place::Unschedulable, false);
                }
            }
        }
    }

    /// Something changed in the cluster. Every unschedulable entity (that `pre_check` lets through) moves if one of the
    /// plugins that rejected it says that the change may help.
    pub fn move_all(
        &mut self,
        event: &ClusterEvent,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
        now: Timestamp,
        rules: &dyn QueueRules,
    ) {
        if self.unschedulable.is_empty() && self.in_flight.is_empty() {
            return;
        }
        let candidates = if event.is_wild_card() {
            self.unschedulable.all()
        } else {
            let plugins = rules.interested(event);
            if plugins.is_empty() {
                return;
            }
            self.unschedulable.rejected_by(&plugins)
        };
        for slot in candidates {
            if pre_check.is_none_or(|check| check(&self.entry(slot).entity.pod)) {
                self.requeue_moved(slot, event, now, rules);
            }
        }
        self.in_flight.record(event);
    }

    /// What time alone does: back-off that ends, and entities that were unschedulable for minutes.
    pub fn tick(&mut self, now: Timestamp, rules: &dyn QueueRules) {
        self.flush_backoff(now, rules);
        let next_flush = *self.next_flush.get_or_insert_with(|| now.after(self.flush_period));
        if now < next_flush {
            return;
        }
        self.next_flush = Some(now.after(self.flush_period));
        let event = ClusterEvent::wild_card();
        for slot in self.unschedulable.older_than(now, self.max_in_unschedulable) {
            self.entry_mut(slot).entity.was_flushed_from_unschedulable = true;
            self.requeue_moved(slot, &event, now, rules);
        }
    }

    /// When [`tick`](Self::tick) should be called next, if nothing else happens; `None` when it would do nothing, ever.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let expiration = |slot: Slot| self.entry(slot).entity.backoff_expiration.map(release_time);
        let ends = [&self.backoff, &self.error_backoff].into_iter().filter_map(Heap::peek).filter_map(expiration).min();
        let flush = self.next_flush.filter(|_| !self.unschedulable.is_empty());
        [ends, flush].into_iter().flatten().min()
    }

    /// Whether [`pop`](Self::pop) would give an entity without time passing.
    pub fn is_ready(&self) -> bool {
        self.active.len() + self.backoff.len() > 0
    }

    /// Where the pod is; `None` if the queue does not know it.
    pub fn place(&self, uid: &str) -> Option<Place> {
        match self.slots.get(uid) {
            Some(&slot) => Some(self.entry(slot).place),
            None => self.in_flight.contains(uid).then_some(Place::InFlight),
        }
    }

    /// The waiting entity of a pod; `None` if it is unknown or in flight.
    pub fn get(&self, uid: &str) -> Option<&QueuedEntity> {
        self.slots.get(uid).map(|&slot| &self.entry(slot).entity)
    }

    /// How many entities are where.
    pub fn lengths(&self) -> QueueLengths {
        QueueLengths {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.unschedulable.len() - self.n_gated,
            gated: self.n_gated,
            in_flight: self.in_flight.len(),
        }
    }

    /// Which pods are expected on which nodes.
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// Nominates a pod that still waits or is in flight; a pod that is gone is not nominated.
    pub fn nominate(&mut self, pod: &Arc<Pod>, nominated: &NominatedNode) {
        let is_gone = self.in_flight.get_mut(&pod.uid).is_some_and(|flight| flight.gone);
        if is_gone || self.place(&pod.uid).is_none() {
            self.nominator.remove(&pod.uid);
            return;
        }
        let latest = self.get(&pod.uid).map_or(pod, |entity| &entity.pod).clone();
        self.nominator.add(&latest, nominated);
    }

    /// Withdraws a nomination, if there is one.
    pub fn delete_nominated(&mut self, uid: &str) {
        self.nominator.remove(uid);
    }

    fn entry(&self, slot: Slot) -> &Entry {
        self.entries[slot.0 as usize].as_ref().expect("slots are only kept of entities that are stored")
    }

    fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        self.entries[slot.0 as usize].as_mut().expect("slots are only kept of entities that are stored")
    }
}

/// The events that an update of a waiting pod means.
fn update_events(old: Option<&Pod>, new: &Arc<Pod>) -> Vec<ClusterEvent> {
    let Some(old) = old else { return Vec::new() };
    let old_object = Arc::new(old.clone());
    let actions = pod_update_actions(old, new).into_iter();
    let event = |action| ClusterEvent {
        resource: EventResource::UnschedulablePod,
        action,
        old: Some(Arc::clone(&old_object).into()),
        new: Some(Arc::clone(new).into()),
    };
    actions.map(event).collect()
}
