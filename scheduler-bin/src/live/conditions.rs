//! Which pods carry PodScheduled=False: a condition that does not change its status keeps its lastTransitionTime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use rustc_hash::FxHashSet;

/// The uids of pods whose PodScheduled condition is False; shared by the pod watch and those who patch.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownConditions {
    unscheduled: Arc<Mutex<FxHashSet<Box<str>>>>,
}

impl KnownConditions {
    /// Notes what the API server says about `pod`.
    pub(crate) fn observe(&self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let is_false = conditions
            .filter(|condition| condition.type_ == "PodScheduled")
            .any(|condition| condition.status == "False");
        self.note(uid, is_false);
    }

    /// Notes the status that was just written.
    pub(crate) fn note(&self, uid: &str, is_false: bool) {
        let mut unscheduled = self.lock();
        if is_false {
            unscheduled.insert(uid.into());
        } else {
            unscheduled.remove(uid);
        }
    }

    /// Whether the condition is there and False.
    pub(crate) fn is_false(&self, uid: &str) -> bool {
        self.lock().contains(uid)
    }

    fn lock(&self) -> MutexGuard<'_, FxHashSet<Box<str>>> {
        // A set of strings is whole after any panic.
        self.unscheduled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_last_word_counts() {
        let known = KnownConditions::default();
        let pod = |conditions: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": {"conditions": conditions}}))
                .expect("a pod")
        };
        known.observe(&pod(json!([{"type": "PodScheduled", "status": "False"}])));
        assert!(known.is_false("u"));
        known.observe(&pod(json!([{"type": "PodScheduled", "status": "True"}])));
        assert!(!known.is_false("u"));
        known.note("u", true);
        assert!(known.is_false("u"));
        known.observe(&pod(json!([])));
        assert!(!known.is_false("u"), "no condition at all");
    }
}
