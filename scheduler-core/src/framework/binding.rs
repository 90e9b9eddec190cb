//! The binding cycle as a state machine: no future, no client, no clock.

use std::sync::Arc;

use super::{CycleState, EffectError, EffectKind, EventFilter, Reasons};
use crate::model::{Pod, Timestamp};

/// A pod on its way to a node, from assume to the end of PostBind. Owned: it outlives the cycle.
#[derive(Debug)]
pub struct Binding {
    /// The pod as it was scheduled.
    pub pod: Arc<Pod>,
    /// The chosen node.
    pub node_name: Arc<str>,
    /// State of the cycle that chose it.
    pub state: CycleState,
    /// Results of the effects that the current plugin asked for in its last step, in order; empty on its first call.
    pub results: Vec<Result<(), EffectError>>,
}

/// What a PreBind plugin announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreFlight {
    /// Nothing to do for this pod: `pre_bind` will not be called.
    Skip,
    /// There is work.
    Work {
        /// Whether it may run at the same time as other plugins' work.
        parallel: bool,
    },
}

/// How a PreBind step ended.
#[derive(Debug)]
pub enum Step {
    /// The plugin is done; the next one runs.
    Done,
    /// These effects come first; the plugin is called again with their results in [`Binding::results`].
    Do(Vec<EffectKind>),
    /// The plugin is called again at such an event, or when the time comes.
    Wait {
        /// Events to wait for.
        events: Vec<EventFilter>,
        /// When to call anyway.
        until: Timestamp,
    },
    /// The pod cannot go there after all.
    Reject(Reasons),
}

/// How a Bind step ended.
#[derive(Debug)]
pub enum BindStep {
    /// The plugin does not bind this pod; the next one is asked.
    Skip,
    /// Bound.
    Done,
    /// These effects come first; the plugin is called again with their results.
    Do(Vec<EffectKind>),
}
