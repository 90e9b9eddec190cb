//! Which pod is expected on which node before it is placed there. What the API server knows of it may lag behind.
//! Upstream v1.36.2: backend/queue/nominator.go.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::framework::{NominatedNode, Nominations};
use crate::model::Pod;

/// Nominated pods by node, in the order of nomination, and the node of each by UID.
#[derive(Debug, Default)]
pub struct Nominator {
    by_node: FxHashMap<Arc<str>, Vec<Arc<Pod>>>,
    node_of: FxHashMap<Arc<str>, Arc<str>>,
}

impl Nominator {
    /// Nominates the pod: to the given node, to none, or (`Keep`) to the one that its status names.
    pub fn add(&mut self, pod: &Arc<Pod>, nominated: &NominatedNode) {
        self.remove(&pod.uid);
        let node = match nominated {
            NominatedNode::Set(node) => Some(node),
            NominatedNode::Clear => None,
            NominatedNode::Keep => pod.nominated_node_name.as_ref(),
        };
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            self.node_of.insert(Arc::clone(&pod.uid), Arc::clone(node));
            self.by_node.entry(Arc::clone(node)).or_default().push(Arc::clone(pod));
        }
    }

    /// The pod changed. A nomination that only the scheduler knows of stays; otherwise the new status counts.
    pub fn update(&mut self, old: Option<&Pod>, new: &Arc<Pod>) {
        let told = |pod: &Pod| pod.nominated_node_name.as_ref().is_some_and(|node| !node.is_empty());
        let unknown_to_api = !old.is_some_and(told) && !told(new);
        let kept = self.node_of.get(&new.uid).filter(|_| unknown_to_api).cloned();
        self.add(new, &kept.map_or(NominatedNode::Keep, NominatedNode::Set));
    }

    /// Forgets the pod's nomination, if it has one.
    pub fn remove(&mut self, uid: &str) {
        if self.node_of.is_empty() {
            return;
        }
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| *pod.uid != *uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The node that the pod is nominated to.
    pub fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.node_of.get(uid)
    }
}

impl Nominations for Nominator {
    fn nominated_on(&self, node_name: &str) -> &[Arc<Pod>] {
        self.by_node.get(node_name).map_or(&[], Vec::as_slice)
    }

    fn nominated_nodes(&self) -> Vec<Arc<str>> {
        let mut nodes: Vec<_> = self.by_node.keys().cloned().collect();
        nodes.sort_unstable();
        nodes
    }

    fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Nominator;
    use crate::framework::{NominatedNode, Nominations};
    use crate::model::Pod;

    fn pod(uid: &str, node: Option<&str>) -> Arc<Pod> {
        Arc::new(Pod { uid: uid.into(), nominated_node_name: node.map(Into::into), ..Pod::default() })
    }

    #[test]
    fn a_pod_is_nominated_to_one_node_at_a_time() {
        let mut nominator = Nominator::default();
        nominator.add(&pod("a", Some("n1")), &NominatedNode::Keep);
        nominator.add(&pod("a", Some("n1")), &NominatedNode::Set("n2".into()));
        assert!(nominator.nominated_on("n1").is_empty());
        assert_eq!(nominator.nominated_on("n2").len(), 1);
        nominator.add(&pod("a", Some("n1")), &NominatedNode::Clear);
        assert_eq!(nominator.nominated_nodes(), Vec::<Arc<str>>::new());
    }

    #[test]
    fn updates_keep_what_the_api_does_not_know_and_follow_what_it_says() {
        let cases = [
            ("never known to the API: kept", None, None, Some("mem")),
            ("set by the API", None, Some("n2"), Some("n2")),
            ("changed by the API", Some("n1"), Some("n2"), Some("n2")),
            ("cleared by the API", Some("n1"), None, None),
        ];
        for (name, old, new, want) in cases {
            let mut nominator = Nominator::default();
            nominator.add(&pod("a", old), &NominatedNode::Set("mem".into()));
            nominator.update(Some(&pod("a", old)), &pod("a", new));
            assert_eq!(nominator.node_of("a").map(|node| &**node), want, "{name}");
        }
    }
}
