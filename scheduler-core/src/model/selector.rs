//! Label selectors and node selectors as parsed predicates over label sets.

use std::sync::Arc;

use super::Labels;

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// The key is present with one of the values.
    In,
    /// The key is absent, or present with none of the values.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The key's value is an integer greater than the one value.
    Gt,
    /// The key's value is an integer less than the one value.
    Lt,
}

/// One condition on a label set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    /// Label key.
    pub key: Arc<str>,
    /// Comparison.
    pub operator: Operator,
    /// Values, sorted; empty for `Exists` and `DoesNotExist`, exactly one for `Gt` and `Lt`.
    pub values: Box<[Arc<str>]>,
}

impl Requirement {
    /// Whether a key with this value (or without one) satisfies the requirement.
    #[must_use]
    pub fn accepts(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.has_value(value)),
            Operator::NotIn => value.is_none_or(|value| !self.has_value(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(label, bound)| label > bound),
            Operator::Lt => self.compare(value).is_some_and(|(label, bound)| label < bound),
        }
    }

    /// Whether the label set satisfies the requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.accepts(labels.get(&self.key).map(|value| &**value))
    }

    fn has_value(&self, value: &str) -> bool {
        self.values.binary_search_by(|v| v.as_ref().cmp(value)).is_ok()
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let label = value?.parse().ok()?;
        let bound = self.values.first()?.parse().ok()?;
        Some((label, bound))
    }
}

/// A label selector: all requirements must hold. Upstream: apimachinery `labels.Selector` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Selector {
    /// Matches no label set: an absent selector.
    #[default]
    Nothing,
    /// Matches label sets that satisfy every requirement; without requirements, all of them.
    All(Box<[Requirement]>),
}

impl Selector {
    /// A selector that matches everything: an empty, present selector.
    #[must_use]
    pub fn everything() -> Self {
        Self::All(Box::default())
    }

    /// A selector over `key=value` pairs.
    #[must_use]
    pub fn from_labels(labels: &Labels) -> Self {
        Self::All(
            labels
                .iter()
                .map(|(key, value)| Requirement {
                    key: Arc::clone(key),
                    operator: Operator::In,
                    values: [Arc::clone(value)].into(),
                })
                .collect(),
        )
    }

    /// Whether the label set is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
        }
    }

    /// Whether the selector has no requirement and so matches everything. Upstream: `Selector.Empty`.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// The requirements; none for [`Selector::Nothing`].
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        match self {
            Self::Nothing => &[],
            Self::All(requirements) => requirements,
        }
    }

    /// This selector with further requirements; `Nothing` stays `Nothing`.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = Requirement>) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(requirements) => Self::All(requirements.iter().cloned().chain(more).collect()),
        }
    }
}

/// One term of a node selector: all its expressions and fields must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelectorTerm {
    /// Conditions on the node's labels.
    pub match_expressions: Box<[Requirement]>,
    /// Conditions on the node's fields; the only field is `metadata.name`.
    pub match_fields: Box<[Requirement]>,
    /// Why the term cannot be evaluated; such a term matches no node.
    pub invalid: Option<Arc<str>>,
}

impl NodeSelectorTerm {
    /// Whether the term has neither expressions nor fields. Such a term matches nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    /// Whether a node of this name with these labels satisfies the term.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        !self.is_empty()
            && self.invalid.is_none()
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
            && self
                .match_fields
                .iter()
                .all(|requirement| requirement.accepts((requirement.key.as_ref() == "metadata.name").then_some(name)))
    }
}

/// Terms of which one must hold. Upstream: component-helpers `nodeaffinity.NodeSelector` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    /// Alternatives, in the order given.
    pub terms: Box<[NodeSelectorTerm]>,
}

impl NodeSelector {
    /// Whether a node of this name with these labels satisfies one of the terms.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

/// A node selector term with the score it adds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PreferredSchedulingTerm {
    /// What the term adds to the node's raw score, 1 to 100.
    pub weight: i32,
    /// Condition on the node. Unlike a required one, an empty term is ignored.
    pub term: NodeSelectorTerm,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: "k".into(), operator, values: values.iter().map(|&v| v.into()).collect() }
    }

    #[test]
    fn each_operator_on_present_other_and_absent_values() {
        for (operator, values, present, accepted) in [
            (Operator::In, vec!["a", "b"], Some("a"), true),
            (Operator::In, vec!["a", "b"], Some("c"), false),
            (Operator::In, vec!["a"], None, false),
            (Operator::NotIn, vec!["a"], Some("a"), false),
            (Operator::NotIn, vec!["a"], Some("b"), true),
            (Operator::NotIn, vec!["a"], None, true),
            (Operator::Exists, vec![], Some(""), true),
            (Operator::Exists, vec![], None, false),
            (Operator::DoesNotExist, vec![], Some(""), false),
            (Operator::DoesNotExist, vec![], None, true),
            (Operator::Gt, vec!["5"], Some("6"), true),
            (Operator::Gt, vec!["5"], Some("5"), false),
            (Operator::Gt, vec!["5"], Some("six"), false),
            (Operator::Gt, vec!["5"], None, false),
            (Operator::Lt, vec!["5"], Some("-1"), true),
            (Operator::Lt, vec!["x"], Some("1"), false),
        ] {
            assert_eq!(
                requirement(operator, &values).accepts(present),
                accepted,
                "{operator:?} {values:?} on {present:?}"
            );
        }
    }

    #[test]
    fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
        let labels = Labels::default();
        assert!(!Selector::default().matches(&labels));
        assert!(Selector::everything().matches(&labels));
        assert!(!NodeSelectorTerm::default().matches("n", &labels));
    }
}
