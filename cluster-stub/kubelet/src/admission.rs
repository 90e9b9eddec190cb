//! Whether a node has room for a pod that was bound to it: the kubelet's own check, after the scheduler's. Sums only; who
//! is on the node the fleet knows. Node affinity and taints are left to the scheduler and the taint controller.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::lifecycle::Rejection;
use cluster_stub_base::quantity::Quantity;

/// Amounts by resource name: `cpu` in thousandths, everything else in whole units.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// Says why `node` has no room for a pod that requests `requests`, when `n_pods` pods with `used` in all are on it.
/// Upstream: pkg/kubelet/lifecycle v1.36.2 predicate.go; the first short resource is named.
pub(crate) fn check(node: &Node, n_pods: usize, used: &Amounts, requests: &Amounts) -> Result<(), Rejection> {
    let status = node.status.as_ref();
    let Some(allocatable) = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref())) else {
        return Ok(());
    };
    let allocatable = amounts(allocatable);
    let n_pods = i64::try_from(n_pods).unwrap_or(i64::MAX);
    let most = allocatable.get("pods").copied().unwrap_or(0);
    if n_pods + 1 > most {
        return Err(out_of("pods", 1, n_pods, most));
    }
    // Upstream's order: cpu, memory, storage, then the extended resources.
    let first = ["cpu", "memory", "ephemeral-storage"];
    let others = requests.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(others) {
        let wanted = requests.get(name).copied().unwrap_or(0);
        // An extended resource that the node does not know is not the node's to refuse.
        let known = allocatable.get(name).copied().or_else(|| first.contains(&name).then_some(0));
        let (Some(capacity), true) = (known, wanted > 0) else { continue };
        let used = used.get(name).copied().unwrap_or(0);
        if used + wanted > capacity {
            return Err(out_of(name, wanted, used, capacity));
        }
    }
    Ok(())
}

fn out_of(name: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    Rejection {
        reason: format!("OutOf{name}"),
        message: format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    }
}

/// What a pod requests in all. Upstream: component-helpers/resource v1.36.2 `PodRequests`: the containers and sidecars
/// together, or the largest init container with the sidecars before it; the pod's own figures instead where it has them;
/// and its overhead.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut largest_init) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let mut needed = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut largest_init, &needed);
    }
    raise(&mut total, &largest_init);
    if let Some(own) = spec.resources.as_ref().map(requested) {
        total.extend(own);
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut total, &amounts(overhead));
    }
    total
}

/// Adds `more` to `total`.
pub(crate) fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Takes `less` off `total`.
pub(crate) fn subtract(total: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        if let Some(sum) = total.get_mut(name) {
            *sum = sum.saturating_sub(*amount);
        }
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let sum = total.entry(name.clone()).or_default();
        *sum = (*sum).max(*amount);
    }
}

fn of(container: &Container) -> Amounts {
    container.resources.as_ref().map(requested).unwrap_or_default()
}

fn requested(resources: &ResourceRequirements) -> Amounts {
    resources.requests.as_ref().map(amounts).unwrap_or_default()
}

fn amounts(quantities: &BTreeMap<String, ApiQuantity>) -> Amounts {
    let amount = |(name, quantity): (&String, &ApiQuantity)| {
        // What the API server let through parses; anything else counts as nothing.
        let quantity = Quantity::parse(&quantity.0).ok()?;
        let amount = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
        Some((name.clone(), amount))
    };
    quantities.iter().filter_map(amount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "2", "example.com/gpu": "1"});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}})).unwrap()
    }

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(requests: &Value) -> Value {
        json!({"name": "c", "image": "i", "resources": {"requests": requests}})
    }

    #[test]
    fn room_is_what_is_allocatable_and_not_used() {
        let used = Amounts::from([("cpu".to_owned(), 3000)]);
        for (requests, n_pods, want) in [
            (json!({"cpu": "1"}), 1, Ok(())),
            (json!({}), 1, Ok(())),
            (json!({"cpu": "1001m"}), 1, Err(("OutOfcpu", "cpu, requested: 1001, used: 3000, capacity: 4000"))),
            (
                json!({"memory": "9Gi"}),
                1,
                Err(("OutOfmemory", "memory, requested: 9663676416, used: 0, capacity: 8589934592")),
            ),
            (
                json!({"ephemeral-storage": "1"}),
                1,
                Err(("OutOfephemeral-storage", "ephemeral-storage, requested: 1, used: 0, capacity: 0")),
            ),
            (
                json!({"example.com/gpu": "2"}),
                1,
                Err(("OutOfexample.com/gpu", "example.com/gpu, requested: 2, used: 0, capacity: 1")),
            ),
            (json!({"example.com/unknown": "2"}), 1, Ok(())),
            (json!({}), 2, Err(("OutOfpods", "pods, requested: 1, used: 2, capacity: 2"))),
        ] {
            let requests = super::requests(&pod(&json!({"containers": [container(&requests)]})));
            let got = check(&node(), n_pods, &used, &requests);
            let want = want.map_err(|(reason, text)| Rejection {
                reason: reason.to_owned(),
                message: format!("Node didn't have enough resource: {text}"),
            });
            assert_eq!(got, want);
        }
    }

    #[test]
    fn node_that_says_nothing_refuses_nothing() {
        let node = Node::default();
        assert_eq!(check(&node, 500, &Amounts::new(), &Amounts::from([("cpu".to_owned(), 1)])), Ok(()));
    }

    #[test]
    fn requests_are_those_of_the_worst_moment() {
        let with = |cpu: &str| container(&json!({"cpu": cpu}));
        let sidecar = |cpu: &str| {
            let mut sidecar = with(cpu);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        for (spec, want) in [
            (json!({"containers": [with("1"), with("500m")]}), 1500),
            (json!({"containers": [with("1")], "initContainers": [with("3"), with("2")]}), 3000),
            (json!({"containers": [with("1")], "initContainers": [sidecar("1"), with("2")]}), 3000),
            (json!({"containers": [with("3")], "initContainers": [with("1"), sidecar("1")]}), 4000),
            (json!({"containers": [with("1")], "overhead": {"cpu": "250m"}}), 1250),
            (json!({"containers": [with("1")], "resources": {"requests": {"cpu": "2"}}}), 2000),
        ] {
            assert_eq!(requests(&pod(&spec)).get("cpu"), Some(&want), "{spec}");
        }
    }
}
