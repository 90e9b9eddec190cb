//! Which nodes changed, in the order of the events: what was computed for the others still holds.

use std::collections::VecDeque;

use super::NodeIdx;

/// So many changes are remembered. Who was away for longer starts afresh.
const MAX_REMEMBERED: usize = 1 << 16;

/// One change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeChange {
    /// The node, which may be gone.
    pub node: NodeIdx,
    /// Whether pods came to it or left it, and its object stayed the same.
    pub of_pods: bool,
}

/// The latest changes of nodes and of the pods on them, one entry for each event.
#[derive(Debug, Clone, Default)]
pub struct ChangeLog {
    changes: VecDeque<NodeChange>,
    /// How many were forgotten.
    n_forgotten: u64,
}

impl ChangeLog {
    /// How many changes there were, ever.
    #[must_use]
    pub fn n_changes(&self) -> u64 {
        self.n_forgotten + self.changes.len() as u64
    }

    /// What changed after the first `n_known` changes, oldest first; `None` if that is no longer remembered.
    pub fn since(&self, n_known: u64) -> Option<impl ExactSizeIterator<Item = NodeChange> + '_> {
        let first = usize::try_from(n_known.checked_sub(self.n_forgotten)?).ok()?;
        (first <= self.changes.len()).then(|| self.changes.range(first..).copied())
    }

    /// The node came, changed or went.
    pub(crate) fn note(&mut self, node: NodeIdx) {
        self.push(NodeChange { node, of_pods: false });
    }

    /// A pod came to the node or left it.
    pub(crate) fn note_pod(&mut self, node: NodeIdx) {
        self.push(NodeChange { node, of_pods: true });
    }

    fn push(&mut self, change: NodeChange) {
        if self.changes.len() == MAX_REMEMBERED {
            self.changes.pop_front();
            self.n_forgotten += 1;
        }
        self.changes.push_back(change);
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
        log.note_pod(node(4));
        let changes = [false, true].map(|of_pods| NodeChange { node: node(4), of_pods });
        assert_eq!(log.since(known).expect("remembered").collect::<Vec<_>>(), changes);
        assert_eq!(log.since(log.n_changes()).expect("remembered").len(), 0);
        for _ in 0..MAX_REMEMBERED {
            log.note(node(5));
        }
        assert!(log.since(known).is_none());
        assert_eq!(log.since(log.n_changes() - 1).expect("remembered").len(), 1);
    }
}
