//! What pods have in common, once: each was parsed with a template of its own.

use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::{Pod, PodTemplate};

/// Templates of pods, by hash. Of two different ones with one hash the later is known: the other is only not shared.
#[derive(Debug, Default)]
pub(super) struct Templates {
    by_hash: FxHashMap<u64, Arc<PodTemplate>>,
    /// That of the last pod. Replicas often follow each other, and two templates are compared faster than one is hashed.
    last: Option<Arc<PodTemplate>>,
    /// So many were in use when the others were dropped.
    n_used: usize,
}

/// Up to so many are kept, used or not.
const N_SPARE: usize = 1_024;

impl Templates {
    /// The pod with the template of an earlier one, if there is an equal one.
    pub(super) fn share(&mut self, mut pod: Arc<Pod>) -> Arc<Pod> {
        if let Some(last) = &self.last {
            if Arc::ptr_eq(last, &pod.template) {
                return pod;
            }
            if *last == pod.template {
                Arc::make_mut(&mut pod).template = Arc::clone(last);
                return pod;
            }
        }
        let known = self.by_hash.entry(FxBuildHasher.hash_one(&*pod.template));
        let known = known.or_insert_with(|| Arc::clone(&pod.template));
        if Arc::ptr_eq(known, &pod.template) {
            self.drop_unused();
        } else if *known == pod.template {
            Arc::make_mut(&mut pod).template = Arc::clone(known);
        } else {
            *known = Arc::clone(&pod.template);
        }
        self.last = Some(Arc::clone(&pod.template));
        pod
    }

    fn drop_unused(&mut self) {
        if self.by_hash.len() >= 2 * self.n_used + N_SPARE {
            self.by_hash.retain(|_, template| Arc::strong_count(template) > 1);
            self.n_used = self.by_hash.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32) -> Arc<Pod> {
        let template = PodTemplate { priority, ..PodTemplate::default() };
        Arc::new(Pod { name: name.into(), ..template.into() })
    }

    #[test]
    fn equal_templates_become_one_and_others_stay() {
        let mut templates = Templates::default();
        let [a, b, c] = [pod("a", 1), pod("b", 1), pod("c", 2)].map(|pod| templates.share(pod));
        assert!(Arc::ptr_eq(&a.template, &b.template));
        assert_eq!((&*b.name, b.priority, c.priority), ("b", 1, 2));
    }

    #[test]
    fn templates_of_pods_that_are_gone_are_dropped() {
        let mut templates = Templates::default();
        let kept = templates.share(pod("kept", -1));
        for priority in 0..10_000 {
            templates.share(pod("short", priority));
        }
        assert!(templates.by_hash.len() <= 2 * N_SPARE, "{}", templates.by_hash.len());
        assert!(Arc::ptr_eq(&kept.template, &templates.share(pod("late", -1)).template));
    }
}
