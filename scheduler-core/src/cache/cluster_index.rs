//! Indexes that plugins bring along. They are fed with what happens to nodes, pods and other objects, between cycles, so
//! that a cycle reads a count instead of walking the cluster.

use std::any::{Any, TypeId};

use super::{NodeIdx, Snapshot};
use crate::model::{Node, Object, Pod};

/// What a plugin keeps over the whole cluster from event to event.
///
/// A plugin asks for its index in [`Plugin::require`] with [`Indexes::keep`] and reads it during a cycle with
/// [`Snapshot::kept`]. Plugins that ask for the same type share one. A what-if run does not change it: a plugin whose
/// verdict must follow pods that are added or removed in thought corrects its per-cycle state in
/// [`FilterPlugin::add_pod`] and [`FilterPlugin::remove_pod`].
///
/// ```
/// use scheduler_core::cache::{Cache, ClusterIndex, NodeIdx};
/// use scheduler_core::model::{Node, Pod};
/// use std::sync::Arc;
///
/// /// Pods of the whole cluster that use the host's network.
/// #[derive(Default)]
/// struct HostNetworkPods(usize);
///
/// impl ClusterIndex for HostNetworkPods {
///     fn pod_added(&mut self, _: NodeIdx, pod: &Pod) {
///         self.0 += usize::from(!pod.host_ports.is_empty());
///     }
///
///     fn pod_removed(&mut self, _: NodeIdx, pod: &Pod) {
///         self.0 -= usize::from(!pod.host_ports.is_empty());
///     }
/// }
///
/// let mut cache = Cache::new();
/// cache.indexes().keep(HostNetworkPods::default);
/// cache.set_node(Arc::new(Node { name: "n".into(), ..Node::default() }));
/// cache.set_pod(Arc::new(Pod { node_name: Some("n".into()), ..Pod::default() }));
/// assert_eq!(cache.snapshot().kept::<HostNetworkPods>().unwrap().0, 0);
/// ```
///
/// [`Plugin::require`]: crate::framework::Plugin::require
/// [`Indexes::keep`]: super::Indexes::keep
/// [`FilterPlugin::add_pod`]: crate::framework::FilterPlugin::add_pod
/// [`FilterPlugin::remove_pod`]: crate::framework::FilterPlugin::remove_pod
pub trait ClusterIndex: Any + Send + Sync {
    /// The pod is on the node from now on, assumed or bound. A changed pod is removed and added again.
    fn pod_added(&mut self, node: NodeIdx, pod: &Pod);

    /// The pod, as it was added, is no longer on the node.
    fn pod_removed(&mut self, node: NodeIdx, pod: &Pod);

    /// The binding of an assumed pod was seen: the pod stays where it is, and differs by nothing but what
    /// [`Pod::differs_by_binding_at_most`] overlooks. An index that does not look at that may do nothing. Only speed.
    fn pod_confirmed(&mut self, node: NodeIdx, assumed: &Pod, bound: &Pod) {
        self.pod_removed(node, assumed);
        self.pod_added(node, bound);
    }

    /// The node came or changed; `None` when it went, which is after the pods on it were removed.
    fn node_changed(&mut self, idx: NodeIdx, node: Option<&Node>) {
        let _ = (idx, node);
    }

    /// An object that is neither node nor pod came (`old` is `None`), changed, or went (`new` is `None`).
    fn object_changed(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let _ = (old, new);
    }
}

/// The indexes that were asked for.
#[derive(Default)]
pub(super) struct ClusterIndexes {
    kept: Vec<(TypeId, Box<dyn ClusterIndex>)>,
}

impl ClusterIndexes {
    pub(super) fn get<I: ClusterIndex>(&self) -> Option<&I> {
        let (_, index) = self.kept.iter().find(|(id, _)| *id == TypeId::of::<I>())?;
        let index: &dyn Any = &**index;
        index.downcast_ref()
    }

    pub(super) fn contains<I: ClusterIndex>(&self) -> bool {
        self.kept.iter().any(|(id, _)| *id == TypeId::of::<I>())
    }

    pub(super) fn insert<I: ClusterIndex>(&mut self, index: I) {
        self.kept.push((TypeId::of::<I>(), Box::new(index)));
    }

    pub(super) fn each(&mut self, mut tell: impl FnMut(&mut dyn ClusterIndex)) {
        for (_, index) in &mut self.kept {
            tell(&mut **index);
        }
    }
}

impl std::fmt::Debug for ClusterIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterIndexes({} kept)", self.kept.len())
    }
}

/// Tells an index everything that is there.
pub(super) fn fill(index: &mut impl ClusterIndex, snapshot: &Snapshot) {
    for idx in snapshot.iter() {
        index.node_changed(idx, Some(snapshot.node(idx)));
        for pod in snapshot.pods(idx) {
            index.pod_added(idx, pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::Cache;
    use crate::model::{PodTemplate, Service};

    /// What there is, by node name; and the names of services.
    #[derive(Debug, Default, Clone, PartialEq)]
    struct Seen {
        nodes: BTreeMap<usize, (String, i64)>,
        pods: BTreeMap<(usize, String), i64>,
        services: Vec<String>,
    }

    impl ClusterIndex for Seen {
        fn pod_added(&mut self, node: NodeIdx, pod: &Pod) {
            assert!(self.nodes.contains_key(&node.slot()), "the node is told before its pods");
            let earlier = self.pods.insert((node.slot(), pod.uid.to_string()), i64::from(pod.priority));
            assert_eq!(earlier, None, "a pod is added once");
        }

        fn pod_removed(&mut self, node: NodeIdx, pod: &Pod) {
            let earlier = self.pods.remove(&(node.slot(), pod.uid.to_string()));
            assert_eq!(earlier, Some(i64::from(pod.priority)), "the pod is told as it was added");
        }

        fn node_changed(&mut self, idx: NodeIdx, node: Option<&Node>) {
            match node {
                Some(node) => {
                    self.nodes.insert(idx.slot(), (node.name.to_string(), node.allocatable.milli_cpu));
                }
                None => {
                    assert!(!self.pods.keys().any(|(slot, _)| *slot == idx.slot()), "its pods left before");
                    assert!(self.nodes.remove(&idx.slot()).is_some());
                }
            }
        }

        fn object_changed(&mut self, old: Option<&Object>, new: Option<&Object>) {
            let name = |object: &Object| match object {
                Object::Service(service) => service.name.to_string(),
                other => panic!("told of {other:?}"),
            };
            self.services.retain(|service| old.is_none_or(|old| name(old) != *service));
            self.services.extend(new.map(name));
        }
    }

    proptest! {
        #[test]
        fn a_kept_index_is_what_a_new_one_would_be(
            steps in prop::collection::vec((0..6_u8, 0..5_usize, 0..4_usize, 0..9_i32), 1..120),
        ) {
            let mut cache = Cache::new();
            cache.indexes().keep(Seen::default);
            for (step, pod, node, size) in steps {
                let node: Arc<str> = format!("node-{node}").into();
                let object = |node: Option<Arc<str>>| {
                    let template = PodTemplate { priority: size, ..PodTemplate::default() };
                    Arc::new(Pod { uid: format!("pod-{pod}").into(), node_name: node, ..template.into() })
                };
                match step {
                    0 => {
                        let mut changed = Node { name: node, ..Node::default() };
                        changed.allocatable.milli_cpu = i64::from(size);
                        cache.set_node(Arc::new(changed));
                    }
                    1 => cache.remove_node(&node),
                    2 => drop(cache.assume(object(None), &node)),
                    3 => drop(cache.forget(&format!("pod-{pod}"))),
                    4 => cache.set_pod(object(Some(node))),
                    _ => drop(cache.remove_pod(&format!("pod-{pod}"))),
                }
                let mut fresh = Seen::default();
                fill(&mut fresh, cache.snapshot());
                prop_assert_eq!(cache.snapshot().kept::<Seen>(), Some(&fresh));
            }
        }
    }

    #[test]
    fn it_is_made_once_and_hears_of_other_objects() {
        let mut cache = Cache::new();
        cache.set_node(Arc::new(Node { name: "a".into(), ..Node::default() }));
        assert!(cache.snapshot().kept::<Seen>().is_none(), "nobody asked");
        cache.indexes().keep(|| Seen { services: vec!["old".to_owned()], ..Seen::default() });
        cache.indexes().keep(|| -> Seen { panic!("it is there already") });
        let service = |name: &str| {
            Object::Service(Arc::new(Service { name: name.into(), namespace: "default".into(), selector: None }))
        };
        cache.object_changed(None, Some(&service("new")));
        cache.object_changed(Some(&service("old")), None);
        let seen = cache.snapshot().kept::<Seen>().expect("it was asked for");
        assert_eq!((seen.nodes.len(), &seen.services), (1, &vec!["new".to_owned()]));
    }
}
