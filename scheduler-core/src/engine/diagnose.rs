//! Why a pod fits nowhere: the verdict on every node that came into question, and the reasons, counted.

use super::algorithm::{Algorithm, Restriction};
use super::find_nodes::Found;
use super::scratch::Scratch;
use crate::cache::{Candidates, NodeIdx};
use crate::framework::{EXTENDER, FilterStates, FilterStatus, PluginError, Rejected, RejectedNode, Result};

impl Algorithm<'_> {
    /// Why each node was rejected: by extenders; with nominated pods in mind, node by node; the others by the first
    /// plugin that does not let them pass, which says why of all of them at one time.
    pub(super) fn diagnose(
        &self,
        scratch: &Scratch,
        states: &FilterStates,
        restriction: Option<&Restriction>,
        found: &Found,
    ) -> Result<Rejected> {
        let snapshot = self.cycle.snapshot;
        let mut rejected = Rejected { n_nodes: snapshot.n_nodes(), ..Rejected::default() };
        let mut left = scratch.considered.clone();
        let by_extenders = &found.by_extenders;
        for (&node, (status, reasons)) in &by_extenders.rejected {
            take(&mut left, node);
            rejected.nodes.push(RejectedNode { node, status: *status, plugin: None });
            reasons.iter().for_each(|reason| rejected.reasons.add(reason, 1));
        }
        for &node in &by_extenders.lost {
            // As upstream, a node of which an extender says nothing has no verdict of its own.
            take(&mut left, node);
        }
        if !by_extenders.lost.is_empty() {
            rejected.unschedulable_plugins.insert(EXTENDER);
        }
        for name in self.filters.nominations().nominated_nodes() {
            let Some(node) = snapshot.find(&name).filter(|node| take(&mut left, *node)) else { continue };
            let by = self
                .filters
                .filter_with_nominated(states, self.cycle, snapshot.view(node))?
                .ok_or_else(|| self.inconsistent(node))?;
            rejected.unschedulable_plugins.insert(by.plugin);
            rejected.nodes.push(RejectedNode { node, status: by.status, plugin: Some(by.plugin) });
            by.reasons.iter().for_each(|reason| rejected.reasons.add(reason, 1));
        }
        self.diagnose_by_plugin(&mut rejected, &mut left, states)?;
        if let Some(node) = Candidates::new(0, &mut left).iter().next() {
            return Err(self.inconsistent(node));
        }
        // The runs of the plugins are sorted each; sorting merges them.
        rejected.nodes.sort_by_key(|rejected| rejected.node);
        if let Some(restriction) = restriction {
            rejected.unschedulable_plugins.extend(&restriction.plugins);
            rejected.absent = Some(restriction.verdict_on_others());
        }
        Ok(rejected)
    }

    /// Takes the nodes that plugins reject out of `left`.
    fn diagnose_by_plugin(&self, rejected: &mut Rejected, left: &mut [u64], states: &FilterStates) -> Result<()> {
        let profile = self.profile;
        let mut lost = Vec::new();
        let mut nodes = Vec::new();
        let mut statuses = Vec::new();
        for &at in profile.filter_order.iter().filter(|at| !states.slots[**at].is_skipped()) {
            lost.clear();
            lost.extend_from_slice(left);
            self.filters.filter_chunk_by(at, states, self.cycle, &mut Candidates::new(0, left))?;
            lost.iter_mut().zip(&*left).for_each(|(lost, left)| *lost &= !left);
            nodes.clear();
            Candidates::new(0, &mut lost).list(&mut nodes);
            if nodes.is_empty() {
                continue;
            }
            statuses.clear();
            statuses.resize(nodes.len(), FilterStatus::Success);
            self.filters.diagnose_chunk(at, states, self.cycle, &nodes, &mut statuses, &mut rejected.reasons)?;
            let plugin = profile.filters[at].plugin.name();
            rejected.unschedulable_plugins.insert(plugin);
            for (&node, &status) in nodes.iter().zip(&statuses) {
                if status.is_success() {
                    return Err(self.inconsistent(node));
                }
                rejected.nodes.push(RejectedNode { node, status, plugin: Some(plugin) });
            }
        }
        Ok(())
    }

    /// The contract of [`crate::framework::FilterPlugin`] is broken: chunk and node methods differ.
    fn inconsistent(&self, node: NodeIdx) -> PluginError {
        let name = self.cycle.snapshot.name(node);
        PluginError::new(format!("node {name:?} was rejected by a plugin's filter_chunk, but by no plugin's filter"))
    }
}

/// Clears the node's bit; whether it was set.
fn take(words: &mut [u64], node: NodeIdx) -> bool {
    let bit = 1 << (node.slot() % 64);
    let Some(word) = words.get_mut(node.slot() / 64).filter(|word| **word & bit != 0) else { return false };
    *word &= !bit;
    true
}
