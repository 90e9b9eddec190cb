//! What a plugin may answer at each extension point. Each type holds only the codes that are legal there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{EffectKind, NominatedNode};

/// One reason, as it appears in messages.
pub type Reason = Cow<'static, str>;

/// Reasons of one verdict.
pub type Reasons = Vec<Reason>;

/// The result of a plugin call: `Err` means that the plugin broke, never that a pod does not fit.
pub type Result<T> = std::result::Result<T, PluginError>;

/// A plugin could not do its work. The pod is retried as after any internal error.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    message: Cow<'static, str>,
}

impl PluginError {
    /// An error with this text (lower case, what failed on what, what was expected).
    #[must_use]
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into() }
    }

    /// The state that the coupled pre-point should have left is missing. Upstream: framework `ErrNotFound`.
    #[must_use]
    pub const fn not_found() -> Self {
        Self { message: Cow::Borrowed("not found") }
    }
}

/// What PreFilter says.
#[derive(Debug)]
pub enum PreFilterStatus<S> {
    /// Nothing to do for this pod: Filter, AddPod and RemovePod of the plugin do not run.
    Skip,
    /// The pod may go on.
    Success {
        /// What Filter will read.
        state: S,
        /// Nodes that alone come into question, by name; they may not exist. Sets of several plugins intersect.
        nodes: Option<BTreeSet<Arc<str>>>,
    },
    /// The pod cannot go anywhere now, but preemption may help: the remaining PreFilters still run.
    Unschedulable {
        /// What preemption's dry runs will read.
        state: Option<S>,
        /// Why.
        reasons: Reasons,
    },
    /// The pod cannot go anywhere, and nothing the scheduler does changes that: the cycle ends.
    UnschedulableAndUnresolvable {
        /// Why.
        reasons: Reasons,
    },
}

impl<S> PreFilterStatus<S> {
    /// Success without a restriction to some nodes.
    #[must_use]
    pub const fn success(state: S) -> Self {
        Self::Success { state, nodes: None }
    }

    /// A final rejection for one reason.
    #[must_use]
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::UnschedulableAndUnresolvable { reasons: vec![reason.into()] }
    }
}

/// What Filter says about one node. Reasons are asked for separately, and only when the pod fits nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterStatus {
    /// The pod fits as far as this plugin is concerned.
    Success,
    /// It does not fit, but removing pods may change that.
    Unschedulable,
    /// It does not fit, whatever pods are removed.
    UnschedulableAndUnresolvable,
}

impl FilterStatus {
    /// `Success` if the condition holds, else `Unschedulable`.
    #[must_use]
    pub const fn fits_if(fits: bool) -> Self {
        if fits { Self::Success } else { Self::Unschedulable }
    }

    /// `Success` if the condition holds, else `UnschedulableAndUnresolvable`.
    #[must_use]
    pub const fn resolvable_never_unless(fits: bool) -> Self {
        if fits { Self::Success } else { Self::UnschedulableAndUnresolvable }
    }

    /// Whether the pod fits.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// What PreScore says.
#[derive(Debug)]
pub enum PreScoreStatus<S> {
    /// Nothing to do for this pod: Score of the plugin does not run, all nodes get 0.
    Skip,
    /// Score will read this state.
    Success(S),
}

/// What PreEnqueue says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreEnqueueStatus {
    /// The pod may enter the active queue.
    Success,
    /// The pod is held back (gated) until an event that this plugin registered for.
    UnschedulableAndUnresolvable(Reasons),
}

/// What PostFilter achieved for a pod that fits nowhere.
#[derive(Debug)]
pub enum PostFilterStatus {
    /// The pod may become schedulable: what to do for it.
    Success {
        /// The node to nominate.
        nominated: NominatedNode,
        /// What the host must do, such as evicting victims.
        effects: Vec<EffectKind>,
    },
    /// Nothing achieved; the next PostFilter plugin runs.
    Unschedulable {
        /// What is appended to the message.
        reasons: Reasons,
        /// What happens to the nomination.
        nominated: NominatedNode,
    },
    /// Nothing achieved and nothing can be: remaining PostFilter plugins do not run.
    UnschedulableAndUnresolvable {
        /// What is appended to the message.
        reasons: Reasons,
        /// What happens to the nomination.
        nominated: NominatedNode,
    },
}

/// What Reserve says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveStatus {
    /// Reserved.
    Success,
    /// The node does not do after all.
    Unschedulable(Reasons),
    /// The node does not do, and that will not change.
    UnschedulableAndUnresolvable(Reasons),
    /// Something outside has to happen first; the pod is retried without back-off.
    Pending(Reasons),
}

/// What Permit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitStatus {
    /// Binding may start.
    Success,
    /// Binding waits for [`super::WaitingPods::allow`], at most this long (and at most 15 minutes).
    Wait(Duration),
    /// The pod is refused.
    Unschedulable(Reasons),
    /// The pod is refused, and that will not change.
    UnschedulableAndUnresolvable(Reasons),
}
