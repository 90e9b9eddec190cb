//! The decision record: why each node was or was not chosen, as data. `explain`, `demo` and reports read it.

use std::sync::Arc;

use crate::cache::{NodeIdx, Snapshot};
use crate::framework::{FilterStatus, Reasons};

/// One attempt, node by node. Compact: names once, numbers in columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionRecord {
    /// Nodes of the cluster, in node order.
    pub nodes: Vec<Arc<str>>,
    /// Verdict on each node, in the order of `nodes`.
    pub verdicts: Vec<NodeVerdict>,
    /// Message of the PreFilter plugin that rejected the pod; then no node was looked at.
    pub pre_filter_message: Option<String>,
    /// Positions in `nodes` of the nodes that were scored. Empty when one node was left or none.
    pub scored: Vec<u32>,
    /// Scores by plugin, in the order of the Score point.
    pub scores: Vec<PluginScores>,
    /// Weighted sum for each of `scored`.
    pub totals: Vec<i64>,
    /// Positions in `nodes` of the nodes with the highest total: the lot decided among them.
    pub ties: Vec<u32>,
    /// The chosen node.
    pub selected: Option<Arc<str>>,
    /// Seed of the draw.
    pub seed: u64,
}

/// What became of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeVerdict {
    /// The pod fits.
    Feasible,
    /// The pod does not fit.
    Rejected {
        /// First plugin that said so; empty for nodes outside a PreFilter's node set.
        plugin: &'static str,
        /// Whether removing pods may help.
        status: FilterStatus,
        /// Why.
        reasons: Reasons,
    },
    /// The search ended before it came to the node, or never began.
    NotEvaluated,
}

/// One plugin's scores of the nodes in [`DecisionRecord::scored`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginScores {
    /// Plugin name.
    pub plugin: &'static str,
    /// Factor of the normalised score.
    pub weight: i64,
    /// Whether PreScore said Skip, so that all scores are 0.
    pub skipped: bool,
    /// As Score gave them.
    pub raw: Vec<i64>,
    /// After NormalizeScore, 0..=100. Of extenders: the sum of their weighted scores.
    pub normalized: Vec<i64>,
}

impl PluginScores {
    pub(super) fn new(plugin: &'static str, weight: i64, skipped: bool, n_nodes: usize) -> Self {
        Self { plugin, weight, skipped, raw: vec![0; n_nodes], normalized: vec![0; n_nodes] }
    }
}

impl DecisionRecord {
    /// Notes the scored nodes with their totals. Verdicts must have been noted before.
    pub(super) fn add_totals(
        &mut self,
        snapshot: &Snapshot,
        scored: impl Iterator<Item = NodeIdx>,
        totals: &[i64],
        highest: i64,
    ) {
        let position_of_slot: rustc_hash::FxHashMap<NodeIdx, u32> = snapshot.iter().zip(0..).collect();
        self.scored = scored.filter_map(|node| position_of_slot.get(&node).copied()).collect();
        self.totals = totals.to_vec();
        self.ties = self
            .scored
            .iter()
            .zip(totals)
            .filter(|(_, total)| **total == highest)
            .map(|(position, _)| *position)
            .collect();
    }
}
