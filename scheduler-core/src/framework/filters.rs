//! Running a profile's PreFilter and Filter plugins: over all nodes, on one node, and in what-if runs.

use std::sync::Arc;

use super::{
    Cycle, CycleState, Extender, FilterStates, FilterStatus, Nominations, PluginError, PreFilterVerdict, Profile,
    ReasonCounts, Reasons, Result,
};
use crate::cache::{Candidates, NodeIdx, NodeOverlay, NodeView};
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
            self.filter_chunk_by(at, states, cycle, nodes)?;
            if nodes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Why the plugin at this position rejects these nodes, each of which it does.
    pub(crate) fn diagnose_chunk(
        &self,
        at: usize,
        states: &FilterStates,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) -> Result<()> {
        let plugin = &self.profile.filters[at].plugin;
        plugin
            .diagnose_chunk(states, at, cycle, nodes, statuses, reasons)
            .map_err(|error| filter_failed(plugin.name(), &error))
    }

    /// Clears the bits of the nodes of a chunk that the plugin at this position alone rejects.
    pub(crate) fn filter_chunk_by(
        &self,
        at: usize,
        states: &FilterStates,
        cycle: Cycle<'_>,
        nodes: &mut Candidates<'_>,
    ) -> Result<()> {
        let plugin = &self.profile.filters[at].plugin;
        plugin.filter_chunk(states, at, cycle, nodes).map_err(|error| filter_failed(plugin.name(), &error))
    }

    /// Whether a what-if run changes states: without that it needs no copy of them.
    #[must_use]
    pub fn follow_pods(&self, states: &FilterStates) -> bool {
        self.profile.pre_filter_order.iter().any(|at| self.profile.filters[*at].plugin.follows_pods(states, *at))
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
        if let Some((overlay, states)) = self.with_nominated(states, cycle, node)? {
            let rejected = self.filter(&states, cycle, overlay.view(cycle.snapshot))?;
            if rejected.is_some() {
                return Ok(rejected);
            }
        }
        self.filter(states, cycle, node)
    }

    /// [`Filters::filter_with_nominated`] without the reasons.
    ///
    /// # Errors
    /// When a plugin breaks.
    pub fn fits_with_nominated(&self, states: &FilterStates, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<bool> {
        if let Some((overlay, states)) = self.with_nominated(states, cycle, node)?
            && !self.fits(&states, cycle, overlay.view(cycle.snapshot))?
        {
            return Ok(false);
        }
        self.fits(states, cycle, node)
    }

    /// The node with the pods nominated to it that the pod must mind; `None` when there are none.
    fn with_nominated(
        &self,
        states: &FilterStates,
        cycle: Cycle<'_>,
        node: NodeView<'_>,
    ) -> Result<Option<(NodeOverlay, FilterStates)>> {
        let nominated = self.nominations.nominated_on(node.name()).iter();
        let mut minded =
            nominated.filter(|pod| pod.priority >= cycle.pod.priority && pod.uid != cycle.pod.uid).peekable();
        if minded.peek().is_none() {
            return Ok(None);
        }
        let (mut overlay, mut states) = (NodeOverlay::of(node), states.clone());
        for pod in minded {
            overlay.add_pod(cycle.snapshot, Arc::clone(pod));
            self.add_pod(&mut states, cycle, pod, overlay.view(cycle.snapshot))?;
        }
        Ok(Some((overlay, states)))
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
