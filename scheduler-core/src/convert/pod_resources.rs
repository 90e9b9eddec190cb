//! A pod's requests, added up exactly in the ways in which the scheduler uses them.

use std::sync::Arc;

use super::{FieldError, resource_list, wire};
use crate::model::{PodResources, Quantity, ResourceList, Resources};

/// CPU that scoring assumes for a container that names none: 100m. Upstream: scheduler/util `DefaultMilliCPURequest`.
const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory that scoring assumes for a container that names none: 200Mi. Upstream: `DefaultMemoryRequest`.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Upstream: component-helpers/resource `PodRequests` with the options of fit.go, resource_allocation.go and
/// framework `PodInfo.CalculateResource` (v1.36.2).
pub(super) fn pod_resources(
    spec: &wire::PodSpec<'_>,
    status: &wire::PodStatus<'_>,
) -> Result<PodResources, FieldError> {
    let parsed = Parsed::new(spec, status)?;
    let requests = Resources::from_list(&parsed.total(Mode { pod_level: true, ..Mode::default() }));

    let scoring = parsed.total(Mode { default_cpu: true, default_memory: true, ..Mode::default() });
    let scoring = Resources::from_list(&scoring);

    let used_list = parsed.total(Mode { use_status: true, pod_level: true, ..Mode::default() });
    // With pod-level requests, the defaults apply only to resources that nothing names.
    let has_pod_level = !parsed.pod_level.is_empty();
    let non_zero = parsed.total(Mode {
        use_status: true,
        pod_level: true,
        default_cpu: !has_pod_level || !used_list.contains_key("cpu"),
        default_memory: !has_pod_level || !used_list.contains_key("memory"),
    });
    let used = Resources::from_list(&used_list);
    let non_zero = Resources::from_list(&non_zero);

    let (scoring_milli_cpu, scoring_memory) = (scoring.milli_cpu, scoring.memory);
    let same_others = scoring.ephemeral_storage == requests.ephemeral_storage && scoring.scalars == requests.scalars;
    Ok(PodResources {
        scoring_milli_cpu,
        scoring_memory,
        scoring_other: (!same_others).then(|| Box::new(scoring)),
        used: (used != requests).then(|| Box::new(used)),
        used_non_zero_milli_cpu: non_zero.milli_cpu,
        used_non_zero_memory: non_zero.memory,
        requests,
    })
}

#[derive(Clone, Copy, Default)]
struct Mode {
    /// Whether a resize in progress counts.
    use_status: bool,
    /// Whether pod-level requests replace those of the containers.
    pod_level: bool,
    /// Whether 100m stands in for an absent CPU request.
    default_cpu: bool,
    /// Whether 200Mi stands in for an absent memory request.
    default_memory: bool,
}

struct ParsedContainer {
    spec: ResourceList,
    /// The larger of spec, actuated and allocated, or of the latter two when a resize is infeasible.
    effective: Option<ResourceList>,
    is_sidecar: bool,
}

struct Parsed {
    containers: Vec<ParsedContainer>,
    init_containers: Vec<ParsedContainer>,
    /// Pod-level requests of the resources that may stand there.
    pod_level: ResourceList,
    pod_level_effective: Option<ResourceList>,
    overhead: ResourceList,
}

impl Parsed {
    fn new(spec: &wire::PodSpec<'_>, status: &wire::PodStatus<'_>) -> Result<Self, FieldError> {
        let infeasible = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| &*condition.type_ == "PodResizePending")
            .is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"));
        let containers = spec
            .containers
            .iter()
            .flatten()
            .map(|container| {
                parse_container(container, "spec.containers", status.container_statuses.as_ref(), infeasible)
            })
            .collect::<Result<_, _>>()?;
        let init_containers = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| {
                let statuses = status.init_container_statuses.as_ref();
                parse_container(container, "spec.initContainers", statuses, infeasible)
            })
            .collect::<Result<_, _>>()?;

        let mut pod_level = resource_list(
            spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()),
            "spec.resources.requests",
        )?;
        pod_level.retain(|name, _| matches!(name.as_ref(), "cpu" | "memory") || name.starts_with("hugepages-"));
        let pod_level_effective = match &status.resources {
            Some(actuated) if !pod_level.is_empty() => Some(effective(
                &pod_level,
                &resource_list(actuated.requests.as_ref(), "status.resources.requests")?,
                &resource_list(status.allocated_resources.as_ref(), "status.allocatedResources")?,
                infeasible,
            )),
            _ => None,
        };
        Ok(Self {
            containers,
            init_containers,
            pod_level,
            pod_level_effective,
            overhead: resource_list(spec.overhead.as_ref(), "spec.overhead")?,
        })
    }

    fn total(&self, mode: Mode) -> ResourceList {
        let mut requests = self.containers_total(mode);
        if mode.pod_level {
            for (name, quantity) in &self.pod_level {
                let quantity = match &self.pod_level_effective {
                    Some(effective) if mode.use_status => effective.get(name).copied().unwrap_or_default(),
                    _ => *quantity,
                };
                requests.insert(Arc::clone(name), quantity);
            }
        }
        add(&mut requests, &self.overhead);
        requests
    }

    fn containers_total(&self, mode: Mode) -> ResourceList {
        let mut requests = ResourceList::new();
        for container in &self.containers {
            add(&mut requests, &container.requests(mode));
        }
        let mut sidecars = ResourceList::new();
        let mut init = ResourceList::new();
        for container in &self.init_containers {
            let mut own = container.requests(mode);
            if container.is_sidecar {
                add(&mut requests, &own);
                add(&mut sidecars, &own);
                own.clone_from(&sidecars);
            } else {
                add(&mut own, &sidecars);
            }
            raise(&mut init, &own);
        }
        raise(&mut requests, &init);
        requests
    }
}

impl ParsedContainer {
    fn requests(&self, mode: Mode) -> ResourceList {
        let mut requests = match &self.effective {
            Some(effective) if mode.use_status => effective.clone(),
            _ => self.spec.clone(),
        };
        if mode.default_cpu {
            requests.entry("cpu".into()).or_insert(Quantity::from_millis(DEFAULT_MILLI_CPU));
        }
        if mode.default_memory {
            requests.entry("memory".into()).or_insert(Quantity::from_units(DEFAULT_MEMORY));
        }
        requests
    }
}

fn parse_container(
    container: &wire::Container<'_>,
    list: &str,
    statuses: Option<&Vec<wire::ContainerStatus<'_>>>,
    infeasible: bool,
) -> Result<ParsedContainer, FieldError> {
    let path = |rest: &str| format!("{list}[{}].{rest}", &*container.name);
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let spec = resource_list(requests, &path("resources.requests"))?;
    let is_init = list == "spec.initContainers";
    let is_sidecar = is_init && container.restart_policy.as_deref() == Some("Always");
    let status = statuses.into_iter().flatten().find(|status| status.name == container.name);
    let effective = match status {
        Some(status) if !is_init || is_sidecar => match &status.resources {
            Some(actuated) => Some(effective(
                &spec,
                &resource_list(actuated.requests.as_ref(), &path("status.resources.requests"))?,
                &resource_list(status.allocated_resources.as_ref(), &path("status.allocatedResources"))?,
                infeasible,
            )),
            None => None,
        },
        _ => None,
    };
    Ok(ParsedContainer { spec, effective, is_sidecar })
}

/// Upstream: `determineEffectiveRequests` (v1.36.2).
fn effective(spec: &ResourceList, actuated: &ResourceList, allocated: &ResourceList, infeasible: bool) -> ResourceList {
    let mut largest = if infeasible { ResourceList::new() } else { spec.clone() };
    raise(&mut largest, actuated);
    raise(&mut largest, allocated);
    largest
}

fn add(list: &mut ResourceList, more: &ResourceList) {
    for (name, quantity) in more {
        let sum = list.entry(Arc::clone(name)).or_default();
        *sum = sum.plus(*quantity);
    }
}

fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, quantity) in other {
        list.entry(Arc::clone(name)).and_modify(|own| *own = (*own).max(*quantity)).or_insert(*quantity);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(pod: &serde_json::Value) -> PodResources {
        let text = pod.to_string();
        let pod: wire::Pod<'_> = serde_json::from_str(&text).expect("a pod");
        pod_resources(&pod.spec.unwrap_or_default(), &pod.status.unwrap_or_default()).expect("valid quantities")
    }

    #[test]
    fn init_containers_count_by_maximum_and_sidecars_by_sum() {
        let requests = resources(&json!({"spec": {
        "overhead": {"cpu": "1m"},
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            {"name": "i", "resources": {"requests": {"cpu": "200m", "memory": "1"}}},
        ]}}))
        .requests;
        assert_eq!(requests.milli_cpu, 251);
        assert_eq!(requests.memory, 1);
    }

    #[test]
    fn pod_level_requests_replace_containers_except_in_scoring() {
        let resources = resources(&json!({"spec": {
            "resources": {"requests": {"cpu": "2", "example.com/x": "1"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}, {"name": "b"}]}}));
        assert_eq!(resources.requests.milli_cpu, 2_000);
        assert_eq!(resources.requests.scalars, []);
        assert_eq!(resources.scoring_milli_cpu, 200);
        assert_eq!(resources.used_non_zero_milli_cpu, 2_000);
        assert_eq!(resources.used_non_zero_memory, 2 * DEFAULT_MEMORY);
    }

    #[test]
    fn an_explicit_zero_is_not_defaulted_and_an_absent_request_is() {
        let resources = resources(&json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "0"}}}, {"name": "b"}]}}));
        assert_eq!(resources.scoring_milli_cpu, 100);
        assert_eq!(resources.scoring_memory, 2 * DEFAULT_MEMORY);
        assert_eq!(resources.requests.milli_cpu, 0);
    }

    #[test]
    fn a_resize_counts_the_larger_amount_unless_it_is_infeasible() {
        let pod = |reason: &str| {
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}]}})
        };
        assert_eq!(resources(&pod("Deferred")).used().milli_cpu, 3_000);
        assert_eq!(resources(&pod("Infeasible")).used().milli_cpu, 2_000);
        assert_eq!(resources(&pod("Infeasible")).requests.milli_cpu, 3_000);
    }

    #[test]
    fn a_malformed_quantity_names_its_field() {
        let text = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "much"}}}]}})
        .to_string();
        let pod: wire::Pod<'_> = serde_json::from_str(&text).expect("a pod");
        let error = crate::model::Pod::try_from(pod).expect_err("not a quantity");
        assert_eq!(error.field, "spec.containers[a].resources.requests[cpu]");
        assert_eq!(error.name, "n/p");
    }
}
