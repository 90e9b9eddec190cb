//! What happens to nodes: cordoned, out of reach, back again. Upstream: the node lifecycle controller (v1.36.2).

use scheduler_core::model::{Node, Taint, TaintEffect};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The node with `spec.unschedulable` set or cleared.
pub(crate) fn cordoned(node: &Node, cordoned: bool) -> Node {
    let mut node = node.clone();
    node.unschedulable = cordoned;
    node
}

/// The node with the taints of one that does not answer.
pub(crate) fn unreachable(node: &Node) -> Node {
    let taint = |effect| Taint { key: UNREACHABLE.into(), value: "".into(), effect };
    let mut node = reachable(node);
    let added = [taint(TaintEffect::NoSchedule), taint(TaintEffect::NoExecute)];
    node.taints = node.taints.iter().cloned().chain(added).collect();
    node
}

/// The node without them.
pub(crate) fn reachable(node: &Node) -> Node {
    let mut node = node.clone();
    node.taints = node.taints.iter().filter(|taint| &*taint.key != UNREACHABLE).cloned().collect();
    node
}

/// Whether the node does not answer.
pub(crate) fn is_unreachable(node: &Node) -> bool {
    node.taints.iter().any(|taint| &*taint.key == UNREACHABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_fails_and_recovers() {
        let node = Node::default();
        let failed = unreachable(&unreachable(&node));
        assert_eq!((failed.taints.len(), is_unreachable(&failed)), (2, true));
        assert_eq!(reachable(&failed), node);
        assert!(cordoned(&node, true).unschedulable);
    }
}
