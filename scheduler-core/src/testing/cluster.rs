//! What exists before the pod under test comes.

use crate::cache::{Cache, Objects};
use crate::engine::{Change, Scheduler};
use crate::model::{Node, Object, Pod, Timestamp};

/// A small cluster: nodes, pods on them, and whatever else plugins look up, in the order in which they came.
///
/// ```
/// use scheduler_core::testing::{Cluster, node, pod};
///
/// let cluster = Cluster::new()
///     .nodes((0..3).map(|i| node(&format!("n{i}")).cpu("4")))
///     .with(pod("tenant").cpu("3").on("n1"));
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a cluster does nothing until a pod is tried in it"]
pub struct Cluster {
    objects: Vec<Object>,
    now: Timestamp,
}

impl Cluster {
    /// A cluster without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more object: a node, a pod, or any other kind that the model knows.
    pub fn with(mut self, object: impl Into<Object>) -> Self {
        self.objects.push(object.into());
        self
    }

    /// More nodes.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = impl Into<Node>>) -> Self {
        self.objects.extend(nodes.into_iter().map(|node| node.into().into()));
        self
    }

    /// More pods.
    pub fn pods(mut self, pods: impl IntoIterator<Item = impl Into<Pod>>) -> Self {
        self.objects.extend(pods.into_iter().map(|pod| pod.into().into()));
        self
    }

    /// The time of the test; the epoch when nothing is said.
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// The time of the test.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Tells a scheduler of everything, for tests of more than one cycle.
    pub fn apply_to(&self, scheduler: &mut Scheduler) {
        for object in &self.objects {
            scheduler.handle(Change::Applied(object.clone()), self.now);
        }
    }

    /// The cluster as plugins see it: pods on nodes, and everything else. Pods without a node, and pods that have ended,
    /// are not part of it.
    pub(super) fn world(&self) -> (Cache, Objects) {
        let (mut cache, mut objects) = (Cache::new(), Objects::default());
        for object in &self.objects {
            match object {
                Object::Node(node) => cache.set_node(node.clone()),
                Object::Pod(pod) if !pod.is_terminal() => cache.set_pod(pod.clone()),
                Object::Pod(_) => {}
                other => {
                    objects.apply(other);
                }
            }
        }
        (cache, objects)
    }
}
