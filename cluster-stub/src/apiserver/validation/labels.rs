//! Labels, annotations and label selectors: validation and matching.
//!
//! Upstream: apimachinery v1.36.2 `pkg/apis/meta/v1/validation/validation.go`, `pkg/api/validation/objectmeta.go`.

use serde_json::{Map, Value};

use super::field::{FieldError, Path};
use super::json::JsonExt;
use super::names;

const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// A label key.
pub fn validate_label_name(name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    out.extend(names::qualified_name(name).into_iter().map(|error| FieldError::invalid(path, name, error)));
}

/// A map of labels.
pub fn validate_labels(labels: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for (key, value) in entries(labels) {
        validate_label_name(key, path, out);
        let value = value.as_str().unwrap_or("");
        out.extend(names::label_value(value).into_iter().map(|error| FieldError::invalid(path, value, error)));
    }
}

/// A map of annotations.
pub fn validate_annotations(annotations: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in entries(annotations) {
        let errors = names::qualified_name(&key.to_lowercase());
        out.extend(errors.into_iter().map(|error| FieldError::invalid(path, key.as_str(), error)));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        out.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
}

/// A label selector (`matchLabels` and `matchExpressions`); `Null` is valid.
pub fn validate_label_selector(selector: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    validate_labels(selector.at("matchLabels"), &path.child("matchLabels"), out);
    let expressions = path.child("matchExpressions");
    for (index, expression) in selector.items("matchExpressions").iter().enumerate() {
        validate_requirement(expression, &expressions.index(index), out);
    }
}

fn validate_requirement(requirement: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let values = requirement.items("values");
    let values_path = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            out.push(FieldError::required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            out.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => out.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    validate_label_name(requirement.text("key"), &path.child("key"), out);
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        for error in names::label_value(value) {
            out.push(FieldError::invalid(&values_path.index(index), value, error));
        }
    }
}

/// Whether a label selector is there and empty, or absent.
pub fn is_empty_selector(selector: &Value) -> bool {
    entries(selector.at("matchLabels")).next().is_none() && selector.items("matchExpressions").is_empty()
}

/// Whether a label selector selects these labels. An absent selector selects nothing, an empty one everything.
pub fn selector_matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    map_selector_matches(selector.at("matchLabels"), labels)
        && selector.items("matchExpressions").iter().all(|requirement| {
            let value = labels.get(requirement.text("key")).and_then(Value::as_str);
            let listed = || requirement.items("values").iter().any(|item| item.as_str() == value);
            match requirement.text("operator") {
                "In" => value.is_some() && listed(),
                "NotIn" => value.is_none() || !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Whether every entry of a plain map is among the labels.
pub fn map_selector_matches(selector: &Value, labels: &Value) -> bool {
    entries(selector).all(|(key, value)| labels.get(key.as_str()) == Some(value))
}

/// A selector in the text form of tables: `a=b,c in (d,e),!f`; `<none>` for an empty or absent one.
///
/// Upstream: `metav1.FormatLabelSelector`.
pub fn format_selector(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = entries(selector.at("matchLabels"))
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))))
        .collect();
    for requirement in selector.items("matchExpressions") {
        let key = requirement.text("key");
        let mut values = requirement.texts("values");
        values.sort_unstable();
        let values = values.join(",");
        let term = match requirement.text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        terms.push((key.to_owned(), term));
    }
    if terms.is_empty() {
        return "<none>".to_owned();
    }
    terms.sort_by(|left, right| left.0.cmp(&right.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// A plain map of labels in the text form of tables: `a=b,c=d`; `<none>` when empty.
pub fn format_labels(labels: &Value) -> String {
    let terms: Vec<String> =
        entries(labels).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    if terms.is_empty() { "<none>".to_owned() } else { terms.join(",") }
}

fn entries(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selector_matches_as_documented() {
        let labels = json!({"a": "1", "b": "2"});
        let cases = [
            ("absent", json!(null), false),
            ("empty", json!({}), true),
            ("label fits", json!({"matchLabels": {"a": "1"}}), true),
            ("label does not fit", json!({"matchLabels": {"a": "2"}}), false),
            ("in", json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "3"]}]}), true),
            (
                "not in, absent key",
                json!({"matchExpressions": [{"key": "z", "operator": "NotIn", "values": ["1"]}]}),
                true,
            ),
            ("exists", json!({"matchExpressions": [{"key": "z", "operator": "Exists"}]}), false),
            ("does not exist", json!({"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}), true),
        ];
        for (name, selector, want) in cases {
            assert_eq!(selector_matches(&selector, &labels), want, "{name}");
        }
    }

    #[test]
    fn selector_prints_sorted_by_key() {
        let selector = json!({"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
        assert_eq!(format_selector(&selector), "a in (x,y),b=2");
        assert_eq!(format_selector(&json!({})), "<none>");
    }

    #[test]
    fn selector_faults_have_upstreams_texts() {
        let mut errors = Vec::new();
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Is"}]});
        validate_label_selector(&selector, &Path::root("s"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "s.matchExpressions[1].operator: Invalid value: \"Is\": not a valid selector operator",
            ]
        );
    }
}
