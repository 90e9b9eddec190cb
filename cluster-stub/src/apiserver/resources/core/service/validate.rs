//! What makes a service valid.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` validateService, ValidateServiceUpdate.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::super::kind::SPEC;
use super::super::super::pod::probe::validate_port as validate_target;
use super::super::endpoints::validate_non_special;
use super::{is_external, is_headless};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_labels;
use crate::apiserver::validation::names::{dns_label, dns_subdomain, port_number, qualified_name};
use crate::apiserver::validation::{FieldError, Path, go_struct, ip};

/// Faults of a service beyond its metadata.
pub(super) fn validate(service: &Value, old: Option<&Value>, out: &mut Vec<FieldError>) {
    let spec = service.at("spec");
    let kind = spec.text("type");
    let headless = is_headless(service);
    if spec.items("ports").is_empty() && !headless && kind != "ExternalName" {
        out.push(FieldError::required(&SPEC.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let path = SPEC.child("clusterIPs");
            out.push(FieldError::invalid(
                &path.index(0),
                "None",
                format!("may not be set to 'None' for {kind} services"),
            ));
        }
        "ExternalName" => validate_external_name(spec, out),
        _ => {}
    }
    validate_ports(spec, out);
    validate_labels(spec.at("selector"), &SPEC.child("selector"), out);
    validate_affinity(spec, out);
    if kind != "ExternalName" {
        validate_cluster_ips(spec, old, out);
    }
    let path = SPEC.child("externalIPs");
    for (index, address) in spec.texts("externalIPs").into_iter().enumerate() {
        let field = path.index(index);
        let before = out.len();
        ip::validate_ip(address, &field, out);
        if out.len() == before {
            validate_non_special(address, &field, out);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        out.push(FieldError::not_supported(&SPEC.child("type"), kind, &kinds));
    }
    validate_port_uniqueness(spec, out);
    validate_load_balancer(spec, out);
    validate_traffic(service, out);
}

fn validate_external_name(spec: &Value, out: &mut Vec<FieldError>) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.has(key) && spec.at(key) != &json!([]) {
            out.push(FieldError::forbidden(&SPEC.child(key), "may not be set for ExternalName services"));
        }
    }
    let field = SPEC.child("externalName");
    let name = spec.text("externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
}

fn validate_ports(spec: &Value, out: &mut Vec<FieldError>) {
    let list = SPEC.child("ports");
    let ports = spec.items("ports");
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let item = list.index(index);
        let name = port.text("name");
        let field = item.child("name");
        if name.is_empty() {
            if ports.len() > 1 {
                out.push(FieldError::required(&field, ""));
            }
        } else {
            out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
            if !names.insert(name) {
                out.push(FieldError::duplicate(&field, name));
            }
        }
        let number = port.int("port").unwrap_or(0);
        let field = item.child("port");
        out.extend(port_number(number).into_iter().map(|fault| FieldError::invalid(&field, number, fault)));
        let protocol = port.text("protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            out.push(FieldError::not_supported(&item.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        validate_target(port.at("targetPort"), &item.child("targetPort"), out);
        if port.has("appProtocol") {
            let (name, field) = (port.text("appProtocol"), item.child("appProtocol"));
            out.extend(qualified_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
}

fn validate_affinity(spec: &Value, out: &mut Vec<FieldError>) {
    let affinity = spec.text("sessionAffinity");
    if !matches!(affinity, "ClientIP" | "None") {
        out.push(FieldError::not_supported(&SPEC.child("sessionAffinity"), affinity, &["ClientIP", "None"]));
    }
    if affinity == "ClientIP" {
        let seconds = spec.at("sessionAffinityConfig").at("clientIP").int("timeoutSeconds").unwrap_or(0);
        if seconds <= 0 || seconds > 86400 {
            let config = SPEC.child("sessionAffinityConfig");
            let client = config.child("clientIP");
            let why = "must be greater than 0 and less than 86400";
            out.push(FieldError::invalid(&client.child("timeoutSeconds"), seconds, why));
        }
    }
}

fn validate_cluster_ips(spec: &Value, old: Option<&Value>, out: &mut Vec<FieldError>) {
    let field = SPEC.child("clusterIPs");
    let all = || spec.at("clusterIPs").clone();
    let addresses = spec.texts("clusterIPs");
    match (spec.text("clusterIP"), addresses.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            out.push(FieldError::invalid(&field, all(), "must be empty when `clusterIP` is not specified"))
        }
        (_, None) => out.push(FieldError::required(&field, "")),
        (one, Some(first)) if one != *first => {
            out.push(FieldError::invalid(&field, all(), "first value must match `clusterIP`"))
        }
        _ => {}
    }
    let families = SPEC.child("ipFamilies");
    let mut seen = BTreeSet::new();
    for (index, family) in spec.texts("ipFamilies").into_iter().enumerate() {
        if !matches!(family, "IPv4" | "IPv6") {
            out.push(FieldError::not_supported(&families.index(index), family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(family) {
            out.push(FieldError::duplicate(&families.index(index), family));
        }
    }
    let policy = spec.text("ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if spec.has("ipFamilyPolicy") && !policies.contains(&policy) {
        out.push(FieldError::not_supported(&SPEC.child("ipFamilyPolicy"), policy, &policies));
    }
    let before = out.len();
    let had: Vec<&str> = old.map(|old| old.at("spec").texts("clusterIPs")).unwrap_or_default();
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && *address == "None" {
            if addresses.len() > 1 {
                out.push(FieldError::invalid(&field, all(), "'None' must be the first and only value"));
            }
        } else if !had.contains(address) {
            ip::validate_ip(address, &field.index(index), out);
        }
    }
    if addresses.len() > 2 {
        out.push(FieldError::invalid(&field, all(), "may only hold up to 2 values"));
    }
    if out.len() == before && addresses.len() > 1 && addresses[0].contains(':') == addresses[1].contains(':') {
        out.push(FieldError::invalid(&field, all(), "may specify no more than one IP for each IP family"));
    }
    for (index, (address, family)) in
        addresses.iter().zip(spec.texts("ipFamilies")).enumerate().filter(|(_, (one, _))| **one != "None")
    {
        if address.contains(':') != (family == "IPv6") {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            out.push(FieldError::invalid(&field.index(index), *address, why));
        }
    }
}

fn validate_port_uniqueness(spec: &Value, out: &mut Vec<FieldError>) {
    let list = SPEC.child("ports");
    let (mut node_ports, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in spec.items("ports").iter().enumerate() {
        let node = port.int("nodePort").unwrap_or(0);
        if node != 0 {
            let item = list.index(index);
            let field = item.child("nodePort");
            if spec.text("type") == "ClusterIP" {
                out.push(FieldError::forbidden(&field, "may not be used when `type` is 'ClusterIP'"));
            }
            if !node_ports.insert((port.text("protocol"), node)) {
                out.push(FieldError::duplicate(&field, node));
            }
        }
        let (protocol, number) = (port.text("protocol"), port.int("port").unwrap_or(0));
        if !ports.insert((protocol, number)) {
            let text = |text: &str| json!(text).to_string();
            let shown = go_struct(&[
                ("Name", text("")),
                ("Protocol", text(protocol)),
                ("AppProtocol", "null".to_owned()),
                ("Port", number.to_string()),
                ("TargetPort", "0".to_owned()),
                ("NodePort", "0".to_owned()),
            ]);
            out.push(FieldError::duplicate(&list.index(index), number).showing(shown));
        }
    }
}

fn validate_load_balancer(spec: &Value, out: &mut Vec<FieldError>) {
    let balanced = spec.text("type") == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = spec.texts("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let field = SPEC.child("LoadBalancerSourceRanges");
        if !balanced {
            out.push(FieldError::forbidden(&field, only));
        }
        for (index, range) in ranges.into_iter().enumerate() {
            ip::validate_cidr(range.trim(), &field.index(index), out);
        }
    }
    if spec.has("allocateLoadBalancerNodePorts") && !balanced {
        out.push(FieldError::forbidden(&SPEC.child("allocateLoadBalancerNodePorts"), only));
    }
    if spec.has("loadBalancerClass") {
        let (class, field) = (spec.text("loadBalancerClass"), SPEC.child("loadBalancerClass"));
        if balanced {
            out.extend(qualified_name(class).into_iter().map(|fault| FieldError::invalid(&field, class, fault)));
        } else {
            out.push(FieldError::forbidden(&field, only));
        }
    }
}

fn validate_traffic(service: &Value, out: &mut Vec<FieldError>) {
    let spec = service.at("spec");
    let policy = spec.text("externalTrafficPolicy");
    let field = SPEC.child("externalTrafficPolicy");
    if !is_external(service) {
        if !policy.is_empty() {
            out.push(FieldError::invalid(&field, policy, "may only be set for externally-accessible services"));
        }
    } else if policy.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if !matches!(policy, "Cluster" | "Local") {
        out.push(FieldError::not_supported(&field, policy, &["Cluster", "Local"]));
    }
    let check = spec.int("healthCheckNodePort").unwrap_or(0);
    let checked = spec.text("type") == "LoadBalancer" && policy == "Local";
    if check != 0 {
        let field = SPEC.child("healthCheckNodePort");
        if checked {
            out.extend(port_number(check).into_iter().map(|fault| FieldError::invalid(&field, check, fault)));
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            out.push(FieldError::invalid(&field, check, why));
        }
    }
    among(spec, "internalTrafficPolicy", &["Cluster", "Local"], &SPEC, out);
    among(spec, "trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"], &SPEC, out);
}

fn among(spec: &Value, key: &str, values: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    if spec.has(key) && !values.contains(&spec.text(key)) {
        out.push(FieldError::not_supported(&path.child(key), spec.text(key), values));
    }
}

/// Faults of a change: the primary address and family stay.
pub(super) fn validate_update(service: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, old_spec) = (service.at("spec"), old.at("spec"));
    let external_name = [spec, old_spec].iter().any(|spec| spec.text("type") == "ExternalName");
    let (headless, was_headless) = (is_headless(service), is_headless(old));
    let stays_headless = headless && was_headless;
    if !external_name && !stays_headless {
        let (new, before) = (spec.texts("clusterIPs"), old_spec.texts("clusterIPs"));
        let field = SPEC.child("clusterIPs");
        if new.is_empty() && !before.is_empty() {
            out.push(FieldError::invalid(&field.index(0), json!(new), "primary clusterIP can not be unset"));
        }
        let compared = if new.len() == before.len() { new.len() } else { new.len().min(before.len()).min(1) };
        for index in 0..compared {
            if new[index] != before[index] {
                out.push(FieldError::invalid(&field.index(index), json!(new), "may not change once set"));
            }
        }
        if new.len() == 1 && before.len() > 1 && spec.text("ipFamilyPolicy") != "SingleStack" {
            let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
            out.push(FieldError::invalid(&SPEC.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy").clone(), why));
        }
    }
    if !external_name && !headless && !was_headless {
        let (new, before) = (spec.texts("ipFamilies"), old_spec.texts("ipFamilies"));
        if let (Some(new_first), Some(first)) = (new.first(), before.first())
            && new_first != first
        {
            let field = SPEC.child("ipFamilies");
            out.push(FieldError::invalid(&field.index(0), json!(new), "may not change once set"));
        }
    }
    let balanced = [spec, old_spec].iter().all(|spec| spec.text("type") == "LoadBalancer");
    if balanced && spec.at("loadBalancerClass") != old_spec.at("loadBalancerClass") {
        let value = spec.at("loadBalancerClass").clone();
        out.push(FieldError::invalid(&SPEC.child("loadBalancerClass"), value, "may not change once set"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(spec: &Value) -> Vec<String> {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        super::super::apply_defaults(&mut service);
        let mut errors = Vec::new();
        validate(&service, None, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_are_needed_unless_headless() {
        assert_eq!(faults(&json!({})), ["spec.ports: Required value"]);
        assert_eq!(faults(&json!({"clusterIP": "None", "clusterIPs": ["None"]})), Vec::<String>::new());
        assert_eq!(faults(&json!({"ports": [{"port": 80}]})), Vec::<String>::new());
        assert_eq!(
            faults(&json!({"ports": [{"port": 80, "nodePort": 30000}]})),
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]
        );
    }

    #[test]
    fn the_address_stays() {
        let service = |ip: &str| json!({"spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip]}});
        let mut errors = Vec::new();
        validate_update(&service("10.96.3.3"), &service("10.96.0.9"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["spec.clusterIPs[0]: Invalid value: [\"10.96.3.3\"]: may not change once set"]);
    }
}
