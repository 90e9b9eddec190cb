//! Applying events: nodes come and go, pods are assumed, added, updated and deleted; every column follows.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::{clear_bit, set_bit};
use super::cluster_index::{ClusterIndex, fill};
use super::growth::lengthen;
use super::{CountKey, Inclusion, NodeIdx, Snapshot};
use crate::model::{Labels, Node, Object, Pod};

/// A pod on a node that is known; found by its UID.
#[derive(Debug, Clone)]
struct Placed {
    pod: Arc<Pod>,
    node: NodeIdx,
    is_assumed: bool,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.pod.uid == other.pod.uid
    }
}

impl Eq for Placed {}

impl Hash for Placed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pod.uid.hash(state);
    }
}

impl Borrow<str> for Placed {
    fn borrow(&self) -> &str {
        &self.pod.uid
    }
}

/// A pod on a node that is not known.
#[derive(Debug, Clone)]
struct Orphan {
    pod: Arc<Pod>,
    is_assumed: bool,
}

/// The state of all nodes and bound or assumed pods. Upstream: cache `cacheImpl` (v1.36.2).
///
/// ```text
///               assume                    add (bound as assumed)
///   unknown ─────────────► assumed ──────────────────────────────► added ──┐ update
///      ▲  │                   │  │                                  ▲   │ ◄┘
///      │  │       forget      │  │ add (bound to another node:      │   │
///      │  └◄──────────────────┘  │ moved there)                     │   │ delete, or
///      │                         └──────────────────────────────────┘   │ terminal phase
///      │                                 add                            │
///      └──────────────────────────────── delete ◄───────────────────────┘
/// ```
///
/// An assumed pod does not expire: it stays until its binding is confirmed by `add` or given up by `forget`.
/// Pods on a node that is not known are kept aside and appear when the node does. Every operation is idempotent, so
/// repeated or late events are harmless.
#[derive(Debug, Default)]
pub struct Cache {
    snapshot: Snapshot,
    pods: FxHashSet<Placed>,
    /// Pods whose node is not known, by node name, in the order in which they came.
    orphans: FxHashMap<Arc<str>, Vec<Orphan>>,
    /// The node name of each of them, by UID.
    orphan_nodes: FxHashMap<Arc<str>, Arc<str>>,
    free_slots: Vec<NodeIdx>,
}

/// Why a pod could not be assumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The pod is on a node already.
    #[error("pod {pod} is in the cache on node {node:?}, so it cannot be assumed")]
    AlreadyPlaced {
        /// `namespace/name`.
        pod: String,
        /// Its node.
        node: Arc<str>,
    },
}

impl Cache {
    /// A cache without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The columns, for one cycle.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Access for plugins that need more columns.
    pub fn indexes(&mut self) -> Indexes<'_> {
        Indexes { snapshot: &mut self.snapshot }
    }

    /// The node was created or changed.
    pub fn set_node(&mut self, node: Arc<Node>) {
        match self.snapshot.find(&node.name) {
            Some(idx) => {
                let old = Arc::clone(&self.snapshot.nodes[idx.slot()]);
                self.snapshot.images.remove_node(idx, &old);
                self.write_node(idx, node);
            }
            None => {
                let idx = self.take_slot();
                let name = Arc::clone(&node.name);
                self.snapshot.index.insert(Arc::clone(&name), idx);
                self.snapshot.n_nodes += 1;
                set_bit(&mut self.snapshot.live, idx.slot());
                self.write_node(idx, node);
                for Orphan { pod, is_assumed } in self.orphans.remove(&name).unwrap_or_default() {
                    self.orphan_nodes.remove(&pod.uid);
                    self.place(pod, idx, is_assumed);
                }
            }
        }
    }

    /// The node was deleted. Pods on it are kept aside until they are deleted, too.
    pub fn remove_node(&mut self, name: &str) {
        let Some((name, idx)) = self.snapshot.index.remove_entry(name) else { return };
        for pod in self.snapshot.pods[idx.slot()].clone() {
            self.snapshot.displace(idx, &pod.uid);
            let is_assumed = self.pods.take(&*pod.uid).is_some_and(|placed| placed.is_assumed);
            self.set_aside(pod, Arc::clone(&name), is_assumed);
        }
        let slot = idx.slot();
        let snapshot = &mut self.snapshot;
        let node = std::mem::take(&mut snapshot.nodes[slot]);
        snapshot.names[slot] = Arc::default();
        snapshot.images.remove_node(idx, &node);
        snapshot.counts.exclude_node(&snapshot.labels, idx);
        snapshot.n_nodes -= 1;
        clear_bit(&mut snapshot.live, slot);
        clear_bit(&mut snapshot.unschedulable, slot);
        snapshot.resources.clear(slot);
        snapshot.taints.clear(slot);
        snapshot.labels.clear(slot);
        snapshot.kept.each(|index| index.node_changed(idx, None));
        snapshot.changes.note(idx);
        self.free_slots.push(idx);
    }

    /// The scheduler decided to place the pod; the binding is still to come.
    ///
    /// # Errors
    /// When the pod is on a node already.
    pub fn assume(&mut self, pod: Arc<Pod>, node_name: &Arc<str>) -> Result<(), CacheError> {
        self.assume_at(pod, Arc::clone(node_name), self.snapshot.find(node_name))
    }

    /// [`assume`](Self::assume) on a node that is known by its index.
    pub(crate) fn assume_on(&mut self, pod: Arc<Pod>, node: NodeIdx) -> Result<(), CacheError> {
        let node_name = Arc::clone(self.snapshot.name(node));
        self.assume_at(pod, node_name, Some(node))
    }

    fn assume_at(&mut self, pod: Arc<Pod>, node_name: Arc<str>, node: Option<NodeIdx>) -> Result<(), CacheError> {
        let is_new = match node {
            _ if self.orphan_nodes.contains_key(&pod.uid) => false,
            Some(node) if self.pods.insert(Placed { pod: Arc::clone(&pod), node, is_assumed: true }) => {
                self.snapshot.place(node, pod);
                return Ok(());
            }
            Some(_) => false,
            None => !self.pods.contains(&*pod.uid),
        };
        if is_new {
            self.set_aside(pod, node_name, true);
            return Ok(());
        }
        let node = self.pod(&pod.uid).map_or(node_name, |(_, node)| Arc::clone(node));
        Err(CacheError::AlreadyPlaced { pod: pod.reference().to_string(), node })
    }

    /// The placement was given up: the pod leaves the cache, unless its binding was confirmed meanwhile.
    pub fn forget(&mut self, uid: &str) -> bool {
        if self.is_assumed(uid) { self.remove(uid).is_some() } else { false }
    }

    /// A bound pod was seen, for the first time or changed. Without a node name nothing happens.
    pub fn set_pod(&mut self, mut pod: Arc<Pod>) {
        self.set_pod_and_share(&mut pod);
    }

    /// [`set_pod`](Self::set_pod). If nobody else holds the pod, it gets the name of its node as the node has it.
    pub(crate) fn set_pod_and_share(&mut self, pod: &mut Arc<Pod>) {
        if self.confirm(pod, false) {
            return;
        }
        let Some(node_name) = pod.node_name.clone() else { return };
        self.remove(&pod.uid);
        match self.snapshot.find(&node_name) {
            Some(node) => {
                share_node_name(pod, self.snapshot.name(node));
                self.place(Arc::clone(pod), node, false);
            }
            None => self.set_aside(Arc::clone(pod), node_name, false),
        }
    }

    /// [`set_pod`](Self::set_pod) of an assumed pod whose binding was confirmed, while nothing else changed. False, and
    /// nothing done, if it is another case.
    pub(crate) fn confirm_assumed(&mut self, pod: &mut Arc<Pod>) -> bool {
        self.confirm(pod, true)
    }

    /// A pod that is where it was said to be, and as it was but for what binding changes, takes the place of its earlier
    /// self: no column changes, and no change of the node is noted. False if it is not so.
    fn confirm(&mut self, pod: &mut Arc<Pod>, only_assumed: bool) -> bool {
        let Some(placed) = self.pods.get(&*pod.uid) else { return false };
        if only_assumed && !placed.is_assumed {
            return false;
        }
        let (idx, known) = (placed.node, &placed.pod);
        let name = self.snapshot.name(idx);
        if pod.node_name.as_ref() != Some(name) || !known.differs_by_binding_at_most(pod) {
            return false;
        }
        share_node_name(pod, name);
        let pods = &mut self.snapshot.pods[idx.slot()];
        let Some(at) = pods.iter().rposition(|pod| Arc::ptr_eq(pod, known)) else { return false };
        self.snapshot.kept.each(|index| index.pod_confirmed(idx, known, pod));
        // To the end, where removing and adding it would put it.
        pods.swap_remove(at);
        pods.push(Arc::clone(pod));
        self.pods.replace(Placed { pod: Arc::clone(pod), node: idx, is_assumed: false });
        true
    }

    /// A pod is gone, or has ended.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        self.remove(uid)
    }

    /// Whether the pod is assumed, its binding unconfirmed.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed(uid).is_some_and(|(_, is_assumed)| is_assumed)
    }

    /// The pod and its node, if it is bound or assumed.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<(&Arc<Pod>, &Arc<str>)> {
        if let Some(placed) = self.pods.get(uid) {
            return Some((&placed.pod, self.snapshot.name(placed.node)));
        }
        self.orphan(uid).map(|(orphan, node)| (&orphan.pod, node))
    }

    /// The pod, and whether it is only assumed to be on its node.
    pub(crate) fn placed(&self, uid: &str) -> Option<(&Arc<Pod>, bool)> {
        if let Some(placed) = self.pods.get(uid) {
            return Some((&placed.pod, placed.is_assumed));
        }
        self.orphan(uid).map(|(orphan, _)| (&orphan.pod, orphan.is_assumed))
    }

    fn orphan(&self, uid: &str) -> Option<(&Orphan, &Arc<str>)> {
        let node = self.orphan_nodes.get(uid)?;
        Some((self.orphans.get(node)?.iter().find(|orphan| *orphan.pod.uid == *uid)?, node))
    }

    /// Number of bound and assumed pods.
    #[must_use]
    pub fn n_pods(&self) -> usize {
        self.pods.len() + self.orphan_nodes.len()
    }

    /// An object that is neither node nor pod came, changed or went: for the indexes that plugins brought along.
    pub fn object_changed(&mut self, old: Option<&Object>, new: Option<&Object>) {
        self.snapshot.kept.each(|index| index.object_changed(old, new));
    }

    fn place(&mut self, pod: Arc<Pod>, node: NodeIdx, is_assumed: bool) {
        self.pods.insert(Placed { pod: Arc::clone(&pod), node, is_assumed });
        self.snapshot.place(node, pod);
    }

    /// Keeps a pod until its node is known.
    fn set_aside(&mut self, pod: Arc<Pod>, node_name: Arc<str>, is_assumed: bool) {
        self.orphan_nodes.insert(Arc::clone(&pod.uid), Arc::clone(&node_name));
        self.orphans.entry(node_name).or_default().push(Orphan { pod, is_assumed });
    }

    fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        if let Some(placed) = self.pods.take(uid) {
            self.snapshot.displace(placed.node, uid);
            return Some(placed.pod);
        }
        let node_name = self.orphan_nodes.remove(uid)?;
        let orphans = self.orphans.get_mut(&node_name)?;
        let at = orphans.iter().position(|orphan| *orphan.pod.uid == *uid)?;
        let orphan = orphans.remove(at);
        if orphans.is_empty() {
            self.orphans.remove(&node_name);
        }
        Some(orphan.pod)
    }

    fn write_node(&mut self, idx: NodeIdx, node: Arc<Node>) {
        let slot = idx.slot();
        let snapshot = &mut self.snapshot;
        snapshot.resources.set_allocatable(slot, &node.allocatable);
        snapshot.taints.set(slot, &node.taints);
        // What sums by domain look at.
        let old = &snapshot.nodes[slot];
        let moves = old.labels != node.labels || old.taints != node.taints || old.name != node.name;
        if moves {
            snapshot.counts.exclude_node(&snapshot.labels, idx);
            snapshot.terms.exclude_node(&snapshot.labels, idx);
        }
        snapshot.labels.set(slot, &node.labels);
        if moves {
            snapshot.counts.include_node(&snapshot.labels, idx, &node);
            snapshot.terms.include_node(&snapshot.labels, idx);
        }
        snapshot.images.add_node(idx, &node);
        if node.unschedulable {
            set_bit(&mut snapshot.unschedulable, slot);
        } else {
            clear_bit(&mut snapshot.unschedulable, slot);
        }
        snapshot.kept.each(|index| index.node_changed(idx, Some(&node)));
        snapshot.names[slot] = Arc::clone(&node.name);
        snapshot.nodes[slot] = node;
        snapshot.changes.note(idx);
    }

    fn take_slot(&mut self) -> NodeIdx {
        if let Some(idx) = self.free_slots.pop() {
            return idx;
        }
        let first = self.snapshot.n_slots();
        self.snapshot.grow(first + 64);
        self.free_slots.extend((first + 1..first + 64).rev().map(NodeIdx::from_slot));
        NodeIdx::from_slot(first)
    }
}

/// Lets the pod have the name of its node as the node has it: each was parsed by itself.
fn share_node_name(pod: &mut Arc<Pod>, name: &Arc<str>) {
    if let Some(own) = Arc::get_mut(pod)
        && own.node_name.as_ref().is_some_and(|own| !Arc::ptr_eq(own, name))
    {
        own.node_name = Some(Arc::clone(name));
    }
}

impl Snapshot {
    fn grow(&mut self, n_slots: usize) {
        lengthen(&mut self.live, n_slots / 64, 0);
        lengthen(&mut self.unschedulable, n_slots / 64, 0);
        let empty = Arc::new(Node::default());
        lengthen(&mut self.names, n_slots, Arc::clone(&empty.name));
        lengthen(&mut self.nodes, n_slots, empty);
        lengthen(&mut self.pods, n_slots, Vec::new());
        self.resources.grow(n_slots);
        self.taints.grow(n_slots);
        self.labels.grow(n_slots);
        self.priorities.grow(n_slots);
    }

    fn place(&mut self, idx: NodeIdx, pod: Arc<Pod>) {
        self.resources.add_pod(idx.slot(), &pod);
        self.ports.add_pod(idx, &pod);
        self.priorities.add_pod(idx.slot(), &pod);
        self.counts.add_pod(&self.labels, idx, &pod);
        self.terms.add_pod(&self.labels, idx, &pod);
        self.kept.each(|index| index.pod_added(idx, &pod));
        self.pods[idx.slot()].push(pod);
        self.changes.note_pod(idx);
    }

    fn displace(&mut self, idx: NodeIdx, uid: &str) {
        let pods = &mut self.pods[idx.slot()];
        // The pods that go are often those that came last.
        let Some(at) = pods.iter().rposition(|pod| pod.uid.as_ref() == uid) else { return };
        let pod = pods.swap_remove(at);
        self.resources.remove_pod(idx.slot(), &pod);
        self.ports.remove_pod(idx, &pod);
        self.priorities.remove_pod(idx.slot(), &pod, &self.pods[idx.slot()]);
        self.counts.remove_pod(&self.labels, idx, &pod);
        self.terms.remove_pod(&self.labels, idx, &pod);
        self.kept.each(|index| index.pod_removed(idx, &pod));
        self.changes.note_pod(idx);
    }
}

/// Where a plugin asks for columns before a cycle.
#[derive(Debug)]
pub struct Indexes<'a> {
    snapshot: &'a mut Snapshot,
}

impl Indexes<'_> {
    /// Keeps a column of this label's values.
    pub fn label_column(&mut self, key: &Arc<str>) {
        let Snapshot { labels, nodes, live, .. } = &mut *self.snapshot;
        let live =
            live.iter().enumerate().flat_map(|(at, &word)| super::bits::ones(word).map(move |bit| at * 64 + bit));
        labels.ensure(key, live.map(|slot| (slot, &*nodes[slot])));
    }

    /// Keeps an index of the plugin's own from now on. When it is not there yet, `new` makes one, with what it needs of
    /// other objects, and it is told of all nodes and the pods on them.
    pub fn keep<I: ClusterIndex>(&mut self, new: impl FnOnce() -> I) {
        if !self.snapshot.kept.contains::<I>() {
            let mut index = new();
            fill(&mut index, self.snapshot);
            self.snapshot.kept.insert(index);
        }
    }

    /// Topology keys of the affinity terms that pods on nodes hold.
    #[must_use]
    pub fn affinity_topology_keys(&self) -> Vec<Arc<str>> {
        self.snapshot.terms.topology_keys()
    }

    /// Keeps the sums by domain of the affinity terms, of pods on nodes, that mean such a pod: those whose topology keys
    /// have columns.
    pub fn affinity_term_sums(&mut self, pod: &Pod, namespace_labels: &Labels) {
        let Snapshot { terms, labels, .. } = &mut *self.snapshot;
        terms.ensure_sums(labels, pod, namespace_labels);
    }

    /// Keeps a column of the pods that match, and the sums of them by the value of a label over all nodes; these not where
    /// each node has a value of its own.
    pub fn pod_count_and_sums(&mut self, key: CountKey, topology_key: &Arc<str>) {
        self.label_column(topology_key);
        match self.snapshot.labels.get(topology_key) {
            Some(column) if !column.is_unique() => self.domain_count(&key, topology_key, Inclusion::default()),
            _ => self.pod_count(key),
        }
    }

    /// Keeps the sums of the pods that match by the value of a label, over the nodes that count.
    pub fn domain_count(&mut self, key: &CountKey, topology_key: &Arc<str>, inclusion: Inclusion) {
        self.label_column(topology_key);
        for key in inclusion.keys() {
            self.label_column(key);
        }
        self.pod_count(key.clone());
        let Snapshot { counts, labels, nodes, live, .. } = &mut *self.snapshot;
        counts.ensure_domains(key, topology_key, inclusion, labels, nodes, live);
    }

    /// Keeps a column of the pods that match.
    pub fn pod_count(&mut self, key: CountKey) {
        let Snapshot { counts, pods, .. } = &mut *self.snapshot;
        let pods = pods.iter().enumerate().filter(|(_, pods)| !pods.is_empty());
        counts.ensure(key, pods.map(|(slot, pods)| (NodeIdx::from_slot(slot), pods.as_slice())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeTemplate, PodPhase, Resources};

    fn node(name: &str) -> Arc<Node> {
        let allocatable = Resources { milli_cpu: 4_000, pods: 110, ..Resources::default() };
        let template = NodeTemplate { allocatable, ..NodeTemplate::default() };
        Arc::new(Node { name: name.into(), ..template.into() })
    }

    fn pod(uid: &str) -> Pod {
        Pod { uid: uid.into(), name: uid.into(), ..Pod::default() }
    }

    fn on(name: &str, pod: Pod) -> Arc<Pod> {
        Arc::new(Pod { node_name: Some(name.into()), resource_version: "2".into(), ..pod })
    }

    #[test]
    fn a_confirmed_binding_changes_no_column_and_any_other_news_do() {
        let mut cache = Cache::new();
        cache.set_node(node("n1"));
        cache.set_node(node("n2"));
        for uid in ["a", "b"] {
            cache.assume(Arc::new(pod(uid)), &"n1".into()).expect("the pod is new");
        }
        let n_changes = |cache: &Cache| cache.snapshot().changes().n_changes();
        let before = n_changes(&cache);
        cache.set_pod(on("n1", pod("a")));
        assert_eq!((n_changes(&cache), cache.is_assumed("a")), (before, false));
        let idx = cache.snapshot().find("n1").expect("the node was set");
        let uids: Vec<&str> = cache.snapshot().pods(idx).iter().map(|pod| &*pod.uid).collect();
        assert_eq!(uids, ["b", "a"], "in the order that removing and adding leaves");
        assert_eq!(cache.pod("a").and_then(|(pod, _)| pod.node_name.as_deref()), Some("n1"), "as last seen");

        cache.set_pod(on("n1", Pod { phase: PodPhase::Running, ..pod("a") }));
        assert_eq!(n_changes(&cache), before + 2, "it left and came back, changed");
        let shares = |cache: &Cache, uid: &str| {
            let (pod, name) = cache.pod(uid).expect("it is there");
            pod.node_name.as_ref().is_some_and(|own| Arc::ptr_eq(own, name))
        };
        assert!(shares(&cache, "a"), "its node's name is kept once");
        cache.set_pod(on("n2", pod("b")));
        assert!(shares(&cache, "b"));
        let n_pods = |name: &str| cache.snapshot().pods(cache.snapshot().find(name).expect("it was set")).len();
        assert_eq!((n_pods("n1"), n_pods("n2")), (1, 1), "bound elsewhere");
    }
}
