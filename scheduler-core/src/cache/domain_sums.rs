//! Numbers by node, added up by the value of a node label: kept current by events. Every node with the label counts; where
//! only some do, see `domain_counts`.

use super::{LabelColumn, NodeCounts, NodeIdx};

/// The sums for one label, by value id.
#[derive(Debug, Clone)]
pub(super) struct DomainSums(Vec<u32>);

impl DomainSums {
    pub(super) fn new(column: &LabelColumn, counts: &NodeCounts) -> Self {
        let mut sums = Self(vec![0; column.n_ids()]);
        counts.iter().for_each(|(node, n)| sums.add(column, node, n));
        sums
    }

    /// Values that came later may be beyond its end: they have none.
    pub(super) fn by_value(&self) -> &[u32] {
        &self.0
    }

    /// So many more at the node.
    pub(super) fn add(&mut self, column: &LabelColumn, node: NodeIdx, n: u32) {
        let value = column.values()[node.slot()];
        if value == LabelColumn::NONE {
            return;
        }
        let value = value as usize;
        if self.0.len() <= value {
            self.0.resize(value + 1, 0);
        }
        self.0[value] = self.0[value].saturating_add(n);
    }

    /// So many fewer at the node, or the node no longer counts.
    pub(super) fn subtract(&mut self, column: &LabelColumn, node: NodeIdx, n: u32) {
        if let Some(sum) = self.0.get_mut(column.values()[node.slot()] as usize) {
            *sum = sum.saturating_sub(n);
        }
    }
}
