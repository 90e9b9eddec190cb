//! Volumes of pods and sources of PersistentVolumes: defaults and validation.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateVolumes, ValidatePersistentVolumeSpec; `pkg/apis/core/v1/defaults.go`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::core::persistent_volume_claim as claim;
use super::container::{validate_descending_path, validate_no_backsteps};
use super::{defaults, env};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{dns_label, dns_subdomain};
use crate::apiserver::validation::{FieldError, Path, Quantity};

/// Sources of a pod's volume, in the order in which upstream looks at them.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Sources of a PersistentVolume, in the order in which upstream looks at them.
pub(in crate::apiserver::resources) const PERSISTENT: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

const BAD_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Defaults of one volume of a pod: an empty directory when it names no source.
pub(super) fn apply_volume_defaults(volume: &mut Value) {
    if !SOURCES.iter().any(|source| volume.has(source)) {
        volume.put("emptyDir", json!({}));
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if volume.has(key) {
            volume[key].default_to("defaultMode", 0o644);
        }
    }
    if volume.has("downwardAPI") {
        apply_item_defaults(&mut volume["downwardAPI"]);
    }
    if volume.has("projected") {
        for source in volume["projected"].items_mut("sources") {
            if source.has("serviceAccountToken") {
                source["serviceAccountToken"].default_to("expirationSeconds", 3600);
            }
            if source.has("downwardAPI") {
                apply_item_defaults(&mut source["downwardAPI"]);
            }
        }
    }
    if volume.has("ephemeral") && volume["ephemeral"].has("volumeClaimTemplate") {
        claim::apply_spec_defaults(volume["ephemeral"].object_mut("volumeClaimTemplate").object_mut("spec"));
    }
    if volume.has("image") && volume["image"].text("pullPolicy").is_empty() {
        let policy = defaults::pull_policy(volume["image"].text("reference"));
        volume["image"].put("pullPolicy", json!(policy));
    }
    apply_defaults(volume);
}

fn apply_item_defaults(source: &mut Value) {
    for item in source.items_mut("items") {
        if item.has("fieldRef") {
            item["fieldRef"].default_to("apiVersion", "v1");
        }
        if item.has("resourceFieldRef") {
            item["resourceFieldRef"].default_to("divisor", "0");
        }
    }
}

/// Defaults that volumes of pods and PersistentVolumes share.
pub(in crate::apiserver::resources) fn apply_defaults(holder: &mut Value) {
    let mut fill = |source: &str, pairs: &[(&str, Value)]| {
        if holder.has(source) {
            for (key, value) in pairs {
                holder[source].default_to(key, value.clone());
            }
        }
    };
    fill("hostPath", &[("type", json!(""))]);
    fill("iscsi", &[("iscsiInterface", json!("default"))]);
    fill("rbd", &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]);
    fill("scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]);
    fill(
        "azureDisk",
        &[
            ("cachingMode", json!("ReadWrite")),
            ("kind", json!("Shared")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
        ],
    );
}

/// `spec.volumes`. Answers with the valid ones.
pub(super) fn validate_volumes<'a>(
    volumes: &'a [Value],
    pod_name: Option<&str>,
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) -> Vec<&'a Value> {
    let mut names = BTreeSet::new();
    let mut valid = Vec::new();
    let created: Vec<String> = pod_name
        .into_iter()
        .filter(|name| !name.is_empty())
        .flat_map(|pod| {
            volumes
                .iter()
                .filter(|volume| volume.has("ephemeral"))
                .map(move |volume| format!("{pod}-{}", volume.text("name")))
        })
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let item = path.index(index);
        let before = out.len();
        validate_volume(volume, &item, out);
        let name = volume.text("name");
        let field = item.child("name");
        if name.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
        if names.contains(name) {
            out.push(FieldError::duplicate(&field, name));
        }
        if out.len() == before {
            names.insert(name);
            valid.push(volume);
        }
        let claim = volume.at("persistentVolumeClaim").text("claimName");
        if created.iter().any(|name| name == claim) {
            let field = item.child("persistentVolumeClaim");
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            out.push(FieldError::invalid(&field.child("claimName"), claim, why));
        }
    }
    valid
}

fn validate_volume(volume: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut found = false;
    for source in SOURCES {
        if !volume.has(source) {
            continue;
        }
        let field = path.child(source);
        if found {
            out.push(FieldError::forbidden(&field, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        validate_source(source, volume.at(source), &field, out);
    }
    if !found {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// The source of a PersistentVolume.
pub(in crate::apiserver::resources) fn validate_persistent(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut found = false;
    for source in PERSISTENT {
        if !spec.has(source) {
            continue;
        }
        let field = path.child(source);
        if found {
            out.push(FieldError::forbidden(&field, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        if *source == "local" {
            let text = spec.at("local").text("path");
            if text.is_empty() {
                out.push(FieldError::required(&field.child("path"), ""));
            } else {
                validate_no_backsteps(text, &field.child("path"), out);
            }
            if !spec.at("nodeAffinity").has("required") {
                let why = "Local volume requires node affinity";
                out.push(FieldError::required(&path.child("nodeAffinity"), why));
            }
        } else if *source == "csi" {
            require(spec.at("csi"), &["driver", "volumeHandle"], &field, out);
        } else {
            validate_source(source, spec.at(source), &field, out);
        }
    }
    if !found {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn require(source: &Value, keys: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in keys {
        if source.text(key).is_empty() {
            out.push(FieldError::required(&path.child(key), ""));
        }
    }
}

fn validate_source(kind: &str, source: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    match kind {
        "emptyDir" if Quantity::parse(source.text("sizeLimit")).is_ok_and(|size| size.sign() < 0) => {
            out.push(FieldError::forbidden(
                &path.child("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            ));
        }
        "hostPath" => validate_host_path(source, path, out),
        "gitRepo" => {
            require(source, &["repository"], path, out);
            validate_descending_path(source.text("directory"), &path.child("directory"), out);
        }
        "secret" => {
            require(source, &["secretName"], path, out);
            validate_mode(source, "defaultMode", path, out);
            validate_items(source, path, out);
        }
        "configMap" => {
            require(source, &["name"], path, out);
            validate_mode(source, "defaultMode", path, out);
            validate_items(source, path, out);
        }
        "nfs" => {
            require(source, &["server", "path"], path, out);
            if !source.text("path").starts_with('/') {
                out.push(FieldError::invalid(&path.child("path"), source.text("path"), "must be an absolute path"));
            }
        }
        "persistentVolumeClaim" => require(source, &["claimName"], path, out),
        "downwardAPI" => {
            validate_mode(source, "defaultMode", path, out);
            for item in source.items("items") {
                validate_downward_file(item, path, out);
            }
        }
        "projected" => {
            validate_mode(source, "defaultMode", path, out);
            validate_projections(source, path, out);
        }
        "csi" => validate_csi(source, path, out),
        "ephemeral" => {
            let template = path.child("volumeClaimTemplate");
            if source.has("volumeClaimTemplate") {
                claim::validate_spec(source.at("volumeClaimTemplate").at("spec"), &template.child("spec"), out);
            } else {
                out.push(FieldError::required(&template, ""));
            }
        }
        "image" => {
            require(source, &["reference"], path, out);
            let policy = source.text("pullPolicy");
            if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
                out.push(FieldError::not_supported(
                    &path.child("pullPolicy"),
                    policy,
                    &["Always", "IfNotPresent", "Never"],
                ));
            }
        }
        "gcePersistentDisk" => require(source, &["pdName"], path, out),
        "awsElasticBlockStore" => require(source, &["volumeID"], path, out),
        "iscsi" => require(source, &["targetPortal", "iqn"], path, out),
        "glusterfs" => require(source, &["endpoints", "path"], path, out),
        "rbd" => require(source, &["image"], path, out),
        "cinder" => require(source, &["volumeID"], path, out),
        "cephfs" if source.items("monitors").is_empty() => out.push(FieldError::required(&path.child("monitors"), "")),
        "flexVolume" => require(source, &["driver"], path, out),
        "azureFile" => require(source, &["secretName", "shareName"], path, out),
        "vsphereVolume" => require(source, &["volumePath"], path, out),
        "photonPersistentDisk" => require(source, &["pdID"], path, out),
        "portworxVolume" => require(source, &["volumeID"], path, out),
        "azureDisk" => require(source, &["diskName", "diskURI"], path, out),
        "scaleIO" => require(source, &["gateway", "system", "volumeName"], path, out),
        _ => {}
    }
}

fn validate_host_path(source: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let text = source.text("path");
    let field = path.child("path");
    if text.is_empty() {
        out.push(FieldError::required(&field, ""));
        return;
    }
    validate_no_backsteps(text, &field, out);
    let kinds = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let kind = source.text("type");
    if !kinds.contains(&kind) {
        out.push(FieldError::not_supported(&path.child("type"), kind, &kinds));
    }
}

fn validate_mode(source: &Value, key: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if let Some(mode) = source.int(key)
        && !(0..=0o777).contains(&mode)
    {
        out.push(FieldError::invalid(&path.child(key), mode, BAD_MODE));
    }
}

fn validate_items(source: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let items = path.child("items");
    for (index, item) in source.items("items").iter().enumerate() {
        let field = items.index(index);
        require(item, &["key", "path"], &field, out);
        validate_unreserved_path(item.text("path"), &field.child("path"), out);
        validate_mode(item, "mode", &field, out);
    }
}

/// A relative path that does not start with `..`.
fn validate_unreserved_path(path: &str, field: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_descending_path(path, field, out);
    if path.starts_with("..") && !path.starts_with("../") {
        out.push(FieldError::invalid(field, path, "must not start with '..'"));
    }
}

fn validate_downward_file(file: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    require(file, &["path"], path, out);
    validate_unreserved_path(file.text("path"), &path.child("path"), out);
    if file.has("fieldRef") {
        env::validate_volume_field_ref(file.at("fieldRef"), &path.child("fieldRef"), out);
        if file.has("resourceFieldRef") {
            out.push(FieldError::invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            ));
        }
    } else if file.has("resourceFieldRef") {
        env::validate_resource_ref(file.at("resourceFieldRef"), true, &path.child("resourceFieldRef"), out);
    } else {
        out.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
    }
    validate_mode(file, "mode", path, out);
}

fn validate_projections(source: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let sources = path.child("sources");
    let mut paths = BTreeSet::new();
    for (index, projection) in source.items("sources").iter().enumerate() {
        let item = sources.index(index);
        let mut count = 0;
        for key in ["secret", "configMap"] {
            if !projection.has(key) {
                continue;
            }
            count += 1;
            let field = item.child(key);
            require(projection.at(key), &["name"], &field, out);
            validate_items(projection.at(key), &field, out);
            for entry in projection.at(key).items("items") {
                if !entry.text("path").is_empty() && !paths.insert(entry.text("path")) {
                    out.push(FieldError::invalid(path, projection.at(key).text("name"), "conflicting duplicate paths"));
                }
            }
        }
        if projection.has("downwardAPI") {
            count += 1;
            for file in projection.at("downwardAPI").items("items") {
                validate_downward_file(file, &item.child("downwardAPI"), out);
                if !file.text("path").is_empty() && !paths.insert(file.text("path")) {
                    out.push(FieldError::invalid(path, file.text("path"), "conflicting duplicate paths"));
                }
            }
        }
        if projection.has("serviceAccountToken") {
            count += 1;
            let field = item.child("serviceAccountToken");
            let token = projection.at("serviceAccountToken");
            let seconds = token.int("expirationSeconds").unwrap_or(0);
            if seconds < 600 {
                let why = "may not specify a duration less than 10 minutes";
                out.push(FieldError::invalid(&field.child("expirationSeconds"), seconds, why));
            }
            if seconds > 1 << 32 {
                let why = "may not specify a duration larger than 2^32 seconds";
                out.push(FieldError::invalid(&field.child("expirationSeconds"), seconds, why));
            }
            match token.text("path") {
                "" => out.push(FieldError::required(&path.child("path"), "")),
                text => validate_unreserved_path(text, &path.child("path"), out),
            }
        }
        count += usize::from(projection.has("clusterTrustBundle")) + usize::from(projection.has("podCertificate"));
        if count > 1 {
            out.push(FieldError::forbidden(&item, "may not specify more than 1 volume type per source"));
        }
    }
}

fn validate_csi(source: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let driver = source.text("driver");
    let field = path.child("driver");
    if driver.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        if driver.len() > 63 {
            out.push(FieldError::too_long(&field, 63));
        }
        let faults = dns_subdomain(&driver.to_lowercase());
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(&field, driver, fault)));
    }
    if source.has("nodePublishSecretRef") {
        let name = source.at("nodePublishSecretRef").text("name");
        if name.is_empty() {
            let field = path.child("nodePublishSecretRef");
            out.push(FieldError::required(&field.child("name"), ""));
        } else {
            let field = path.child("name");
            out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_without_source_is_an_empty_directory() {
        let mut volume = json!({"name": "v"});
        apply_volume_defaults(&mut volume);
        assert_eq!(volume, json!({"name": "v", "emptyDir": {}}));
        let mut volume = json!({"name": "v", "secret": {"secretName": "s"}});
        apply_volume_defaults(&mut volume);
        assert_eq!(volume["secret"]["defaultMode"], 420);
    }

    #[test]
    fn a_volume_has_one_source() {
        let volumes =
            [json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}), json!({"name": "w", "emptyDir": {}})];
        let mut errors = Vec::new();
        let valid = validate_volumes(&volumes, None, &Path::root("v"), &mut errors);
        assert_eq!(valid.len(), 1);
        assert_eq!(errors[0].to_string(), "v[0].hostPath: Forbidden: may not specify more than 1 volume type");
    }
}
