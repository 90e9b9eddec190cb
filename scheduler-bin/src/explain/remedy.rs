//! Single changes that can let a pod in: what they do to the pod or the cluster, and how they are told.

use std::collections::BTreeSet;
use std::sync::Arc;

use scheduler_core::model::{
    Node, Pod, Resources, Taint, TaintEffect, Toleration, TolerationOperator, UnsatisfiableAction,
};

use super::what_if::Different;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// The pod asks for less of a resource.
    Request {
        /// Resource name.
        resource: Arc<str>,
        /// Now.
        from: i64,
        /// Then.
        to: i64,
    },
    /// The pod tolerates a taint.
    Tolerate(Taint),
    /// The node takes new pods again.
    Uncordon,
    /// The node gets a label.
    Label(Arc<str>, Arc<str>),
    /// The pod's node selector does without a label.
    DropSelector(Arc<str>, Arc<str>),
    /// The pod does without its required node affinity.
    DropNodeAffinity,
    /// Pods leave: why they are in the way.
    Evict(Vec<Arc<Pod>>, &'static str),
    /// The pod's spread constraint allows a larger skew.
    MaxSkew {
        /// Position of the constraint.
        at: usize,
        /// Its topology key.
        key: Arc<str>,
        /// Now.
        from: i32,
        /// Then.
        to: i32,
    },
    /// The pod does without the required pod affinity at this position.
    DropAffinity(usize, Arc<str>),
    /// The pod does without its scheduling gates.
    Ungate(Vec<Arc<str>>),
    /// A node like this one is added.
    AddNode(Box<Node>),
    /// The pod gets a higher priority, and pods of lower priority go.
    Priority(i32),
}

/// Changes that, made together, let the pod in: the engine was asked.
#[derive(Clone, Debug)]
pub(crate) struct Remedy {
    /// What is changed.
    pub(crate) steps: Vec<Step>,
    /// A node on which the pod fits then.
    pub(crate) node: String,
    /// On how many nodes it fits then.
    pub(crate) n_nodes: usize,
}

impl Step {
    /// The pod after the step.
    pub(crate) fn change_pod(&self, pod: &mut Pod) {
        match self {
            Self::Request { resource, to, .. } => set(&mut pod.resources.requests, resource, *to),
            Self::Tolerate(taint) => {
                let toleration = Toleration {
                    key: Arc::clone(&taint.key),
                    operator: TolerationOperator::Equal,
                    value: Arc::clone(&taint.value),
                    effect: Some(taint.effect),
                };
                pod.tolerations = pod.tolerations.iter().cloned().chain([toleration]).collect();
            }
            Self::DropSelector(key, _) => {
                let kept = pod.node_selector.iter().filter(|(own, _)| *own != key);
                pod.node_selector = kept.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect();
            }
            Self::DropNodeAffinity => {
                if let Some(affinity) = &mut pod.affinity {
                    affinity.required_node = None;
                }
            }
            Self::MaxSkew { at, to, .. } => {
                if let Some(constraint) = pod.topology_spread_constraints.get_mut(*at) {
                    constraint.max_skew = *to;
                }
            }
            Self::DropAffinity(at, _) => {
                if let Some(affinity) = &mut pod.affinity {
                    let terms = affinity.required_pod.iter().enumerate().filter(|(own, _)| own != at);
                    affinity.required_pod = terms.map(|(_, term)| term.clone()).collect();
                }
            }
            Self::Ungate(_) => pod.scheduling_gates = Box::default(),
            Self::Priority(priority) => pod.priority = *priority,
            Self::Uncordon | Self::Label(..) | Self::Evict(..) | Self::AddNode(_) => {}
        }
    }

    /// The cluster after the step, as far as it differs; `node` is the node that is to take the pod.
    pub(crate) fn change_cluster(&self, node: &mut Node, different: &mut Vec<Different>) {
        match self {
            Self::Uncordon => node.unschedulable = false,
            Self::Label(key, value) => {
                let labels = node.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
                node.labels = labels.chain([(Arc::clone(key), Arc::clone(value))]).collect();
            }
            Self::Evict(pods, _) => different.extend(pods.iter().cloned().map(Different::WithoutPod)),
            Self::AddNode(added) => different.push(Different::Node(Arc::new(Node::clone(added)))),
            _ => {}
        }
    }

    /// The step in words; `node` is the node that is to take the pod.
    pub(crate) fn text(&self, node: &str) -> String {
        match self {
            Self::Request { resource, from, to } => {
                let by = amount(resource, from - to);
                format!(
                    "lower its {resource} request from {} to {} (by {by})",
                    amount(resource, *from),
                    amount(resource, *to)
                )
            }
            Self::Tolerate(taint) => format!("tolerate the taint {} of {node}", taint_text(taint)),
            Self::Uncordon => format!("uncordon {node}"),
            Self::Label(key, value) => format!("label {node} with {key}={value}"),
            Self::DropSelector(key, value) => format!("drop {key}={value} from its node selector"),
            Self::DropNodeAffinity => "drop its required node affinity".to_owned(),
            Self::Evict(pods, why) => {
                let names: Vec<String> =
                    pods.iter().take(4).map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
                let rest = if pods.len() > 4 { format!(" and {} more", pods.len() - 4) } else { String::new() };
                format!("delete {}{rest} from {node} ({why}{})", names.join(", "), come_back(pods))
            }
            Self::MaxSkew { key, from, to, .. } => {
                format!("raise maxSkew of its spread constraint on {key} from {from} to {to}")
            }
            Self::DropAffinity(_, key) => {
                format!("drop its required pod affinity on {key}, which no pod there satisfies")
            }
            Self::Ungate(gates) => format!("remove its scheduling gates {}", gates.join(", ")),
            Self::AddNode(node) => format!("add a node {}", shape(node)),
            Self::Priority(priority) => format!("give it a priority of {priority} or more, so that it preempts"),
        }
    }

    /// In one word, for scripts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "lowerRequest",
            Self::Tolerate(_) => "tolerate",
            Self::Uncordon => "uncordon",
            Self::Label(..) => "labelNode",
            Self::DropSelector(..) => "dropNodeSelector",
            Self::DropNodeAffinity => "dropNodeAffinity",
            Self::Evict(..) => "deletePods",
            Self::MaxSkew { .. } => "raiseMaxSkew",
            Self::DropAffinity(..) => "dropPodAffinity",
            Self::Ungate(_) => "removeGates",
            Self::AddNode(_) => "addNode",
            Self::Priority(_) => "raisePriority",
        }
    }
}

impl Remedy {
    /// The changes in words.
    pub(crate) fn text(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(|step| step.text(&self.node)).collect();
        let more = if self.n_nodes > 1 { format!(" and {} more", self.n_nodes - 1) } else { String::new() };
        let then = match self.steps[..] {
            [Step::AddNode(_)] => String::new(),
            [Step::Priority(_)] => format!(": then it gets room on {}", self.node),
            _ => format!(": then it fits on {}{more}", self.node),
        };
        format!("{}{then}", steps.join(", and "))
    }

    /// The same as data.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let kinds: Vec<&str> = self.steps.iter().map(Step::kind).collect();
        serde_json::json!({"kinds": kinds, "text": self.text(), "node": self.node, "nodes": self.n_nodes, "checked": true})
    }
}

/// What is to be known of pods that somebody makes again when they are deleted.
fn come_back(pods: &[Arc<Pod>]) -> String {
    let kinds: BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod.controller.as_ref()).map(|owner| &*owner.kind).collect();
    match kinds.into_iter().collect::<Vec<_>>()[..] {
        [] => String::new(),
        [kind] => format!("; its {kind} makes another"),
        ref kinds => format!("; their controllers, {}, make others", kinds.join(" and ")),
    }
}

/// A taint as kubectl writes it.
pub(crate) fn taint_text(taint: &Taint) -> String {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    if taint.value.is_empty() {
        format!("{}:{effect}", taint.key)
    } else {
        format!("{}={}:{effect}", taint.key, taint.value)
    }
}

/// An amount of a resource with a unit: `500m`, `4`, `16Gi`.
pub(crate) fn amount(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => bytes(amount),
        name if name.starts_with("hugepages-") => bytes(amount),
        _ => amount.to_string(),
    }
}

fn bytes(amount: i64) -> String {
    for (unit, shift) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if amount != 0 && amount % (1 << shift) == 0 {
            return format!("{}{unit}", amount >> shift);
        }
    }
    amount.to_string()
}

fn shape(node: &Node) -> String {
    let mut parts =
        vec![format!("{} cpu", amount("cpu", node.allocatable.milli_cpu)), amount("memory", node.allocatable.memory)];
    let offered = node.allocatable.scalars.iter().filter(|(_, number)| *number > 0);
    parts.extend(offered.map(|(name, number)| format!("{} {name}", amount(name, *number))));
    format!("of {}", parts.join(", "))
}

/// Sets one amount by name.
pub(crate) fn set(resources: &mut Resources, name: &str, amount: i64) {
    match name {
        "cpu" => resources.milli_cpu = amount,
        "memory" => resources.memory = amount,
        "ephemeral-storage" => resources.ephemeral_storage = amount,
        "pods" => resources.pods = amount,
        scalar => {
            if let Ok(at) = resources.scalars.binary_search_by(|(own, _)| (**own).cmp(scalar)) {
                resources.scalars[at].1 = amount;
            }
        }
    }
}

/// Positions of the pod's spread constraints that filter.
pub(crate) fn hard_constraints(pod: &Pod) -> impl Iterator<Item = usize> + '_ {
    let is_hard =
        |at: &usize| pod.topology_spread_constraints[*at].when_unsatisfiable == UnsatisfiableAction::DoNotSchedule;
    (0..pod.topology_spread_constraints.len()).filter(is_hard)
}

#[cfg(test)]
mod tests {
    use scheduler_core::model::{OwnerReference, PodTemplate};

    use super::*;

    #[test]
    fn amounts_have_units() {
        for (resource, number, want) in [
            ("cpu", 4000, "4"),
            ("cpu", 1500, "1500m"),
            ("memory", 16 << 30, "16Gi"),
            ("memory", 0, "0"),
            ("nvidia.com/gpu", 2, "2"),
        ] {
            assert_eq!(amount(resource, number), want);
        }
    }

    #[test]
    fn pods_that_come_back_are_told() {
        let pod = |kind: Option<&str>| {
            let owner = |kind: &str| {
                let (api_version, name, uid) = ("v1".into(), "o".into(), "u".into());
                Arc::new(OwnerReference { api_version, kind: kind.into(), name, uid })
            };
            let controller = kind.map(owner);
            let template = PodTemplate { namespace: "a".into(), controller, ..PodTemplate::default() };
            Arc::new(Pod { name: "p".into(), ..template.into() })
        };
        let text = |kinds: &[Option<&str>]| Step::Evict(kinds.iter().map(|kind| pod(*kind)).collect(), "why").text("n");
        assert_eq!(text(&[None]), "delete a/p from n (why)");
        assert_eq!(text(&[Some("ReplicaSet")]), "delete a/p from n (why; its ReplicaSet makes another)");
        assert_eq!(
            text(&[Some("Job"), None, Some("StatefulSet")]),
            "delete a/p, a/p, a/p from n (why; their controllers, Job and StatefulSet, make others)"
        );
    }

    #[test]
    fn steps_change_the_pod() {
        let mut pod = Pod::default();
        pod.resources.requests.milli_cpu = 4000;
        Step::Request { resource: "cpu".into(), from: 4000, to: 1000 }.change_pod(&mut pod);
        let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule };
        Step::Tolerate(taint.clone()).change_pod(&mut pod);
        assert_eq!(pod.resources.requests.milli_cpu, 1000);
        assert!(pod.tolerates(&taint));
        assert_eq!(taint_text(&taint), "k=v:NoSchedule");
    }
}
