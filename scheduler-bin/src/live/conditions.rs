//! Which pods carry PodScheduled=False: a condition that does not change its status keeps its lastTransitionTime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashSet;

/// The uids of pods whose PodScheduled condition is False; shared by the pod watch and those who patch.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownConditions {
    unscheduled: Arc<Mutex<FxHashSet<Box<str>>>>,
}

impl KnownConditions {
    /// Notes what the API server says of the pod, or what was just written.
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

    #[test]
    fn the_last_word_counts() {
        let known = KnownConditions::default();
        for (is_false, pod) in [(true, "u"), (true, "v"), (false, "u")] {
            known.note(pod, is_false);
        }
        assert!(!known.is_false("u"));
        assert!(known.is_false("v"));
        assert!(!known.is_false("w"), "never heard of");
    }
}
