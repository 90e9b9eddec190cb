//! Nodes: taints, pod ranges, resources, and the columns of `kubectl get nodes`.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateNode, `pkg/registry/core/node/strategy.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, SPEC, STATUS, same};
use super::super::resource::{Resource, Verbs};
use super::super::resource_list;
use super::super::strategy::{Strategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, ip, labels, names};

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Status"),
    Column::text("Roles"),
    columns::AGE,
    Column::text("Version"),
    Column::wide("Internal-IP"),
    Column::wide("External-IP"),
    Column::wide("OS-Image"),
    Column::wide("Kernel-Version"),
    Column::wide("Container-Runtime"),
];

/// Node.
pub(super) fn resource() -> Resource {
    let kind = Kind::new("", "v1", "nodes", "Node")
        .short_names(&["no"])
        .cluster_scoped()
        .storage("minions")
        .status()
        .defaults(apply_defaults)
        .validate(validate)
        .validate_update(validate_update)
        .validate_status(validate_update)
        .columns(COLUMNS, cells);
    let strategy = Node(kind.clone());
    kind.build().with_strategy(strategy).with_connection(
        "proxy",
        "NodeProxyOptions",
        Verbs::ALL.without(Verbs::LIST).without(Verbs::WATCH).without(Verbs::DELETE_COLLECTION),
    )
}

/// The generic rules, but a create keeps the status.
struct Node(Kind);

impl Strategy for Node {
    fn apply_defaults(&self, object: &mut Value) {
        self.0.apply_defaults(object);
    }

    fn prepare_for_create(&self, _context: &WriteContext<'_>, object: &mut Value) {
        object.object_mut("spec").take_member("configSource");
    }

    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        self.0.prepare_for_update(context, object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        Strategy::validate(&self.0, object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        Strategy::validate_update(&self.0, object, old)
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        vec![object.at("spec").flag("unschedulable").to_string()]
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

fn apply_defaults(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        agree_on_ranges(spec);
    }
    if let Some(status) = object.get_mut("status") {
        if !status.has("allocatable") && status.has("capacity") {
            let capacity = status.at("capacity").clone();
            status.put("allocatable", capacity);
        }
        for key in ["capacity", "allocatable"] {
            resource_list::round_up(status.get_mut(key));
        }
    }
}

/// `podCIDR` is the first of `podCIDRs`; where both are given and differ, it wins.
///
/// Upstream: `pkg/apis/core/v1/conversion.go` Convert_v1_NodeSpec_To_core_NodeSpec and back.
fn agree_on_ranges(spec: &mut Value) {
    let (one, many) =
        (spec.text("podCIDR").to_owned(), spec.texts("podCIDRs").first().map(|first| (*first).to_owned()));
    match many {
        None if one.is_empty() => {}
        Some(first) if one.is_empty() => spec.put("podCIDR", json!(first)),
        Some(first) if first == one => {}
        _ => spec.put("podCIDRs", json!([one])),
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    validate_taints(object.at("spec").items("taints"), &SPEC.child("taints"), out);
    let ranges = object.at("spec").texts("podCIDRs");
    let field = SPEC.child("podCIDRs");
    for (index, range) in ranges.iter().enumerate() {
        ip::validate_cidr(range, &field.index(index), out);
    }
    if ranges.len() > 2 {
        let why = "may specify no more than one CIDR for each IP family";
        out.push(FieldError::invalid(&field, object.at("spec").at("podCIDRs").clone(), why));
    }
    for key in ["capacity", "allocatable"] {
        let path = STATUS.child(key);
        for (name, quantity) in object.at("status").entries(key).into_iter().flatten() {
            let field = path.key(name);
            resource_list::validate_name(name, &field, out);
            resource_list::validate_quantity(name, quantity.as_str().unwrap_or(""), &field, out);
        }
    }
    let addresses = object.at("status").items("addresses");
    let path = STATUS.child("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            out.push(FieldError::duplicate(&path.index(index), address.clone()));
        }
    }
}

fn validate_taints(taints: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let item = path.index(index);
        labels::validate_label_name(taint.text("key"), &item.child("key"), out);
        let value = taint.text("value");
        let field = item.child("value");
        let faults = names::label_value(value);
        if !faults.is_empty() {
            out.push(FieldError::invalid(&field, value, faults.join(";")));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let effect = taint.text("effect");
        if effect.is_empty() {
            out.push(FieldError::required(&item.child("effect"), ""));
        } else if !effects.contains(&effect) {
            out.push(FieldError::not_supported(&item.child("effect"), effect, &effects));
        }
        if !seen.insert((effect, taint.text("key"))) {
            let mut error = FieldError::duplicate(&item, taint.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            out.push(error);
        }
    }
}

fn validate_update(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, old_spec) = (object.at("spec"), old.at("spec"));
    if !old_spec.items("podCIDRs").is_empty() && !same(spec.at("podCIDRs"), old_spec.at("podCIDRs")) {
        out.push(FieldError::forbidden(
            &SPEC.child("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    let (id, old_id) = (spec.text("providerID"), old_spec.text("providerID"));
    if !old_id.is_empty() && id != old_id {
        out.push(FieldError::forbidden(
            &SPEC.child("providerID"),
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
}

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let status = node.at("status");
    let ready = status.items("conditions").iter().find(|condition| condition.text("type") == "Ready");
    let mut state = match ready.map(|condition| condition.text("status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.at("spec").flag("unschedulable") {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in node.at("metadata").entries("labels").into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role);
        } else if key == "kubernetes.io/role" {
            roles.insert(value.as_str().unwrap_or(""));
        }
    }
    let roles = roles.into_iter().filter(|role| !role.is_empty()).collect::<Vec<_>>().join(",");
    let address = |kind: &str| {
        let found = status.items("addresses").iter().find(|address| address.text("type") == kind);
        found.map_or("<none>", |address| address.text("address")).to_owned()
    };
    let info = status.at("nodeInfo");
    let mut kernel = or_else(info.text("kernelVersion"), "<unknown>").to_owned();
    if !info.text("architecture").is_empty() {
        kernel.push_str(&format!(" ({})", info.text("architecture")));
    }
    vec![
        columns::name(node),
        json!(state),
        json!(or_else(&roles, "<none>")),
        columns::age(node, now),
        json!(info.text("kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(or_else(info.text("osImage"), "<unknown>")),
        json!(kernel),
        json!(or_else(info.text("containerRuntimeVersion"), "<unknown>")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_pod_range_is_the_first_of_all() {
        let (a, b) = ("10.0.0.0/24", "10.0.1.0/24");
        let cases = [
            (json!({}), json!({})),
            (json!({"podCIDR": a}), json!({"podCIDR": a, "podCIDRs": [a]})),
            (json!({"podCIDRs": [a]}), json!({"podCIDR": a, "podCIDRs": [a]})),
            (json!({"podCIDR": a, "podCIDRs": [a, "fd00::/64"]}), json!({"podCIDR": a, "podCIDRs": [a, "fd00::/64"]})),
            (json!({"podCIDR": a, "podCIDRs": [b]}), json!({"podCIDR": a, "podCIDRs": [a]})),
        ];
        for (spec, want) in cases {
            let mut node = json!({"spec": spec});
            apply_defaults(&mut node);
            assert_eq!(node["spec"], want);
        }
    }

    #[test]
    fn a_bad_pod_range_is_refused_where_it_is_kept() {
        let mut node = json!({"spec": {"podCIDR": "bad"}});
        apply_defaults(&mut node);
        let mut errors = Vec::new();
        validate(&node, &mut errors);
        assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["spec.podCIDRs[0]"]);
    }
}
