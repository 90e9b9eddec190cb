//! Endpoints, the older form of EndpointSlices.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateEndpoints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::Kind;
use super::super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{dns_label, port_number};
use crate::apiserver::validation::{FieldError, Path, ip};

/// Endpoints.
pub(super) fn resource() -> Resource {
    let mut resource = Kind::new("", "v1", "endpoints", "Endpoints")
        .short_names(&["ep"])
        .storage("services/endpoints")
        .create_on_update()
        .defaults(|object| {
            for subset in object.items_mut("subsets") {
                for port in subset.items_mut("ports") {
                    port.default_to("protocol", "TCP");
                }
            }
        })
        .validate(validate)
        .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        .columns(const { &[columns::NAME, Column::text("Endpoints"), columns::AGE] }, cells)
        .build();
    resource.list_kind = "EndpointsList".into();
    resource
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let subsets = Path::root("subsets");
    for (index, subset) in object.items("subsets").iter().enumerate() {
        let path = subsets.index(index);
        if subset.items("addresses").is_empty() && subset.items("notReadyAddresses").is_empty() {
            out.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for key in ["addresses", "notReadyAddresses"] {
            let list = path.child(key);
            for (index, address) in subset.items(key).iter().enumerate() {
                validate_address(address, &list.index(index), out);
            }
        }
        let ports = path.child("ports");
        let many = subset.items("ports").len() > 1;
        for (index, port) in subset.items("ports").iter().enumerate() {
            validate_port(port, many, &ports.index(index), out);
        }
    }
}

fn validate_address(address: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let text = address.text("ip");
    let field = path.child("ip");
    let before = out.len();
    ip::validate_ip(text, &field, out);
    if !address.text("hostname").is_empty() {
        let hostname = address.text("hostname");
        let field = path.child("hostname");
        out.extend(dns_label(hostname).into_iter().map(|fault| FieldError::invalid(&field, hostname, fault)));
    }
    if out.len() > before {
        return;
    }
    validate_non_special(text, &field, out);
}

/// Addresses that no endpoint may have: unspecified, loopback, link-local.
pub(in crate::apiserver::resources) fn validate_non_special(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let Some(address) = ip::parse_sloppy(text) else { return };
    let mut fault = |why: &str| out.push(FieldError::invalid(path, text, why));
    if address.is_unspecified() {
        fault(&format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        fault("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, multicast) = match address {
        std::net::IpAddr::V4(address) => {
            (address.is_link_local(), address.octets()[0] == 224 && address.octets()[1..3] == [0, 0])
        }
        std::net::IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] == 0xff02),
    };
    if link_local {
        fault("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        fault("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn validate_port(port: &Value, name_required: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let name = port.text("name");
    if name.is_empty() {
        if name_required {
            out.push(FieldError::required(&path.child("name"), ""));
        }
    } else {
        let field = path.child("name");
        out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
    let number = port.int("port").unwrap_or(0);
    let field = path.child("port");
    out.extend(port_number(number).into_iter().map(|fault| FieldError::invalid(&field, number, fault)));
    let protocol = port.text("protocol");
    if protocol.is_empty() {
        out.push(FieldError::required(&path.child("protocol"), ""));
    } else if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        out.push(FieldError::not_supported(&path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut texts = Vec::new();
    for subset in object.items("subsets") {
        let addresses = subset.items("addresses");
        if subset.items("ports").is_empty() {
            texts.extend(addresses.iter().map(|address| address.text("ip").to_owned()));
        }
        for port in subset.items("ports") {
            let port = port.int("port").unwrap_or(0);
            texts.extend(addresses.iter().map(|address| match address.text("ip") {
                ip if ip.contains(':') => format!("[{ip}]:{port}"),
                ip => format!("{ip}:{port}"),
            }));
        }
    }
    let text = if object.items("subsets").is_empty() {
        "<none>".to_owned()
    } else {
        columns::first_three(texts.iter().map(String::as_str))
    };
    vec![columns::name(object), json!(text), columns::age(object, now)]
}
