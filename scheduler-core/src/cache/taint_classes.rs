//! Distinct taint lists: a verdict on taints is made once per class, not once per node.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::growth::lengthen;
use crate::model::Taint;

#[derive(Debug, Clone)]
struct Class {
    taints: Arc<[Taint]>,
    n_nodes: u32,
}

/// The taint class of each node slot. Class 0 has no taints; empty slots are in it.
#[derive(Debug, Clone)]
pub struct TaintClasses {
    of_slot: Vec<u32>,
    classes: Vec<Class>,
    ids: FxHashMap<Arc<[Taint]>, u32>,
    free: Vec<u32>,
}

impl Default for TaintClasses {
    fn default() -> Self {
        let none: Arc<[Taint]> = Arc::from([]);
        Self {
            of_slot: Vec::new(),
            classes: vec![Class { taints: Arc::clone(&none), n_nodes: 0 }],
            ids: [(none, 0)].into_iter().collect(),
            free: Vec::new(),
        }
    }
}

impl TaintClasses {
    /// Class of each node slot.
    #[must_use]
    pub fn of_slots(&self) -> &[u32] {
        &self.of_slot
    }

    /// The taints of each class, in class order; unused classes have none.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = &[Taint]> {
        self.classes.iter().map(|class| &*class.taints)
    }

    pub(crate) fn grow(&mut self, n_slots: usize) {
        lengthen(&mut self.of_slot, n_slots, 0);
    }

    pub(crate) fn set(&mut self, slot: usize, taints: &[Taint]) {
        let new = self.intern(taints);
        self.classes[new as usize].n_nodes += 1;
        let old = std::mem::replace(&mut self.of_slot[slot], new);
        self.release(old);
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        let old = std::mem::replace(&mut self.of_slot[slot], 0);
        self.release(old);
    }

    fn intern(&mut self, taints: &[Taint]) -> u32 {
        if let Some(id) = self.ids.get(taints) {
            return *id;
        }
        let taints: Arc<[Taint]> = taints.into();
        let class = Class { taints: Arc::clone(&taints), n_nodes: 0 };
        let id = if let Some(id) = self.free.pop() {
            self.classes[id as usize] = class;
            id
        } else {
            self.classes.push(class);
            u32::try_from(self.classes.len() - 1).expect("there are fewer classes than nodes, and node indexes are u32")
        };
        self.ids.insert(taints, id);
        id
    }

    fn release(&mut self, id: u32) {
        if id == 0 {
            return;
        }
        let class = &mut self.classes[id as usize];
        class.n_nodes -= 1;
        if class.n_nodes == 0 {
            self.ids.remove(&class.taints);
            class.taints = Arc::from([]);
            self.free.push(id);
        }
    }
}
