//! Selectors: text operators become enums, values are sorted, faults make a selector or term match nothing.

use std::sync::Arc;

use super::wire::{self, Text};
use crate::model::{NodeSelector, NodeSelectorTerm, Operator, Requirement, Selector};

/// An absent selector selects nothing, an empty one everything, and one with a fault nothing.
/// Upstream: meta/v1 `LabelSelectorAsSelector` (v1.36.2).
pub(super) fn label_selector(selector: Option<&wire::LabelSelector<'_>>) -> Selector {
    let Some(selector) = selector else { return Selector::Nothing };
    let by_label = selector
        .match_labels
        .iter()
        .flat_map(wire::Map::iter)
        .map(|(key, value)| Some(requirement(key, Operator::In, std::slice::from_ref(value))));
    let by_expression = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        let operator = match &*expression.operator {
            "In" if !values.is_empty() => Operator::In,
            "NotIn" if !values.is_empty() => Operator::NotIn,
            "Exists" if values.is_empty() => Operator::Exists,
            "DoesNotExist" if values.is_empty() => Operator::DoesNotExist,
            _ => return None,
        };
        Some(requirement(&expression.key, operator, values))
    });
    match by_label.chain(by_expression).collect::<Option<Vec<_>>>() {
        Some(mut requirements) => {
            requirements.sort();
            requirements.dedup();
            Selector::All(requirements.into())
        }
        None => Selector::Nothing,
    }
}

fn requirement(key: &str, operator: Operator, values: &[Text<'_>]) -> Requirement {
    let mut values: Vec<Arc<str>> = values.iter().map(Arc::from).collect();
    values.sort();
    values.dedup();
    Requirement { key: key.into(), operator, values: values.into() }
}

pub(super) fn node_selector(selector: &wire::NodeSelector<'_>) -> NodeSelector {
    NodeSelector { terms: selector.node_selector_terms.iter().flatten().map(node_selector_term).collect() }
}

/// Upstream: component-helpers nodeaffinity `newNodeSelectorTerm` (v1.36.2).
pub(super) fn node_selector_term(term: &wire::NodeSelectorTerm<'_>) -> NodeSelectorTerm {
    let mut invalid = None;
    let match_expressions = term
        .match_expressions
        .iter()
        .flatten()
        .filter_map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            let parsed = expression_operator(&expression.operator, values);
            match parsed {
                Ok(operator) => Some(requirement(&expression.key, operator, values)),
                Err(problem) => {
                    invalid.get_or_insert_with(|| format!("key {:?}: {problem}", &*expression.key));
                    None
                }
            }
        })
        .collect();
    let match_fields = term
        .match_fields
        .iter()
        .flatten()
        .filter_map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            let operator = match (&*expression.operator, values.len()) {
                ("In", 1) => Operator::In,
                ("NotIn", 1) => Operator::NotIn,
                _ => {
                    invalid.get_or_insert_with(|| {
                        format!("field {:?}: want In or NotIn with one value", &*expression.key)
                    });
                    return None;
                }
            };
            Some(requirement(&expression.key, operator, values))
        })
        .collect();
    NodeSelectorTerm { match_expressions, match_fields, invalid: invalid.map(Arc::from) }
}

/// Upstream: apimachinery labels `NewRequirement` (v1.36.2), without the checks of key and value syntax.
fn expression_operator(operator: &str, values: &[Text<'_>]) -> Result<Operator, &'static str> {
    match operator {
        "In" if !values.is_empty() => Ok(Operator::In),
        "NotIn" if !values.is_empty() => Ok(Operator::NotIn),
        "In" | "NotIn" => Err("want at least one value"),
        "Exists" if values.is_empty() => Ok(Operator::Exists),
        "DoesNotExist" if values.is_empty() => Ok(Operator::DoesNotExist),
        "Exists" | "DoesNotExist" => Err("want no values"),
        "Gt" | "Lt" => match values {
            [value] if value.parse::<i64>().is_ok() => Ok(if operator == "Gt" { Operator::Gt } else { Operator::Lt }),
            _ => Err("want exactly one integer"),
        },
        _ => Err("want In, NotIn, Exists, DoesNotExist, Gt or Lt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement<'a>(operator: &'a str, values: &[&'a str]) -> wire::Requirement<'a> {
        let values = values.iter().map(|&value| value.into()).collect();
        wire::Requirement { key: "k".into(), operator: operator.into(), values: Some(values) }
    }

    fn expression<'a>(operator: &'a str, values: &[&'a str]) -> wire::LabelSelector<'a> {
        wire::LabelSelector { match_expressions: Some(vec![requirement(operator, values)]), match_labels: None }
    }

    #[test]
    fn absent_empty_and_faulty_selectors() {
        assert_eq!(label_selector(None), Selector::Nothing);
        assert!(label_selector(Some(&wire::LabelSelector::default())).is_everything());
        for (operator, values) in [("In", &[][..]), ("Exists", &["a"]), ("Gt", &["1"]), ("in", &["a"])] {
            assert_eq!(label_selector(Some(&expression(operator, values))), Selector::Nothing, "{operator}");
        }
    }

    #[test]
    fn values_are_sorted_and_unique() {
        let selector = label_selector(Some(&expression("In", &["b", "a", "b"])));
        assert_eq!(selector.requirements()[0].values.len(), 2);
        assert_eq!(&*selector.requirements()[0].values[0], "a");
    }

    #[test]
    fn a_node_selector_term_with_a_fault_matches_nothing() {
        for (requirement, valid) in [
            (requirement("In", &["a"]), true),
            (requirement("Gt", &["1"]), true),
            (requirement("Gt", &["one"]), false),
            (requirement("Lt", &["1", "2"]), false),
            (requirement("NotIn", &[]), false),
            (requirement("Near", &["a"]), false),
        ] {
            let term = wire::NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
            assert_eq!(node_selector_term(&term).invalid.is_none(), valid, "{term:?}");
        }
    }
}
