//! How an entity gets from one place to another: gates, hints, back-off. The operations that cause moves are in the parent module.

use std::cmp::Ordering;
use std::sync::Arc;

use super::heap::Item;
use super::{Entry, Place, QueueRules, SchedulingQueue, Slot};
use crate::framework::{ClusterEvent, Hint, NominatedNode, QueuedEntity};
use crate::model::Timestamp;

/// What an event means for an entity. Upstream v1.36.2: queueingStrategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    /// It stays where it is.
    Skip,
    /// It is worth a try once its back-off is over.
    AfterBackoff,
    /// What a plugin waited for has happened: back-off does not matter.
    Immediately,
}

impl SchedulingQueue {
    /// What the event means for the entity. Upstream v1.36.2: isPodWorthRequeuing.
    fn strategy(entity: &QueuedEntity, event: &ClusterEvent, rules: &dyn QueueRules) -> Strategy {
        if entity.unschedulable_plugins.is_empty() && entity.pending_plugins.is_empty() {
            return Strategy::AfterBackoff;
        }
        if event.is_wild_card() {
            // With an object, the event is meant for that pod alone.
            let is_meant = match (&event.new, event.pods().1) {
                (None, _) => true,
                (Some(_), pod) => pod.is_some_and(|pod| pod.uid == entity.pod.uid),
            };
            return if is_meant { Strategy::AfterBackoff } else { Strategy::Skip };
        }
        let helps = |plugin: &&'static str| rules.hint(&entity.pod, plugin, event) == Hint::Queue;
        if entity.pending_plugins.iter().any(helps) {
            Strategy::Immediately
        } else if entity.unschedulable_plugins.iter().any(helps) {
            Strategy::AfterBackoff
        } else {
            Strategy::Skip
        }
    }

    /// What the events since the entity was popped mean, after its attempt failed.
    /// Upstream v1.36.2: determineSchedulingHintForInFlightPod.
    pub(super) fn strategy_after_attempt(&self, entity: &QueuedEntity, rules: &dyn QueueRules) -> Strategy {
        if entity.unschedulable_plugins.is_empty() && entity.pending_plugins.is_empty() {
            return Strategy::AfterBackoff;
        }
        let most = if entity.pending_plugins.is_empty() { Strategy::AfterBackoff } else { Strategy::Immediately };
        let mut strategy = Strategy::Skip;
        for event in self.in_flight.events_since_pop(&entity.pod.uid) {
            strategy = strategy.max(Self::strategy(entity, event, rules));
            if strategy >= most {
                break;
            }
        }
        strategy
    }

    /// Stores an entity that is nowhere. Upstream v1.36.2: requeuePodWithQueueingStrategy.
    pub(super) fn requeue(
        &mut self,
        entity: QueuedEntity,
        strategy: Strategy,
        now: Timestamp,
        rules: &dyn QueueRules,
    ) -> Place {
        match strategy {
            Strategy::Skip => self.store(entity, Place::Unschedulable, rules),
            Strategy::AfterBackoff if self.backoff_rule.is_backing_off(&entity, now) => {
                self.move_to_backoff(entity, rules)
            }
            _ => self.move_to_active(entity, now, rules, true, false),
        }
    }

    /// Moves an unschedulable entity if the event helps it. Upstream v1.36.2: movePodsToActiveOrBackoffQueue.
    pub(super) fn requeue_moved(&mut self, slot: Slot, event: &ClusterEvent, now: Timestamp, rules: &dyn QueueRules) {
        let entity = &self.entry(slot).entity;
        if entity.is_gated() && !entity.gating_plugin_events.iter().any(|filter| filter.matches(event)) {
            return;
        }
        let strategy = Self::strategy(entity, event, rules);
        if strategy != Strategy::Skip {
            let entity = self.take(slot, rules);
            self.requeue(entity, strategy, now, rules);
        }
    }

    /// Moves an unschedulable entity whose pod was updated, if one of the changes helps it.
    pub(super) fn requeue_updated(
        &mut self,
        slot: Slot,
        events: &[ClusterEvent],
        now: Timestamp,
        rules: &dyn QueueRules,
    ) {
        let mut slot = slot;
        for event in events {
            let strategy = Self::strategy(&self.entry(slot).entity, event, rules);
            if strategy == Strategy::Skip {
                continue;
            }
            let entity = self.take(slot, rules);
            let uid = Arc::clone(&entity.pod.uid);
            if self.requeue(entity, strategy, now, rules) != Place::Unschedulable {
                return;
            }
            // A gate held it back again; a later change may still open it.
            slot = self.slots[&uid];
        }
    }

    /// To the active queue, or to the unschedulable ones if a PreEnqueue plugin holds it back. Gates need no second look
    /// (`check_gates`) for an entity that comes from back-off. `nominate` restores what the pod's status says.
    pub(super) fn move_to_active(
        &mut self,
        mut entity: QueuedEntity,
        now: Timestamp,
        rules: &dyn QueueRules,
        check_gates: bool,
        nominate: bool,
    ) -> Place {
        if check_gates && Self::run_pre_enqueue(&mut entity, rules) {
            return self.store(entity, Place::Unschedulable, rules);
        }
        entity.initial_attempt_timestamp.get_or_insert(now);
        if nominate {
            self.nominator.add(&entity.pod, &NominatedNode::Keep);
        }
        self.store(entity, Place::Active, rules)
    }

    /// To the back-off queue of its kind, or to the unschedulable ones if a PreEnqueue plugin holds it back.
    fn move_to_backoff(&mut self, mut entity: QueuedEntity, rules: &dyn QueueRules) -> Place {
        let is_error = entity.unschedulable_plugins.is_empty() && entity.pending_plugins.is_empty();
        if Self::run_pre_enqueue(&mut entity, rules) {
            return self.store(entity, Place::Unschedulable, rules);
        }
        entity.backoff_expiration = self.backoff_rule.expiration(&entity);
        self.store(entity, if is_error { Place::ErrorBackoff } else { Place::Backoff }, rules)
    }

    /// Whether a gate holds the entity back; the gate then counts as a plugin that rejected it.
    fn run_pre_enqueue(entity: &mut QueuedEntity, rules: &dyn QueueRules) -> bool {
        match rules.gate(&entity.pod, entity.gating_plugin) {
            Some((plugin, events)) => {
                if let Err(at) = entity.unschedulable_plugins.binary_search(&plugin) {
                    entity.unschedulable_plugins.insert(at, plugin);
                }
                entity.gating_plugin = Some(plugin);
                entity.gating_plugin_events = events;
                true
            }
            None => {
                entity.gating_plugin = None;
                entity.gating_plugin_events.clear();
                false
            }
        }
    }

    /// Moves what has served its back-off to the active queue.
    pub(super) fn flush_backoff(&mut self, now: Timestamp, rules: &dyn QueueRules) {
        if self.backoff.len() + self.error_backoff.len() == 0 {
            return;
        }
        for place in [Place::Backoff, Place::ErrorBackoff] {
            while let Some(slot) = self.heap(place).peek() {
                if self.backoff_rule.is_backing_off(&self.entry(slot).entity, now) {
                    break;
                }
                let entity = self.take(slot, rules);
                self.move_to_active(entity, now, rules, false, false);
            }
        }
    }

    /// Restores the order after the entity changed where it is.
    pub(super) fn fix(&mut self, slot: Slot, place: Place, rules: &dyn QueueRules) {
        let item = self.item(slot, rules);
        let Self { entries, active, backoff, error_backoff, .. } = self;
        match place {
            Place::Active => active.fix(item, |a, b| active_less(entries, rules, a, b)),
            Place::Backoff => backoff.fix(item, |a, b| backoff_less(entries, rules, a, b)),
            Place::ErrorBackoff => error_backoff.fix(item, |a, b| error_less(entries, a, b)),
            Place::Unschedulable | Place::InFlight => {}
        }
    }

    /// The entity as heaps hold it.
    fn item(&self, slot: Slot, rules: &dyn QueueRules) -> Item {
        let entry = self.entry(slot);
        Item { slot, rank: rules.rank(&entry.entity), sequence: entry.sequence }
    }

    fn heap(&self, place: Place) -> &super::Heap {
        if place == Place::Backoff { &self.backoff } else { &self.error_backoff }
    }

    /// Puts an entity that is nowhere into a place.
    fn store(&mut self, entity: QueuedEntity, place: Place, rules: &dyn QueueRules) -> Place {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            Slot(u32::try_from(self.entries.len() - 1).expect("a queue of 2^32 pods does not fit into memory"))
        });
        self.next_sequence += 1;
        let sequence = self.next_sequence;
        self.slots.insert(Arc::clone(&entity.pod.uid), slot);
        if place == Place::Unschedulable {
            self.unschedulable.insert(slot, sequence, &entity);
            self.n_gated += usize::from(entity.is_gated());
        }
        self.entries[slot.0 as usize] = Some(Entry { entity, place, sequence });
        let item = self.item(slot, rules);
        let Self { entries, active, backoff, error_backoff, .. } = self;
        match place {
            Place::Active => active.push(item, |a, b| active_less(entries, rules, a, b)),
            Place::Backoff => backoff.push(item, |a, b| backoff_less(entries, rules, a, b)),
            Place::ErrorBackoff => error_backoff.push(item, |a, b| error_less(entries, a, b)),
            Place::Unschedulable | Place::InFlight => {}
        }
        place
    }

    /// Takes an entity out of its place.
    pub(super) fn take(&mut self, slot: Slot, rules: &dyn QueueRules) -> QueuedEntity {
        let place = self.entry(slot).place;
        let Self { entries, active, backoff, error_backoff, .. } = self;
        match place {
            Place::Active => active.remove(slot, |a, b| active_less(entries, rules, a, b)),
            Place::Backoff => backoff.remove(slot, |a, b| backoff_less(entries, rules, a, b)),
            Place::ErrorBackoff => error_backoff.remove(slot, |a, b| error_less(entries, a, b)),
            Place::Unschedulable | Place::InFlight => true,
        };
        let entry = self.entries[slot.0 as usize].take().expect("slots are only kept of entities that are stored");
        if place == Place::Unschedulable {
            self.unschedulable.remove(slot, entry.sequence, &entry.entity);
            self.n_gated -= usize::from(entry.entity.is_gated());
        }
        self.slots.remove(&entry.entity.pod.uid);
        self.free.push(slot);
        QueuedEntity { backoff_expiration: None, ..entry.entity }
    }
}

type Entries = [Option<Entry>];

fn pair(entries: &Entries, a: Slot, b: Slot) -> (&Entry, &Entry) {
    let get = |slot: Slot| entries[slot.0 as usize].as_ref().expect("heaps hold only stored entities");
    (get(a), get(b))
}

/// The order of the rules, by rank where both have one.
fn by_rules(entries: &Entries, rules: &dyn QueueRules, a: &Item, b: &Item) -> Ordering {
    match (a.rank, b.rank) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = pair(entries, a.slot, b.slot);
            rules.compare(&a.entity, &b.entity)
        }
    }
}

fn active_less(entries: &Entries, rules: &dyn QueueRules, a: &Item, b: &Item) -> bool {
    by_rules(entries, rules, a, b).then(a.sequence.cmp(&b.sequence)).is_lt()
}

fn backoff_less(entries: &Entries, rules: &dyn QueueRules, a: &Item, b: &Item) -> bool {
    by_expiration(entries, a, b).then_with(|| by_rules(entries, rules, a, b)).then(a.sequence.cmp(&b.sequence)).is_lt()
}

fn error_less(entries: &Entries, a: &Item, b: &Item) -> bool {
    by_expiration(entries, a, b).then(a.sequence.cmp(&b.sequence)).is_lt()
}

fn by_expiration(entries: &Entries, a: &Item, b: &Item) -> Ordering {
    let (a, b) = pair(entries, a.slot, b.slot);
    a.entity.backoff_expiration.cmp(&b.entity.backoff_expiration)
}
