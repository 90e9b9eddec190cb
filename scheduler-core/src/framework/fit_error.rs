//! The text that says why a pod fits nowhere: of the cycle's message, and of preemption's part in it.

use std::fmt;

use super::{Reason, ReasonCounts, Reasons};

/// Reasons of all nodes, counted. Upstream: framework `FitError` (v1.36.2 framework/types.go).
#[derive(Debug, Clone, Default)]
pub struct FitError {
    n_nodes: usize,
    n_explicit: usize,
    reasons: ReasonCounts,
    pre_filter_message: String,
}

impl FitError {
    /// A text about a cluster of `n_nodes` nodes.
    #[must_use]
    pub fn new(n_nodes: usize) -> Self {
        Self { n_nodes, ..Self::default() }
    }

    /// PreFilter rejected the pod with this text: no reasons of nodes are shown.
    #[must_use]
    pub fn with_pre_filter_message(mut self, message: impl Into<String>) -> Self {
        self.pre_filter_message = message.into();
        self
    }

    /// Counts the reasons of one node; a reason counts as often as the node names it.
    pub fn node(&mut self, reasons: &Reasons) {
        self.n_explicit += 1;
        for reason in reasons {
            self.reasons.add(reason, 1);
        }
    }

    /// Counts `n_nodes` nodes that have one and the same reason.
    pub fn alike_nodes(&mut self, n_nodes: usize, reason: &Reason) {
        self.n_explicit += n_nodes;
        self.reasons.add(reason, n_nodes);
    }

    /// Takes what was counted of `n_nodes` nodes; nothing may have been counted before.
    #[must_use]
    pub fn with_counted(self, n_nodes: usize, reasons: ReasonCounts) -> Self {
        Self { n_explicit: n_nodes, reasons, ..self }
    }

    /// Counts these reasons for every node that was not counted yet.
    pub fn absent_nodes(&mut self, reasons: &Reasons) {
        let n_absent = self.n_nodes.saturating_sub(self.n_explicit);
        for reason in reasons {
            self.reasons.add(reason, n_absent);
        }
        self.n_explicit = self.n_nodes.max(self.n_explicit);
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.n_nodes)?;
        if !self.pre_filter_message.is_empty() {
            return write!(f, " {}.", self.pre_filter_message);
        }
        // Whole strings are sorted, count first: "10 a" comes before "2 b".
        let mut lines: Vec<String> =
            self.reasons.by_text().iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort_unstable();
        if lines.is_empty() { Ok(()) } else { write!(f, " {}.", lines.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::FitError;

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut error = FitError::new(14);
        for _ in 0..2 {
            error.node(&vec!["b".into()]);
        }
        error.node(&vec!["c".into(), "b".into()]);
        for _ in 0..10 {
            error.node(&vec!["z".into()]);
        }
        assert_eq!(error.to_string(), "0/14 nodes are available: 1 c, 10 z, 3 b.");
        error.absent_nodes(&vec!["absent".into()]);
        assert_eq!(error.to_string(), "0/14 nodes are available: 1 absent, 1 c, 10 z, 3 b.");
    }

    #[test]
    fn a_pre_filter_message_stands_alone_and_no_reason_leaves_the_head() {
        let mut error = FitError::new(3).with_pre_filter_message("claim not found");
        error.node(&vec!["a".into()]);
        assert_eq!(error.to_string(), "0/3 nodes are available: claim not found.");
        assert_eq!(FitError::new(0).to_string(), "0/0 nodes are available:");
    }
}
