//! kube-scheduler's own benchmark workloads, by its names and sizes, as text. Reading and running them is the command's work.

/// The test cases, in the format of scheduler_perf's `performance-config.yaml`.
pub const CONFIG: &str = include_str!("../workloads/performance-config.yaml");

/// The text of the template that [`CONFIG`] calls `path`.
#[must_use]
pub fn template(path: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("templates/", $name, ".yaml"), include_str!(concat!("../workloads/templates/", $name, ".yaml")))),*]
    };
}

/// Paths and texts.
const TEMPLATES: &[(&str, &str)] = templates![
    "churn-node",
    "churn-service",
    "daemonset-pod",
    "gated-pod",
    "gated-pod-with-pod-affinity",
    "light-pod",
    "namespace-with-labels",
    "node-default",
    "node-with-extended-resource",
    "node-with-name",
    "node-with-taint",
    "pod-affinity-ns-selector",
    "pod-anti-affinity-ns-selector",
    "pod-default",
    "pod-high-priority",
    "pod-high-priority-large-cpu",
    "pod-low-priority",
    "pod-preferred-affinity-ns-selector",
    "pod-preferred-anti-affinity-ns-selector",
    "pod-with-extended-resource",
    "pod-with-label",
    "pod-with-node-affinity",
    "pod-with-node-inclusion-policy",
    "pod-with-pod-affinity",
    "pod-with-pod-anti-affinity",
    "pod-with-pod-anti-affinity-label",
    "pod-with-preferred-pod-affinity",
    "pod-with-preferred-pod-anti-affinity",
    "pod-with-preferred-topology-spreading",
    "pod-with-secret-volume",
    "pod-with-topology-spreading",
    "service",
];
