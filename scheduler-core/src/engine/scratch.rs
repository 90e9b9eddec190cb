//! Memory of one cycle, kept for the next: after warm-up, filtering and scoring allocate nothing.

use super::tiles::Tile;
use crate::cache::{Candidates, NodeIdx};

/// Buffers that cycles share.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// One bit a node slot: candidates, then feasible nodes.
    pub(super) mask: Vec<u64>,
    /// The nodes that came into question at all.
    pub(super) considered: Vec<u64>,
    /// Feasible nodes in node order, for those who ask for [`Scratch::list_feasible`].
    pub(super) feasible: Vec<NodeIdx>,
    /// Raw, then normalised scores of one plugin, one per feasible node.
    pub(super) scores: Vec<i64>,
    /// Weighted sums, one per feasible node.
    pub(super) totals: Vec<i64>,
    /// Scores by slot, for the pass that does without the list.
    pub(super) tiles: Vec<Tile>,
}

impl Scratch {
    /// Lists the nodes of the mask.
    pub(super) fn list_feasible(&mut self) {
        self.feasible.clear();
        Candidates::new(0, &mut self.mask).list(&mut self.feasible);
    }

    /// Lets the mask have the listed nodes and no others.
    pub(super) fn mark_feasible(&mut self) {
        self.mask.fill(0);
        for node in &self.feasible {
            self.mask[node.slot() / 64] |= 1 << (node.slot() % 64);
        }
    }
}
