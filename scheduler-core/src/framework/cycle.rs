//! What plugin calls of one scheduling cycle share: the pod, the world it is placed in, and state across points.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::{Objects, Snapshot};
use crate::model::{Pod, Timestamp};

/// One scheduling cycle: everything a plugin may read. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The pod being placed.
    pub pod: &'a Pod,
    /// The nodes and what runs on them. Does not change during the cycle.
    pub snapshot: &'a Snapshot,
    /// All other objects: namespaces, services, volumes, budgets.
    pub objects: &'a Objects,
    /// The time of the cycle.
    pub now: Timestamp,
    /// Seed of the cycle, for plugins that must draw lots.
    pub seed: u64,
}

impl<'a> Cycle<'a> {
    /// The same world seen by another pod.
    #[must_use]
    pub fn with_pod<'b>(&self, pod: &'b Pod) -> Cycle<'b>
    where
        'a: 'b,
    {
        Cycle { pod, ..*self }
    }

    /// The world without the pod.
    #[must_use]
    pub fn world(&self) -> ClusterView<'a> {
        ClusterView { snapshot: self.snapshot, objects: self.objects, now: self.now }
    }
}

impl fmt::Debug for Cycle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cycle").field("pod", &self.pod.name).field("now", &self.now).finish_non_exhaustive()
    }
}

/// The world outside a scheduling cycle: for PreEnqueue, hints and the binding cycle.
#[derive(Clone, Copy)]
pub struct ClusterView<'a> {
    /// The nodes and what runs on them.
    pub snapshot: &'a Snapshot,
    /// All other objects.
    pub objects: &'a Objects,
    /// The time of the call.
    pub now: Timestamp,
}

impl fmt::Debug for ClusterView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView").field("now", &self.now).finish_non_exhaustive()
    }
}

/// State that one plugin hands from an early extension point to a later one (Filter → Reserve → PreBind), or that
/// several plugins share. One value per type. Serial points get it by `&mut`, parallel ones by `&`: no lock.
///
/// It outlives the cycle: put node names in it, never a [`crate::cache::NodeIdx`]. A clone shares the values until one of
/// the two is changed: pods that are alike begin with what was left for the first of them.
#[derive(Default, Clone)]
pub struct CycleState {
    /// Few plugins leave anything: looking through is faster than hashing. `None` while nobody has.
    values: Option<Arc<Values>>,
}

type Values = SmallVec<[(TypeId, Arc<dyn Any + Send + Sync>); 4]>;

impl CycleState {
    /// Stores a value, replacing one of the same type.
    pub fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        let value = Arc::new(value);
        let at = self.position::<T>();
        let values = Arc::make_mut(self.values.get_or_insert_default());
        match at {
            Some(at) => values[at].1 = value,
            None => values.push((TypeId::of::<T>(), value)),
        }
    }

    /// The value of this type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.values.as_ref()?[self.position::<T>()?].1.downcast_ref()
    }

    /// The value of this type, to change: a copy of it while others share it.
    pub fn get_mut<T: Any + Send + Sync + Clone>(&mut self) -> Option<&mut T> {
        let at = self.position::<T>()?;
        let value = &mut Arc::make_mut(self.values.as_mut()?)[at].1;
        if Arc::get_mut(value).is_none() {
            *value = Arc::new(value.downcast_ref::<T>()?.clone());
        }
        Arc::get_mut(value)?.downcast_mut()
    }

    /// Takes the value of this type out; a copy of it while others share it.
    pub fn remove<T: Any + Send + Sync + Clone>(&mut self) -> Option<T> {
        let at = self.position::<T>()?;
        let (_, value) = Arc::make_mut(self.values.as_mut()?).swap_remove(at);
        value.downcast().ok().map(Arc::unwrap_or_clone)
    }

    fn position<T: Any>(&self) -> Option<usize> {
        self.values.as_ref()?.iter().position(|(of, _)| *of == TypeId::of::<T>())
    }
}

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CycleState({} values)", self.values.as_ref().map_or(0, |values| values.len()))
    }
}

/// Pods that are expected on nodes but not placed there yet. Upstream: framework `PodNominator` (v1.36.2).
pub trait Nominations: Sync {
    /// Pods nominated to the node; empty when none.
    fn nominated_on(&self, node_name: &str) -> &[Arc<Pod>];

    /// Names of the nodes that have a nominated pod.
    fn nominated_nodes(&self) -> Vec<Arc<str>>;

    /// Whether no pod is nominated to any node.
    fn is_empty(&self) -> bool {
        self.nominated_nodes().is_empty()
    }
}

/// Nobody is nominated.
impl Nominations for () {
    fn nominated_on(&self, _node_name: &str) -> &[Arc<Pod>] {
        &[]
    }

    fn nominated_nodes(&self) -> Vec<Arc<str>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_values_until_they_change_them() {
        let mut first = CycleState::default();
        assert_eq!(first.get::<u8>(), None);
        first.insert(1_u8);
        first.insert("left by PreFilter");
        let mut second = first.clone();
        *second.get_mut::<u8>().expect("it is there") += 1;
        second.insert(3_u16);
        assert_eq!((first.get::<u8>(), first.get::<u16>()), (Some(&1), None));
        assert_eq!((second.get::<u8>(), second.get::<u16>()), (Some(&2), Some(&3)));
        assert_eq!(second.remove::<&str>(), Some("left by PreFilter"));
        assert_eq!((first.get::<&str>(), second.get::<&str>()), (Some(&"left by PreFilter"), None));
        assert_eq!((first.remove::<u8>(), first.remove::<u8>()), (Some(1), None));
    }
}
