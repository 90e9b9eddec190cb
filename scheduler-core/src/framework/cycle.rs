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
/// It outlives the cycle: put node names in it, never a [`crate::cache::NodeIdx`].
#[derive(Default)]
pub struct CycleState {
    /// Few plugins leave anything: looking through is faster than hashing.
    values: SmallVec<[(TypeId, Box<dyn Any + Send + Sync>); 4]>,
}

impl CycleState {
    /// Stores a value, replacing one of the same type.
    pub fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        let value = Box::new(value);
        match self.position::<T>() {
            Some(at) => self.values[at].1 = value,
            None => self.values.push((TypeId::of::<T>(), value)),
        }
    }

    /// The value of this type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.values[self.position::<T>()?].1.downcast_ref()
    }

    /// The value of this type, to change.
    pub fn get_mut<T: Any + Send + Sync>(&mut self) -> Option<&mut T> {
        let at = self.position::<T>()?;
        self.values[at].1.downcast_mut()
    }

    /// Takes the value of this type out.
    pub fn remove<T: Any + Send + Sync>(&mut self) -> Option<T> {
        let at = self.position::<T>()?;
        Some(*self.values.swap_remove(at).1.downcast().ok()?)
    }

    fn position<T: Any>(&self) -> Option<usize> {
        self.values.iter().position(|(of, _)| *of == TypeId::of::<T>())
    }
}

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CycleState({} values)", self.values.len())
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
