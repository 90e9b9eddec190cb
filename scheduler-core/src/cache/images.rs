//! Images present on nodes: for a name, its size and the nodes that hold it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::NodeIdx;
use crate::model::Node;

#[derive(Debug, Clone)]
struct ImageState {
    size_bytes: i64,
    nodes: FxHashSet<NodeIdx>,
}

/// All images of all nodes, by every name they go by. Upstream: cache `imageStates` (v1.36.2).
#[derive(Debug, Clone, Default)]
pub struct Images {
    by_name: FxHashMap<Arc<str>, ImageState>,
}

impl Images {
    /// Bytes of the image if a node holds it under this name, and the number of such nodes. The size is the one
    /// that the first of them reported.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(i64, usize)> {
        self.by_name.get(name).map(|state| (state.size_bytes, state.nodes.len()))
    }

    /// Whether the node holds the image under this name.
    #[must_use]
    pub fn is_on(&self, name: &str, node: NodeIdx) -> bool {
        self.by_name.get(name).is_some_and(|state| state.nodes.contains(&node))
    }

    /// The nodes that hold the image under this name, in no particular order.
    pub fn nodes(&self, name: &str) -> impl Iterator<Item = NodeIdx> + '_ {
        self.by_name.get(name).into_iter().flat_map(|state| state.nodes.iter().copied())
    }

    pub(crate) fn add_node(&mut self, idx: NodeIdx, node: &Node) {
        for image in &node.images {
            for name in &image.names {
                self.by_name
                    .entry(Arc::clone(name))
                    .or_insert_with(|| ImageState { size_bytes: image.size_bytes, nodes: FxHashSet::default() })
                    .nodes
                    .insert(idx);
            }
        }
    }

    pub(crate) fn remove_node(&mut self, idx: NodeIdx, node: &Node) {
        for name in node.images.iter().flat_map(|image| &image.names) {
            if let Some(state) = self.by_name.get_mut(name) {
                state.nodes.remove(&idx);
                if state.nodes.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }
}
