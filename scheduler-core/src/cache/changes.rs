//! Which nodes changed, in the order of the events: what was computed for the others still holds.

use std::collections::VecDeque;

use super::NodeIdx;

/// So many changes are remembered. Who was away for longer starts afresh.
const MAX_REMEMBERED: usize = 1 << 16;

/// The latest changes of nodes and of the pods on them, one entry for each event.
#[derive(Debug, Clone, Default)]
pub struct ChangeLog {
    nodes: VecDeque<NodeIdx>,
    /// How many were forgotten.
    n_forgotten: u64,
}

impl ChangeLog {
    /// How many changes there were, ever.
    #[must_use]
    pub fn n_changes(&self) -> u64 {
        self.n_forgotten + self.nodes.len() as u64
    }

    /// The nodes that changed after the first `n_known` changes, oldest first and as often as they did; `None` if that is
    /// no longer remembered.
    pub fn since(&self, n_known: u64) -> Option<impl ExactSizeIterator<Item = NodeIdx> + '_> {
        let first = usize::try_from(n_known.checked_sub(self.n_forgotten)?).ok()?;
        (first <= self.nodes.len()).then(|| self.nodes.range(first..).copied())
    }

    pub(crate) fn note(&mut self, node: NodeIdx) {
        if self.nodes.len() == MAX_REMEMBERED {
            self.nodes.pop_front();
            self.n_forgotten += 1;
        }
        self.nodes.push_back(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_from_any_point_that_is_remembered() {
        let mut log = ChangeLog::default();
        let node = NodeIdx::from_slot;
        log.note(node(3));
        let known = log.n_changes();
        log.note(node(4));
        log.note(node(4));
        assert_eq!(log.since(known).expect("remembered").collect::<Vec<_>>(), [node(4), node(4)]);
        assert_eq!(log.since(log.n_changes()).expect("remembered").len(), 0);
        for _ in 0..MAX_REMEMBERED {
            log.note(node(5));
        }
        assert!(log.since(known).is_none());
        assert_eq!(log.since(log.n_changes() - 1).expect("remembered").len(), 1);
    }
}
