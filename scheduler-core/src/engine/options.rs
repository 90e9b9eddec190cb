//! What the engine is told: options once, changes as they come.

use std::sync::Arc;

use crate::framework::Extender;
use crate::model::Object;

/// What a watch says of one object. Repetitions and late news are harmless.
#[derive(Debug, Clone)]
pub enum Change {
    /// The object exists and looks like this.
    Applied(Object),
    /// The object is gone; only its kind, namespace, name and UID are looked at.
    Deleted(Object),
}

/// What the engine is told besides the configuration.
#[derive(Clone, Default)]
pub struct Options {
    /// Seed of every draw of lots. The same events, times and seed give the same decisions.
    pub seed: u64,
    /// Whether each attempt keeps its [`super::DecisionRecord`] from the start.
    pub record_decisions: bool,
    /// Extenders, in the order in which they are called.
    pub extenders: Vec<Arc<dyn Extender>>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("record_decisions", &self.record_decisions)
            .field("n_extenders", &self.extenders.len())
            .finish()
    }
}
