//! Entities that wait for an event, by age and by the plugins that rejected them, so that an event looks only at those it may help.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Slot;
use crate::framework::QueuedEntity;
use crate::model::Timestamp;

/// Order of arrival in the queue, then the slot.
type Member = (u64, Slot);

/// All sets hold the same entities; they iterate in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Unschedulable {
    all: BTreeSet<Member>,
    by_age: BTreeSet<(Timestamp, Member)>,
    by_plugin: BTreeMap<&'static str, BTreeSet<Member>>,
    /// Entities without a rejecting plugin: any event helps them.
    without_plugin: BTreeSet<Member>,
}

impl Unschedulable {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn insert(&mut self, slot: Slot, sequence: u64, entity: &QueuedEntity) {
        let member = (sequence, slot);
        self.all.insert(member);
        self.by_age.insert((entity.timestamp, member));
        let mut without = true;
        for plugin in entity.unschedulable_plugins.iter().chain(&entity.pending_plugins) {
            self.by_plugin.entry(plugin).or_default().insert(member);
            without = false;
        }
        if without {
            self.without_plugin.insert(member);
        }
    }

    /// `entity` must be as it was inserted.
    pub(super) fn remove(&mut self, slot: Slot, sequence: u64, entity: &QueuedEntity) {
        let member = (sequence, slot);
        self.all.remove(&member);
        self.by_age.remove(&(entity.timestamp, member));
        self.without_plugin.remove(&member);
        for plugin in entity.unschedulable_plugins.iter().chain(&entity.pending_plugins) {
            if let Some(members) = self.by_plugin.get_mut(plugin) {
                members.remove(&member);
                if members.is_empty() {
                    self.by_plugin.remove(plugin);
                }
            }
        }
    }

    pub(super) fn all(&self) -> Vec<Slot> {
        self.all.iter().map(|(_, slot)| *slot).collect()
    }

    pub(super) fn rejected_by(&self, plugins: &[&'static str]) -> Vec<Slot> {
        let mut members = self.without_plugin.clone();
        for plugin in plugins {
            members.extend(self.by_plugin.get(plugin).into_iter().flatten());
        }
        members.into_iter().map(|(_, slot)| slot).collect()
    }

    pub(super) fn older_than(&self, now: Timestamp, age: Duration) -> Vec<Slot> {
        let old = self.by_age.iter().take_while(|(timestamp, _)| now.since(*timestamp) > age);
        let mut members: Vec<Member> = old.map(|(_, member)| *member).collect();
        members.sort_unstable();
        members.into_iter().map(|(_, slot)| slot).collect()
    }
}
