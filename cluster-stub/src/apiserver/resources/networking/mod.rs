//! The resources of the groups `networking.k8s.io` and `discovery.k8s.io`.

mod endpoint_slice;
mod ingress;
mod network_policy;

use serde_json::json;

use super::columns::{self, Column};
use super::kind::Kind;
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, ip};

/// Every resource of both groups.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        endpoint_slice::resource(),
        ingress::resource(),
        ingress::class(),
        network_policy::resource(),
        ip_address(),
        service_cidr(),
    ]
}

/// IPAddress: an address that a service has.
fn ip_address() -> Resource {
    let mut resource = Kind::new("networking.k8s.io", "v1", "ipaddresses", "IPAddress")
        .cluster_scoped()
        .short_names(&["ip"])
        .generation()
        .name_rule(|name, _| {
            let mut errors = Vec::new();
            ip::validate_canonical_ip(name, &Path::root("name"), &mut errors);
            errors.into_iter().map(|error| error.detail).collect()
        })
        .validate(|object, out| {
            let spec = Path::root("spec");
            let path = spec.child("parentRef");
            let parent = object.at("spec").at("parentRef");
            if parent.is_null() {
                out.push(FieldError::required(&path, ""));
                return;
            }
            for key in ["resource", "name"] {
                if parent.text(key).is_empty() {
                    out.push(FieldError::required(&path.child(key), ""));
                }
            }
        })
        .field_labels(&["spec.parentRef.name"], |object| {
            vec![object.at("spec").at("parentRef").text("name").to_owned()]
        })
        .columns(const { &[columns::NAME, Column::text("ParentRef")] }, |object, _now| {
            let parent = object.at("spec").at("parentRef");
            if parent.is_null() {
                return vec![columns::name(object), json!("<none>")];
            }
            let group = parent.text("group");
            let mut text = parent.text("resource").to_lowercase();
            if !group.is_empty() {
                text.push_str(&format!(".{}", group.to_lowercase()));
            }
            for key in ["namespace", "name"] {
                if !parent.text(key).is_empty() {
                    text.push_str(&format!("/{}", parent.text(key)));
                }
            }
            vec![columns::name(object), json!(text)]
        })
        .build();
    resource.singular = "ipaddress".into();
    resource
}

/// ServiceCIDR: a range that services draw from.
fn service_cidr() -> Resource {
    Kind::new("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR")
        .cluster_scoped()
        .status()
        .validate(|object, out| {
            let spec = Path::root("spec");
            let path = spec.child("cidrs");
            let ranges = object.at("spec").texts("cidrs");
            if ranges.is_empty() {
                out.push(FieldError::required(&path, "at least one CIDR required"));
            }
            for (index, range) in ranges.into_iter().enumerate() {
                ip::validate_canonical_cidr(range, &path.index(index), out);
            }
        })
        .validate_update(|object, old, out| {
            if object.at("spec").at("cidrs") != old.at("spec").at("cidrs") {
                let spec = Path::root("spec");
                let value = object.at("spec").at("cidrs").clone();
                out.push(FieldError::invalid(&spec.child("cidrs").index(0), value, "field is immutable"));
            }
        })
        .columns(const { &[columns::NAME, Column::text("CIDRs"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.at("spec").texts("cidrs").join(",")), columns::age(object, now)]
        })
        .build()
}
