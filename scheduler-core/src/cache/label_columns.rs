//! Node labels as columns: for a key, the interned value of each node. A column exists once somebody asked for it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::growth::lengthen;
use crate::model::{Labels, Node};

/// The values of one label key over all node slots.
#[derive(Debug, Clone)]
pub struct LabelColumn {
    values: Vec<u32>,
    names: Vec<Arc<str>>,
    n_nodes: Vec<u32>,
    ids: FxHashMap<Arc<str>, u32>,
    free: Vec<u32>,
    n_labelled: usize,
    n_shared: usize,
}

impl LabelColumn {
    /// The value id of nodes without the label, and of empty slots.
    pub const NONE: u32 = u32::MAX;

    /// Value ids, one per node slot; [`LabelColumn::NONE`] where the label is absent.
    #[must_use]
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// The id of a value that some node has.
    #[must_use]
    pub fn id(&self, value: &str) -> Option<u32> {
        self.ids.get(value).copied()
    }

    /// The value with this id.
    #[must_use]
    pub fn name(&self, id: u32) -> &Arc<str> {
        &self.names[id as usize]
    }

    /// All ids are below this; some may be unused.
    #[must_use]
    pub fn n_ids(&self) -> usize {
        self.names.len()
    }

    /// Number of values that some node has.
    #[must_use]
    pub fn n_values(&self) -> usize {
        self.ids.len()
    }

    /// Number of nodes with the value.
    #[must_use]
    pub fn n_nodes(&self, id: u32) -> u32 {
        self.n_nodes[id as usize]
    }

    /// Number of nodes with the label.
    #[must_use]
    pub fn n_labelled(&self) -> usize {
        self.n_labelled
    }

    /// Whether no two nodes have the same value: the label names the node, as `kubernetes.io/hostname` should.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.n_shared == 0
    }

    fn new(n_slots: usize) -> Self {
        Self {
            values: vec![Self::NONE; n_slots],
            names: Vec::new(),
            n_nodes: Vec::new(),
            ids: FxHashMap::default(),
            free: Vec::new(),
            n_labelled: 0,
            n_shared: 0,
        }
    }

    fn set(&mut self, slot: usize, value: Option<&Arc<str>>) {
        let old = self.values[slot];
        if old != Self::NONE {
            if value.is_some_and(|value| *value == self.names[old as usize]) {
                return;
            }
            self.n_labelled -= 1;
            self.n_nodes[old as usize] -= 1;
            if self.n_nodes[old as usize] == 1 {
                self.n_shared -= 1;
            }
            if self.n_nodes[old as usize] == 0 {
                self.ids.remove(&self.names[old as usize]);
                self.free.push(old);
            }
        }
        self.values[slot] = value.map_or(Self::NONE, |value| {
            let id = self.intern(value);
            self.n_labelled += 1;
            self.n_nodes[id as usize] += 1;
            if self.n_nodes[id as usize] == 2 {
                self.n_shared += 1;
            }
            id
        });
    }

    fn intern(&mut self, value: &Arc<str>) -> u32 {
        if let Some(id) = self.ids.get(value) {
            return *id;
        }
        let id = if let Some(id) = self.free.pop() {
            self.names[id as usize] = Arc::clone(value);
            id
        } else {
            self.names.push(Arc::clone(value));
            self.n_nodes.push(0);
            u32::try_from(self.names.len() - 1).expect("there are fewer values than nodes, and node indexes are u32")
        };
        self.ids.insert(Arc::clone(value), id);
        id
    }
}

/// A label column; valid only within one [`super::Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelIdx(usize);

/// The label columns that were asked for.
#[derive(Debug, Clone, Default)]
pub struct LabelColumns {
    columns: Vec<(Arc<str>, LabelColumn)>,
    /// Where the column of a key is; not looked at while there are few.
    positions: FxHashMap<Arc<str>, usize>,
    n_slots: usize,
}

/// So many columns are looked through faster than a key is hashed.
const FEW_COLUMNS: usize = 8;

impl LabelColumns {
    /// The column of a key; `None` until [`super::Indexes::label_column`] asked for it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&LabelColumn> {
        self.find(key).map(|column| self.at(column))
    }

    /// Where the column of a key is; `None` until [`super::Indexes::label_column`] asked for it.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<LabelIdx> {
        let found = match self.columns.len() {
            ..=FEW_COLUMNS => self.columns.iter().position(|(known, _)| **known == *key),
            _ => self.positions.get(key).copied(),
        };
        found.map(LabelIdx)
    }

    /// A column that was found.
    ///
    /// # Panics
    /// When it is of another snapshot.
    #[must_use]
    pub fn at(&self, column: LabelIdx) -> &LabelColumn {
        &self.columns[column.0].1
    }

    pub(crate) fn ensure<'n>(&mut self, key: &Arc<str>, nodes: impl Iterator<Item = (usize, &'n Node)>) {
        if self.get(key).is_some() {
            return;
        }
        let mut column = LabelColumn::new(self.n_slots);
        // Perhaps every node has a value of its own.
        column.ids.reserve(self.n_slots);
        for (slot, node) in nodes {
            column.set(slot, node.labels.get(key));
        }
        column.ids.shrink_to_fit();
        self.positions.insert(Arc::clone(key), self.columns.len());
        self.columns.push((Arc::clone(key), column));
    }

    pub(crate) fn grow(&mut self, n_slots: usize) {
        self.n_slots = n_slots;
        for (_, column) in &mut self.columns {
            lengthen(&mut column.values, n_slots, LabelColumn::NONE);
        }
    }

    pub(crate) fn set(&mut self, slot: usize, labels: &Labels) {
        for (key, column) in &mut self.columns {
            column.set(slot, labels.get(key));
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        for (_, column) in &mut self.columns {
            column.set(slot, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_no_node_has_any_more_gives_its_id_back() {
        let mut column = LabelColumn::new(64);
        column.set(0, Some(&"a".into()));
        assert!(column.is_unique());
        column.set(1, Some(&"a".into()));
        assert!(!column.is_unique());
        assert_eq!(column.n_labelled(), 2);
        column.set(0, None);
        assert!(column.is_unique());
        assert_eq!(column.n_labelled(), 1);
        assert_eq!(column.id("a"), Some(0));
        column.set(1, Some(&"b".into()));
        assert_eq!(column.id("a"), None);
        column.set(0, Some(&"c".into()));
        assert_eq!(column.id("b"), Some(0));
        assert_eq!(column.id("c"), Some(1));
        assert_eq!(column.n_ids(), 2);
        assert_eq!(&column.values()[..3], [1, 0, LabelColumn::NONE]);
    }
}
