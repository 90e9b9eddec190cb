//! Affinity and topology spread constraints of a pod.

use std::sync::Arc;

use super::selector::{label_selector, node_selector, node_selector_term};
use super::{shared, wire};
use crate::model::{
    Affinity, AffinityTerm, Labels, Operator, PreferredSchedulingTerm, Requirement, Selector, TopologySpreadConstraint,
    UnsatisfiableAction, WeightedAffinityTerm,
};

pub(super) fn affinity(affinity: &wire::Affinity<'_>, namespace: &Arc<str>) -> Affinity {
    let node = affinity.node_affinity.as_ref();
    let pod = affinity.pod_affinity.as_ref();
    let anti = affinity.pod_anti_affinity.as_ref();
    let terms = |terms: Option<&Vec<wire::PodAffinityTerm<'_>>>| {
        terms.into_iter().flatten().map(|term| affinity_term(term, namespace)).collect()
    };
    let weighted = |terms: Option<&Vec<wire::WeightedPodAffinityTerm<'_>>>| {
        terms
            .into_iter()
            .flatten()
            .map(|term| WeightedAffinityTerm {
                term: affinity_term(&term.pod_affinity_term, namespace),
                weight: term.weight.unwrap_or_default(),
            })
            .collect()
    };
    Affinity {
        required_node: node
            .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref())
            .map(|selector| Arc::new(node_selector(selector))),
        preferred_node: node
            .and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref())
            .into_iter()
            .flatten()
            .map(|term| PreferredSchedulingTerm {
                weight: term.weight.unwrap_or_default(),
                term: node_selector_term(&term.preference),
            })
            .collect(),
        has_pod_affinity: pod.is_some() || anti.is_some(),
        required_pod: terms(pod.and_then(|pod| pod.required_during_scheduling_ignored_during_execution.as_ref())),
        required_anti: terms(anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref())),
        preferred_pod: weighted(pod.and_then(|pod| pod.preferred_during_scheduling_ignored_during_execution.as_ref())),
        preferred_anti: weighted(
            anti.and_then(|anti| anti.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
    }
}

/// A term that names no namespace and selects none means the pod's own. `matchLabelKeys` are not read: the API server
/// merges them into the selector. Upstream: kube-scheduler framework `newAffinityTerm` (v1.36.2).
fn affinity_term(term: &wire::PodAffinityTerm<'_>, namespace: &Arc<str>) -> AffinityTerm {
    let mut namespaces: Vec<Arc<str>> = term.namespaces.iter().flatten().map(Arc::from).collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.push(Arc::clone(namespace));
    }
    namespaces.sort();
    namespaces.dedup();
    AffinityTerm {
        namespaces: namespaces.into(),
        namespace_selector: Arc::new(label_selector(term.namespace_selector.as_ref())),
        selector: Arc::new(label_selector(term.label_selector.as_ref())),
        topology_key: shared(&term.topology_key),
    }
}

/// Upstream: podtopologyspread `filterTopologySpreadConstraints` (v1.36.2).
pub(super) fn spread_constraint(
    constraint: &wire::TopologySpreadConstraint<'_>,
    pod_labels: &Labels,
) -> TopologySpreadConstraint {
    let by_keys = constraint.match_label_keys.iter().flatten().filter_map(|key| {
        let value = pod_labels.get(key)?;
        Some(Requirement { key: key.into(), operator: Operator::In, values: [Arc::clone(value)].into() })
    });
    // An absent selector selects nothing, whatever keys are listed.
    let mut selector = label_selector(constraint.label_selector.as_ref());
    if let Selector::All(requirements) = &mut selector {
        let mut all = requirements.to_vec();
        all.extend(by_keys);
        all.sort();
        all.dedup();
        *requirements = all.into();
    }
    TopologySpreadConstraint {
        max_skew: constraint.max_skew.unwrap_or_default(),
        topology_key: shared(&constraint.topology_key),
        when_unsatisfiable: match &*constraint.when_unsatisfiable {
            "ScheduleAnyway" => UnsatisfiableAction::ScheduleAnyway,
            _ => UnsatisfiableAction::DoNotSchedule,
        },
        selector: Arc::new(selector),
        min_domains: constraint.min_domains.unwrap_or(1),
        honor_node_affinity: constraint.node_affinity_policy.as_deref().is_none_or(|policy| policy == "Honor"),
        honor_node_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    }
}
