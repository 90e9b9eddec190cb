//! What a pod requests in sum, its quality of service, and the validity of its requests and limits.
//!
//! Upstream: v1.36.2 `k8s.io/component-helpers/resource/helpers.go`, `pkg/apis/core/v1/helper/qos/qos.go`,
//! `pkg/apis/core/validation/validation.go`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::resource_list::{self, is_huge_page, is_overcommit_allowed, validate_quantity};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, Quantity};

type Totals = BTreeMap<String, Quantity>;

/// Whether an init container keeps running beside the others (a sidecar).
pub(in crate::apiserver) fn is_restartable(container: &Value) -> bool {
    container.text("restartPolicy") == "Always"
}

fn list(container: &Value, key: &str) -> Totals {
    let list = container.at("resources").at(key);
    list.as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), resource_list::quantity(list, name)))
        .collect()
}

fn add(totals: &mut Totals, other: &Totals) {
    for (name, quantity) in other {
        totals.entry(name.clone()).and_modify(|total| *total = total.plus(*quantity)).or_insert(*quantity);
    }
}

fn max(totals: &mut Totals, other: &Totals) {
    for (name, quantity) in other {
        totals.entry(name.clone()).and_modify(|total| *total = (*total).max(*quantity)).or_insert(*quantity);
    }
}

/// Containers together: the sum of those that run side by side, or one init container beside the sidecars before it.
fn aggregate(spec: &Value, key: &str) -> Totals {
    let mut totals = Totals::new();
    for container in spec.items("containers") {
        add(&mut totals, &list(container, key));
    }
    let (mut sidecars, mut init_peak) = (Totals::new(), Totals::new());
    for container in spec.items("initContainers") {
        let own = list(container, key);
        if is_restartable(container) {
            add(&mut totals, &own);
            add(&mut sidecars, &own);
            max(&mut init_peak, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &own);
            max(&mut init_peak, &together);
        }
    }
    max(&mut totals, &init_peak);
    totals
}

/// Requests of all containers in sum.
pub(in crate::apiserver) fn aggregate_requests(spec: &Value) -> Totals {
    aggregate(spec, "requests")
}

/// What a pod counts for, `requests` or `limits`: its containers, pod-level values where there are some, and the overhead.
pub(in crate::apiserver) fn pod_total(spec: &Value, key: &str) -> Totals {
    let mut totals = aggregate(spec, key);
    for (name, quantity) in list(spec, key) {
        totals.insert(name, quantity);
    }
    let overhead = spec.at("overhead");
    for (name, _) in overhead.as_object().into_iter().flatten() {
        let quantity = resource_list::quantity(overhead, name);
        if key == "requests" {
            add(&mut totals, &Totals::from([(name.clone(), quantity)]));
        } else if let Some(total) = totals.get_mut(name) {
            *total = total.plus(quantity);
        }
    }
    totals
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(in crate::apiserver) fn qos_class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Totals::new(), Totals::new());
    let mut guaranteed = true;
    let nonzero = |totals: Totals| -> Totals {
        totals
            .into_iter()
            .filter(|(name, quantity)| matches!(name.as_str(), "cpu" | "memory") && quantity.sign() > 0)
            .collect()
    };
    let own = spec.at("resources");
    let containers: Vec<&Value> = if own.has("requests") || own.has("limits") {
        vec![spec]
    } else {
        spec.items("containers").iter().chain(spec.items("initContainers")).collect()
    };
    for container in containers {
        add(&mut requests, &nonzero(list(container, "requests")));
        let own = nonzero(list(container, "limits"));
        guaranteed &= own.len() == 2;
        add(&mut limits, &own);
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal =
        requests.len() == limits.len() && requests.iter().all(|(name, request)| limits.get(name) == Some(request));
    if guaranteed && equal { "Guaranteed" } else { "Burstable" }
}

/// Limits and requests of a container, or of the pod (`pod_level`).
pub(super) fn validate_requirements(resources: &Value, pod_level: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    let (mut compute, mut huge) = (false, false);
    for (list, list_path) in [(limits, &limits_path), (requests, &requests_path)] {
        for (name, text) in list.as_object().into_iter().flatten() {
            let field = list_path.key(name);
            let text = text.as_str().unwrap_or("");
            if pod_level {
                validate_pod_resource_name(name, &field, out);
            } else {
                resource_list::validate_container_name(name, &field, out);
            }
            validate_quantity(name, text, &field, out);
            compute |= matches!(name.as_str(), "cpu" | "memory");
            huge |= is_huge_page(name);
            if list_path.to_string() == requests_path.to_string() {
                validate_against_limit(name, limits, requests, (&limits_path, &requests_path), out);
            }
            if is_huge_page(name) {
                validate_huge_page(name, text, &field, out);
            }
        }
    }
    if huge && !compute {
        out.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn validate_pod_resource_name(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let before = out.len();
    resource_list::validate_name(name, path, out);
    if out.len() == before && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        out.push(FieldError::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
    }
}

fn validate_against_limit(
    name: &str,
    limits: &Value,
    requests: &Value,
    (limits_path, requests_path): (&Path<'_>, &Path<'_>),
    out: &mut Vec<FieldError>,
) {
    let request = resource_list::quantity(requests, name);
    let shown = requests.text(name);
    if limits.has(name) {
        let limit = resource_list::quantity(limits, name);
        if request != limit && !is_overcommit_allowed(name) {
            let why = format!("must be equal to {name} limit of {}", limits.text(name));
            out.push(FieldError::invalid(requests_path, shown, why));
        } else if request > limit {
            let why = format!("must be less than or equal to {name} limit of {}", limits.text(name));
            out.push(FieldError::invalid(requests_path, shown, why));
        }
    } else if !is_overcommit_allowed(name) {
        out.push(FieldError::required(limits_path, "Limit must be set for non overcommitable resources"));
    }
}

fn validate_huge_page(name: &str, text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok()).map_or(0, Quantity::value);
    let Ok(quantity) = Quantity::parse(text) else { return };
    if size > 0 && quantity.value() % size != 0 {
        let size = Quantity::parse(&name["hugepages-".len()..]).map_or_else(|_| String::new(), |size| size.to_string());
        out.push(FieldError::invalid(path, text, format!("{text} is not positive integer multiple of {size}")));
    }
}

/// Pod-level requests and limits against those of the containers.
pub(super) fn validate_pod_level(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let resources = spec.at("resources");
    if resources.is_null() {
        return;
    }
    let path = path.child("resources");
    if !resources.items("claims").is_empty() {
        out.push(FieldError::forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level"));
    }
    validate_requirements(resources, true, &path, out);
    let requests = path.child("requests");
    for (name, total) in aggregate_requests(spec) {
        let own = resources.at("requests");
        if own.has(&name) && total > resource_list::quantity(own, &name) {
            let why = format!("must be greater than or equal to aggregate container requests of {total}");
            out.push(FieldError::invalid(&requests.key(&name), own.text(&name), why));
        }
    }
    let containers = path.child("containers");
    for (index, container) in spec.items("containers").iter().enumerate() {
        for (name, limit) in list(container, "limits") {
            let own = resources.at("limits");
            if own.has(&name) && limit > resource_list::quantity(own, &name) {
                let item = containers.index(index);
                let why = format!("must be less than or equal to pod limits of {}", own.text(&name));
                out.push(FieldError::invalid(&item.key(&name).child("limits"), limit.to_string(), why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(requests: &Value, limits: &Value) -> Value {
        json!({"resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let cases = [
            (json!({"containers": [{}]}), "BestEffort"),
            (json!({"containers": [container(&json!({"cpu": "1"}), &json!({}))]}), "Burstable"),
            (
                json!({"containers": [container(&json!({"cpu": "1", "memory": "1"}), &json!({"cpu": "1", "memory": "1"}))]}),
                "Guaranteed",
            ),
            (
                json!({"containers": [container(&json!({"cpu": "1", "memory": "1"}), &json!({"cpu": "2", "memory": "1"}))]}),
                "Burstable",
            ),
            (json!({"containers": [container(&json!({"cpu": "0"}), &json!({}))]}), "BestEffort"),
        ];
        for (spec, want) in cases {
            assert_eq!(qos_class(&spec), want, "{spec}");
        }
    }

    #[test]
    fn init_containers_count_as_a_peak_and_sidecars_as_a_sum() {
        let spec = json!({
            "containers": [container(&json!({"cpu": "1"}), &json!({}))],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                container(&json!({"cpu": "2"}), &json!({})),
            ],
            "overhead": {"cpu": "100m"},
        });
        assert_eq!(pod_total(&spec, "requests")["cpu"].to_string(), "2600m");
    }

    #[test]
    fn requests_stay_below_limits() {
        let faults = |resources: Value| {
            let mut errors = Vec::new();
            validate_requirements(&resources, false, &Path::root("r"), &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            faults(json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "100m"}})),
            ["r.requests: Invalid value: \"200m\": must be less than or equal to cpu limit of 100m"]
        );
        assert_eq!(
            faults(json!({"requests": {"a.b/c": "1"}})),
            ["r.limits: Required value: Limit must be set for non overcommitable resources"]
        );
        assert_eq!(faults(json!({"requests": {"cpu": "1"}})), Vec::<String>::new());
    }
}
