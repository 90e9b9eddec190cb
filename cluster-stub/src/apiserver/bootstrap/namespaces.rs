//! The system namespaces and the system priority classes.

use serde_json::{Value, json};

/// Namespaces that every cluster has.
pub(super) fn namespaces() -> Vec<Value> {
    ["default", "kube-node-lease", "kube-public", "kube-system"]
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .into()
}

/// Upstream v1.36.2: pkg/apis/scheduling/v1/helpers.go.
pub(super) fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        })
    };
    vec![
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}
