//! Which of many selectors can match a pod: found through one label pair that each selector demands.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{Labels, Operator, Selector};

/// Ids filed under selectors. Finding the candidates of a pod costs O(its labels + candidates), not O(selectors).
#[derive(Debug, Clone)]
pub(crate) struct SelectorIndex<Id> {
    /// Selectors that demand `key In values`, under each of those pairs.
    by_pair: FxHashMap<Arc<str>, FxHashMap<Arc<str>, Vec<Id>>>,
    /// Selectors without such a demand.
    others: Vec<Id>,
}

impl<Id> Default for SelectorIndex<Id> {
    fn default() -> Self {
        Self { by_pair: FxHashMap::default(), others: Vec::new() }
    }
}

impl<Id: Copy + PartialEq> SelectorIndex<Id> {
    pub(crate) fn insert(&mut self, selector: &Selector, id: Id) {
        match demanded(selector) {
            _ if *selector == Selector::Nothing => {}
            Some((key, values)) => {
                let by_value = self.by_pair.entry(Arc::clone(key)).or_default();
                for value in values {
                    by_value.entry(Arc::clone(value)).or_default().push(id);
                }
            }
            None => self.others.push(id),
        }
    }

    pub(crate) fn remove(&mut self, selector: &Selector, id: Id) {
        match demanded(selector) {
            Some((key, values)) => {
                let Some(by_value) = self.by_pair.get_mut(key) else { return };
                for value in values {
                    if let Some(ids) = by_value.get_mut(value) {
                        ids.retain(|other| *other != id);
                        if ids.is_empty() {
                            by_value.remove(value);
                        }
                    }
                }
                if by_value.is_empty() {
                    self.by_pair.remove(key);
                }
            }
            None => self.others.retain(|other| *other != id),
        }
    }

    /// Ids whose selectors may match the labels: every one that does match, each once.
    pub(crate) fn candidates<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = Id> + 'a {
        let by_pair = labels
            .iter()
            .filter(|_| !self.by_pair.is_empty())
            .filter_map(|(key, value)| self.by_pair.get(key)?.get(value))
            .flatten();
        self.others.iter().chain(by_pair).copied()
    }
}

/// The pairs of which a matching pod must have exactly one.
fn demanded(selector: &Selector) -> Option<(&Arc<str>, &[Arc<str>])> {
    selector
        .requirements()
        .iter()
        .filter(|requirement| requirement.operator == Operator::In)
        .min_by_key(|requirement| requirement.values.len())
        .map(|requirement| (&requirement.key, &*requirement.values))
}
