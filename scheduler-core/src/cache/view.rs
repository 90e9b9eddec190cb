//! One node as a per-node plugin method sees it: from the columns, or with pods added and removed in a what-if run.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{NodeIdx, ResourceId, Snapshot};
use crate::model::{HostPort, Labels, Node, Pod, Taint};

/// One node: what it is, what runs on it, what is left. Cheap to copy.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    snapshot: &'a Snapshot,
    idx: NodeIdx,
    overlay: Option<&'a NodeOverlay>,
}

impl<'a> NodeView<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, idx: NodeIdx) -> Self {
        Self { snapshot, idx, overlay: None }
    }

    /// The node's index; valid only within this cycle's snapshot.
    #[must_use]
    pub fn idx(&self) -> NodeIdx {
        self.idx
    }

    /// The node object.
    #[must_use]
    pub fn node(&self) -> &'a Node {
        self.snapshot.node(self.idx)
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &'a Arc<str> {
        self.snapshot.name(self.idx)
    }

    /// The node's labels.
    #[must_use]
    pub fn labels(&self) -> &'a Labels {
        &self.node().labels
    }

    /// The node's taints.
    #[must_use]
    pub fn taints(&self) -> &'a [Taint] {
        &self.node().taints
    }

    /// Pods on the node, assumed ones included.
    #[must_use]
    pub fn pods(&self) -> &'a [Arc<Pod>] {
        match self.overlay {
            Some(overlay) => &overlay.pods,
            None => self.snapshot.pods(self.idx),
        }
    }

    /// What pods may take of a resource.
    #[must_use]
    pub fn allocatable(&self, resource: ResourceId) -> i64 {
        self.snapshot.resources().allocatable(resource)[self.idx.slot()]
    }

    /// What pods on the node ask for of a resource.
    #[must_use]
    pub fn requested(&self, resource: ResourceId) -> i64 {
        match self.overlay {
            Some(overlay) => overlay.requested[resource.at()],
            None => self.snapshot.resources().requested(resource)[self.idx.slot()],
        }
    }

    /// Milli CPU that pods ask for, 100m for each container that names none.
    #[must_use]
    pub fn non_zero_milli_cpu(&self) -> i64 {
        match self.overlay {
            Some(overlay) => overlay.non_zero_milli_cpu,
            None => self.snapshot.resources().non_zero_milli_cpu()[self.idx.slot()],
        }
    }

    /// Bytes of memory that pods ask for, 200Mi for each container that names none.
    #[must_use]
    pub fn non_zero_memory(&self) -> i64 {
        match self.overlay {
            Some(overlay) => overlay.non_zero_memory,
            None => self.snapshot.resources().non_zero_memory()[self.idx.slot()],
        }
    }

    /// Host ports that pods on the node hold.
    pub fn host_ports(&self) -> impl Iterator<Item = &'a HostPort> + use<'a> {
        self.pods().iter().flat_map(|pod| &pod.host_ports)
    }
}

impl fmt::Debug for NodeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeView").field("name", self.name()).field("n_pods", &self.pods().len()).finish()
    }
}

/// A node with pods added to and removed from it in thought. The node object itself does not change.
#[derive(Debug, Clone)]
pub struct NodeOverlay {
    idx: NodeIdx,
    pods: Vec<Arc<Pod>>,
    requested: SmallVec<[i64; 8]>,
    non_zero_milli_cpu: i64,
    non_zero_memory: i64,
}

impl NodeOverlay {
    /// The node as it is in the view.
    #[must_use]
    pub fn of(view: NodeView<'_>) -> Self {
        if let Some(overlay) = view.overlay {
            return overlay.clone();
        }
        let resources = view.snapshot.resources();
        Self {
            idx: view.idx,
            pods: view.pods().to_vec(),
            requested: resources.iter().map(|id| view.requested(id)).collect(),
            non_zero_milli_cpu: view.non_zero_milli_cpu(),
            non_zero_memory: view.non_zero_memory(),
        }
    }

    /// The node without the pods that `leaves` names, and these pods, in their order there.
    #[must_use]
    pub fn without(view: NodeView<'_>, leaves: impl Fn(&Pod) -> bool) -> (Self, Vec<Arc<Pod>>) {
        let (left, pods): (Vec<_>, Vec<_>) = view.pods().iter().cloned().partition(|pod| leaves(pod));
        let resources = view.snapshot.resources();
        let mut overlay = Self {
            idx: view.idx,
            pods,
            requested: resources.iter().map(|id| view.requested(id)).collect(),
            non_zero_milli_cpu: view.non_zero_milli_cpu(),
            non_zero_memory: view.non_zero_memory(),
        };
        for pod in &left {
            overlay.update(view.snapshot, pod, i64::wrapping_sub);
        }
        (overlay, left)
    }

    /// The node with the changes made so far.
    #[must_use]
    pub fn view<'a>(&'a self, snapshot: &'a Snapshot) -> NodeView<'a> {
        NodeView { snapshot, idx: self.idx, overlay: Some(self) }
    }

    /// Adds a pod.
    ///
    /// A scalar resource that neither a node nor a pod on one has is left out: no node can have any of it free.
    pub fn add_pod(&mut self, snapshot: &Snapshot, pod: Arc<Pod>) {
        self.update(snapshot, &pod, i64::wrapping_add);
        self.pods.push(pod);
    }

    /// Removes a pod by UID; false if it is not there.
    pub fn remove_pod(&mut self, snapshot: &Snapshot, uid: &str) -> bool {
        // Who came last goes first, most often.
        let Some(at) = self.pods.iter().rposition(|pod| pod.uid.as_ref() == uid) else { return false };
        let pod = self.pods.swap_remove(at);
        self.update(snapshot, &pod, i64::wrapping_sub);
        true
    }

    fn update(&mut self, snapshot: &Snapshot, pod: &Pod, apply: impl Fn(i64, i64) -> i64) {
        let used = pod.resources.used();
        let mut change = |id: ResourceId, amount| {
            let requested = &mut self.requested[id.at()];
            *requested = apply(*requested, amount);
        };
        change(ResourceId::MILLI_CPU, used.milli_cpu);
        change(ResourceId::MEMORY, used.memory);
        change(ResourceId::EPHEMERAL_STORAGE, used.ephemeral_storage);
        change(ResourceId::PODS, 1);
        for (name, amount) in &used.scalars {
            if let Some(id) = snapshot.resources().id(name) {
                change(id, *amount);
            }
        }
        self.non_zero_milli_cpu = apply(self.non_zero_milli_cpu, pod.resources.used_non_zero_milli_cpu);
        self.non_zero_memory = apply(self.non_zero_memory, pod.resources.used_non_zero_memory);
    }
}
