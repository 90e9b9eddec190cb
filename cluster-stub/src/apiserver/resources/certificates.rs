//! CertificateSigningRequests, with their approval and status.
//!
//! Upstream: v1.36.2 `pkg/registry/certificates/certificates/strategy.go`, `pkg/apis/certificates/validation/validation.go`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column, or_else};
use super::core::persistent_volume::timestamp;
use super::kind::{Kind, SPEC, STATUS, dedup, restore_all_but, same};
use super::resource::{Resource, Verbs};
use super::strategy::{UpdateStrategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_object_meta, validate_object_meta_update};
use crate::apiserver::validation::names::{dns_subdomain, path_segment};
use crate::apiserver::validation::{FieldError, Path};

const COLUMNS: &[Column] = &[
    columns::NAME,
    columns::AGE,
    Column::text("SignerName"),
    Column::text("Requestor"),
    Column::text("RequestedDuration"),
    Column::text("Condition"),
];

/// CertificateSigningRequest.
pub(super) fn resources() -> Vec<Resource> {
    let request = Kind::new("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest")
        .cluster_scoped()
        .short_names(&["csr"])
        .name_rule(path_segment)
        .status()
        .field_labels(&["spec.signerName"], |object| vec![object.at("spec").text("signerName").to_owned()])
        .prepare_create(sign_by_user)
        .prepare_update(|_context, object, old| object.put("spec", old.at("spec").clone()))
        .validate(validate)
        .prepare_status(|context, object, old| {
            // Approval has a subresource of its own.
            let kept: Vec<Value> = decisions(old).cloned().collect();
            let status = object.object_mut("status");
            let mut conditions = kept;
            conditions.extend(status.items("conditions").iter().filter(|one| !is_decision(one)).cloned());
            status.put("conditions", if conditions.is_empty() { Value::Null } else { Value::Array(conditions) });
            stamp_conditions(context, object, old);
        })
        .columns(COLUMNS, cells)
        .build()
        .with_part("approval", Verbs::SUBOBJECT, Approval);
    vec![request]
}

fn is_decision(condition: &Value) -> bool {
    matches!(condition.text("type"), "Approved" | "Denied")
}

fn decisions(object: &Value) -> impl Iterator<Item = &Value> {
    object.at("status").items("conditions").iter().filter(|condition| is_decision(condition))
}

/// The request speaks for whoever sent it.
fn sign_by_user(context: &WriteContext<'_>, object: &mut Value) {
    let user = context.user;
    let spec = object.object_mut("spec");
    spec.put("username", json!(user.name));
    spec.put("uid", if user.uid.is_empty() { Value::Null } else { json!(user.uid) });
    spec.put("groups", if user.groups.is_empty() { Value::Null } else { json!(user.groups) });
    spec.put("extra", if user.extra.is_empty() { Value::Null } else { json!(user.extra) });
}

fn stamp_conditions(context: &WriteContext<'_>, object: &mut Value, old: &Value) {
    let now = timestamp(context.now);
    let before = old.at("status").items("conditions").to_vec();
    for condition in object.object_mut("status").items_mut("conditions") {
        let known = before.iter().find(|other| other.text("type") == condition.text("type"));
        if condition.text("status").is_empty() {
            condition.put("status", json!("True"));
        }
        condition.default_to("lastUpdateTime", now.clone());
        let since = known.filter(|known| known.text("status") == condition.text("status"));
        let since = since.map_or_else(|| json!(now), |known| known.at("lastTransitionTime").clone());
        condition.default_to("lastTransitionTime", since);
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    let field = SPEC.child("request");
    let pem = STANDARD.decode(spec.text("request")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match pem.as_deref().map(|pem| pem.contains("-----BEGIN CERTIFICATE REQUEST-----")) {
        Some(true) => {}
        _ => {
            let why = "PEM block type must be CERTIFICATE REQUEST";
            out.push(FieldError::invalid(&field, spec.at("request").clone(), why));
        }
    }
    let list = SPEC.child("usages");
    let usages = spec.texts("usages");
    if usages.is_empty() {
        out.push(FieldError::required(&list, ""));
    }
    for (index, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            out.push(FieldError::not_supported(&list.index(index), *usage, &USAGES));
        }
        if usages[..index].contains(usage) {
            out.push(FieldError::duplicate(&list.index(index), *usage));
        }
    }
    validate_signer(spec.text("signerName"), &SPEC.child("signerName"), out);
    if let Some(seconds) = spec.int("expirationSeconds")
        && seconds < 600
    {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        out.push(FieldError::invalid(&SPEC.child("expirationSeconds"), seconds, why));
    }
    validate_conditions(object, out);
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn validate_signer(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if name.is_empty() {
        out.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = name.split_once('/') else {
        out.push(FieldError::invalid(
            path,
            name,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ));
        return;
    };
    if domain.split('.').count() < 2 {
        out.push(FieldError::invalid(path, name, "should be a domain with at least two segments separated by dots"));
    }
    for part in [domain, rest] {
        out.extend(dns_subdomain(part).into_iter().map(|fault| FieldError::invalid(path, part, fault)));
    }
    if name == "kubernetes.io/legacy-unknown" {
        out.push(FieldError::invalid(path, name, "the legacy signerName is not allowed via this API version"));
    }
}

fn validate_conditions(object: &Value, out: &mut Vec<FieldError>) {
    let list = STATUS.child("conditions");
    let conditions = object.at("status").items("conditions");
    for (index, condition) in conditions.iter().enumerate() {
        let item = list.index(index);
        let kind = condition.text("type");
        if kind.is_empty() {
            out.push(FieldError::required(&item.child("type"), ""));
        }
        let status = condition.text("status");
        if is_decision(condition) || kind == "Failed" {
            if status != "True" {
                out.push(FieldError::not_supported(&item.child("status"), status, &["True"]));
            }
        } else if !matches!(status, "True" | "False" | "Unknown") {
            out.push(FieldError::not_supported(&item.child("status"), status, &["False", "True", "Unknown"]));
        }
        if conditions[..index].iter().any(|other| other.text("type") == kind) {
            out.push(FieldError::duplicate(&item.child("type"), kind));
        }
    }
    let has = |kind: &str| conditions.iter().any(|condition| condition.text("type") == kind);
    if has("Approved") && has("Denied") {
        let value = json!("Denied");
        out.push(FieldError::invalid(&list, value, "Approved and Denied conditions are mutually exclusive"));
    }
}

/// `approval`: only the conditions of the status.
struct Approval;

impl UpdateStrategy for Approval {
    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let conditions = object.at("status").at("conditions").clone();
        restore_all_but(object, old, &["metadata"]);
        object.object_mut("status").put("conditions", conditions);
        stamp_conditions(context, object, old);
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, false, path_segment);
        errors.extend(validate_object_meta_update(object, old));
        validate_conditions(object, &mut errors);
        for condition in decisions(old) {
            if !decisions(object).any(|other| same(other.at("type"), condition.at("type"))) {
                let why = format!("updates may not remove a condition of type \"{}\"", condition.text("type"));
                errors.push(FieldError::forbidden(&STATUS.child("conditions"), why));
            }
        }
        dedup(errors)
    }

    fn reset_fields(&self) -> Cow<'static, [&'static str]> {
        Cow::Borrowed(&["spec"])
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let has = |kind: &str| status.items("conditions").iter().any(|condition| condition.text("type") == kind);
    let mut state = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !status.text("certificate").is_empty() {
        state.push_str(",Issued");
    }
    let duration = spec
        .int("expirationSeconds")
        .map_or_else(|| "<none>".to_owned(), |seconds| columns::human_duration(seconds * 1000));
    vec![
        columns::name(object),
        columns::age(object, now),
        json!(or_else(spec.text("signerName"), "<none>")),
        json!(spec.text("username")),
        json!(duration),
        json!(state),
    ]
}
