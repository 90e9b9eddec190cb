//! What plugins are made of: extension-point traits, outcomes, cycle state, events, effects, registry, profile.
//!
//! A plugin author needs this module and [`crate::model`], nothing else. The engine sees plugins only through the
//! erased forms that the [`Registry`] stores; see [`FilterPlugin`] and [`ScorePlugin`] for the two traits that most
//! plugins implement.

mod binding;
mod cycle;
mod effect;
mod erased;
mod event;
mod extender;
mod filters;
mod fit_error;
mod normalize;
mod outcome;
mod plugin;
mod profile;
mod queued;
mod reason_counts;
mod registry;
mod rejected;
mod signature;
mod waiting;

pub use binding::{BindStep, Binding, PreFlight, Step};
pub use cycle::{ClusterView, Cycle, CycleState, Nominations};
pub use effect::{CustomEffect, Effect, EffectError, EffectId, EffectKind, EventType, NominatedNode, PodCondition};
pub use erased::{DynFilter, DynScore, FilterStates, PreFilterVerdict, ScoreStates};
pub(crate) use erased::{FilterSlot, ScoreSlot};
pub use event::{ActionType, ClusterEvent, EventFilter, EventResource, Hint};
pub use extender::{EXTENDER, Extender, ExtenderFilterResult, MetaVictims, Victims};
pub use filters::{Filters, RejectedBy};
pub use fit_error::FitError;
pub use normalize::default_normalize_score;
pub(crate) use normalize::normalize_to;
pub use outcome::{
    FilterStatus, PermitStatus, PluginError, PostFilterStatus, PreEnqueueStatus, PreFilterStatus, PreScoreStatus,
    Reason, Reasons, ReserveStatus, Result,
};
pub use plugin::{
    BindPlugin, EnqueueExtensions, FilterPlugin, PermitPlugin, Plugin, PostBindPlugin, PostFilterPlugin, PreBindPlugin,
    PreEnqueuePlugin, QueueSortPlugin, ReservePlugin, ScorePlugin,
};
pub use profile::Profile;
pub use queued::QueuedEntity;
pub use reason_counts::ReasonCounts;
pub use registry::{Args, BuildError, Built, Extensions, RegisterError, Registry, decode_args};
pub use rejected::{Rejected, RejectedNode};
pub use signature::{Reuse, Sharing, Signature};
pub(crate) use waiting::WaitOutcome;
pub use waiting::WaitingPods;

/// The highest score a plugin may give a node after normalising. Upstream: framework `MaxNodeScore` (v1.36.2).
pub const MAX_NODE_SCORE: i64 = 100;
