//! PodDisruptionBudgets that no controller has counted yet: what they allow follows from the pods that have a node.

use std::sync::Arc;

use scheduler_core::model::{Object, Pod, PodDisruptionBudget};
use serde_json::Value;

/// A budget and the pods that count for it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    object: Arc<PodDisruptionBudget>,
    spec: Value,
    n_pods: usize,
}

impl Budget {
    /// A budget without pods; `spec` is that of its manifest.
    pub(crate) fn new(object: Arc<PodDisruptionBudget>, spec: Value) -> Self {
        Self { object, spec, n_pods: 0 }
    }

    /// A pod got or lost its node; the budget as an object if what it allows has changed.
    pub(crate) fn count(&mut self, pod: &Pod, came: bool) -> Option<Object> {
        if pod.namespace != self.object.namespace || !self.object.selector.matches(&pod.labels) {
            return None;
        }
        self.n_pods = if came { self.n_pods + 1 } else { self.n_pods.saturating_sub(1) };
        let allowed = allowed(&self.spec, self.n_pods);
        if allowed == self.object.disruptions_allowed {
            return None;
        }
        self.object =
            Arc::new(PodDisruptionBudget { disruptions_allowed: allowed, ..PodDisruptionBudget::clone(&self.object) });
        Some(Object::PodDisruptionBudget(Arc::clone(&self.object)))
    }
}

/// How many pods a budget lets go. Upstream: controller/disruption `getExpectedPodCount` (v1.36.2), all pods healthy.
fn allowed(spec: &Value, n_pods: usize) -> i32 {
    let share = |value: &Value| -> Option<usize> {
        match value.as_str().and_then(|text| text.strip_suffix('%')) {
            Some(percent) => Some((percent.parse::<usize>().ok()?.saturating_mul(n_pods)).div_ceil(100)),
            None => value.as_u64().and_then(|number| usize::try_from(number).ok()),
        }
    };
    let kept = match (share(&spec["minAvailable"]), share(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => n_pods.saturating_sub(most),
        (None, None) => 0,
    };
    i32::try_from(n_pods.saturating_sub(kept)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_budget_allows_what_is_above_its_floor() {
        for (spec, n_pods, want) in [
            (json!({"minAvailable": 2}), 3, 1),
            (json!({"minAvailable": "50%"}), 7, 3),
            (json!({"maxUnavailable": 1}), 3, 1),
            (json!({"maxUnavailable": "30%"}), 7, 3),
            (json!({"minAvailable": 5}), 3, 0),
            (json!({}), 3, 3),
        ] {
            assert_eq!(allowed(&spec, n_pods), want, "{spec}");
        }
    }
}
