//! Label selectors, parsed once. Knows labels only.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

/// A selector over labels: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    /// Upstream: apimachinery v1.36.2 `LabelSelectorAsSelector`: an absent selector selects nothing, an empty one
    /// everything. `None` if an operator is unknown, which validation has ruled out for stored objects.
    pub(crate) fn from_label_selector(selector: Option<&LabelSelector>) -> Option<Self> {
        let Some(selector) = selector else {
            return Some(Self { requirements: Vec::new(), nothing: true });
        };
        let mut parsed = Self::from_labels(selector.match_labels.as_ref());
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.clone().unwrap_or_default();
            let key = expression.key.clone();
            parsed.requirements.push(match expression.operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::DoesNotExist(key),
                _ => return None,
            });
        }
        Some(parsed)
    }

    /// Selects what has all `labels`; without any it selects everything.
    pub(crate) fn from_labels(labels: Option<&Labels>) -> Self {
        let requirements = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        Self { requirements, nothing: false }
    }

    /// Whether it selects everything.
    pub(crate) fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it selects an object with `labels`.
    pub(crate) fn matches(&self, labels: Option<&Labels>) -> bool {
        let get = |key: &String| labels.and_then(|labels| labels.get(key));
        !self.nothing
            && self.requirements.iter().all(|requirement| match requirement {
                Requirement::In(key, values) => get(key).is_some_and(|value| values.contains(value)),
                Requirement::NotIn(key, values) => get(key).is_none_or(|value| !values.contains(value)),
                Requirement::Exists(key) => get(key).is_some(),
                Requirement::DoesNotExist(key) => get(key).is_none(),
            })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    #[test]
    fn every_operator_matches_misses_and_meets_an_absent_label() {
        let labels = |value: &str| Labels::from([("a".to_owned(), value.to_owned())]);
        for (operator, on_x, on_y, on_absent) in [
            ("In", true, false, false),
            ("NotIn", false, true, true),
            ("Exists", true, true, false),
            ("DoesNotExist", false, false, true),
        ] {
            let values = operator.ends_with("In").then(|| vec!["x".to_owned()]);
            let selector = LabelSelector {
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: "a".to_owned(),
                    operator: operator.to_owned(),
                    values,
                }]),
                match_labels: None,
            };
            let selector = Selector::from_label_selector(Some(&selector)).expect("known operator");
            assert_eq!(selector.matches(Some(&labels("x"))), on_x, "{operator}");
            assert_eq!(selector.matches(Some(&labels("y"))), on_y, "{operator}");
            assert_eq!(selector.matches(None), on_absent, "{operator}");
        }
    }

    #[test]
    fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
        let nothing = Selector::from_label_selector(None).expect("no operator");
        let everything = Selector::from_label_selector(Some(&LabelSelector::default())).expect("no operator");
        assert!(!nothing.matches(None) && !nothing.is_everything());
        assert!(everything.matches(None) && everything.is_everything());
    }
}
