//! Probes, lifecycle hooks and the handlers inside them.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` validateProbe, validateLifecycle, validateHandler.

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::names::{http_header_name, port_name, port_number};
use crate::apiserver::validation::{FieldError, Path};

/// A probe of that name (`livenessProbe`, …).
pub(super) fn validate_probe(
    name: &str,
    probe: &Value,
    grace: Option<i64>,
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    validate_handler(probe, false, grace, path, out);
    for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        validate_nonnegative(probe.int(key), &path.child(key), out);
    }
    let field = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = probe.int("terminationGracePeriodSeconds") {
        if seconds <= 0 {
            out.push(FieldError::invalid(&field, seconds, "must be greater than 0"));
        }
        if name == "readinessProbe" {
            out.push(FieldError::invalid(&field, seconds, "must not be set for readinessProbes"));
        }
    }
    let threshold = probe.int("successThreshold").unwrap_or(0);
    if name != "readinessProbe" && threshold != 1 {
        out.push(FieldError::invalid(&path.child("successThreshold"), threshold, "must be 1"));
    }
}

/// Hooks and stop signal.
pub(super) fn validate_lifecycle(
    lifecycle: &Value,
    grace: Option<i64>,
    os: &str,
    path: &Path<'_>,
    out: &mut Vec<FieldError>,
) {
    for key in ["postStart", "preStop"] {
        if lifecycle.has(key) {
            validate_handler(lifecycle.at(key), true, grace, &path.child(key), out);
        }
    }
    if lifecycle.has("stopSignal") {
        let field = path.child("stopSignal");
        let signal = lifecycle.text("stopSignal");
        match os {
            "" => out.push(FieldError::forbidden(&field, "may not be set for containers with empty `spec.os.name`")),
            "windows" if !matches!(signal, "SIGKILL" | "SIGTERM") => {
                out.push(FieldError::not_supported(&field, signal, &["SIGKILL", "SIGTERM"]));
            }
            "linux" if !signal.starts_with("SIG") => out.push(FieldError::not_supported(&field, signal, &[])),
            _ => {}
        }
    }
}

fn validate_handler(handler: &Value, hook: bool, grace: Option<i64>, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let kinds: &[&str] =
        if hook { &["exec", "httpGet", "tcpSocket", "sleep"] } else { &["exec", "httpGet", "tcpSocket", "grpc"] };
    let mut found = false;
    for kind in kinds {
        if !handler.has(kind) {
            continue;
        }
        let field = path.child(kind);
        if found {
            out.push(FieldError::forbidden(&field, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        let action = handler.at(kind);
        match *kind {
            "exec" if action.items("command").is_empty() => out.push(FieldError::required(&field.child("command"), "")),
            "httpGet" => validate_http_get(action, &field, out),
            "tcpSocket" | "grpc" => validate_port(action.at("port"), &field.child("port"), out),
            "sleep" => {
                let seconds = action.int("seconds").unwrap_or(0);
                if let Some(grace) = grace
                    && !(0..=grace).contains(&seconds)
                {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    out.push(FieldError::invalid(&field, seconds, why));
                }
            }
            _ => {}
        }
    }
    if !found {
        out.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn validate_http_get(action: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if action.text("path").is_empty() {
        out.push(FieldError::required(&path.child("path"), ""));
    }
    validate_port(action.at("port"), &path.child("port"), out);
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        out.push(FieldError::not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
    }
    let field = path.child("httpHeaders");
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        out.extend(http_header_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    }
}

/// A port number or name.
pub(in crate::apiserver::resources) fn validate_port(port: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    match port.as_str() {
        Some(name) => out.extend(port_name(name).into_iter().map(|fault| FieldError::invalid(path, name, fault))),
        None => {
            let number = port.as_i64().unwrap_or(0);
            out.extend(port_number(number).into_iter().map(|fault| FieldError::invalid(path, number, fault)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(name: &str, probe: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate_probe(name, probe, Some(30), &Path::root("p"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_probe_has_exactly_one_handler() {
        let fits = json!({"tcpSocket": {"port": 80}, "successThreshold": 1});
        assert_eq!(faults("livenessProbe", &fits), Vec::<String>::new());
        assert_eq!(
            faults("livenessProbe", &json!({"successThreshold": 1})),
            ["p: Required value: must specify a handler type"]
        );
        let two = json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": "http"}, "successThreshold": 2});
        assert_eq!(
            faults("startupProbe", &two),
            [
                "p.tcpSocket: Forbidden: may not specify more than 1 handler type",
                "p.successThreshold: Invalid value: 2: must be 1"
            ]
        );
    }
}
