//! Pods that Permit plugins told to wait.

use std::collections::BTreeMap;
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

/// All pods that wait for Permit plugins. Upstream: runtime `waitingPodsMap` (v1.36.2).
#[derive(Debug, Default)]
pub struct WaitingPods {
    by_uid: BTreeMap<Arc<str>, WaitingPod>,
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
        if let Some(waiting) = self.by_uid.get_mut(uid) {
            waiting.pending.remove(plugin);
        }
    }

    /// The plugin refuses the pod: it is unreserved and goes back to the queue. Unknown pods are ignored.
    pub fn reject(&mut self, uid: &str, plugin: &'static str, reason: impl Into<Reason>) -> bool {
        let Some(waiting) = self.by_uid.get_mut(uid) else { return false };
        waiting.rejected.get_or_insert_with(|| (plugin, vec![reason.into()]));
        true
    }

    pub(crate) fn insert(&mut self, pod: Arc<Pod>, node_name: Arc<str>, pending: BTreeMap<&'static str, Timestamp>) {
        let uid = Arc::clone(&pod.uid);
        self.by_uid.insert(uid, WaitingPod { pod, node_name, pending, rejected: None });
    }

    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        self.by_uid.remove(uid).is_some()
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.by_uid.values().flat_map(|waiting| waiting.pending.values().copied()).min()
    }

    /// Takes out the pods whose waiting is over.
    pub(crate) fn take_finished(&mut self, now: Timestamp) -> Vec<(Arc<str>, WaitOutcome)> {
        let mut finished = Vec::new();
        self.by_uid.retain(|uid, waiting| {
            let outcome = if let Some((plugin, reasons)) = waiting.rejected.take() {
                WaitOutcome::Rejected { plugin, reasons }
            } else if waiting.pending.is_empty() {
                WaitOutcome::Allowed
            } else if let Some((&plugin, _)) =
                waiting.pending.iter().filter(|(_, until)| **until <= now).min_by_key(|(_, until)| **until)
            {
                let reason = format!("rejected due to timeout after waiting for plugin {plugin:?}");
                WaitOutcome::Rejected { plugin, reasons: vec![reason.into()] }
            } else {
                return true;
            };
            finished.push((Arc::clone(uid), outcome));
            false
        });
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(pending: &[(&'static str, i64)]) -> WaitingPods {
        let mut pods = WaitingPods::default();
        let pod = Pod { uid: "u".into(), ..Pod::default() };
        let pending = pending.iter().map(|&(plugin, until)| (plugin, Timestamp(until))).collect();
        pods.insert(Arc::new(pod), "n".into(), pending);
        pods
    }

    #[test]
    fn a_pod_waits_for_every_plugin() {
        let mut pods = waiting(&[("A", 10), ("B", 20)]);
        pods.allow("u", "A");
        assert!(pods.take_finished(Timestamp(0)).is_empty());
        pods.allow("u", "B");
        assert_eq!(pods.take_finished(Timestamp(0)), [("u".into(), WaitOutcome::Allowed)]);
        assert!(pods.is_empty());
    }

    #[test]
    fn the_earliest_deadline_rejects() {
        let mut pods = waiting(&[("A", 10), ("B", 5)]);
        assert_eq!(pods.next_deadline(), Some(Timestamp(5)));
        let finished = pods.take_finished(Timestamp(5));
        assert!(matches!(&finished[..], [(_, WaitOutcome::Rejected { plugin: "B", reasons })]
            if reasons == &["rejected due to timeout after waiting for plugin \"B\""]));
    }

    #[test]
    fn a_refusal_wins_over_an_allowance() {
        let mut pods = waiting(&[("A", 10)]);
        assert!(pods.reject("u", "A", "no"));
        pods.allow("u", "A");
        assert!(!pods.reject("other", "A", "no"));
        assert!(matches!(&pods.take_finished(Timestamp(0))[..], [(_, WaitOutcome::Rejected { plugin: "A", .. })]));
    }
}
