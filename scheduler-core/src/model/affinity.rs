//! Affinity of pods to nodes and to other pods, and topology spread constraints.

use std::sync::Arc;

use super::{Labels, NodeSelector, PreferredSchedulingTerm, Selector};

/// One pod affinity term with its namespaces resolved as far as the pod alone allows.
/// Upstream: kube-scheduler framework `AffinityTerm` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// Namespaces by name, sorted; the pod's own when the term names none and selects none.
    pub namespaces: Arc<[Arc<str>]>,
    /// Selects namespaces by their labels; [`Selector::Nothing`] when absent.
    pub namespace_selector: Arc<Selector>,
    /// Selects pods by their labels.
    pub selector: Arc<Selector>,
    /// The node label whose value is the domain.
    pub topology_key: Arc<str>,
}

impl AffinityTerm {
    /// Whether a pod in `namespace` (whose labels are `namespace_labels`) with these labels is meant by the term.
    #[must_use]
    pub fn matches(&self, namespace: &str, labels: &Labels, namespace_labels: &Labels) -> bool {
        (self.names_namespace(namespace) || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(labels)
    }

    /// Whether the term lists the namespace by name.
    #[must_use]
    pub fn names_namespace(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|n| n.as_ref() == namespace)
    }
}

/// A preferred pod affinity term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightedAffinityTerm {
    /// The condition.
    pub term: AffinityTerm,
    /// 1 to 100.
    pub weight: i32,
}

/// A pod's affinity, node part and pod part. Empty lists where the pod says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Affinity {
    /// Required node affinity; `None` when absent.
    pub required_node: Option<Arc<NodeSelector>>,
    /// Preferred node affinity.
    pub preferred_node: Box<[PreferredSchedulingTerm]>,
    /// Whether the pod has pod affinity or anti-affinity at all, even empty.
    pub has_pod_affinity: bool,
    /// Required pod affinity.
    pub required_pod: Box<[AffinityTerm]>,
    /// Required pod anti-affinity.
    pub required_anti: Box<[AffinityTerm]>,
    /// Preferred pod affinity.
    pub preferred_pod: Box<[WeightedAffinityTerm]>,
    /// Preferred pod anti-affinity.
    pub preferred_anti: Box<[WeightedAffinityTerm]>,
}

/// What happens to a pod that a spread constraint cannot be satisfied for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnsatisfiableAction {
    /// The node is filtered out.
    DoNotSchedule,
    /// The node scores less.
    ScheduleAnyway,
}

/// How evenly pods are to be spread over the domains of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopologySpreadConstraint {
    /// Allowed difference to the emptiest domain, at least 1.
    pub max_skew: i32,
    /// The node label whose value is the domain.
    pub topology_key: Arc<str>,
    /// Filter or score.
    pub when_unsatisfiable: UnsatisfiableAction,
    /// Pods that count; the label values that `matchLabelKeys` name are merged in.
    pub selector: Arc<Selector>,
    /// With fewer domains than this the minimum counts as zero; 1 when absent.
    pub min_domains: i32,
    /// `nodeAffinityPolicy: Honor` (the default): only nodes that the pod's node affinity selects count.
    pub honor_node_affinity: bool,
    /// `nodeTaintsPolicy: Honor` (not the default): only nodes whose taints the pod tolerates count.
    pub honor_node_taints: bool,
}
