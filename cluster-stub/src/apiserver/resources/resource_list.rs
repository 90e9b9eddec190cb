//! Resource names and quantities as they occur in requests, limits, capacities and quotas.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go`, `pkg/apis/core/helper/helpers.go`, `pkg/apis/core/v1/defaults.go`.

use serde_json::{Value, json};

use crate::apiserver::validation::names::qualified_name;
use crate::apiserver::validation::{FieldError, Path, Quantity};

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Rounds every quantity up to thousandths, as decoding does.
#[expect(clippy::needless_pass_by_value, reason = "it is what `get_mut` returns")]
pub(super) fn round_up(list: Option<&mut Value>) {
    let Some(Value::Object(list)) = list else { return };
    for quantity in list.values_mut() {
        if let Some(text) = quantity.as_str()
            && let Ok(rounded) = Quantity::canonical_milli(text)
            && rounded != text
        {
            *quantity = json!(rounded);
        }
    }
}

/// The quantity of a resource, zero when absent or malformed.
pub(in crate::apiserver) fn quantity(list: &Value, name: &str) -> Quantity {
    list.get(name).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
}

/// Whether a name is one that Kubernetes itself defines for containers.
pub(super) fn is_standard_container(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

/// `hugepages-<size>`.
pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a name belongs to Kubernetes: unqualified, or in a kubernetes.io domain.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a name is an extended resource: qualified, not Kubernetes' own, no quota prefix.
pub(in crate::apiserver) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether limits may exceed requests for this resource.
pub(super) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// A resource name: qualified, and standard when it has no domain.
pub(super) fn validate_name(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let faults = qualified_name(name);
    if !faults.is_empty() {
        out.extend(faults.into_iter().map(|fault| FieldError::invalid(path, name, fault)));
        return;
    }
    if !name.contains('/') && !is_standard(name) {
        out.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
}

/// A resource name of a container.
pub(super) fn validate_container_name(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let before = out.len();
    let faults = qualified_name(name);
    validate_name(name, path, out);
    if !faults.is_empty() && out.len() > before {
        return;
    }
    if !name.contains('/') {
        if !is_standard_container(name) {
            out.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        out.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// A quantity of a resource: not negative, whole where the resource cannot be divided.
pub(super) fn validate_quantity(name: &str, text: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let Ok(quantity) = Quantity::parse(text) else { return };
    if quantity.sign() < 0 {
        out.push(FieldError::invalid(path, text, "must be greater than or equal to 0"));
    }
    let whole = is_extended(name)
        || matches!(
            name,
            "pods"
                | "services"
                | "replicationcontrollers"
                | "resourcequotas"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        );
    if whole && quantity.milli_value() % 1000 != 0 {
        out.push(FieldError::invalid(path, text, "must be an integer"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rule: fn(&str, &Path<'_>, &mut Vec<FieldError>), name: &str) -> Vec<String> {
        let mut errors = Vec::new();
        rule(name, &Path::root("r"), &mut errors);
        errors.iter().map(FieldError::body).collect()
    }

    #[test]
    fn container_resources_are_standard_or_qualified() {
        for name in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"] {
            assert_eq!(faults(validate_container_name, name), Vec::<String>::new(), "{name}");
        }
        assert_eq!(
            faults(validate_container_name, "gpu"),
            [
                "Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                "Invalid value: \"gpu\": must be a standard resource for containers",
            ]
        );
        assert_eq!(
            faults(validate_container_name, "pods"),
            ["Invalid value: \"pods\": must be a standard resource for containers"]
        );
    }

    #[test]
    fn extended_resources_are_whole() {
        let mut errors = Vec::new();
        validate_quantity("example.com/gpu", "500m", &Path::root("r"), &mut errors);
        validate_quantity("cpu", "500m", &Path::root("r"), &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["r: Invalid value: \"500m\": must be an integer"]
        );
    }
}
