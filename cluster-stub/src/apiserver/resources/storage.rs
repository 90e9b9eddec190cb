//! The resources of the group `storage.k8s.io`.
//!
//! Upstream: v1.36.2 `pkg/apis/storage/validation/validation.go`, `pkg/apis/storage/v1/defaults.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column, or_else};
use super::kind::{Kind, SPEC, same};
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{validate_label_name, validate_label_selector};
use crate::apiserver::validation::names::dns_subdomain;
use crate::apiserver::validation::{FieldError, Path};

const GROUP: &str = "storage.k8s.io";

/// Every resource of the group.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        storage_class(),
        csi_driver(),
        csi_node(),
        csi_storage_capacity(),
        volume_attachment(),
        volume_attributes_class(),
    ]
}

fn immutable(object: &Value, old: &Value, keys: &[&str], out: &mut Vec<FieldError>) {
    for key in keys {
        if !same(object.at(key), old.at(key)) {
            let path = Path::root(key);
            out.push(match *key {
                "parameters" | "provisioner" | "driverName" => {
                    FieldError::forbidden(&path, format!("updates to {key} are forbidden."))
                }
                _ => FieldError::invalid(&path, object.at(key).clone(), "field is immutable"),
            });
        }
    }
}

fn storage_class() -> Resource {
    Kind::new(GROUP, "v1", "storageclasses", "StorageClass")
        .returns_deleted()
        .cluster_scoped()
        .short_names(&["sc"])
        .defaults(|object| {
            object.default_to("reclaimPolicy", "Delete");
            object.default_to("volumeBindingMode", "Immediate");
        })
        .validate(validate_storage_class)
        .validate_update(|object, old, out| {
            immutable(object, old, &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"], out);
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::text("Provisioner"),
                    Column::text("ReclaimPolicy"),
                    Column::text("VolumeBindingMode"),
                    Column::text("AllowVolumeExpansion"),
                    columns::AGE,
                ]
            },
            |object, now| {
                let annotations = object.at("metadata").at("annotations");
                let mut name = object.at("metadata").text("name").to_owned();
                let default =
                    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                        .iter()
                        .any(|key| annotations.text(key) == "true");
                if default {
                    name.push_str(" (default)");
                }
                vec![
                    json!(name),
                    json!(object.text("provisioner")),
                    json!(or_else(object.text("reclaimPolicy"), "Delete")),
                    json!(or_else(object.text("volumeBindingMode"), "Immediate")),
                    json!(object.flag("allowVolumeExpansion")),
                    columns::age(object, now),
                ]
            },
        )
        .build()
}

fn validate_qualified(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if name.is_empty() {
        out.push(FieldError::required(path, ""));
    } else {
        let faults = crate::apiserver::validation::names::qualified_name(&name.to_lowercase());
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(path, name, fault)));
    }
}

fn validate_storage_class(object: &Value, out: &mut Vec<FieldError>) {
    validate_qualified(object.text("provisioner"), &Path::root("provisioner"), out);
    let parameters = Path::root("parameters");
    let entries = object.entries("parameters");
    if entries.is_some_and(|entries| entries.len() > 512) {
        out.push(FieldError::too_long(&Path::root("Provisioner Parameters Length"), 512));
    }
    for (key, _) in entries.into_iter().flatten() {
        if key.is_empty() {
            out.push(FieldError::invalid(&parameters, "", "field can not be empty."));
        }
    }
    let among = |key: &str, values: &[&str], out: &mut Vec<FieldError>| {
        let value = object.text(key);
        if !value.is_empty() && !values.contains(&value) {
            out.push(FieldError::not_supported(&Path::root(key), value, values));
        }
    };
    among("reclaimPolicy", &["Delete", "Retain"], out);
    let mode = Path::root("volumeBindingMode");
    if object.text("volumeBindingMode").is_empty() {
        out.push(FieldError::required(&mode, ""));
    }
    among("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], out);
    let topologies = Path::root("allowedTopologies");
    for (index, term) in object.items("allowedTopologies").iter().enumerate() {
        let item = topologies.index(index);
        let list = item.child("matchLabelExpressions");
        let mut keys = BTreeSet::new();
        for (index, requirement) in term.items("matchLabelExpressions").iter().enumerate() {
            let item = list.index(index);
            if requirement.items("values").is_empty() {
                out.push(FieldError::required(&item.child("values"), ""));
            }
            validate_label_name(requirement.text("key"), &item.child("key"), out);
            if !keys.insert(requirement.text("key")) {
                out.push(FieldError::duplicate(&item.child("key"), requirement.text("key")));
            }
        }
    }
}

fn csi_driver() -> Resource {
    Kind::new(GROUP, "v1", "csidrivers", "CSIDriver")
        .returns_deleted()
        .cluster_scoped()
        .generation()
        .conditional_update_only()
        .defaults(|object| {
            let spec = object.object_mut("spec");
            for (key, value) in [
                ("attachRequired", true),
                ("podInfoOnMount", false),
                ("storageCapacity", false),
                ("requiresRepublish", false),
                ("seLinuxMount", false),
            ] {
                spec.default_to(key, value);
            }
            spec.default_to("fsGroupPolicy", "ReadWriteOnceWithFSType");
            if spec.items("volumeLifecycleModes").is_empty() {
                spec.put("volumeLifecycleModes", json!(["Persistent"]));
            }
        })
        .validate(|object, out| {
            let spec = object.at("spec");
            let name = object.at("metadata").text("name");
            if name.len() > 63 {
                let metadata = Path::root("metadata");
                out.push(FieldError::too_long(&metadata.child("name"), 63));
            }
            let modes = SPEC.child("volumeLifecycleModes");
            for (index, mode) in spec.texts("volumeLifecycleModes").into_iter().enumerate() {
                if !matches!(mode, "Persistent" | "Ephemeral") {
                    out.push(FieldError::not_supported(&modes.index(index), mode, &["Persistent", "Ephemeral"]));
                }
            }
            let policy = spec.text("fsGroupPolicy");
            let policies = ["ReadWriteOnceWithFSType", "File", "None"];
            if !policies.contains(&policy) {
                out.push(FieldError::not_supported(&SPEC.child("fsGroupPolicy"), policy, &policies));
            }
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::boolean("AttachRequired"),
                    Column::boolean("PodInfoOnMount"),
                    Column::boolean("StorageCapacity"),
                    Column::text("TokenRequests"),
                    Column::boolean("RequiresRepublish"),
                    Column::text("Modes"),
                    columns::AGE,
                ]
            },
            csi_driver_cells,
        )
        .build()
}

fn csi_driver_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = object.at("spec");
    let audiences: Vec<&str> = spec.items("tokenRequests").iter().map(|request| request.text("audience")).collect();
    vec![
        columns::name(object),
        json!(spec.at("attachRequired").as_bool().unwrap_or(true)),
        json!(spec.flag("podInfoOnMount")),
        json!(spec.flag("storageCapacity")),
        json!(if spec.has("tokenRequests") { audiences.join(",") } else { "<unset>".to_owned() }),
        json!(spec.flag("requiresRepublish")),
        json!(or_else(&spec.texts("volumeLifecycleModes").join(","), "<none>")),
        columns::age(object, now),
    ]
}

fn csi_node() -> Resource {
    Kind::new(GROUP, "v1", "csinodes", "CSINode")
        .returns_deleted()
        .cluster_scoped()
        .conditional_update_only()
        .validate(|object, out| {
            let list = SPEC.child("drivers");
            let mut names = BTreeSet::new();
            for (index, driver) in object.at("spec").items("drivers").iter().enumerate() {
                let item = list.index(index);
                let name = driver.text("name");
                if name.is_empty() {
                    out.push(FieldError::required(&item.child("name"), ""));
                } else if !names.insert(name) {
                    out.push(FieldError::duplicate(&item.child("name"), name));
                }
                if driver.text("nodeID").is_empty() {
                    out.push(FieldError::required(&item.child("nodeID"), driver.text("nodeID")));
                }
                if let Some(count) = driver.at("allocatable").int("count")
                    && count < 0
                {
                    let field = item.child("allocatable");
                    out.push(FieldError::invalid(&field.child("count"), count, "must be greater than or equal to 0"));
                }
            }
        })
        .columns(const { &[columns::NAME, Column::integer("Drivers"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.at("spec").items("drivers").len()), columns::age(object, now)]
        })
        .build()
}

fn csi_storage_capacity() -> Resource {
    let mut resource = Kind::new(GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity")
        .conditional_update_only()
        .validate(|object, out| {
            let (class, field) = (object.text("storageClassName"), Path::root("storageClassName"));
            out.extend(dns_subdomain(class).into_iter().map(|fault| FieldError::invalid(&field, class, fault)));
            validate_label_selector(object.at("nodeTopology"), &Path::root("nodeTopology"), out);
        })
        .validate_update(|object, old, out| immutable(object, old, &["nodeTopology", "storageClassName"], out))
        .build();
    resource.list_kind = "CSIStorageCapacityList".into();
    resource
}

fn volume_attachment() -> Resource {
    Kind::new(GROUP, "v1", "volumeattachments", "VolumeAttachment")
        .returns_deleted()
        .cluster_scoped()
        .status()
        .conditional_update_only()
        .validate(|object, out| {
            let spec = object.at("spec");
            validate_qualified(spec.text("attacher"), &SPEC.child("attacher"), out);
            let source = SPEC.child("source");
            if !spec.at("source").has("persistentVolumeName") && !spec.at("source").has("inlineVolumeSpec") {
                out.push(FieldError::required(
                    &source,
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                ));
            }
            let (node, field) = (spec.text("nodeName"), SPEC.child("nodeName"));
            out.extend(dns_subdomain(node).into_iter().map(|fault| FieldError::invalid(&field, node, fault)));
        })
        .validate_update(|object, old, out| {
            if !same(object.at("spec"), old.at("spec")) {
                out.push(FieldError::invalid(&SPEC, object.at("spec").clone(), "field is immutable"));
            }
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::text("Attacher"),
                    Column::text("PV"),
                    Column::text("Node"),
                    Column::boolean("Attached"),
                    columns::AGE,
                ]
            },
            |object, now| {
                let spec = object.at("spec");
                vec![
                    columns::name(object),
                    json!(spec.text("attacher")),
                    json!(spec.at("source").text("persistentVolumeName")),
                    json!(spec.text("nodeName")),
                    json!(object.at("status").flag("attached")),
                    columns::age(object, now),
                ]
            },
        )
        .build()
}

fn volume_attributes_class() -> Resource {
    Kind::new(GROUP, "v1", "volumeattributesclasses", "VolumeAttributesClass")
        .returns_deleted()
        .cluster_scoped()
        .short_names(&["vac"])
        .validate(|object, out| {
            validate_qualified(object.text("driverName"), &Path::root("driverName"), out);
            if object.entries("parameters").is_none_or(serde_json::Map::is_empty) {
                out.push(FieldError::required(&Path::root("parameters"), "must contain at least one key/value pair"));
            }
        })
        .validate_update(|object, old, out| immutable(object, old, &["driverName", "parameters"], out))
        .columns(const { &[columns::NAME, Column::text("DriverName"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.text("driverName")), columns::age(object, now)]
        })
        .build()
}
