//! Pods that Permit plugins told to wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Reason, Reasons};
use crate::model::{Pod, Timestamp};

/// A waiting pod and what it waits for.
#[derive(Debug)]
struct WaitingPod {
    pod: Arc<Pod>,
    node_name: Arc<str>,
    /// Plugins that have not allowed it yet, each with its deadline.
    pending: BTreeMap<&'static str, Timestamp>,
    rejected: Option<(&'static str, Reasons)>,
}

impl WaitingPod {
    fn deadline(&self) -> Option<Timestamp> {
        self.pending.values().copied().min()
    }
}

/// All pods that wait for Permit plugins. Upstream: runtime `waitingPodsMap` (v1.36.2).
#[derive(Debug, Default)]
pub struct WaitingPods {
    by_uid: BTreeMap<Arc<str>, WaitingPod>,
    /// The first deadline of each pod that has one.
    deadlines: BTreeSet<(Timestamp, Arc<str>)>,
    /// Pods whose waiting is over whatever the time: refused, or allowed by all.
    over: BTreeSet<Arc<str>>,
}

/// What became of a waiting pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// All plugins allowed it.
    Allowed,
    /// A plugin refused it or its time ran out.
    Rejected { plugin: &'static str, reasons: Reasons },
}

impl WaitingPods {
    /// Waiting pods and their nodes, in UID order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Pod>, &Arc<str>)> {
        self.by_uid.values().map(|waiting| (&waiting.pod, &waiting.node_name))
    }

    /// Number of waiting pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether no pod waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// The plugin no longer holds the pod. Binding starts when no plugin does. Unknown pods are ignored.
    pub fn allow(&mut self, uid: &str, plugin: &str) {
        let Some((uid, waiting)) = self.by_uid.remove_entry(uid) else { return };
        let mut pending = waiting.pending;
        self.remove_deadline(&uid, pending.values().copied().min());
        pending.remove(plugin);
        self.put(uid, WaitingPod { pending, ..waiting });
    }

    /// The plugin refuses the pod: it is unreserved and goes back to the queue. Unknown pods are ignored.
    pub fn reject(&mut self, uid: &str, plugin: &'static str, reason: impl Into<Reason>) -> bool {
        let Some(waiting) = self.by_uid.get_mut(uid) else { return false };
        waiting.rejected.get_or_insert_with(|| (plugin, vec![reason.into()]));
        self.over.insert(Arc::clone(&waiting.pod.uid));
        true
    }

    pub(crate) fn insert(&mut self, pod: Arc<Pod>, node_name: Arc<str>, pending: BTreeMap<&'static str, Timestamp>) {
        let uid = Arc::clone(&pod.uid);
        self.remove(&uid);
        self.put(uid, WaitingPod { pod, node_name, pending, rejected: None });
    }

    /// Stores a pod that is not stored, and when to look at it.
    fn put(&mut self, uid: Arc<str>, waiting: WaitingPod) {
        match waiting.deadline() {
            Some(deadline) => {
                self.deadlines.insert((deadline, Arc::clone(&uid)));
            }
            None => {
                self.over.insert(Arc::clone(&uid));
            }
        }
        self.by_uid.insert(uid, waiting);
    }

    fn remove_deadline(&mut self, uid: &Arc<str>, deadline: Option<Timestamp>) {
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, Arc::clone(uid)));
        }
    }

    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some((uid, waiting)) = self.by_uid.remove_entry(uid) else { return false };
        self.remove_deadline(&uid, waiting.deadline());
        self.over.remove(&uid);
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out the pods whose waiting is over, in UID order. Looks at no other.
    pub(crate) fn take_finished(&mut self, now: Timestamp) -> Vec<(Arc<str>, WaitOutcome)> {
        let mut finished = std::mem::take(&mut self.over);
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            finished.extend(self.deadlines.pop_first().map(|(_, uid)| uid));
        }
        let take = |uid: Arc<str>| {
            let waiting = self.by_uid.remove(&uid)?;
            self.remove_deadline(&uid, waiting.deadline());
            let outcome = match waiting.rejected {
                Some((plugin, reasons)) => WaitOutcome::Rejected { plugin, reasons },
                None => match waiting.pending.iter().min_by_key(|(_, until)| **until) {
                    None => WaitOutcome::Allowed,
                    Some((&plugin, _)) => {
                        let reason = format!("rejected due to timeout after waiting for plugin {plugin:?}");
                        WaitOutcome::Rejected { plugin, reasons: vec![reason.into()] }
                    }
                },
            };
            Some((uid, outcome))
        };
        finished.into_iter().filter_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(pending: &[(&'static str, i64)]) -> WaitingPods {
        let mut pods = WaitingPods::default();
        let pod = Pod { uid: "u".into(), ..Pod::default() };
        let pending = pending.iter().map(|&(plugin, until)| (plugin, Timestamp::from_micros(until))).collect();
        pods.insert(Arc::new(pod), "n".into(), pending);
        pods
    }

    #[test]
    fn a_pod_waits_for_every_plugin() {
        let mut pods = waiting(&[("A", 10), ("B", 20)]);
        pods.allow("u", "A");
        assert!(pods.take_finished(Timestamp::from_micros(0)).is_empty());
        pods.allow("u", "B");
        assert_eq!(pods.take_finished(Timestamp::from_micros(0)), [("u".into(), WaitOutcome::Allowed)]);
        assert!(pods.is_empty());
    }

    #[test]
    fn the_earliest_deadline_rejects() {
        let mut pods = waiting(&[("A", 10), ("B", 5)]);
        assert_eq!(pods.next_deadline(), Some(Timestamp::from_micros(5)));
        let finished = pods.take_finished(Timestamp::from_micros(5));
        assert!(matches!(&finished[..], [(_, WaitOutcome::Rejected { plugin: "B", reasons })]
            if reasons == &["rejected due to timeout after waiting for plugin \"B\""]));
    }

    #[test]
    fn who_is_gone_or_waits_anew_is_not_finished() {
        let mut pods = waiting(&[("A", 10)]);
        assert!(pods.reject("u", "A", "no") && pods.remove("u"));
        assert!(pods.take_finished(Timestamp::from_micros(99)).is_empty());
        let pod = Arc::new(Pod { uid: "u".into(), ..Pod::default() });
        for until in [10, 30] {
            pods.insert(Arc::clone(&pod), "n".into(), [("A", Timestamp::from_micros(until))].into());
        }
        assert!(pods.take_finished(Timestamp::from_micros(20)).is_empty());
        assert_eq!(pods.next_deadline(), Some(Timestamp::from_micros(30)));
        assert_eq!(pods.take_finished(Timestamp::from_micros(30)).len(), 1);
        assert_eq!((pods.next_deadline(), pods.len()), (None, 0));
    }

    #[test]
    fn a_refusal_wins_over_an_allowance() {
        let mut pods = waiting(&[("A", 10)]);
        assert!(pods.reject("u", "A", "no"));
        pods.allow("u", "A");
        assert!(!pods.reject("other", "A", "no"));
        assert!(matches!(
            &pods.take_finished(Timestamp::from_micros(0))[..],
            [(_, WaitOutcome::Rejected { plugin: "A", .. })]
        ));
    }
}
