//! The seam for extenders: schedulers outside the process that filter, score, preempt or bind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Result;
use crate::model::Pod;

/// What an extender answers to a filter call. Upstream: extender/v1 `ExtenderFilterResult` (v1.36.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderFilterResult {
    /// Names of the nodes that remain.
    pub nodes: Vec<Arc<str>>,
    /// Nodes that fail, with a message; preemption may help.
    pub failed: BTreeMap<Arc<str>, String>,
    /// Nodes that fail for good, with a message.
    pub failed_and_unresolvable: BTreeMap<Arc<str>, String>,
}

/// A scheduler extender. Calls are synchronous: a host that speaks HTTP does so behind this trait.
/// Upstream: framework `Extender` (v1.36.2).
pub trait Extender: Send + Sync {
    /// Name, for messages.
    fn name(&self) -> &str;

    /// Whether its failure is ignored.
    fn is_ignorable(&self) -> bool {
        false
    }

    /// Whether it wants to see this pod.
    fn is_interested(&self, pod: &Pod) -> bool {
        let _ = pod;
        true
    }

    /// Whether it filters nodes.
    fn is_filter(&self) -> bool {
        false
    }

    /// Narrows the feasible nodes. Runs after all Filter plugins.
    ///
    /// # Errors
    /// When the extender fails.
    fn filter(&self, pod: &Pod, nodes: &[Arc<str>]) -> Result<ExtenderFilterResult> {
        let _ = pod;
        Ok(ExtenderFilterResult { nodes: nodes.to_vec(), ..ExtenderFilterResult::default() })
    }

    /// Factor of its scores; 0 when it does not score.
    fn weight(&self) -> i64 {
        0
    }

    /// Scores 0..=10 by node; absent nodes get 0. Runs after all Score plugins.
    ///
    /// # Errors
    /// When the extender fails; its scores are then left out.
    fn prioritize(&self, pod: &Pod, nodes: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>> {
        let _ = (pod, nodes);
        Ok(Vec::new())
    }

    /// Whether it takes part in preemption.
    fn supports_preemption(&self) -> bool {
        false
    }

    /// Narrows candidate nodes and their victims (UIDs).
    ///
    /// # Errors
    /// When the extender fails.
    fn process_preemption(
        &self,
        pod: &Pod,
        victims: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    ) -> Result<BTreeMap<Arc<str>, Vec<Arc<str>>>> {
        let _ = pod;
        Ok(victims)
    }

    /// Whether it binds pods.
    fn is_binder(&self) -> bool {
        false
    }

    /// Binds the pod.
    ///
    /// # Errors
    /// When the extender fails.
    fn bind(&self, pod: &Pod, node_name: &str) -> Result<()> {
        let _ = (pod, node_name);
        Ok(())
    }
}
