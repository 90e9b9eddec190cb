//! How much of a quota's resources objects use. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, ResourceQuotaSpec, ScopedResourceSelectorRequirement, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::runtime::pod;
use cluster_stub_base::quantity::Quantity;

/// Amounts by resource name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Adds `more` to `sum`.
pub(super) fn add(sum: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name).or_insert(Quantity::ZERO);
        *entry = entry.plus(amount);
    }
}

fn parsed(list: Option<&BTreeMap<String, ApiQuantity>>) -> Amounts {
    let parse = |(name, amount): (&String, &ApiQuantity)| Some((name.clone(), Quantity::parse(&amount.0).ok()?));
    list.into_iter().flatten().filter_map(parse).collect()
}

/// Element by element the larger.
fn max(sum: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let entry = sum.entry(name).or_insert(amount);
        *entry = (*entry).max(amount);
    }
}

/// Requests or limits of a pod as a whole. Upstream: component-helpers v1.36.2 resource `PodRequests`, `PodLimits`.
fn pod_total(pod: &Pod, requests: bool) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let of = |resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| {
        parsed(
            resources
                .and_then(|resources| if requests { resources.requests.as_ref() } else { resources.limits.as_ref() }),
        )
    };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, of(container.resources.as_ref()));
    }
    let (mut sidecars, mut highest) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container.resources.as_ref());
        let mut at_once = own.clone();
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, own);
            at_once = sidecars.clone();
        } else {
            add(&mut at_once, sidecars.clone());
        }
        max(&mut highest, at_once);
    }
    add(&mut total, sidecars);
    max(&mut total, highest);
    max(&mut total, of(spec.resources.as_ref()));
    add(&mut total, parsed(spec.overhead.as_ref()));
    total
}

/// What a pod uses; an ended one is only counted as an object.
/// Upstream: quota/v1/evaluator/core/pods.go v1.36.2 `PodUsageFunc`.
pub(super) fn of_pod(pod: &Pod) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), Quantity::of(1))]);
    if pod::is_terminal(pod) {
        return usage;
    }
    usage.insert("pods".to_owned(), Quantity::of(1));
    for (name, amount) in pod_total(pod, true) {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in pod_total(pod, false) {
        usage.insert(format!("limits.{name}"), amount);
    }
    usage
}

/// Upstream: quota/v1/evaluator/core/services.go v1.36.2 `Usage`.
pub(super) fn of_service(service: &Service) -> Amounts {
    let mut usage = Amounts::from(["services", "count/services"].map(|name| (name.to_owned(), Quantity::of(1))));
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    let nodes = match spec.type_.as_deref() {
        Some("NodePort") => ports.len(),
        Some("LoadBalancer") => {
            usage.insert("services.loadbalancers".to_owned(), Quantity::of(1));
            if spec.allocate_load_balancer_node_ports == Some(false) {
                ports.iter().filter(|port| port.node_port.is_some_and(|port| port != 0)).count()
            } else {
                ports.len()
            }
        }
        _ => 0,
    };
    usage.insert("services.nodeports".to_owned(), Quantity::of(i64::try_from(nodes).unwrap_or(i64::MAX)));
    usage
}

/// Upstream: quota/v1/evaluator/core/persistent_volume_claims.go v1.36.2 `Usage`.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> Amounts {
    let mut usage = Amounts::from(
        ["persistentvolumeclaims", "count/persistentvolumeclaims"].map(|name| (name.to_owned(), Quantity::of(1))),
    );
    let spec = claim.spec.clone().unwrap_or_default();
    let class = spec.storage_class_name.filter(|class| !class.is_empty());
    let prefix = class.map(|class| format!("{class}.storageclass.storage.k8s.io/"));
    if let Some(prefix) = &prefix {
        usage.insert(format!("{prefix}persistentvolumeclaims"), Quantity::of(1));
    }
    let requests = spec.resources.and_then(|resources| resources.requests);
    if let Some(storage) = parsed(requests.as_ref()).remove("storage") {
        usage.insert("requests.storage".to_owned(), storage);
        if let Some(prefix) = &prefix {
            usage.insert(format!("{prefix}requests.storage"), storage);
        }
    }
    usage
}

/// Whether a quota with `spec` is about `pod`. Upstream: quota/v1/evaluator/core/pods.go v1.36.2 `podMatchesScopeFunc`.
pub(super) fn covers(spec: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let plain = spec.scopes.iter().flatten().map(|scope| ScopedResourceSelectorRequirement {
        scope_name: scope.clone(),
        operator: "Exists".to_owned(),
        values: None,
    });
    let selected = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten().cloned());
    plain.chain(selected).all(|requirement| in_scope(&requirement, pod))
}

/// Whether a quota with `spec` is about pods only.
pub(super) fn is_scoped(spec: &ResourceQuotaSpec) -> bool {
    spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) || spec.scope_selector.is_some()
}

fn in_scope(requirement: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let ends = spec.and_then(|spec| spec.active_deadline_seconds).is_some_and(|seconds| seconds >= 0);
    let best_effort = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()).map_or_else(
        || pod_total(pod, true).is_empty() && pod_total(pod, false).is_empty(),
        |class| class == "BestEffort",
    );
    match requirement.scope_name.as_str() {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec.and_then(|spec| spec.priority_class_name.as_ref()).filter(|class| !class.is_empty());
            let listed = class.is_some_and(|class| requirement.values.iter().flatten().any(|value| value == class));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => class.is_some(),
                _ => class.is_none(),
            }
        }
        "CrossNamespacePodAffinity" => {
            let affinity = spec.and_then(|spec| spec.affinity.as_ref());
            let terms = affinity
                .and_then(|affinity| affinity.pod_affinity.as_ref())
                .into_iter()
                .flat_map(|affinity| affinity.required_during_scheduling_ignored_during_execution.iter().flatten());
            terms.into_iter().any(|term| {
                term.namespaces.as_ref().is_some_and(|list| !list.is_empty()) || term.namespace_selector.is_some()
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements, ServicePort, ServiceSpec};

    use super::*;

    fn container(cpu: &str, sidecar: bool) -> Container {
        Container {
            resources: Some(ResourceRequirements {
                requests: Some([("cpu".to_owned(), ApiQuantity(cpu.to_owned()))].into()),
                ..ResourceRequirements::default()
            }),
            restart_policy: sidecar.then(|| "Always".to_owned()),
            ..Container::default()
        }
    }

    fn text(usage: &Amounts, name: &str) -> Option<String> {
        usage.get(name).map(ToString::to_string)
    }

    #[test]
    fn a_pod_uses_its_containers_its_sidecars_or_its_largest_init_container() {
        let pod = |init: Vec<Container>| Pod {
            spec: Some(PodSpec {
                containers: vec![container("300m", false), container("500m", false)],
                init_containers: Some(init),
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        for (init, want) in [
            (vec![], "800m"),
            (vec![container("1", false)], "1"),
            (vec![container("100m", true)], "900m"),
            (vec![container("100m", true), container("850m", false)], "950m"),
        ] {
            assert_eq!(text(&of_pod(&pod(init)), "requests.cpu").as_deref(), Some(want));
        }
        let mut ended = pod(vec![]);
        ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        assert_eq!(of_pod(&ended).len(), 1, "only count/pods");
    }

    #[test]
    fn services_use_node_ports_by_type() {
        let service = |kind: &str| Service {
            spec: Some(ServiceSpec {
                type_: Some(kind.to_owned()),
                ports: Some(vec![ServicePort::default(); 2]),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        };
        assert_eq!(text(&of_service(&service("ClusterIP")), "services.nodeports").as_deref(), Some("0"));
        assert_eq!(text(&of_service(&service("NodePort")), "services.nodeports").as_deref(), Some("2"));
        assert_eq!(text(&of_service(&service("LoadBalancer")), "services.loadbalancers").as_deref(), Some("1"));
    }

    #[test]
    fn scopes_choose_pods() {
        let scoped =
            |scope: &str| ResourceQuotaSpec { scopes: Some(vec![scope.to_owned()]), ..ResourceQuotaSpec::default() };
        let plain = Pod::default();
        let busy = Pod {
            spec: Some(PodSpec {
                containers: vec![container("1", false)],
                active_deadline_seconds: Some(5),
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        for (scope, on_plain, on_busy) in [
            ("BestEffort", true, false),
            ("NotBestEffort", false, true),
            ("Terminating", false, true),
            ("NotTerminating", true, false),
            ("PriorityClass", false, false),
        ] {
            assert_eq!((covers(&scoped(scope), &plain), covers(&scoped(scope), &busy)), (on_plain, on_busy), "{scope}");
        }
    }
}
