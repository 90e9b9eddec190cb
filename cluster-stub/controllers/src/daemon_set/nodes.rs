//! On which nodes a DaemonSet's pod belongs, and the pod that goes there. Pure.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    PodTemplateSpec, Toleration,
};

use crate::node_lifecycle::taints::{taints, tolerates};
use crate::runtime::pod_control::pod_from_template;

/// Label with the hash of a pod's template.
pub(super) const HASH: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Taints that a daemon's pod tolerates whatever its template says: key and effect.
/// Upstream: daemonset_util.go v1.36.2 `AddOrUpdateDaemonPodTolerations`.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Whether a pod of `set` should start on `node`, and whether one that is there may stay.
/// Upstream: daemon_controller.go v1.36.2 `NodeShouldRunDaemonPod`.
pub(super) fn should_run(set: &DaemonSet, node: &Node) -> (bool, bool) {
    let template = set.spec.as_ref().and_then(|spec| spec.template.spec.clone()).unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if template.node_name.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != name)
        || !selects(&template, node)
    {
        return (false, false);
    }
    let tolerations = tolerations(&template);
    let untolerated = |effects: &[&str]| {
        taints(node).iter().any(|taint| {
            effects.contains(&taint.effect.as_str())
                && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    };
    if untolerated(&["NoExecute", "NoSchedule"]) { (false, !untolerated(&["NoExecute"])) } else { (true, true) }
}

fn tolerations(template: &PodSpec) -> Vec<Toleration> {
    let mut all = template.tolerations.clone().unwrap_or_default();
    let network = template.host_network == Some(true);
    let network = network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        match all.iter_mut().find(|own| {
            own.key == toleration.key && own.effect == toleration.effect && own.operator == toleration.operator
        }) {
            Some(own) => *own = toleration,
            None => all.push(toleration),
        }
    }
    all
}

fn selects(template: &PodSpec, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let selector = template.node_selector.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let affinity = template.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selector && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Upstream: component-helpers v1.36.2 nodeaffinity: a term without requirements matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let field = |key: &str| Some(key).filter(|key| *key == "metadata.name").and(node.metadata.name.as_deref());
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| meets(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| meets(requirement, field(&requirement.key)))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// A pod of `set` for the node `node`; `hash` is that of its template.
/// Upstream: daemonset_util.go v1.36.2 `CreatePodTemplate`, `ReplaceDaemonSetPodNodeNameNodeAffinity`.
pub(super) fn new_pod(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pod_from_template(&template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation);
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let term = NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

fn generation(set: &DaemonSet) -> Option<String> {
    set.metadata.annotations.as_ref()?.get(GENERATION).filter(|generation| generation.parse::<i64>().is_ok()).cloned()
}

/// Whether `pod` has the template of `hash`. Upstream: daemonset_util.go v1.36.2 `IsPodUpdated`.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let by_generation = generation(set).is_some_and(|generation| label(GENERATION_LABEL) == Some(&generation));
    by_generation || label(HASH).is_some_and(|own| own == hash)
}

/// The node that `pod` is on or made for. Upstream: daemonset_util.go v1.36.2 `GetTargetNodeName`.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let required =
        spec.affinity.as_ref()?.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    fields
        .filter(|field| field.key == "metadata.name")
        .find_map(|field| field.values.as_ref()?.first().map(String::as_str))
}

/// The template with which pods are compared.
pub(super) fn template(set: &DaemonSet) -> PodTemplateSpec {
    set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSetSpec;
    use k8s_openapi::api::core::v1::{NodeSpec, Taint};

    use super::*;

    fn node(taint: Option<(&str, &str)>) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("n".to_owned());
        node.metadata.labels = Some([("disk".to_owned(), "ssd".to_owned())].into());
        let taint = taint
            .map(|(key, effect)| vec![Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }]);
        node.spec = Some(NodeSpec { taints: taint, ..NodeSpec::default() });
        node
    }

    fn set(spec: PodSpec) -> DaemonSet {
        let template = PodTemplateSpec { spec: Some(spec), metadata: None };
        DaemonSet { spec: Some(DaemonSetSpec { template, ..DaemonSetSpec::default() }), ..DaemonSet::default() }
    }

    #[test]
    fn taints_keep_pods_from_starting_or_from_staying() {
        let plain = set(PodSpec::default());
        assert_eq!(should_run(&plain, &node(None)), (true, true));
        assert_eq!(should_run(&plain, &node(Some(("node.kubernetes.io/unschedulable", "NoSchedule")))), (true, true));
        assert_eq!(should_run(&plain, &node(Some(("mine", "NoSchedule")))), (false, true));
        assert_eq!(should_run(&plain, &node(Some(("mine", "NoExecute")))), (false, false));
        assert_eq!(should_run(&plain, &node(Some(("mine", "PreferNoSchedule")))), (true, true));
    }

    #[test]
    fn selectors_and_required_affinity_choose_nodes() {
        let selector = |value: &str| PodSpec {
            node_selector: Some([("disk".to_owned(), value.to_owned())].into()),
            ..PodSpec::default()
        };
        assert!(should_run(&set(selector("ssd")), &node(None)).0);
        assert!(!should_run(&set(selector("hdd")), &node(None)).1);
        let elsewhere = PodSpec { node_name: Some("m".to_owned()), ..PodSpec::default() };
        assert!(!should_run(&set(elsewhere), &node(None)).0);
    }

    #[test]
    fn a_pod_is_bound_to_its_node_by_a_field_term_that_replaces_the_templates() {
        let pod = new_pod(&set(PodSpec::default()), "h", "n");
        assert_eq!(target(&pod), Some("n"));
        assert_eq!(pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()).map(Vec::len), Some(6));
        assert!(is_updated(&set(PodSpec::default()), &pod, "h") && !is_updated(&set(PodSpec::default()), &pod, "i"));
    }
}
