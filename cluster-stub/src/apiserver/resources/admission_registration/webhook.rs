//! Validation of webhook configurations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{validate_conditions, validate_rule, validate_word};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_label_selector;
use crate::apiserver::validation::names::{dns_1035_label, dns_subdomain, port_number};
use crate::apiserver::validation::{FieldError, Path};

const FORM: &str = "; desired format: https://host[/path]";
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Every fault of a configuration.
pub(super) fn validate(object: &Value, mutating: bool, out: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    let path = Path::root("webhooks");
    for (index, webhook) in object.items("webhooks").iter().enumerate() {
        let path = path.index(index);
        validate_one(webhook, mutating, &path, out);
        validate_versions(webhook, &path.child("admissionReviewVersions"), out);
        let name = webhook.text("name");
        if !name.is_empty() && !names.insert(name) {
            out.push(FieldError::duplicate(&path.child("name"), name));
        }
    }
}

fn validate_one(webhook: &Value, mutating: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
    validate_name(webhook.text("name"), &path.child("name"), out);
    for (index, rule) in webhook.items("rules").iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(index), out);
    }
    validate_word(webhook, "failurePolicy", &["Fail", "Ignore"], path, out);
    validate_word(webhook, "matchPolicy", &["Equivalent", "Exact"], path, out);
    if !webhook.has("sideEffects") {
        let why = format!("must specify one of {}", NO_SIDE_EFFECTS.join(", "));
        out.push(FieldError::required(&path.child("sideEffects"), why));
    }
    validate_word(webhook, "sideEffects", &NO_SIDE_EFFECTS, path, out);
    if let Some(seconds) = webhook.int("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        out.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, why));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(webhook.at(key), &path.child(key), out);
    }
    if mutating {
        validate_word(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, out);
    }
    let (config, field) = (webhook.at("clientConfig"), path.child("clientConfig"));
    if config.has("url") == config.has("service") {
        out.push(FieldError::required(&field, "exactly one of url or service is required"));
    } else if config.has("url") {
        validate_url(config.text("url"), &field.child("url"), out);
    } else {
        validate_service(config.at("service"), &field.child("service"), out);
    }
    validate_conditions(webhook, false, path, out);
}

fn validate_name(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let faults = dns_subdomain(name);
    if name.is_empty() {
        out.push(FieldError::required(path, ""));
    } else if !faults.is_empty() {
        out.push(FieldError::invalid(path, name, faults.join(",")));
    } else if name.split('.').count() < 3 {
        out.push(FieldError::invalid(path, name, "should be a domain with at least three segments separated by dots"));
    }
}

fn validate_url(url: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let mut say = |value: &str, why: String| out.push(FieldError::invalid(path, value, why));
    if scheme != "https" {
        say(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        say(host, format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        say(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        say(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        say(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn validate_service(service: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["name", "namespace"] {
        if service.text(key).is_empty() {
            out.push(FieldError::required(&path.child(key), ""));
        }
    }
    let port = service.int("port").unwrap_or(443);
    let faults = port_number(port);
    if !faults.is_empty() {
        let why = format!("port is not valid: {}", faults.join(", "));
        out.push(FieldError::invalid(&path.child("port"), port, why));
    }
    let (text, field) = (service.text("path"), path.child("path"));
    if text.is_empty() || text == "/" {
        return;
    }
    if text == "//" {
        out.push(FieldError::invalid(&field, text, "segment[0] may not be empty"));
        return;
    }
    if !text.starts_with('/') {
        out.push(FieldError::invalid(&field, text, "must start with a '/'"));
    }
    let inner: String = text.chars().skip(1).collect();
    for (index, segment) in inner.strip_suffix('/').unwrap_or(&inner).split('/').enumerate() {
        if segment.is_empty() {
            out.push(FieldError::invalid(&field, text, format!("segment[{index}] may not be empty")));
            continue;
        }
        for fault in dns_subdomain(segment) {
            out.push(FieldError::invalid(&field, text, format!("segment[{index}]: {fault}")));
        }
    }
}

fn validate_versions(webhook: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let versions = webhook.texts("admissionReviewVersions");
    if versions.is_empty() {
        out.push(FieldError::required(path, format!("must specify one of {}", VERSIONS.join(", "))));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            out.push(FieldError::invalid(&path.index(index), *version, "duplicate version"));
            continue;
        }
        let faults = dns_1035_label(version);
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(&path.index(index), *version, fault)));
    }
    if !versions.iter().any(|version| VERSIONS.contains(version)) {
        let why = format!("must include at least one of {}", VERSIONS.join(", "));
        out.push(FieldError::invalid(path, webhook.at("admissionReviewVersions").clone(), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(webhook: &Value) -> Vec<String> {
        let mut out = Vec::new();
        validate(&json!({"webhooks": [webhook]}), false, &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn faults_have_upstreams_words_and_order() {
        let good = json!({"name": "a.b.c", "clientConfig": {"url": "https://h/p"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]});
        assert_eq!(faults(&good), Vec::<String>::new());
        let bad = json!({"name": "short", "clientConfig": {"url": "http://x"}, "sideEffects": "Some", "admissionReviewVersions": ["v9"]});
        let want = [
            "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
        ];
        assert_eq!(faults(&bad), want);
    }
}
