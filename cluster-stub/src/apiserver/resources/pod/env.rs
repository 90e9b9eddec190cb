//! Environment variables of containers, and the downward API behind them.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateEnv, `pkg/apis/core/pods/helpers.go`.

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{
    config_map_key, dns_subdomain, env_var_name, name_is_dns_subdomain, qualified_name,
};
use crate::apiserver::validation::{FieldError, Path};

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// `env` of a container.
pub(super) fn validate_env(variables: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (index, variable) in variables.iter().enumerate() {
        let item = path.index(index);
        let name = variable.text("name");
        let field = item.child("name");
        if name.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(env_var_name(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
        }
        if variable.has("valueFrom") {
            validate_source(variable, &item.child("valueFrom"), out);
        }
    }
}

fn validate_source(variable: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let source = variable.at("valueFrom");
    let mut sources = 0;
    if source.has("fieldRef") {
        sources += 1;
        validate_field_ref(source.at("fieldRef"), &ENV_FIELDS, &path.child("fieldRef"), out);
    }
    if source.has("resourceFieldRef") {
        sources += 1;
        validate_resource_ref(source.at("resourceFieldRef"), false, &path.child("resourceFieldRef"), out);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(key) {
            sources += 1;
            validate_key_ref(source.at(key), &path.child(key), out);
        }
    }
    if source.has("fileKeyRef") {
        sources += 1;
        validate_file_ref(source.at("fileKeyRef"), &path.child("fileKeyRef"), out);
    }
    let why = if sources == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !variable.text("value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if sources > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    out.push(FieldError::invalid(path, "", why));
}

fn validate_key_ref(reference: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let name = reference.text("name");
    let field = path.child("name");
    out.extend(dns_subdomain(name).into_iter().map(|fault| FieldError::invalid(&field, name, fault)));
    let key = reference.text("key");
    let field = path.child("key");
    if key.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else {
        out.extend(config_map_key(key).into_iter().map(|fault| FieldError::invalid(&field, key, fault)));
    }
}

fn validate_file_ref(reference: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["key", "path", "volumeName"] {
        if reference.text(key).is_empty() {
            out.push(FieldError::required(&path.child(key), ""));
        }
    }
    let file = reference.text("path");
    super::container::validate_descending_path(file, &path.child("path"), out);
}

/// `envFrom` of a container.
pub(super) fn validate_env_from(sources: &[Value], path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (index, source) in sources.iter().enumerate() {
        let item = path.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            let field = item.child("prefix");
            out.extend(env_var_name(prefix).into_iter().map(|fault| FieldError::invalid(&field, prefix, fault)));
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            if !source.has(key) {
                continue;
            }
            count += 1;
            let reference = item.child(key);
            let field = reference.child("name");
            match source.at(key).text("name") {
                "" => out.push(FieldError::required(&field, "")),
                name => out.extend(
                    name_is_dns_subdomain(name, true).into_iter().map(|fault| FieldError::invalid(&field, name, fault)),
                ),
            }
        }
        match count {
            0 => out.push(FieldError::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => out.push(FieldError::invalid(path, "", "may not have more than one field specified at a time")),
        }
    }
}

/// A reference to a field of the pod, from a variable.
fn validate_field_ref(reference: &Value, allowed: &[&str], path: &Path<'_>, out: &mut Vec<FieldError>) {
    if reference.text("apiVersion").is_empty() {
        out.push(FieldError::required(&path.child("apiVersion"), ""));
        return;
    }
    let field = path.child("fieldPath");
    let text = reference.text("fieldPath");
    if text.is_empty() {
        out.push(FieldError::required(&field, ""));
        return;
    }
    let internal = match to_internal(reference.text("apiVersion"), text) {
        Ok(internal) => internal,
        Err(why) => {
            out.push(FieldError::invalid(&field, text, format!("error converting fieldPath: {why}")));
            return;
        }
    };
    match split_subscript(internal) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            out.extend(qualified_name(&key).into_iter().map(|fault| FieldError::invalid(path, key.as_str(), fault)));
        }
        Some(("metadata.labels", key)) => {
            out.extend(qualified_name(key).into_iter().map(|fault| FieldError::invalid(path, key, fault)));
        }
        Some((name, _)) => out.push(FieldError::invalid(path, name, "does not support subscript")),
        None if allowed.contains(&internal) => {}
        None => out.push(FieldError::not_supported(&field, internal, allowed)),
    }
}

/// A reference to a field of the pod, from a volume.
pub(super) fn validate_volume_field_ref(reference: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_field_ref(reference, &VOLUME_FIELDS, path, out);
}

/// The name that a field has inside, or why it has none.
fn to_internal<'a>(version: &str, label: &'a str) -> Result<&'a str, String> {
    if version != "v1" {
        return Err(format!("unsupported pod version: {version}"));
    }
    if let Some((path, _)) = split_subscript(label) {
        return match path {
            "metadata.annotations" | "metadata.labels" => Ok(label),
            _ => Err(format!("field label does not support subscript: {label}")),
        };
    }
    match label {
        "metadata.annotations"
        | "metadata.labels"
        | "metadata.name"
        | "metadata.namespace"
        | "metadata.uid"
        | "spec.nodeName"
        | "spec.restartPolicy"
        | "spec.serviceAccountName"
        | "spec.schedulerName"
        | "status.phase"
        | "status.hostIP"
        | "status.hostIPs"
        | "status.podIP"
        | "status.podIPs" => Ok(label),
        "spec.host" => Ok("spec.nodeName"),
        _ => Err(format!("field label not supported: {label}")),
    }
}

/// `path['key']` in two parts.
fn split_subscript(text: &str) -> Option<(&str, &str)> {
    let (path, rest) = text.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, rest))
}

/// A reference to a request or limit of a container.
pub(super) fn validate_resource_ref(reference: &Value, volume: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let resource = reference.text("resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if volume && reference.text("containerName").is_empty() {
        out.push(FieldError::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        out.push(FieldError::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !huge {
        out.push(FieldError::not_supported(&path.child("resource"), resource, &RESOURCES));
    }
    let divisor = reference.text("divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    let sizes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let (fits, name) = match resource {
        "limits.cpu" | "requests.cpu" => (matches!(divisor, "1m" | "1"), "cpu"),
        "limits.memory" | "requests.memory" => (sizes.contains(&divisor), "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (sizes.contains(&divisor), "local ephemeral storage")
        }
        _ if huge => (sizes.contains(&divisor), "hugepages"),
        _ => return,
    };
    if !fits {
        let values = if name == "cpu" { "1m and 1".to_owned() } else { sizes.join(", ") };
        let why = format!("only divisor's values {values} are supported with the {name} resource");
        out.push(FieldError::invalid(&path.child("divisor"), resource, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(variable: Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate_env(&[variable], &Path::root("env"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn variables_have_one_source() {
        let field = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
        assert_eq!(faults(json!({"name": "A", "valueFrom": field})), Vec::<String>::new());
        assert_eq!(
            faults(json!({"name": "A", "value": "x", "valueFrom": field})),
            ["env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"]
        );
        assert_eq!(faults(json!({"name": "A", "valueFrom": {}})).len(), 1);
    }

    #[test]
    fn only_some_fields_of_the_pod_are_visible() {
        let with = |path: &str| {
            faults(json!({"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}))
        };
        assert_eq!(with("metadata.labels['a/b']"), Vec::<String>::new());
        assert_eq!(
            with("spec.bogus"),
            [
                "env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.bogus\": error converting fieldPath: field label not supported: spec.bogus"
            ]
        );
        assert!(with("status.phase")[0].contains("Unsupported value"));
    }
}
