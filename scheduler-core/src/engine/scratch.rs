//! Memory of one cycle, kept for the next: after warm-up, filtering and scoring allocate nothing.

use super::score_nodes::Best;
use crate::cache::NodeIdx;

/// Buffers that cycles share.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// One bit a node slot: candidates, then feasible nodes.
    pub(super) mask: Vec<u64>,
    /// The nodes that came into question at all.
    pub(super) considered: Vec<u64>,
    /// Feasible nodes in node order.
    pub(super) feasible: Vec<NodeIdx>,
    /// Raw, then normalised scores of one plugin, one per feasible node.
    pub(super) scores: Vec<i64>,
    /// Weighted sums, one per feasible node.
    pub(super) totals: Vec<i64>,
    /// The best of each block of totals.
    pub(super) bests: Vec<Best>,
}
