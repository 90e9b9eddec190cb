//! ResourceQuota: charges what a write consumes to the quotas of its namespace and refuses what exceeds them.
//!
//! Upstream: v1.36.2 `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`, `pkg/quota/v1/evaluator/core`.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::resources::pod::resources::{pod_total, qos_class};
use crate::apiserver::resources::resource_list::{is_extended, quantity};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::Quantity;
use crate::apiserver::validation::json::JsonExt;

const QUOTAS: GroupResource = GroupResource::of("", "resourcequotas");

/// Quantities by resource name.
type Usage = BTreeMap<String, Quantity>;

/// Resources of which every container must say what it needs when a quota limits them.
const SPECIFIED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// See the module.
pub(super) struct ResourceQuota;

impl AdmissionPlugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(charge(request))
    }
}

async fn charge(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.namespace.is_empty() || !is_charged(request) {
        return Ok(());
    }
    let quotas = request.objects.list(&QUOTAS, Some(request.namespace));
    let resource = GroupResource { group: request.resource.group.clone(), resource: request.resource.plural.clone() };
    let mut due = Vec::new();
    for quota in &quotas {
        let delta = delta(request, &resource, quota)?;
        if !delta.is_empty() {
            check(quota, &delta).map_err(|why| request.forbidden(why))?;
            due.push((quota, delta));
        }
    }
    if request.dry_run {
        return Ok(());
    }
    for (quota, delta) in due {
        let name = quota.at("metadata").text("name");
        let qualified = (request.resource.group.to_string(), request.resource.plural.to_string());
        let object = match request.name.as_str() {
            "" => request.object.at("metadata").text("generateName").to_owned(),
            name => name.to_owned(),
        };
        let change = move |quota: &mut Value| {
            check(quota, &delta).map_err(|why| {
                ApiError::forbidden(Qualified { group: &qualified.0, name: &qualified.1 }, &object, why)
            })?;
            add(quota, &delta);
            Ok(())
        };
        request.objects.update(&QUOTAS, request.namespace, name, Box::new(change)).await?;
    }
    Ok(())
}

/// Whether the write can change what is consumed. Upstream: `Evaluator.Handles`.
fn is_charged(request: &AdmissionRequest<'_>) -> bool {
    let (group, plural) = (&*request.resource.group, &*request.resource.plural);
    let create = request.operation == Operation::Create;
    let update = request.operation == Operation::Update;
    match (group, plural, request.subresource) {
        ("", "pods", "") => {
            let was = request.old_object.is_some_and(is_terminating);
            create || (update && was != is_terminating(&request.object))
        }
        ("", "pods", "resize") => update,
        ("", "services" | "persistentvolumeclaims", "") => create || update,
        ("" | "events.k8s.io", "events", _) => false,
        (_, _, subresource) => create && subresource.is_empty(),
    }
}

/// What the quota is to be charged. Upstream: the first half of `CheckRequest`.
fn delta(request: &AdmissionRequest<'_>, resource: &GroupResource, quota: &Value) -> Result<Usage, ApiError> {
    let pods = resource.group.is_empty() && resource.resource == "pods";
    let hard = quota.at("status").at("hard");
    let mut delta = Usage::new();
    if matches(quota, pods, &request.object) {
        let usage = usage(resource, &request.object);
        let name = quota.at("metadata").text("name");
        if pods && let Some(missing) = missing(hard, request.object.at("spec")) {
            return Err(request.forbidden(format!("failed quota: {name}: must specify {missing}")));
        }
        let unknown: BTreeSet<&str> = usage
            .keys()
            .map(String::as_str)
            .filter(|key| hard.has(key) && !quota.at("status").at("used").has(key))
            .collect();
        if !unknown.is_empty() {
            let resources: Vec<&str> = usage.keys().map(String::as_str).filter(|key| hard.has(key)).collect();
            return Err(
                request.forbidden(format!("status unknown for quota: {name}, resources: {}", resources.join(",")))
            );
        }
        delta = usage;
    }
    if let Some(old) = request.old_object
        && matches(quota, pods, old)
    {
        for (key, amount) in usage(resource, old) {
            let now = delta.get(&key).copied().unwrap_or(Quantity::ZERO);
            delta.insert(key, now.minus(amount));
        }
    }
    delta.retain(|key, amount| amount.sign() != 0 && hard.has(key));
    Ok(delta)
}

/// Whether the quota has room. The error is upstream's text.
fn check(quota: &Value, delta: &Usage) -> Result<(), String> {
    let (hard, used) = (quota.at("status").at("hard"), quota.at("status").at("used"));
    let exceeded: Vec<&String> =
        delta.keys().filter(|key| quantity(used, key).plus(delta[*key]) > quantity(hard, key)).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let list = |of: &dyn Fn(&str) -> Quantity| -> String {
        exceeded.iter().map(|key| format!("{key}={}", of(key))).collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.at("metadata").text("name"),
        list(&|key| delta[key]),
        list(&|key| quantity(used, key)),
        list(&|key| quantity(hard, key)),
    ))
}

fn add(quota: &mut Value, delta: &Usage) {
    let used = quota.object_mut("status").object_mut("used");
    for (key, amount) in delta {
        let total = quantity(used, key).plus(*amount);
        used.put(key, json!(total.to_string()));
    }
}

/// Whether the object is in all scopes of the quota. Only pods have scopes here.
fn matches(quota: &Value, pods: bool, object: &Value) -> bool {
    let spec = quota.at("spec");
    let plain = spec.texts("scopes").into_iter().all(|scope| pods && in_scope(scope, &Value::Null, object));
    plain
        && spec
            .at("scopeSelector")
            .items("matchExpressions")
            .iter()
            .all(|expression| pods && in_scope(expression.text("scopeName"), expression, object))
}

fn in_scope(scope: &str, expression: &Value, pod: &Value) -> bool {
    let spec = pod.at("spec");
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => qos_class(spec) == "BestEffort",
        "NotBestEffort" => qos_class(spec) != "BestEffort",
        "PriorityClass" => {
            let class = spec.text("priorityClassName");
            let named = !class.is_empty() && expression.texts("values").contains(&class);
            match expression.text("operator") {
                "In" => named,
                "NotIn" => !named,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(spec.at("affinity")),
        _ => false,
    }
}

fn is_terminating(pod: &Value) -> bool {
    pod.at("spec").int("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn crosses_namespaces(affinity: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].into_iter().map(|kind| affinity.at(kind)).any(|kind| {
        let required = kind.items("requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = kind.items("preferredDuringSchedulingIgnoredDuringExecution").iter();
        required
            .chain(preferred.map(|term| term.at("podAffinityTerm")))
            .any(|term| !term.items("namespaces").is_empty() || term.has("namespaceSelector"))
    })
}

/// `cpu for: a; memory for: a,b`: the containers that do not say what they need.
fn missing(hard: &Value, spec: &Value) -> Option<String> {
    if spec.at("resources").has("requests") || spec.at("resources").has("limits") {
        return None;
    }
    let mut faults = Vec::new();
    for name in SPECIFIED.into_iter().filter(|name| hard.has(name)).collect::<BTreeSet<_>>() {
        let (list, key) = match name.split_once('.') {
            Some((list, key)) => (list, key),
            None => ("requests", name),
        };
        let containers = spec.items("containers").iter().chain(spec.items("initContainers"));
        let silent: BTreeSet<&str> = containers
            .filter(|container| !container.at("resources").at(list).has(key))
            .map(|container| container.text("name"))
            .collect();
        if !silent.is_empty() {
            faults.push(format!("{name} for: {}", silent.into_iter().collect::<Vec<_>>().join(",")));
        }
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// What one object consumes. Upstream: `Evaluator.Usage`.
pub(in crate::apiserver) fn usage(resource: &GroupResource, object: &Value) -> Usage {
    let one = Quantity::of(1);
    let count = match &*resource.group {
        "" => format!("count/{}", resource.resource),
        group => format!("count/{}.{group}", resource.resource),
    };
    let mut usage = Usage::from([(count, one)]);
    match (&*resource.group, &*resource.resource) {
        // A pod that ended holds nothing but its own count.
        ("", "pods") if matches!(object.at("status").text("phase"), "Succeeded" | "Failed") => {}
        ("", "pods") => usage.append(&mut pod_usage(object.at("spec"))),
        ("", "services") => {
            let spec = object.at("spec");
            let ports = spec.items("ports");
            let on_nodes = match spec.text("type") {
                "NodePort" => ports.len(),
                "LoadBalancer" if spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)) => ports.len(),
                "LoadBalancer" => {
                    ports.iter().filter(|port| port.int("nodePort").is_some_and(|port| port != 0)).count()
                }
                _ => 0,
            };
            let balancers = i64::from(spec.text("type") == "LoadBalancer");
            usage.insert("services".to_owned(), one);
            usage.insert("services.nodeports".to_owned(), Quantity::of(i64::try_from(on_nodes).unwrap_or(i64::MAX)));
            usage.insert("services.loadbalancers".to_owned(), Quantity::of(balancers));
        }
        ("", "persistentvolumeclaims") => {
            let requests = object.at("spec").at("resources").at("requests");
            let class = object.at("spec").text("storageClassName");
            let mut put = |name: &str, amount: Quantity| {
                usage.insert(name.to_owned(), amount);
                if !class.is_empty() {
                    usage.insert(format!("{class}.storageclass.storage.k8s.io/{name}"), amount);
                }
            };
            put("persistentvolumeclaims", one);
            if requests.has("storage") {
                put("requests.storage", quantity(requests, "storage"));
            }
        }
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            usage.insert(resource.resource.to_string(), one);
        }
        _ => {}
    }
    usage
}

fn pod_usage(spec: &Value) -> Usage {
    let mut usage = Usage::from([("pods".to_owned(), Quantity::of(1))]);
    for (name, amount) in pod_total(spec, "requests") {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if plain || is_extended(&name) {
            usage.insert(format!("requests.{name}"), amount);
        }
        if plain {
            usage.insert(name, amount);
        }
    }
    for (name, amount) in pod_total(spec, "limits") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota() -> Value {
        json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "2", "requests.cpu": "1"}, "used": {"pods": "1", "requests.cpu": "800m"}}})
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let delta = Usage::from([
            ("pods".to_owned(), Quantity::of(1)),
            ("requests.cpu".to_owned(), Quantity::parse("300m").unwrap()),
        ]);
        assert_eq!(
            check(&quota(), &delta).unwrap_err(),
            "exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
        );
    }

    #[test]
    fn usage_is_added() {
        let mut quota = quota();
        add(&mut quota, &Usage::from([("requests.cpu".to_owned(), Quantity::parse("100m").unwrap())]));
        assert_eq!(quota["status"]["used"], json!({"pods": "1", "requests.cpu": "900m"}));
    }

    #[test]
    fn containers_that_say_nothing_are_named() {
        let hard = json!({"cpu": "1", "limits.memory": "1Gi", "pods": "1"});
        let spec = json!({"containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}}}, {"name": "a"}]});
        assert_eq!(missing(&hard, &spec).unwrap(), "cpu for: a; limits.memory for: a,b");
    }
}
