//! Taints of nodes and tolerations of pods.

use std::sync::Arc;

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods prefer other nodes.
    PreferNoSchedule,
    /// New pods stay away and running ones leave.
    NoExecute,
}

/// A mark that keeps pods off a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    /// Taint key.
    pub key: Arc<str>,
    /// Value; empty when absent.
    pub value: Arc<str>,
    /// What it does.
    pub effect: TaintEffect,
}

impl Taint {
    /// Whether the scheduler's filter looks at the taint. Upstream: helper `DoNotScheduleTaintsFilterFunc`.
    #[must_use]
    pub fn forbids_scheduling(&self) -> bool {
        self.effect != TaintEffect::PreferNoSchedule
    }
}

/// How a toleration compares values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is there; without a key, every taint.
    Exists,
    /// An operator that this version does not serve: it tolerates nothing.
    Unknown,
}

/// A pod's consent to a taint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Taint key; empty with `Exists` means any.
    pub key: Arc<str>,
    /// Comparison.
    pub operator: TolerationOperator,
    /// Value for `Equal`.
    pub value: Arc<str>,
    /// Effect it applies to; `None` means any.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether the taint is tolerated. Upstream: api/core/v1 `Toleration.ToleratesTaint` (v1.36.2) with the gate
    /// `TaintTolerationComparisonOperators` off.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_none_or(|effect| effect == taint.effect))
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Unknown => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_matches_by_key_operator_value_and_effect() {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule };
        let toleration = |key: &str, operator, value: &str, effect| Toleration {
            key: key.into(),
            operator,
            value: value.into(),
            effect,
        };
        use TolerationOperator::{Equal, Exists, Unknown};
        for (toleration, want) in [
            (toleration("k", Equal, "v", None), true),
            (toleration("k", Equal, "w", None), false),
            (toleration("k", Exists, "", Some(TaintEffect::NoSchedule)), true),
            (toleration("k", Exists, "", Some(TaintEffect::NoExecute)), false),
            (toleration("", Exists, "", None), true),
            (toleration("x", Exists, "", None), false),
            (toleration("k", Unknown, "v", None), false),
        ] {
            assert_eq!(toleration.tolerates(&taint), want, "{toleration:?}");
        }
    }
}
