//! Running a profile's PreFilter and Filter plugins: over all nodes, on one node, and in what-if runs.

use std::sync::Arc;

use super::{
    Cycle, CycleState, Extender, FilterStates, FilterStatus, Nominations, PluginError, PreFilterVerdict, Profile,
    Reasons, Result,
};
use crate::cache::{Candidates, NodeOverlay, NodeView};
use crate::model::Pod;

/// The filter plugins of a profile, as PostFilter plugins and the engine run them.
#[derive(Clone, Copy)]
pub struct Filters<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) nominations: &'a dyn Nominations,
    extenders: &'a [Arc<dyn Extender>],
}

/// Which plugin rejected a node, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedBy {
    /// The first plugin, in order, that did.
    pub plugin: &'static str,
    /// Resolvable or not.
    pub status: FilterStatus,
    /// Why.
    pub reasons: Reasons,
}

impl<'a> Filters<'a> {
    /// The filter plugins of `profile`, minding the nominated pods.
    #[must_use]
    pub fn new(profile: &'a Profile, nominations: &'a dyn Nominations) -> Self {
        Self { profile, nominations, extenders: &[] }
    }

    /// With the extenders that take part in preemption.
    #[must_use]
    pub fn with_extenders(self, extenders: &'a [Arc<dyn Extender>]) -> Self {
        Self { extenders, ..self }
    }

    /// The scheduler's extenders, in their order.
    #[must_use]
    pub fn extenders(&self) -> &'a [Arc<dyn Extender>] {
        self.extenders
    }

    /// Pods nominated to nodes.
    #[must_use]
    pub fn nominations(&self) -> &'a dyn Nominations {
        self.nominations
    }

    /// Runs one PreFilter plugin; its state goes into `states`.
    pub(crate) fn pre_filter(
        &self,
        at: usize,
        cycle: Cycle<'_>,
        shared: &mut CycleState,
        states: &mut FilterStates,
    ) -> Result<PreFilterVerdict> {
        let plugin = &self.profile.filters[at].plugin;
        plugin
            .pre_filter(cycle, shared, states, at)
            .map_err(|error| PluginError::new(format!("running PreFilter plugin {:?}: {error}", plugin.name())))
    }

    /// Clears the bits of the nodes of a chunk that cannot take the pod, nominated pods not minded.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn filter_chunk(&self, states: &FilterStates, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        for &at in &self.profile.filter_order {
            if states.slots[at].is_skipped() {
                continue;
            }
            let plugin = &self.profile.filters[at].plugin;
            plugin.filter_chunk(states, at, cycle, nodes).map_err(|error| filter_failed(plugin.name(), &error))?;
            if nodes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Runs the filter plugins on one node, nominated pods not minded. `None` means that the pod fits.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn filter(&self, states: &FilterStates, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<Option<RejectedBy>> {
        for &at in &self.profile.filter_order {
            if states.slots[at].is_skipped() {
                continue;
            }
            let plugin = &self.profile.filters[at].plugin;
            let status =
                plugin.filter(states, at, cycle, node).map_err(|error| filter_failed(plugin.name(), &error))?;
            if !status.is_success() {
                let mut reasons = Vec::new();
                plugin.reasons(states, at, cycle, node, &mut reasons);
                return Ok(Some(RejectedBy { plugin: plugin.name(), status, reasons }));
            }
        }
        Ok(None)
    }

    /// Whether the pod fits on one node, nominated pods not minded: [`Filters::filter`] without the reasons.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn fits(&self, states: &FilterStates, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<bool> {
        for &at in &self.profile.filter_order {
            if states.slots[at].is_skipped() {
                continue;
            }
            let plugin = &self.profile.filters[at].plugin;
            let status =
                plugin.filter(states, at, cycle, node).map_err(|error| filter_failed(plugin.name(), &error))?;
            if !status.is_success() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs the filter plugins on one node twice if pods of at least the same priority are nominated there: with
    /// them, and without. Upstream: runtime `RunFilterPluginsWithNominatedPods` (v1.36.2).
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn filter_with_nominated(
        &self,
        states: &FilterStates,
        cycle: Cycle<'_>,
        node: NodeView<'_>,
    ) -> Result<Option<RejectedBy>> {
        let nominated: Vec<&Arc<Pod>> = self
            .nominations
            .nominated_on(node.name())
            .iter()
            .filter(|pod| pod.priority >= cycle.pod.priority && pod.uid != cycle.pod.uid)
            .collect();
        if !nominated.is_empty() {
            let mut overlay = NodeOverlay::of(node);
            let mut states = states.clone();
            for pod in nominated {
                overlay.add_pod(cycle.snapshot, Arc::clone(pod));
                self.add_pod(&mut states, cycle, pod, overlay.view(cycle.snapshot))?;
            }
            let rejected = self.filter(&states, cycle, overlay.view(cycle.snapshot))?;
            if rejected.is_some() {
                return Ok(rejected);
            }
        }
        self.filter(states, cycle, node)
    }

    /// Tells the plugins' states that `pod` is on the node, too. Upstream: `RunPreFilterExtensionAddPod`.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn add_pod(&self, states: &mut FilterStates, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        for &at in &self.profile.pre_filter_order {
            if !states.slots[at].is_skipped() {
                self.profile.filters[at].plugin.add_pod(states, at, cycle, pod, node)?;
            }
        }
        Ok(())
    }

    /// Tells the plugins' states that `pod` has left the node. Upstream: `RunPreFilterExtensionRemovePod`.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn remove_pod(&self, states: &mut FilterStates, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        for &at in &self.profile.pre_filter_order {
            if !states.slots[at].is_skipped() {
                self.profile.filters[at].plugin.remove_pod(states, at, cycle, pod, node)?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Filters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filters").field("profile", &self.profile.scheduler_name).finish_non_exhaustive()
    }
}

fn filter_failed(plugin: &str, error: &PluginError) -> PluginError {
    PluginError::new(format!("running {plugin:?} filter plugin: {error}"))
}
