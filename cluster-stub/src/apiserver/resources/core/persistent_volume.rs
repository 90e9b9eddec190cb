//! PersistentVolumes: defaults, validation, columns.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePersistentVolume, `pkg/apis/core/v1/defaults.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, SPEC, same};
use super::super::pod::volume_source;
use super::super::resource::Resource;
use super::super::resource_list;
use crate::apiserver::registry::format_time;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::dns_subdomain;
use crate::apiserver::validation::{FieldError, Path, Quantity};

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Capacity"),
    Column::text("Access Modes"),
    Column::text("Reclaim Policy"),
    Column::text("Status"),
    Column::text("Claim"),
    Column::text("StorageClass"),
    Column::text("VolumeAttributesClass"),
    Column::text("Reason"),
    columns::AGE,
    Column::wide("VolumeMode"),
];
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// PersistentVolume.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "persistentvolumes", "PersistentVolume")
        .returns_deleted()
        .short_names(&["pv"])
        .cluster_scoped()
        .status()
        .defaults(apply_defaults)
        .prepare_create(|_context, object| object.put("status", json!({"phase": "Pending"})))
        .validate(validate)
        .validate_update(validate_update)
        .prepare_status(|context, object, old| {
            let phase = object.at("status").text("phase").to_owned();
            if phase != old.at("status").text("phase")
                && object.at("status").text("lastPhaseTransitionTime")
                    == old.at("status").text("lastPhaseTransitionTime")
            {
                object.object_mut("status").put("lastPhaseTransitionTime", json!(timestamp(context.now)));
            }
        })
        .columns(COLUMNS, cells)
        .build()
}

/// A moment as Kubernetes writes it: RFC 3339 with seconds.
pub(in crate::apiserver) fn timestamp(moment: Timestamp) -> String {
    format_time(moment)
}

fn apply_defaults(object: &mut Value) {
    object.object_mut("status").default_to("phase", "Pending");
    let spec = object.object_mut("spec");
    spec.default_to("persistentVolumeReclaimPolicy", "Retain");
    spec.default_to("volumeMode", "Filesystem");
    resource_list::round_up(spec.get_mut("capacity"));
    volume_source::apply_defaults(spec);
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_access_modes(spec, &SPEC, out);
    let capacity = SPEC.child("capacity");
    let sizes = spec.entries("capacity");
    if sizes.is_none_or(serde_json::Map::is_empty) {
        out.push(FieldError::required(&capacity, ""));
    } else if sizes.is_some_and(|sizes| !sizes.contains_key("storage") || sizes.len() > 1) {
        out.push(FieldError::not_supported(&capacity, go_resources(spec.at("capacity")), &["storage"]));
    }
    for (name, size) in sizes.into_iter().flatten() {
        let field = capacity.key(name);
        validate_positive(size, &field, out);
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !matches!(policy, "Delete" | "Recycle" | "Retain") {
        out.push(FieldError::not_supported(
            &SPEC.child("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        ));
    }
    volume_source::validate_persistent(spec, &SPEC, out);
    let path = spec.at("hostPath").text("path");
    if !path.is_empty() && path.trim_end_matches('/').is_empty() && policy == "Recycle" {
        out.push(FieldError::forbidden(
            &SPEC.child("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
    validate_class(spec.text("storageClassName"), &SPEC.child("storageClassName"), out);
    let mode = spec.text("volumeMode");
    if !matches!(mode, "" | "Block" | "Filesystem") {
        out.push(FieldError::not_supported(&SPEC.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    if spec.at("nodeAffinity").has("required") {
        let path = SPEC.child("nodeAffinity");
        super::super::pod::affinity::validate_node_selector(
            spec.at("nodeAffinity").at("required"),
            &path.child("required"),
            out,
        );
    }
}

/// Access modes of volumes and claims.
pub(super) fn validate_access_modes(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let field = path.child("accessModes");
    let modes = spec.texts("accessModes");
    if modes.is_empty() {
        out.push(FieldError::required(&field, "at least 1 access mode is required"));
    }
    for mode in &modes {
        if !MODES.contains(mode) {
            out.push(FieldError::not_supported(&field, *mode, &MODES));
        }
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        out.push(FieldError::forbidden(&field, "may not use ReadWriteOncePod with other access modes"));
    }
}

/// A quantity greater than zero.
pub(super) fn validate_positive(quantity: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let text = quantity.as_str().unwrap_or("");
    if Quantity::parse(text).is_ok_and(|quantity| quantity.sign() <= 0) {
        out.push(FieldError::invalid(path, text, "must be greater than zero"));
    }
}

/// The name of a storage class; empty is allowed.
pub(super) fn validate_class(class: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if !class.is_empty() {
        out.extend(dns_subdomain(class).into_iter().map(|fault| FieldError::invalid(path, class, fault)));
    }
}

fn go_resources(list: &Value) -> Value {
    list.clone()
}

fn validate_update(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, old_spec) = (object.at("spec"), old.at("spec"));
    for source in volume_source::PERSISTENT {
        if !same(spec.at(source), old_spec.at(source)) && *source != "csi" {
            let why = "spec.persistentvolumesource is immutable after creation";
            out.push(FieldError::forbidden(&SPEC.child("persistentvolumesource"), why));
            break;
        }
    }
    if spec.at("volumeMode") != old_spec.at("volumeMode") {
        out.push(FieldError::invalid(&SPEC.child("volumeMode"), spec.at("volumeMode").clone(), "field is immutable"));
    }
    if old_spec.has("nodeAffinity") && !same(spec.at("nodeAffinity"), old_spec.at("nodeAffinity")) {
        let value = spec.at("nodeAffinity").clone();
        out.push(FieldError::invalid(
            &SPEC.child("nodeAffinity"),
            value,
            "field is immutable, except for updating from beta label to GA",
        ));
    }
}

/// Short forms of access modes, in upstream's order.
pub(super) fn access_modes(modes: &[&str]) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let found: Vec<&str> = short.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short).collect();
    found.join(",")
}

/// The storage class of a volume or claim: the old annotation goes first.
pub(in crate::apiserver) fn class_of(object: &Value) -> &str {
    match object.at("metadata").at("annotations").text("volume.beta.kubernetes.io/storage-class") {
        "" => object.at("spec").text("storageClassName"),
        class => class,
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let claim = spec.at("claimRef");
    let claim =
        if claim.is_null() { String::new() } else { format!("{}/{}", claim.text("namespace"), claim.text("name")) };
    let deleted = object.at("metadata").has("deletionTimestamp");
    vec![
        columns::name(object),
        json!(resource_list::quantity(spec.at("capacity"), "storage").to_string()),
        json!(access_modes(&spec.texts("accessModes"))),
        json!(spec.text("persistentVolumeReclaimPolicy")),
        json!(if deleted { "Terminating" } else { status.text("phase") }),
        json!(claim),
        json!(class_of(object)),
        json!(or_else(spec.text("volumeAttributesClassName"), "<unset>")),
        json!(status.text("reason")),
        columns::age(object, now),
        json!(or_else(spec.text("volumeMode"), "<unset>")),
    ]
}
