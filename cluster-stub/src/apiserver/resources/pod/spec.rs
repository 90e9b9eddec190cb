//! A pod's spec as a whole, in a pod or a template.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePodSpec.

use std::collections::BTreeSet;

use serde_json::Value;

use super::container::{self, Surroundings};
use super::{affinity, resources, security, volume_source};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_labels;
use crate::apiserver::validation::names::{
    dns_label, dns_subdomain, dns_subdomain_with_underscore, inclusive_range, qualified_name,
};
use crate::apiserver::validation::{FieldError, Path, ip};

/// Faults of a spec. `pod_name` is the name of the pod that it belongs to; in templates `is_pod` is false.
pub(super) fn validate(spec: &Value, pod_name: Option<&str>, is_pod: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if !spec.has("terminationGracePeriodSeconds") {
        out.push(FieldError::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volume_source::validate_volumes(spec.items("volumes"), pod_name, &path.child("volumes"), out);
    let claims: BTreeSet<&str> =
        spec.items("resourceClaims").iter().map(|claim| claim.text("name")).filter(|name| !name.is_empty()).collect();
    validate_resource_claims(spec, &path.child("resourceClaims"), out);
    let around = Surroundings { spec, volumes, claims, grace: spec.int("terminationGracePeriodSeconds") };
    container::validate_containers(&around, &path.child("containers"), out);
    container::validate_init_containers(&around, &path.child("initContainers"), out);
    container::validate_ephemeral_containers(&around, &path.child("ephemeralContainers"), out);
    resources::validate_pod_level(spec, path, out);
    validate_host_network(spec, is_pod, path, out);
    choice(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, out);
    choice(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], path, out);
    validate_labels(spec.at("nodeSelector"), &path.child("nodeSelector"), out);
    security::validate_pod(spec, &path.child("securityContext"), out);
    affinity::validate_affinity(spec.at("affinity"), &path.child("affinity"), out);
    validate_dns_config(spec, &path.child("dnsConfig"), out);
    validate_gates(spec, path, out);
    affinity::validate_spread(spec.items("topologySpreadConstraints"), &path.child("topologySpreadConstraints"), out);
    validate_host_users(spec, path, out);
    validate_names(spec, path, out);
    affinity::validate_tolerations(spec.items("tolerations"), &path.child("tolerations"), out);
    validate_host_aliases(spec, &path.child("hostAliases"), out);
    validate_classes(spec, path, out);
    validate_os(spec, path, out);
}

fn choice(spec: &Value, key: &str, values: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    match spec.text(key) {
        "" => out.push(FieldError::required(&path.child(key), "")),
        value if values.contains(&value) => {}
        value => out.push(FieldError::not_supported(&path.child(key), value, values)),
    }
}

fn validate_resource_claims(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, claim) in spec.items("resourceClaims").iter().enumerate() {
        let item = path.index(index);
        let name = claim.text("name");
        let field = item.child("name");
        if name.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else if !names.insert(name) {
            out.push(FieldError::duplicate(&field, name));
        } else {
            out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
        let why = match (claim.has("resourceClaimName"), claim.has("resourceClaimTemplateName")) {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => continue,
        };
        let shown = serde_json::json!({"Name": name, "ResourceClaimName": claim.at("resourceClaimName"),
            "ResourceClaimTemplateName": claim.at("resourceClaimTemplateName")});
        out.push(FieldError::invalid(&item, shown, why));
    }
}

fn validate_host_network(spec: &Value, is_pod: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if !spec.flag("hostNetwork") {
        return;
    }
    let containers = path.child("containers");
    for (index, container) in spec.items("containers").iter().enumerate() {
        let item = containers.index(index);
        let ports = item.child("ports");
        for (index, port) in container.items("ports").iter().enumerate() {
            let (host, own) = (port.int("hostPort").unwrap_or(0), port.int("containerPort").unwrap_or(0));
            if (is_pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                out.push(FieldError::invalid(&ports.index(index).child("hostPort"), host, why));
            }
        }
    }
}

fn validate_dns_config(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let config = spec.at("dnsConfig");
    let servers = config.texts("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            out.push(FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            out.push(FieldError::required(&path.child("nameservers"), why));
            return;
        }
    }
    let list = path.child("nameservers");
    if servers.len() > 3 {
        out.push(FieldError::invalid(&list, config.at("nameservers").clone(), "must not have more than 3 nameservers"));
    }
    for (index, server) in servers.iter().enumerate() {
        ip::validate_ip(server, &list.index(index), out);
    }
    let searches = config.texts("searches");
    let list = path.child("searches");
    if searches.len() > 32 {
        out.push(FieldError::invalid(&list, config.at("searches").clone(), "must not have more than 32 search paths"));
    }
    if searches.join(" ").len() > 2048 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        out.push(FieldError::invalid(&list, config.at("searches").clone(), why));
    }
    for (index, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let field = list.index(index);
        let faults = dns_subdomain_with_underscore(search);
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(&field, search, fault)));
    }
    let list = path.child("options");
    for (index, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            out.push(FieldError::required(&list.index(index), "must not be empty"));
        }
    }
}

fn validate_gates(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let list = path.child("readinessGates");
    for (index, gate) in spec.items("readinessGates").iter().enumerate() {
        let kind = gate.text("conditionType");
        let item = list.index(index);
        let field = item.child("conditionType");
        out.extend(qualified_name(kind).into_iter().map(|fault| FieldError::invalid(&field, kind, fault)));
    }
    let list = path.child("schedulingGates");
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        let field = list.index(index);
        out.extend(qualified_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&field, name));
        }
    }
}

fn validate_host_users(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if spec.at("hostUsers") != &Value::Bool(false) {
        return;
    }
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(key) {
            out.push(FieldError::forbidden(&path.child(shown), "when `hostUsers` is false"));
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.child(list);
        for (index, container) in spec.items(list).iter().enumerate() {
            if !container.items("volumeDevices").is_empty() {
                out.push(FieldError::forbidden(
                    &list_path.index(index).child("volumeDevices"),
                    "when `hostUsers` is false",
                ));
            }
        }
    }
}

fn validate_names(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if spec.has("hostnameOverride") {
        let name = spec.text("hostnameOverride");
        let field = path.child("hostnameOverride");
        if spec.flag("setHostnameAsFQDN") {
            out.push(FieldError::forbidden(&field, "may not be specified when setHostnameAsFQDN is true"));
        }
        if spec.flag("hostNetwork") {
            out.push(FieldError::forbidden(&field, "may not be specified when hostNetwork is true"));
        }
        if name.len() > 64 {
            out.push(FieldError::too_long(&field, 64));
        }
        out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    for key in ["serviceAccountName", "nodeName"] {
        let name = spec.text(key);
        if !name.is_empty() {
            let field = path.child(key);
            out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
    if let Some(deadline) = spec.int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let why = inclusive_range(1, i64::from(i32::MAX));
        out.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), deadline, why));
    }
    for key in ["hostname", "subdomain"] {
        let name = spec.text(key);
        if !name.is_empty() {
            let field = path.child(key);
            out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
}

fn validate_host_aliases(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (index, alias) in spec.items("hostAliases").iter().enumerate() {
        let item = path.index(index);
        ip::validate_ip(alias.text("ip"), &item.child("ip"), out);
        let list = item.child("hostnames");
        for (index, name) in alias.texts("hostnames").into_iter().enumerate() {
            let field = list.index(index);
            out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
}

fn validate_classes(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["priorityClassName", "runtimeClassName"] {
        let name = spec.text(key);
        if !name.is_empty() || (key == "runtimeClassName" && spec.has(key)) {
            let field = path.child(key);
            out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
    if spec.has("preemptionPolicy") {
        choice(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, out);
    }
    if spec.has("overhead") {
        let overhead = serde_json::json!({"limits": spec.at("overhead")});
        resources::validate_requirements(&overhead, false, &path.child("overhead"), out);
    }
}

fn validate_os(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if !spec.has("os") {
        return;
    }
    let field = path.child("os");
    match spec.at("os").text("name") {
        "" => out.push(FieldError::required(&field.child("name"), "cannot be empty")),
        "linux" => {
            let context = path.child("securityContext");
            if spec.at("securityContext").has("windowsOptions") {
                let why = "windows options cannot be set for a linux pod";
                out.push(FieldError::forbidden(&context.child("windowsOptions"), why));
            }
        }
        "windows" => validate_windows(spec, path, out),
        other => out.push(FieldError::not_supported(&field, other, &["linux", "windows"])),
    }
}

fn validate_windows(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let why = "cannot be set for a windows pod";
    for key in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
        if spec.has(key) && (matches!(key, "hostUsers" | "shareProcessNamespace") || spec.flag(key)) {
            out.push(FieldError::forbidden(&path.child(key), why));
        }
    }
    let context = path.child("securityContext");
    for key in POD {
        if spec.at("securityContext").has(key) {
            out.push(FieldError::forbidden(&context.child(key), why));
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.child(list);
        for (index, container) in spec.items(list).iter().enumerate() {
            let item = list_path.index(index);
            let context = item.child("securityContext");
            for key in CONTAINER {
                if container.at("securityContext").has(key) {
                    out.push(FieldError::forbidden(&context.child(key), why));
                }
            }
        }
    }
}
