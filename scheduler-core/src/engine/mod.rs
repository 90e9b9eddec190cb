//! The scheduler itself: events in, decisions and effects out. Synchronous; no I/O, no clock.

mod attempt;
mod record;

pub use attempt::{Attempt, Outcome};
pub use record::{DecisionRecord, NodeVerdict, PluginScores};

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
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Seed of every draw of lots. The same events, times and seed give the same decisions.
    pub seed: u64,
    /// Whether each attempt keeps its [`DecisionRecord`] from the start; see [`DecisionRecord`].
    pub record_decisions: bool,
}
