//! Ingresses and IngressClasses.
//!
//! Upstream: v1.36.2 `pkg/apis/networking/validation/validation.go` ValidateIngressSpec, ValidateIngressClass.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, SPEC};
use super::super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_immutable;
use crate::apiserver::validation::names::{self, dns_label, dns_subdomain, path_segment, wildcard_dns_subdomain};
use crate::apiserver::validation::{FieldError, Path, ip};

/// Ingress.
pub(super) fn resource() -> Resource {
    Kind::new("networking.k8s.io", "v1", "ingresses", "Ingress")
        .short_names(&["ing"])
        .storage("ingress")
        .generation()
        .status()
        .validate(validate)
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::text("Class"),
                    Column::text("Hosts"),
                    Column::text("Address"),
                    Column::text("Ports"),
                    columns::AGE,
                ]
            },
            cells,
        )
        .build()
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let rules = spec.items("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        out.push(FieldError::invalid(&SPEC, json!([]), "either `defaultBackend` or `rules` must be specified"));
    }
    if spec.has("defaultBackend") {
        validate_backend(spec.at("defaultBackend"), &SPEC.child("defaultBackend"), out);
    }
    let list = SPEC.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, &list.index(index), out);
    }
    let list = SPEC.child("tls");
    for (index, tls) in spec.items("tls").iter().enumerate() {
        let item = list.index(index);
        let hosts = item.child("hosts");
        for (index, host) in tls.texts("hosts").into_iter().enumerate() {
            validate_host(host, &hosts.index(index), out);
        }
        let (secret, field) = (tls.text("secretName"), item.child("secretName"));
        if !secret.is_empty() {
            out.extend(dns_subdomain(secret).into_iter().map(|fault| FieldError::invalid(&field, secret, fault)));
        }
    }
    if spec.has("ingressClassName") {
        let (class, field) = (spec.text("ingressClassName"), SPEC.child("ingressClassName"));
        out.extend(dns_subdomain(class).into_iter().map(|fault| FieldError::invalid(&field, class, fault)));
    }
}

fn validate_host(host: &str, field: &Path<'_>, out: &mut Vec<FieldError>) {
    let faults = if host.contains('*') { wildcard_dns_subdomain(host) } else { dns_subdomain(host) };
    out.extend(faults.into_iter().map(|fault| FieldError::invalid(field, host, fault)));
}

fn validate_rule(rule: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let host = rule.text("host");
    if !host.is_empty() {
        let field = path.child("host");
        if ip::parse_sloppy(host).is_some() {
            out.push(FieldError::invalid(&field, host, "must be a DNS name, not an IP address"));
        }
        validate_host(host, &field, out);
    }
    if !rule.has("http") {
        return;
    }
    let http = path.child("http");
    let list = http.child("paths");
    let paths = rule.at("http").items("paths");
    if paths.is_empty() {
        out.push(FieldError::required(&list, ""));
    }
    for (index, one) in paths.iter().enumerate() {
        validate_path(one, &list.index(index), out);
    }
}

fn validate_path(rule: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let text = rule.text("path");
    let field = path.child("path");
    let kind_field = path.child("pathType");
    let absolute = "must be an absolute path";
    match rule.at("pathType").as_str() {
        None => {
            out.push(FieldError::required(&kind_field, "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !text.starts_with('/') {
                out.push(FieldError::invalid(&field, text, absolute));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(sequence) {
                    out.push(FieldError::invalid(&field, text, format!("must not contain '{sequence}'")));
                }
            }
            for suffix in ["/..", "/."] {
                if text.ends_with(suffix) {
                    out.push(FieldError::invalid(&field, text, format!("cannot end with '{suffix}'")));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !text.is_empty() && !text.starts_with('/') {
                out.push(FieldError::invalid(&field, text, absolute));
            }
        }
        Some(other) => {
            out.push(FieldError::not_supported(&kind_field, other, &["Exact", "ImplementationSpecific", "Prefix"]));
        }
    }
    validate_backend(rule.at("backend"), &path.child("backend"), out);
}

fn validate_backend(backend: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => out.push(FieldError::invalid(path, "", "cannot set both resource and service backends")),
        (false, false) => out.push(FieldError::invalid(path, "", "resource or service backend is required")),
        (true, false) => {
            let field = path.child("resource");
            for key in ["kind", "name"] {
                if backend.at("resource").text(key).is_empty() {
                    out.push(FieldError::required(&field.child(key), ""));
                }
            }
        }
        (false, true) => validate_service(backend.at("service"), path, out),
    }
}

fn validate_service(service: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let field = path.child("service");
    let name = service.text("name");
    let name_field = field.child("name");
    if name.is_empty() {
        out.push(FieldError::required(&name_field, ""));
    } else {
        out.extend(dns_label(name).into_iter().map(|fault| FieldError::invalid(&name_field, name, fault)));
    }
    let port = service.at("port");
    let (port_name, number) = (port.text("name"), port.int("number").unwrap_or(0));
    let port_field = field.child("port");
    match (port_name.is_empty(), number == 0) {
        (false, false) => out.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
        (true, true) => out.push(FieldError::required(path, "port name or number is required")),
        (false, true) => {
            let field = port_field.child("name");
            out.extend(
                names::port_name(port_name).into_iter().map(|fault| FieldError::invalid(&field, port_name, fault)),
            );
        }
        (true, false) => {
            let field = port_field.child("number");
            out.extend(names::port_number(number).into_iter().map(|fault| FieldError::invalid(&field, number, fault)));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = object.at("spec");
    let rules = spec.items("rules");
    let hosts: Vec<&str> = rules.iter().take(3).map(|rule| rule.text("host")).filter(|host| !host.is_empty()).collect();
    let hosts = match hosts.as_slice() {
        [] => "*".to_owned(),
        hosts if rules.len() > 3 => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
        hosts => hosts.join(","),
    };
    let ingress = object.at("status").at("loadBalancer").items("ingress");
    let addresses: BTreeSet<&str> = ingress
        .iter()
        .map(|one| or_else(one.text("ip"), one.text("hostname")))
        .filter(|text| !text.is_empty())
        .collect();
    vec![
        columns::name(object),
        json!(or_else(spec.text("ingressClassName"), "<none>")),
        json!(hosts),
        json!(addresses.into_iter().collect::<Vec<_>>().join(",")),
        json!(if spec.items("tls").is_empty() { "80" } else { "80, 443" }),
        columns::age(object, now),
    ]
}

/// IngressClass.
pub(super) fn class() -> Resource {
    Kind::new("networking.k8s.io", "v1", "ingressclasses", "IngressClass")
        .cluster_scoped()
        .generation()
        .defaults(|object| {
            if object.at("spec").has("parameters") {
                object.object_mut("spec").object_mut("parameters").default_to("scope", "Cluster");
            }
        })
        .validate(validate_class)
        .validate_update(|object, old, out| {
            let of = |object: &Value| object.at("spec").at("controller").clone();
            validate_immutable(&of(object), &of(old), &SPEC.child("controller"), out);
        })
        .columns(
            const { &[columns::NAME, Column::text("Controller"), Column::text("Parameters"), columns::AGE] },
            |object, now| {
                let parameters = object.at("spec").at("parameters");
                let shown = if parameters.is_null() {
                    "<none>".to_owned()
                } else {
                    let group = if parameters.has("apiGroup") {
                        format!(".{}", parameters.text("apiGroup"))
                    } else {
                        String::new()
                    };
                    format!("{}{group}/{}", parameters.text("kind"), parameters.text("name"))
                };
                let mut name = object.at("metadata").text("name").to_owned();
                if object.at("metadata").at("annotations").text("ingressclass.kubernetes.io/is-default-class") == "true"
                {
                    name.push_str(" (default)");
                }
                vec![json!(name), json!(object.at("spec").text("controller")), json!(shown), columns::age(object, now)]
            },
        )
        .build()
}

fn validate_class(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let (controller, field) = (spec.text("controller"), SPEC.child("controller"));
    if controller.len() > 250 {
        out.push(FieldError::too_long(&field, 250));
    }
    validate_domain_path(controller, &field, out);
    let parameters = spec.at("parameters");
    if parameters.is_null() {
        return;
    }
    let path = SPEC.child("parameters");
    for key in ["kind", "name"] {
        let (text, field) = (parameters.text(key), path.child(key));
        if text.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(path_segment(text, false).into_iter().map(|fault| FieldError::invalid(&field, text, fault)));
        }
    }
    let namespace = path.child("namespace");
    match parameters.text("scope") {
        "Namespace" if !parameters.has("namespace") => {
            out.push(FieldError::required(&namespace, "`parameters.scope` is set to 'Namespace'"));
        }
        "Cluster" if parameters.has("namespace") => {
            out.push(FieldError::forbidden(&namespace, "`parameters.scope` is set to 'Cluster'"));
        }
        "Namespace" | "Cluster" => {}
        other => out.push(FieldError::not_supported(&path.child("scope"), other, &["Cluster", "Namespace"])),
    }
}

/// `domain/path`, as controllers of ingress classes and Jobs are named.
pub(in crate::apiserver::resources) fn validate_domain_path(text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if text.is_empty() {
        out.push(FieldError::required(path, ""));
        return;
    }
    match text.split_once('/') {
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            out.extend(dns_subdomain(host).into_iter().map(|fault| FieldError::invalid(path, host, fault)));
            let fits = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte));
            if !fits {
                let why = names::regex_error("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]);
                out.push(FieldError::invalid(path, rest, why));
            }
        }
        _ => out.push(FieldError::invalid(path, text, "must be a domain-prefixed path (such as \"acme.io/foo\")")),
    }
}
