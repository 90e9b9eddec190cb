//! The seam for extenders: schedulers outside the process that filter, score, preempt or bind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PluginError, Result};
use crate::model::{ObjectRef, Pod};

/// Stands for all extenders where plugins are named, such as the plugins that rejected a pod. Any event may help a pod that
/// extenders rejected. Upstream: framework `ExtenderName` (v1.36.2).
pub const EXTENDER: &str = "Extender";

/// What an extender answers to a filter call. Upstream: extender/v1 `ExtenderFilterResult` (v1.36.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderFilterResult {
    /// Names of the nodes that remain. A node that is in no list is rejected for good, without a reason.
    pub nodes: Vec<Arc<str>>,
    /// Nodes that fail, with a message; preemption may help.
    pub failed: BTreeMap<Arc<str>, String>,
    /// Nodes that fail for good, with a message; wins over `failed`.
    pub failed_and_unresolvable: BTreeMap<Arc<str>, String>,
}

/// The pods that would go from one node, as an extender is asked about them. Upstream: extender/v1 `Victims` (v1.36.2).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Victims {
    /// The pods, most important first.
    pub pods: Vec<Arc<Pod>>,
    /// How many of them a disruption budget protects.
    pub n_pdb_violations: usize,
}

/// The same as an extender answers it. Upstream: extender/v1 `MetaVictims` (v1.36.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaVictims {
    /// UIDs of the pods, in the order in which they count as important. They must be on the node.
    pub uids: Vec<Arc<str>>,
    /// How many of them a disruption budget protects.
    pub n_pdb_violations: usize,
}

impl From<&Victims> for MetaVictims {
    fn from(victims: &Victims) -> Self {
        let uids = victims.pods.iter().map(|pod| Arc::clone(&pod.uid)).collect();
        Self { uids, n_pdb_violations: victims.n_pdb_violations }
    }
}

/// A scheduler extender. A host that speaks HTTP does so behind this trait: calls are synchronous, those of
/// [`prioritize`](Self::prioritize) to several extenders at the same time. Upstream: framework `Extender` (v1.36.2).
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

    /// Narrows or changes the candidate nodes and their victims, by node.
    ///
    /// # Errors
    /// When the extender fails.
    fn process_preemption(
        &self,
        pod: &Pod,
        victims: &BTreeMap<Arc<str>, Victims>,
    ) -> Result<BTreeMap<Arc<str>, MetaVictims>> {
        let _ = pod;
        Ok(victims.iter().map(|(node, victims)| (Arc::clone(node), victims.into())).collect())
    }

    /// Whether it binds pods.
    fn is_binder(&self) -> bool {
        false
    }

    /// Binds the pod. The host calls it to carry out [`EffectKind::BindByExtender`](super::EffectKind::BindByExtender).
    ///
    /// # Errors
    /// When the extender fails.
    fn bind(&self, pod: &ObjectRef, node_name: &str) -> Result<()> {
        Err(PluginError::new(format!("extender {:?} does not bind: pod {pod}, node {node_name:?}", self.name())))
    }
}
