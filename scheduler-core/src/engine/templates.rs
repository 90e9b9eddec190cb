//! What objects have in common, once: each was parsed with a template of its own.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Templates of pods or of nodes, by hash. Of two different ones with one hash the later is known: the other is only not
/// shared.
#[derive(Debug)]
pub(super) struct Templates<T> {
    by_hash: FxHashMap<u64, Arc<T>>,
    /// That of the last object. Replicas often follow each other, and two templates are compared faster than one is hashed.
    last: Option<Arc<T>>,
    /// So many were in use when the others were dropped.
    n_used: usize,
}

impl<T> Default for Templates<T> {
    fn default() -> Self {
        Self { by_hash: FxHashMap::default(), last: None, n_used: 0 }
    }
}

/// Up to so many are kept, used or not.
const N_SPARE: usize = 1_024;

impl<T: Eq + Hash> Templates<T> {
    /// The template of an earlier object that this one is equal to and not the same as, if there is one.
    pub(super) fn known(&mut self, template: &Arc<T>) -> Option<Arc<T>> {
        if let Some(last) = &self.last {
            if Arc::ptr_eq(last, template) {
                return None;
            }
            if last == template {
                return Some(Arc::clone(last));
            }
        }
        let known = self.by_hash.entry(FxBuildHasher.hash_one(&**template));
        let known = known.or_insert_with(|| Arc::clone(template));
        let is_equal = known == template;
        if !is_equal {
            *known = Arc::clone(template);
        }
        let known = Arc::clone(known);
        self.last = Some(Arc::clone(&known));
        if Arc::ptr_eq(&known, template) {
            self.drop_unused();
            return None;
        }
        Some(known)
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

    fn shared(templates: &mut Templates<String>, template: &str) -> Arc<String> {
        let template = Arc::new(template.to_owned());
        templates.known(&template).unwrap_or(template)
    }

    #[test]
    fn equal_templates_become_one_and_others_stay() {
        let mut templates = Templates::default();
        let [a, b, c, d] = ["one", "one", "two", "one"].map(|template| shared(&mut templates, template));
        assert!(Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&a, &d));
        assert_eq!(*c, "two");
        assert_eq!(templates.known(&d), None, "it is the same one already");
    }

    #[test]
    fn templates_of_objects_that_are_gone_are_dropped() {
        let mut templates = Templates::default();
        let kept = shared(&mut templates, "kept");
        for n in 0..10_000 {
            shared(&mut templates, &n.to_string());
        }
        assert!(templates.by_hash.len() <= 2 * N_SPARE, "{}", templates.by_hash.len());
        assert!(Arc::ptr_eq(&kept, &shared(&mut templates, "kept")));
    }
}
