//! LimitRanger: fills in requests and limits from the namespace's LimitRanges and refuses what lies outside them.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/limitranger/admission.go`.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::resources::pod::resources::pod_total;
use crate::apiserver::resources::resource_list::quantity;
use crate::apiserver::status::{ApiError, aggregate};
use crate::apiserver::validation::Quantity;
use crate::apiserver::validation::json::JsonExt;

const LIMIT_RANGES: GroupResource = GroupResource::of("", "limitranges");
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// See the module.
pub(super) struct LimitRanger;

impl AdmissionPlugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        if request.is("", "pods") && request.operation == Operation::Create {
            for range in ranges(request) {
                apply(&range, &mut request.object);
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        let result = check_all(request);
        Box::pin(std::future::ready(result))
    }
}

fn ranges(request: &AdmissionRequest<'_>) -> Vec<Arc<Value>> {
    request.objects.list(&LIMIT_RANGES, Some(request.namespace))
}

fn check_all(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let pods = request.is_resource("", "pods")
        && matches!((request.subresource, request.operation), ("", Operation::Create) | ("resize", Operation::Update));
    let claims =
        request.is("", "persistentvolumeclaims") && matches!(request.operation, Operation::Create | Operation::Update);
    let going = request.old_object.is_some_and(|old| old.at("metadata").has("deletionTimestamp"));
    if going || !(pods || claims) {
        return Ok(());
    }
    for range in ranges(request) {
        let faults = if pods { check_pod(&range, &request.object) } else { check_claim(&range, &request.object) };
        if !faults.is_empty() {
            return Err(request.forbidden(aggregate(&faults)));
        }
    }
    Ok(())
}

/// Requests and limits that containers leave out.
fn apply(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for limit in range.at("spec").items("limits").iter().filter(|limit| limit.text("type") == "Container") {
        requests.extend(limit.entries("defaultRequest").cloned().unwrap_or_default());
        limits.extend(limit.entries("default").cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    let spec = pod.object_mut("spec");
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in spec.items_mut(list) {
            let name = container.text("name").to_owned();
            let (mut set_limits, mut set_requests) = (Vec::new(), Vec::new());
            for (defaults, key, set) in
                [(&limits, "limits", &mut set_limits), (&requests, "requests", &mut set_requests)]
            {
                for (resource, quantity) in defaults {
                    if !container.at("resources").at(key).has(resource) {
                        container.object_mut("resources").object_mut(key).put(resource, quantity.clone());
                        set.push(resource.clone());
                    }
                }
            }
            for (set, key) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    notes.push(format!("{} {key} for {word} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.object_mut("metadata").object_mut("annotations").put(ANNOTATION, json!(note));
    }
}

fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let requests = claim.at("spec").at("resources").at("requests");
    let mut faults = Vec::new();
    for limit in range.at("spec").items("limits").iter().filter(|limit| limit.text("type") == "PersistentVolumeClaim") {
        let scope = Scope { kind: "PersistentVolumeClaim", requests, limits: &Value::Null };
        faults.extend(each(limit, "min", |name, bound| scope.min(name, bound)));
        faults.extend(each(limit, "max", |name, bound| scope.max_request(name, bound)));
    }
    faults
}

fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let spec = pod.at("spec");
    let mut faults = Vec::new();
    for limit in range.at("spec").items("limits") {
        match limit.text("type") {
            "Container" => {
                for container in spec.items("containers").iter().chain(spec.items("initContainers")) {
                    let resources = container.at("resources");
                    let scope =
                        Scope { kind: "Container", requests: resources.at("requests"), limits: resources.at("limits") };
                    faults.extend(scope.check(limit));
                }
            }
            "Pod" => {
                let texts = |key: &str| -> Value {
                    pod_total(spec, key)
                        .into_iter()
                        .map(|(name, total)| (name, json!(total.to_string())))
                        .collect::<Map<_, _>>()
                        .into()
                };
                let (requests, limits) = (texts("requests"), texts("limits"));
                faults.extend(Scope { kind: "Pod", requests: &requests, limits: &limits }.check(limit));
            }
            _ => {}
        }
    }
    faults
}

fn each(limit: &Value, key: &str, check: impl Fn(&str, Quantity) -> Option<String>) -> Vec<String> {
    let bounds = limit.at(key);
    bounds.as_object().into_iter().flatten().filter_map(|(name, _)| check(name, quantity(bounds, name))).collect()
}

/// What is asked for by one container, pod or claim.
struct Scope<'a> {
    kind: &'static str,
    requests: &'a Value,
    limits: &'a Value,
}

impl Scope<'_> {
    fn check(&self, limit: &Value) -> Vec<String> {
        let mut faults = each(limit, "min", |name, bound| self.min(name, bound));
        faults.extend(each(limit, "max", |name, bound| self.max(name, bound)));
        faults.extend(each(limit, "maxLimitRequestRatio", |name, bound| self.ratio(name, bound)));
        faults
    }

    fn of(&self, list: &Value, name: &str) -> Option<Quantity> {
        list.has(name).then(|| quantity(list, name))
    }

    fn fault(&self, bound_kind: &str, name: &str, bound: Quantity, rest: &str) -> Option<String> {
        Some(format!("{bound_kind} {name} usage per {} is {bound}{rest}", self.kind))
    }

    fn min(&self, name: &str, bound: Quantity) -> Option<String> {
        let (request, limit) = (self.of(self.requests, name), self.of(self.limits, name));
        match (request, limit) {
            (None, _) => self.fault("minimum", name, bound, ".  No request is specified"),
            (Some(request), _) if request < bound => {
                self.fault("minimum", name, bound, &format!(", but request is {}", self.requests.text(name)))
            }
            (_, Some(limit)) if limit < bound => {
                self.fault("minimum", name, bound, &format!(", but limit is {}", self.limits.text(name)))
            }
            _ => None,
        }
    }

    fn max(&self, name: &str, bound: Quantity) -> Option<String> {
        let (request, limit) = (self.of(self.requests, name), self.of(self.limits, name));
        match (request, limit) {
            (_, None) => self.fault("maximum", name, bound, ".  No limit is specified"),
            (_, Some(limit)) if limit > bound => {
                self.fault("maximum", name, bound, &format!(", but limit is {}", self.limits.text(name)))
            }
            (Some(request), _) if request > bound => {
                self.fault("maximum", name, bound, &format!(", but request is {}", self.requests.text(name)))
            }
            _ => None,
        }
    }

    fn max_request(&self, name: &str, bound: Quantity) -> Option<String> {
        match self.of(self.requests, name) {
            None => self.fault("maximum", name, bound, ".  No request is specified"),
            Some(request) if request > bound => {
                self.fault("maximum", name, bound, &format!(", but request is {}", self.requests.text(name)))
            }
            Some(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio of two quantities, compared as upstream does")]
    fn ratio(&self, name: &str, bound: Quantity) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {} is {bound}", self.kind);
        let nonzero = |list: &Value| self.of(list, name).map(Quantity::milli_value).filter(|value| *value != 0);
        let Some(request) = nonzero(self.requests) else {
            return Some(format!("{head}, but no request is specified or request is 0"));
        };
        let Some(limit) = nonzero(self.limits) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let ratio = limit as f64 / request as f64;
        (ratio * 1000.0 > bound.milli_value() as f64).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> Value {
        json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"},
            "max": {"cpu": "500m"}, "min": {"cpu": "50m"}}]}})
    }

    #[test]
    fn defaults_are_filled_in_and_noted() {
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
        apply(&range(), &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
    }

    #[test]
    fn bounds_are_checked() {
        let faults = |limit: &str, request: &str| {
            check_pod(
                &range(),
                &json!({"spec": {"containers": [{"resources": {"limits": {"cpu": limit}, "requests": {"cpu": request}}}]}}),
            )
        };
        assert_eq!(faults("500m", "50m"), Vec::<String>::new());
        assert_eq!(faults("1", "50m"), ["maximum cpu usage per Container is 500m, but limit is 1"]);
        assert_eq!(faults("100m", "10m"), ["minimum cpu usage per Container is 50m, but request is 10m"]);
    }
}
