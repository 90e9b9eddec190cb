//! EndpointSlices.
//!
//! Upstream: v1.36.2 `pkg/apis/discovery/validation/validation.go`, `pkg/registry/discovery/endpointslice/strategy.go`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::columns::{self, Column, first_three, or_else};
use super::super::core::validate_non_special;
use super::super::kind::Kind;
use super::super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_immutable;
use crate::apiserver::validation::names::{dns_label, dns_subdomain, qualified_name};
use crate::apiserver::validation::{FieldError, Path, ip};

const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20000;
const MAX_ADDRESSES: usize = 100;

/// EndpointSlice.
pub(super) fn resource() -> Resource {
    Kind::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
        .generation()
        .defaults(|object| {
            for port in object.items_mut("ports") {
                port.default_to("name", "");
                port.default_to("protocol", "TCP");
            }
        })
        .validate(validate)
        .validate_update(|object, old, out| {
            validate_immutable(object.at("addressType"), old.at("addressType"), &Path::root("addressType"), out);
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::text("AddressType"),
                    Column::text("Ports"),
                    Column::text("Endpoints"),
                    columns::AGE,
                ]
            },
            |object, now| {
                let ports: Vec<String> = object
                    .items("ports")
                    .iter()
                    .map(|port| match port.int("port") {
                        Some(number) => number.to_string(),
                        None if port.has("name") => port.text("name").to_owned(),
                        None => "*".to_owned(),
                    })
                    .collect();
                let ports = first_three(ports.iter().map(String::as_str));
                let addresses =
                    first_three(object.items("endpoints").iter().flat_map(|endpoint| endpoint.texts("addresses")));
                vec![
                    columns::name(object),
                    json!(object.text("addressType")),
                    json!(or_else(&ports, "<unset>")),
                    json!(or_else(&addresses, "<unset>")),
                    columns::age(object, now),
                ]
            },
        )
        .build()
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let kind = object.text("addressType");
    let field = Path::root("addressType");
    if kind.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if !matches!(kind, "FQDN" | "IPv4" | "IPv6") {
        out.push(FieldError::not_supported(&field, kind, &["FQDN", "IPv4", "IPv6"]));
    }
    let list = Path::root("endpoints");
    let endpoints = object.items("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        out.push(FieldError::too_many(&list, endpoints.len(), MAX_ENDPOINTS));
    } else {
        for (index, endpoint) in endpoints.iter().enumerate() {
            validate_endpoint(endpoint, kind, &list.index(index), out);
        }
    }
    validate_ports(object.items("ports"), out);
}

fn validate_endpoint(endpoint: &Value, kind: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let list = path.child("addresses");
    let addresses = endpoint.texts("addresses");
    if addresses.is_empty() {
        out.push(FieldError::required(&list, "must contain at least 1 address"));
    } else if addresses.len() > MAX_ADDRESSES {
        out.push(FieldError::too_many(&list, addresses.len(), MAX_ADDRESSES));
    }
    for (index, address) in addresses.into_iter().enumerate() {
        let field = list.index(index);
        match kind {
            "IPv4" | "IPv6" => {
                let before = out.len();
                ip::validate_ip(address, &field, out);
                if out.len() > before {
                    continue;
                }
                if address.contains(':') != (kind == "IPv6") {
                    let why = format!("must be an {kind} address");
                    out.push(FieldError::invalid(&field, address, why));
                }
                validate_non_special(address, &field, out);
            }
            "FQDN" => {
                out.extend(dns_subdomain(address).into_iter().map(|fault| FieldError::invalid(&field, address, fault)))
            }
            _ => {}
        }
    }
    if endpoint.has("nodeName") {
        let (name, field) = (endpoint.text("nodeName"), path.child("nodeName"));
        out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    if endpoint.has("hostname") {
        let (name, field) = (endpoint.text("hostname"), path.child("hostname"));
        out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
}

fn validate_ports(ports: &[Value], out: &mut Vec<FieldError>) {
    let list = Path::root("ports");
    if ports.len() > MAX_PORTS {
        out.push(FieldError::too_many(&list, ports.len(), MAX_PORTS));
        return;
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let item = list.index(index);
        let name = port.text("name");
        let field = item.child("name");
        if !name.is_empty() {
            out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
        if !names.insert(name) {
            out.push(FieldError::duplicate(&field, name));
        }
        let protocol = port.text("protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            out.push(FieldError::not_supported(&item.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        if let Some(number) = port.int("port")
            && !(0..=65535).contains(&number)
        {
            out.push(FieldError::invalid(&item.child("port"), number, "must be between 0 and 65535, inclusive"));
        }
        if port.has("appProtocol") {
            let (name, field) = (port.text("appProtocol"), item.child("appProtocol"));
            out.extend(qualified_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
    }
}
