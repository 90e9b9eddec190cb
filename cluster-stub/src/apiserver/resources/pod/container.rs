//! Containers of a pod: name, image, ports, mounts, policies. Environment, probes and resources have files of their own.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` validateContainerCommon and its callers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{env, probe, resources, security};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{dns_label, port_name, port_number};
use crate::apiserver::validation::{FieldError, Path};

/// What containers of a pod refer to.
pub(super) struct Surroundings<'a> {
    /// The pod's spec.
    pub(super) spec: &'a Value,
    /// Valid volumes, by name.
    pub(super) volumes: Vec<&'a Value>,
    /// Names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'a str>,
    /// The pod's grace period, seconds.
    pub(super) grace: Option<i64>,
}

impl Surroundings<'_> {
    fn host_users(&self) -> bool {
        self.spec.at("hostUsers").as_bool().unwrap_or(true)
    }

    fn volume(&self, name: &str) -> Option<&Value> {
        self.volumes.iter().copied().find(|volume| volume.text("name") == name)
    }
}

/// Regular containers.
pub(super) fn validate_containers(around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let containers = around.spec.items("containers");
    if containers.is_empty() {
        out.push(FieldError::required(path, ""));
        return;
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let item = path.index(index);
        validate_common(container, around, &item, out);
        if !names.insert(container.text("name")) {
            out.push(FieldError::duplicate(&item.child("name"), container.text("name")));
        }
        validate_hooks(container, around, &item, out);
        validate_restart_policy(container, &item, out);
    }
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        validate_host_ports(container, &mut taken, &path.index(index), out);
    }
}

/// Init containers; those that always restart are sidecars.
pub(super) fn validate_init_containers(around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut names: BTreeSet<&str> =
        around.spec.items("containers").iter().map(|container| container.text("name")).collect();
    for (index, container) in around.spec.items("initContainers").iter().enumerate() {
        let item = path.index(index);
        validate_common(container, around, &item, out);
        validate_restart_policy(container, &item, out);
        let name = container.text("name");
        if !name.is_empty() && !names.insert(name) {
            out.push(FieldError::duplicate(&item.child("name"), name));
        }
        // Upstream checks the ports of one init container alone, under the path of the first.
        validate_host_ports(container, &mut BTreeSet::new(), &path.index(0), out);
        if resources::is_restartable(container) {
            validate_hooks(container, around, &item, out);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(key) {
                let why = "may not be set for init containers without restartPolicy=Always";
                out.push(FieldError::forbidden(&item.child(key), why));
            }
        }
        let policies = item.child("resizePolicy");
        for (index, policy) in container.items("resizePolicy").iter().enumerate() {
            if policy.text("restartPolicy") == "RestartContainer" {
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                out.push(FieldError::invalid(&policies.index(index).child("restartPolicy"), "RestartContainer", why));
            }
        }
    }
}

/// Ephemeral containers, which may have few members only.
pub(super) fn validate_ephemeral_containers(around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const FORBIDDEN: [&str; 10] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "volumeDevices",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let lists = ["containers", "initContainers"];
    let others: BTreeSet<&str> =
        lists.iter().flat_map(|list| around.spec.items(list)).map(|container| container.text("name")).collect();
    let mut names = others.clone();
    for (index, container) in around.spec.items("ephemeralContainers").iter().enumerate() {
        let item = path.index(index);
        validate_common(container, around, &item, out);
        validate_image_whitespace(container, &item, out);
        let name = container.text("name");
        if !names.insert(name) {
            out.push(FieldError::duplicate(&item.child("name"), name));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            out.push(FieldError::not_found(&item.child("targetContainerName"), target));
        }
        for key in FORBIDDEN {
            let set = match container.at(key) {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(members) => !(key == "resources" && members.is_empty()),
                _ => true,
            };
            if set {
                out.push(FieldError::forbidden(&item.child(key), "cannot be set for an Ephemeral Container"));
            }
        }
        let mounts = item.child("volumeMounts");
        for (index, mount) in container.items("volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.text(key).is_empty() {
                    let why = "cannot be set for an Ephemeral Container";
                    out.push(FieldError::forbidden(&mounts.index(index).child(key), why));
                }
            }
        }
    }
}

/// The image of a real pod has no blanks around it.
pub(super) fn validate_image_whitespace(container: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let image = container.text("image");
    if image.trim() != image {
        out.push(FieldError::invalid(&path.child("image"), image, "must not have leading or trailing whitespace"));
    }
}

fn validate_common(container: &Value, around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let name = container.text("name");
    let field = path.child("name");
    if name.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    if container.text("image").is_empty() {
        out.push(FieldError::required(&path.child("image"), ""));
    }
    choice(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, out);
    validate_ports(container.items("ports"), &path.child("ports"), out);
    env::validate_env(container.items("env"), &path.child("env"), out);
    env::validate_env_from(container.items("envFrom"), &path.child("envFrom"), out);
    validate_mounts(container, around, path, out);
    validate_devices(container, around, path, out);
    choice(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, out);
    let field = path.child("resources");
    resources::validate_requirements(container.at("resources"), false, &field, out);
    validate_claims(container.at("resources"), &around.claims, &field.child("claims"), out);
    validate_resize_policy(container, around.spec.text("restartPolicy"), &path.child("resizePolicy"), out);
    security::validate_container(
        container.at("securityContext"),
        around.host_users(),
        &path.child("securityContext"),
        out,
    );
}

/// A required member with a fixed set of values.
fn choice(container: &Value, key: &str, values: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    match container.text(key) {
        "" => out.push(FieldError::required(&path.child(key), "")),
        value if values.contains(&value) => {}
        value => out.push(FieldError::not_supported(&path.child(key), value, values)),
    }
}

fn validate_ports(ports: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let item = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let faults = port_name(name);
            if faults.is_empty() && !names.insert(name) {
                out.push(FieldError::duplicate(&item.child("name"), name));
            }
            let field = item.child("name");
            out.extend(faults.into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
        let number = port.int("containerPort").unwrap_or(0);
        let field = item.child("containerPort");
        if number == 0 {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(port_number(number).into_iter().map(|fault| FieldError::invalid(&field, number, fault)));
        }
        let host = port.int("hostPort").unwrap_or(0);
        if host != 0 {
            let field = item.child("hostPort");
            out.extend(port_number(host).into_iter().map(|fault| FieldError::invalid(&field, host, fault)));
        }
        choice(port, "protocol", &["SCTP", "TCP", "UDP"], &item, out);
    }
}

fn validate_host_ports(container: &Value, taken: &mut BTreeSet<String>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let ports = path.child("ports");
    for (index, port) in container.items("ports").iter().enumerate() {
        let number = port.int("hostPort").unwrap_or(0);
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
        if taken.contains(&key) {
            out.push(FieldError::duplicate(&ports.index(index).child("hostPort"), key));
        } else {
            taken.insert(key);
        }
    }
}

fn validate_mounts(container: &Value, around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let devices = container.items("volumeDevices");
    let list = path.child("volumeMounts");
    let mut paths = BTreeSet::new();
    for (index, mount) in container.items("volumeMounts").iter().enumerate() {
        let item = list.index(index);
        let (name, mount_path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            out.push(FieldError::required(&item.child("name"), ""));
        }
        if around.volume(name).is_none() {
            out.push(FieldError::not_found(&item.child("name"), name));
        }
        if mount_path.is_empty() {
            out.push(FieldError::required(&item.child("mountPath"), ""));
        }
        if !paths.insert(mount_path) {
            out.push(FieldError::invalid(&item.child("mountPath"), mount_path, "must be unique"));
        }
        if devices.iter().any(|device| device.text("name") == name) {
            out.push(FieldError::invalid(&item.child("name"), name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|device| device.text("devicePath") == mount_path) {
            let why = "must not already exist as a path in volumeDevices";
            out.push(FieldError::invalid(&item.child("mountPath"), mount_path, why));
        }
        validate_mount_options(container, mount, &list, &item, out);
    }
}

/// Upstream reports these without the index of the mount.
fn validate_mount_options(
    container: &Value,
    mount: &Value,
    list: &Path<'_>,
    item: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    if !sub_path.is_empty() {
        validate_descending_path(sub_path, &list.child("subPath"), out);
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            out.push(FieldError::invalid(&item.child("subPathExpr"), expression, why));
        }
        validate_descending_path(expression, &list.child("subPathExpr"), out);
    }
    let propagation = mount.text("mountPropagation");
    if mount.has("mountPropagation") {
        let field = list.child("mountPropagation");
        let known = ["Bidirectional", "HostToContainer", "None"];
        if !known.contains(&propagation) {
            out.push(FieldError::not_supported(&field, propagation, &known));
        }
        if propagation == "Bidirectional" && !container.at("securityContext").flag("privileged") {
            out.push(FieldError::forbidden(
                &field,
                "Bidirectional mount propagation is available only to privileged containers",
            ));
        }
    }
    let field = list.child("recursiveReadOnly");
    match mount.text("recursiveReadOnly") {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.flag("readOnly") {
                out.push(FieldError::forbidden(&field, "may only be specified when readOnly is true"));
            }
            if !matches!(propagation, "" | "None") {
                out.push(FieldError::forbidden(
                    &field,
                    "may only be specified when mountPropagation is None or not specified",
                ));
            }
        }
        other => out.push(FieldError::not_supported(&field, other, &["Disabled", "Enabled", "IfPossible"])),
    }
}

fn validate_devices(container: &Value, around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mounts = container.items("volumeMounts");
    let list = path.child("volumeDevices");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.items("volumeDevices").iter().enumerate() {
        let item = list.index(index);
        let (name, device_path) = (device.text("name"), device.text("devicePath"));
        let (name_field, path_field) = (item.child("name"), item.child("devicePath"));
        if name.is_empty() {
            out.push(FieldError::required(&name_field, ""));
        } else if !names.insert(name) {
            out.push(FieldError::invalid(&name_field, name, "must be unique"));
        }
        match around.volume(name) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                out.push(FieldError::invalid(&name_field, name, why));
            }
            Some(_) => {}
            None => out.push(FieldError::not_found(&name_field, name)),
        }
        if device_path.is_empty() {
            out.push(FieldError::required(&path_field, ""));
        }
        if paths.contains(device_path) {
            out.push(FieldError::invalid(&path_field, device_path, "must be unique"));
        }
        if device_path.split('/').any(|part| part == "..") {
            out.push(FieldError::invalid(&path_field, device_path, "can not contain backsteps ('..')"));
        } else {
            paths.insert(device_path);
        }
        if mounts.iter().any(|mount| mount.text("name") == name) {
            out.push(FieldError::invalid(&name_field, name, "must not already exist in volumeMounts"));
        }
        if mounts.iter().any(|mount| mount.text("mountPath") == device_path) {
            out.push(FieldError::invalid(&path_field, device_path, "must not already exist as a path in volumeMounts"));
        }
    }
}

/// A relative path without `..`.
pub(super) fn validate_descending_path(path: &str, field: &Path<'_>, out: &mut Vec<FieldError>) {
    if path.starts_with('/') {
        out.push(FieldError::invalid(field, path, "must be a relative path"));
    }
    validate_no_backsteps(path, field, out);
}

/// A path without `..` as a part.
pub(super) fn validate_no_backsteps(path: &str, field: &Path<'_>, out: &mut Vec<FieldError>) {
    if path.split('/').any(|part| part == "..") {
        out.push(FieldError::invalid(field, path, "must not contain '..'"));
    }
}

fn validate_claims(resources: &Value, claims: &BTreeSet<&str>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, claim) in resources.items("claims").iter().enumerate() {
        let name = claim.text("name");
        let item = path.index(index);
        if name.is_empty() {
            out.push(FieldError::required(&item, ""));
            continue;
        }
        let key = match claim.text("request") {
            "" => name.to_owned(),
            request => format!("{name}/{request}"),
        };
        if seen.contains(&key) {
            out.push(FieldError::duplicate(&item, key));
        } else {
            seen.insert(key);
        }
        if !claims.contains(name) {
            out.push(FieldError::not_found(&item.child("name"), name));
        }
    }
}

fn validate_resize_policy(container: &Value, pod_policy: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, policy) in container.items("resizePolicy").iter().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            out.push(FieldError::duplicate(&path.index(index), resource));
        }
        match resource {
            "cpu" | "memory" => {}
            "" => out.push(FieldError::required(path, "")),
            other => out.push(FieldError::not_supported(path, other, &["cpu", "memory"])),
        }
        let restart = policy.text("restartPolicy");
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => out.push(FieldError::required(path, "")),
            other => out.push(FieldError::not_supported(path, other, &["NotRequired", "RestartContainer"])),
        }
        if pod_policy == "Never" && restart != "NotRequired" {
            out.push(FieldError::invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

fn validate_hooks(container: &Value, around: &Surroundings<'_>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if container.has("lifecycle") {
        let os = around.spec.at("os").text("name");
        probe::validate_lifecycle(container.at("lifecycle"), around.grace, os, &path.child("lifecycle"), out);
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.has(key) {
            probe::validate_probe(key, container.at(key), around.grace, &path.child(key), out);
        }
    }
}

fn validate_restart_policy(container: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let rules = container.items("restartPolicyRules");
    let field = path.child("restartPolicy");
    if container.has("restartPolicy") {
        let policies = ["Always", "Never", "OnFailure"];
        let policy = container.text("restartPolicy");
        if !policies.contains(&policy) {
            out.push(FieldError::not_supported(&field, policy, &policies));
        }
    } else if !rules.is_empty() {
        out.push(FieldError::required(&field, "must specify restartPolicy when restart rules are used"));
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > 20 {
        out.push(FieldError::too_many(&list, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let item = list.index(index);
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&rule.text("action")) {
            out.push(FieldError::not_supported(&item.child("action"), rule.text("action"), &actions));
        }
        let field = item.child("exitCodes");
        if !rule.has("exitCodes") {
            out.push(FieldError::required(&field, "must be specified"));
            continue;
        }
        let codes = rule.at("exitCodes");
        if !matches!(codes.text("operator"), "In" | "NotIn") {
            out.push(FieldError::not_supported(&field.child("operator"), codes.text("operator"), &["In", "NotIn"]));
        }
        let values = codes.items("values").len();
        if values > 255 {
            out.push(FieldError::too_many(&field.child("values"), values, 255));
        }
    }
}
