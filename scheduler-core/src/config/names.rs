//! Name rules that configuration values must keep: qualified names, label values, extended resources. Texts say what is wrong.

/// Why `text` is no label key (optional DNS prefix and `/`, then a name of at most 63 characters); `None` if it is one.
/// Upstream v1.36.2: apimachinery util/validation IsQualifiedName.
pub(super) fn qualified_name_fault(text: &str) -> Option<&'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        let label = |label: &str| {
            let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            let bytes = label.as_bytes();
            bytes.first().is_some_and(alphanumeric)
                && bytes.last().is_some_and(alphanumeric)
                && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
        };
        if prefix.is_empty() || prefix.len() > 253 || !prefix.split('.').all(label) {
            return Some("the part before '/' must be a DNS subdomain of lower case letters, digits, '-' and '.'");
        }
    }
    if name.is_empty() {
        return Some("the name must be non-empty");
    }
    if name.len() > 63 {
        return Some("the name must be no more than 63 characters");
    }
    if !is_name(name) {
        return Some(
            "the name must consist of letters, digits, '-', '_' or '.', and start and end with a letter or digit",
        );
    }
    None
}

/// Why `text` is no label value; `None` if it is one. Upstream v1.36.2: apimachinery util/validation IsValidLabelValue.
pub(super) fn label_value_fault(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("a label value must be no more than 63 characters");
    }
    if !text.is_empty() && !is_name(text) {
        return Some(
            "a label value must consist of letters, digits, '-', '_' or '.', and start and end with a letter or digit",
        );
    }
    None
}

/// Whether a resource is an extended one: qualified, outside `kubernetes.io/`, not the name of a quota.
/// Upstream v1.36.2: apis/core/v1/helper IsExtendedResourceName.
pub(super) fn is_extended_resource(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.") && qualified_name_fault(&format!("requests.{name}")).is_none()
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::{is_extended_resource, label_value_fault, qualified_name_fault};

    #[test]
    fn qualified_names() {
        let long = "a".repeat(64);
        for (name, valid) in [
            ("cpu", true),
            ("topology.kubernetes.io/zone", true),
            ("A_b.c-1", true),
            ("", false),
            ("a/b/c", false),
            ("/a", false),
            ("a/", false),
            ("-a", false),
            ("Upper.io/a", false),
            (long.as_str(), false),
        ] {
            assert_eq!(qualified_name_fault(name).is_none(), valid, "{name:?}");
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        assert!(label_value_fault("").is_none());
        assert!(label_value_fault("a b").is_some());
    }

    #[test]
    fn extended_resources_have_a_foreign_prefix() {
        for (name, extended) in
            [("cpu", false), ("example.com/gpu", true), ("kubernetes.io/x", false), ("requests.a.com/b", false)]
        {
            assert_eq!(is_extended_resource(name), extended, "{name}");
        }
    }
}
