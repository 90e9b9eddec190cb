//! NetworkPolicies.
//!
//! Upstream: v1.36.2 `pkg/apis/networking/validation/validation.go` ValidateNetworkPolicy, `pkg/apis/networking/v1/defaults.go`.

use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC};
use super::super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{format_selector, validate_label_selector};
use crate::apiserver::validation::names::{port_name, port_number};
use crate::apiserver::validation::{FieldError, Path, ip};

/// NetworkPolicy.
pub(super) fn resource() -> Resource {
    Kind::new("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
        .short_names(&["netpol"])
        .generation()
        .defaults(|object| {
            let spec = object.object_mut("spec");
            spec.object_mut("podSelector");
            for direction in ["ingress", "egress"] {
                for port in spec.items_mut(direction).iter_mut().flat_map(|rule| rule.items_mut("ports")) {
                    port.default_to("protocol", "TCP");
                }
            }
            if spec.items("policyTypes").is_empty() {
                let types =
                    if spec.items("egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
                spec.put("policyTypes", types);
            }
        })
        .validate(validate)
        .columns(const { &[columns::NAME, Column::text("Pod-Selector"), columns::AGE] }, |object, now| {
            vec![
                columns::name(object),
                json!(format_selector(object.at("spec").at("podSelector"))),
                columns::age(object, now),
            ]
        })
        .build()
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_label_selector(spec.at("podSelector"), &SPEC.child("podSelector"), out);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = SPEC.child(direction);
        for (index, rule) in spec.items(direction).iter().enumerate() {
            let item = list.index(index);
            let ports = item.child("ports");
            for (index, port) in rule.items("ports").iter().enumerate() {
                validate_port(port, &ports.index(index), out);
            }
            let peers_path = item.child(peers);
            for (index, peer) in rule.items(peers).iter().enumerate() {
                validate_peer(peer, &peers_path.index(index), out);
            }
        }
    }
    let types = spec.texts("policyTypes");
    let list = SPEC.child("policyTypes");
    if types.len() > 2 {
        let value = spec.at("policyTypes").clone();
        out.push(FieldError::invalid(&list, value, "may not specify more than two policyTypes"));
        return;
    }
    for (index, kind) in types.into_iter().enumerate() {
        if !matches!(kind, "Ingress" | "Egress") {
            out.push(FieldError::not_supported(&list.index(index), kind, &["Ingress", "Egress"]));
        }
    }
}

fn validate_port(port: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let protocol = port.text("protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        out.push(FieldError::not_supported(&path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]));
    }
    let field = path.child("port");
    match port.at("port") {
        Value::Null => {
            if port.has("endPort") {
                let why = "may not be specified when `port` is not specified";
                out.push(FieldError::invalid(&path.child("endPort"), port.at("endPort").clone(), why));
            }
        }
        Value::String(name) => {
            if port.has("endPort") {
                let why = "may not be specified when `port` is non-numeric";
                out.push(FieldError::invalid(&path.child("endPort"), port.at("endPort").clone(), why));
            }
            out.extend(port_name(name).into_iter().map(|fault| FieldError::invalid(&field, name.as_str(), fault)));
        }
        number => {
            let number = number.as_i64().unwrap_or(0);
            out.extend(port_number(number).into_iter().map(|fault| FieldError::invalid(&field, number, fault)));
            if let Some(end) = port.int("endPort") {
                let field = path.child("endPort");
                if end < number {
                    out.push(FieldError::invalid(&field, number, "must be greater than or equal to `port`"));
                }
                out.extend(port_number(end).into_iter().map(|fault| FieldError::invalid(&field, end, fault)));
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let selectors = ["podSelector", "namespaceSelector"];
    for key in selectors {
        validate_label_selector(peer.at(key), &path.child(key), out);
    }
    let block = peer.at("ipBlock");
    if !block.is_null() {
        let field = path.child("ipBlock");
        validate_block(block, &field, out);
    }
    let selects = selectors.iter().any(|key| peer.has(key));
    if selects && !block.is_null() {
        out.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    } else if !selects && block.is_null() {
        out.push(FieldError::required(path, "must specify a peer"));
    }
}

fn validate_block(block: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let range = block.text("cidr");
    let field = path.child("cidr");
    if range.is_empty() {
        out.push(FieldError::required(&field, ""));
        return;
    }
    ip::validate_cidr(range, &field, out);
    let Some((base, length)) = ip::parse_cidr_sloppy(range) else { return };
    let list = path.child("except");
    for (index, except) in block.texts("except").into_iter().enumerate() {
        let field = list.index(index);
        ip::validate_cidr(except, &field, out);
        let Some((address, own)) = ip::parse_cidr_sloppy(except) else { continue };
        let inside = address.is_ipv4() == base.is_ipv4()
            && own > length
            && ip::masked(address, length) == ip::masked(base, length);
        if !inside {
            out.push(FieldError::invalid(&field, except, "must be a strict subset of `cidr`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_types_are_checked() {
        let mut errors = Vec::new();
        let policy =
            json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "bad"}}]}], "policyTypes": ["Sideways"]}});
        validate(&policy, &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"bad\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                "spec.policyTypes[0]: Unsupported value: \"Sideways\": supported values: \"Ingress\", \"Egress\"",
            ]
        );
    }
}
