//! Services: defaults, the fields that must agree with each other, columns. Addresses and ports are given out in `allocate`.
//!
//! Upstream: v1.36.2 `pkg/registry/core/service/strategy.go`, `pkg/apis/core/v1/defaults.go`.

mod allocate;
mod node_ports;
mod validate;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::allocate::Allocator;
use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, dedup};
use super::super::objects::Objects;
use super::super::resource::{Resource, Verbs};
use super::super::strategy::{Rollback, Strategy, WriteContext};
use super::super::{ResourceOptions, shape};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::format_labels;
use crate::apiserver::validation::meta::{validate_object_meta, validate_object_meta_update};
use crate::apiserver::validation::names::name_is_dns_label;

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Type"),
    Column::text("Cluster-IP"),
    Column::text("External-IP"),
    Column::text("Port(s)"),
    columns::AGE,
    Column::wide("Selector"),
];

/// Service.
pub(super) fn resource(options: &ResourceOptions) -> Resource {
    let proxy = Verbs::ALL.without(Verbs::LIST).without(Verbs::WATCH).without(Verbs::DELETE_COLLECTION);
    Kind::new("", "v1", "services", "Service")
        .short_names(&["svc"])
        .categories(&["all"])
        .storage("services/specs")
        .name_rule(name_is_dns_label)
        .status()
        .columns(COLUMNS, cells)
        .build()
        .with_strategy(Service { allocator: Allocator::new(&options.service_range) })
        .with_connection("proxy", "ServiceProxyOptions", proxy)
}

struct Service {
    allocator: Allocator,
}

impl Strategy for Service {
    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn apply_defaults(&self, service: &mut Value) {
        apply_defaults(service);
        shape::fill("io.k8s.api.core.v1.Service", service);
    }

    fn prepare_for_create(&self, _context: &WriteContext<'_>, service: &mut Value) {
        service.put("status", json!({"loadBalancer": {}}));
        sync_cluster_ips(service, None);
        drop_unused(service, None);
        default_families(service, self.allocator.family());
    }

    fn prepare_for_update(&self, _context: &WriteContext<'_>, service: &mut Value, old: &Value) {
        service.put("status", old.at("status").clone());
        keep_allocated(service, old);
        sync_cluster_ips(service, Some(old));
        drop_unused(service, Some(old));
        default_families(service, self.allocator.family());
    }

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(service, true, name_is_dns_label);
        validate::validate(service, None, &mut errors);
        errors
    }

    fn validate_update(&self, service: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(service, true, name_is_dns_label);
        errors.extend(validate_object_meta_update(service, old));
        validate::validate_update(service, old, &mut errors);
        validate::validate(service, Some(old), &mut errors);
        dedup(errors)
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn field_values(&self, service: &Value) -> Vec<String> {
        let spec = service.at("spec");
        vec![spec.text("clusterIP").to_owned(), spec.text("type").to_owned()]
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn allocates(&self) -> bool {
        true
    }

    fn allocate<'a>(
        &'a self,
        objects: &'a dyn Objects,
        service: &'a mut Value,
        old: Option<&'a Value>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Rollback>, ApiError>> {
        Box::pin(self.allocator.allocate(objects, service, old, dry_run))
    }

    fn release<'a>(
        &'a self,
        objects: &'a dyn Objects,
        old: &'a Value,
        service: Option<&'a Value>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.allocator.release(objects, old, service))
    }
}

/// Whether clients outside the cluster reach the service.
fn is_external(service: &Value) -> bool {
    let spec = service.at("spec");
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.items("externalIPs").is_empty(),
        _ => false,
    }
}

fn is_headless(service: &Value) -> bool {
    service.at("spec").texts("clusterIPs") == ["None"]
}

fn apply_defaults(service: &mut Value) {
    let spec = service.object_mut("spec");
    if spec.text("sessionAffinity").is_empty() {
        spec.put("sessionAffinity", json!("None"));
    }
    match spec.text("sessionAffinity") {
        "None" => {
            spec.take_member("sessionAffinityConfig");
        }
        "ClientIP" if !spec.at("sessionAffinityConfig").at("clientIP").has("timeoutSeconds") => {
            spec.put("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    if spec.text("type").is_empty() {
        spec.put("type", json!("ClusterIP"));
    }
    for port in spec.items_mut("ports") {
        if port.text("protocol").is_empty() {
            port.put("protocol", json!("TCP"));
        }
        let target = port.at("targetPort");
        if target.is_null() || target == &json!(0) || target == &json!("") {
            let number = port.at("port").clone();
            port.put("targetPort", number);
        }
    }
    if is_external(service) && service.at("spec").text("externalTrafficPolicy").is_empty() {
        service.object_mut("spec").put("externalTrafficPolicy", json!("Cluster"));
    }
    let spec = service.object_mut("spec");
    if matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.default_to("internalTrafficPolicy", "Cluster");
    }
    if spec.text("type") == "LoadBalancer" {
        spec.default_to("allocateLoadBalancerNodePorts", true);
    }
}

/// `clusterIP` is the first of `clusterIPs`; whoever changes one of them means both.
///
/// Upstream: `normalizeClusterIPs`.
fn sync_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let spec = service.object_mut("spec");
    let first = |spec: &Value| spec.texts("clusterIPs").first().map(|ip| (*ip).to_owned());
    let Some(old) = old.map(|old| old.at("spec")) else {
        // A create: the singular fills the plural, not the other way round.
        if !spec.text("clusterIP").is_empty() && spec.items("clusterIPs").is_empty() {
            let address = spec.at("clusterIP").clone();
            spec.put("clusterIPs", json!([address]));
        }
        return;
    };
    let cleared = !old.text("clusterIP").is_empty() && spec.text("clusterIP").is_empty();
    if cleared && spec.at("clusterIPs") == old.at("clusterIPs") {
        spec.take_member("clusterIPs");
    } else if old.text("clusterIP") != spec.text("clusterIP") && first(spec) == first(old) {
        let address = spec.at("clusterIP").clone();
        let mut all = spec.items("clusterIPs").to_vec();
        match all.first_mut() {
            Some(slot) => *slot = address,
            None if !spec.text("clusterIP").is_empty() => all.push(address),
            None => {}
        }
        spec.put("clusterIPs", Value::Array(all));
    }
}

/// What an update may leave out although it was allocated: it is taken from the old service.
///
/// Upstream: `patchAllocatedValues`.
fn keep_allocated(service: &mut Value, old: &Value) {
    let needs_ip =
        |service: &Value| matches!(service.at("spec").text("type"), "ClusterIP" | "NodePort" | "LoadBalancer");
    let old_spec = old.at("spec");
    if needs_ip(old) && needs_ip(service) {
        let spec = service.object_mut("spec");
        if spec.text("clusterIP").is_empty() {
            spec.put("clusterIP", old_spec.at("clusterIP").clone());
        }
        if spec.items("clusterIPs").is_empty() && spec.at("clusterIP") == old_spec.at("clusterIP") {
            spec.put("clusterIPs", old_spec.at("clusterIPs").clone());
        }
    }
    if node_ports::needs(old) && node_ports::needs(service) {
        let known = old_spec.items("ports").to_vec();
        for port in service.object_mut("spec").items_mut("ports") {
            let same =
                |other: &&Value| other.at("port") == port.at("port") && other.at("protocol") == port.at("protocol");
            if port.int("nodePort").unwrap_or(0) == 0
                && let Some(before) = known.iter().find(same)
            {
                port.put("nodePort", before.at("nodePort").clone());
            }
        }
    }
}

/// Members that belong to the old type and that the client did not change go away with it.
///
/// Upstream: `dropTypeDependentFields`.
fn drop_unused(service: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    let kind = service.at("spec").text("type").to_owned();
    let external = is_external(service);
    let needs_ports = node_ports::needs(service);
    let old_spec = old.at("spec");
    let spec = service.object_mut("spec");
    if kind == "ExternalName" && old_spec.text("type") != "ExternalName" {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if spec.at(key) == old_spec.at(key) {
                spec.take_member(key);
            }
        }
    }
    if node_ports::needs(old) && !needs_ports {
        let ports = |spec: &Value| -> Vec<Value> {
            spec.items("ports").iter().map(|port| port.at("nodePort").clone()).collect()
        };
        if ports(spec) == ports(old_spec) {
            for port in spec.items_mut("ports") {
                port.take_member("nodePort");
            }
        }
    }
    for (key, unused) in [
        ("allocateLoadBalancerNodePorts", kind != "LoadBalancer"),
        ("loadBalancerClass", kind != "LoadBalancer"),
        ("externalTrafficPolicy", !external),
        ("healthCheckNodePort", kind != "LoadBalancer"),
    ] {
        if unused && spec.at(key) == old_spec.at(key) {
            spec.take_member(key);
        }
    }
}

/// The cluster has one address family.
fn default_families(service: &mut Value, family: &str) {
    let spec = service.object_mut("spec");
    if spec.text("type") == "ExternalName" {
        return;
    }
    spec.default_to("ipFamilyPolicy", "SingleStack");
    if spec.items("ipFamilies").is_empty() {
        spec.put("ipFamilies", json!([family]));
    }
}

fn cells(service: &Value, now: Timestamp) -> Vec<Value> {
    let spec = service.at("spec");
    let ports: Vec<String> = spec
        .items("ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (port.int("port").unwrap_or(0), port.text("protocol"));
            match port.int("nodePort").unwrap_or(0) {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    vec![
        columns::name(service),
        json!(spec.text("type")),
        json!(spec.texts("clusterIPs").first().copied().unwrap_or("<none>")),
        json!(external_address(service)),
        json!(or_else(&ports.join(","), "<none>")),
        columns::age(service, now),
        json!(format_labels(spec.at("selector"))),
    ]
}

fn external_address(service: &Value) -> String {
    let spec = service.at("spec");
    let external = spec.texts("externalIPs");
    match spec.text("type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let ingress = service.at("status").at("loadBalancer").items("ingress");
            let balanced: std::collections::BTreeSet<&str> = ingress
                .iter()
                .map(|one| or_else(one.text("ip"), one.text("hostname")))
                .filter(|text| !text.is_empty())
                .collect();
            let all: Vec<&str> = balanced.into_iter().chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => spec.text("externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_type() {
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        apply_defaults(&mut service);
        assert_eq!(
            service["spec"],
            json!({"type": "NodePort", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
                   "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
        );
        let mut service = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
        apply_defaults(&mut service);
        assert_eq!(service["spec"], json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}));
    }

    #[test]
    fn a_change_to_external_name_drops_the_address() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "internalTrafficPolicy": "Cluster"}});
        let mut new = old.clone();
        new["spec"]["type"] = json!("ExternalName");
        sync_cluster_ips(&mut new, Some(&old));
        drop_unused(&mut new, Some(&old));
        assert_eq!(new["spec"], json!({"type": "ExternalName"}));
    }

    #[test]
    fn an_update_may_leave_out_what_was_allocated() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        keep_allocated(&mut new, &old);
        assert_eq!(new, old);
    }
}
