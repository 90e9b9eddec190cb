//! Dry runs: on which nodes the pod would fit if pods of lower priority went, and which of them must go.
//! Upstream v1.36.2: framework/preemption DryRunPreemption, plugins/defaultpreemption SelectVictimsOnNode.

use std::sync::Arc;

use super::select::by_importance;
use crate::cache::{NodeIdx, NodeOverlay, NodeView, ResourceId};
use crate::framework::{
    Cycle, FilterStates, FilterStatus, Filters, PluginError, Reasons, Rejected, RejectedBy, Result,
};
use crate::model::{Pod, PodDisruptionBudget};

/// Victims on a node that make room.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The node.
    pub node_name: Arc<str>,
    /// Pods to evict, most important first; terminating ones included.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them a disruption budget protects.
    pub n_pdb_violations: usize,
}

/// Why a dry run found no victims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunFailure {
    /// The node.
    pub node: NodeIdx,
    /// The plugin that rejects the pod even without the victims.
    pub plugin: &'static str,
    /// Resolvable or not.
    pub status: FilterStatus,
    /// Why.
    pub reasons: Reasons,
}

/// What the dry runs found.
#[derive(Debug, Default)]
pub struct DryRuns {
    /// First those without violated disruption budgets.
    pub candidates: Vec<Candidate>,
    /// Nodes on which nobody can be evicted, see [`DryRuns::NO_VICTIMS`].
    pub without_victims: Vec<NodeIdx>,
    /// Nodes on which the pod does not fit even without those who can.
    pub failures: Vec<DryRunFailure>,
    /// Plugins that broke on a node.
    pub errors: Vec<PluginError>,
}

impl DryRuns {
    /// What is said of a node on which nobody can be evicted.
    pub const NO_VICTIMS: &'static str = "No preemption victims found for incoming pod";
}

/// One attempt to preempt.
#[derive(Clone, Copy)]
pub struct Preemptor<'a> {
    /// The cycle that found no node.
    pub cycle: Cycle<'a>,
    /// Its filter plugins.
    pub filters: &'a Filters<'a>,
    /// Their state after PreFilter.
    pub states: &'a FilterStates,
    /// Its verdicts.
    pub rejected: &'a Rejected,
}

impl std::fmt::Debug for Preemptor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preemptor").field("cycle", &self.cycle).finish_non_exhaustive()
    }
}

enum DryRun {
    Victims(Candidate),
    Failure(DryRunFailure),
}

impl Preemptor<'_> {
    /// The nodes on which removing pods may help, in node order. Upstream: NodesForStatusCode(Unschedulable).
    pub fn potential_nodes(&self) -> Vec<NodeIdx> {
        if !self.rejected.absent_are_resolvable() {
            return self.rejected.resolvable().collect();
        }
        let mut unresolvable: Vec<NodeIdx> =
            self.rejected.nodes.iter().filter(|n| n.status != FilterStatus::Unschedulable).map(|n| n.node).collect();
        unresolvable.sort_unstable();
        self.cycle.snapshot.iter().filter(|node| unresolvable.binary_search(node).is_err()).collect()
    }

    /// Dry-runs `nodes` from position `offset` on, until `n_candidates` are found and one of them violates no disruption
    /// budget.
    pub fn dry_run(&self, nodes: &[NodeIdx], offset: usize, n_candidates: usize) -> DryRuns {
        let budgets: Vec<&PodDisruptionBudget> = self.cycle.objects.disruption_budgets().map(|b| &**b).collect();
        let mut runs = DryRuns::default();
        let mut violating = Vec::new();
        for at in 0..nodes.len() {
            if !runs.candidates.is_empty() && runs.candidates.len() + violating.len() >= n_candidates {
                break;
            }
            let node = nodes[(offset + at) % nodes.len()];
            if self.cycle.snapshot.lowest_priority(node) >= self.cycle.pod.priority {
                runs.without_victims.push(node);
                continue;
            }
            match self.select_victims_on(node, &budgets) {
                Ok(DryRun::Victims(candidate)) if candidate.n_pdb_violations == 0 => runs.candidates.push(candidate),
                Ok(DryRun::Victims(candidate)) => violating.push(candidate),
                Ok(DryRun::Failure(failure)) => runs.failures.push(failure),
                Err(error) => runs.errors.push(error),
            }
        }
        runs.candidates.truncate(n_candidates);
        violating.truncate(n_candidates);
        runs.candidates.append(&mut violating);
        runs
    }

    fn select_victims_on(&self, node: NodeIdx, budgets: &[&PodDisruptionBudget]) -> Result<DryRun> {
        let cycle = self.cycle;
        let view = cycle.snapshot.view(node);
        let (mut overlay, mut potential) = NodeOverlay::without(view, |pod| pod.priority < cycle.pod.priority);
        // Without a plugin that follows pods, the states after PreFilter are right whoever is on the node.
        let mut states = None;
        if self.filters.follow_pods(self.states) && !self.resources_never_suffice(node, overlay.view(cycle.snapshot)) {
            let mut copy = self.states.clone();
            let mut emptied = NodeOverlay::of(view);
            for victim in &potential {
                emptied.remove_pod(cycle.snapshot, &victim.uid);
                self.filters.remove_pod(&mut copy, cycle, victim, emptied.view(cycle.snapshot))?;
            }
            states = Some(copy);
        }
        let read = states.as_ref().unwrap_or(self.states);
        if let Some(rejected) = self.filters.filter_with_nominated(read, cycle, overlay.view(cycle.snapshot))? {
            let RejectedBy { plugin, status, reasons } = rejected;
            return Ok(DryRun::Failure(DryRunFailure { node, plugin, status, reasons }));
        }

        potential.sort_by(|a, b| by_importance(a, b, cycle.now));
        let (violating, others) = split_by_budgets(potential, budgets);
        let is_mixed = !violating.is_empty() && !others.is_empty();
        let n_protected = violating.len();
        let mut n_pdb_violations = 0;
        let mut victims = Vec::new();
        for (at, pod) in violating.into_iter().chain(others).enumerate() {
            overlay.add_pod(cycle.snapshot, Arc::clone(&pod));
            if let Some(states) = &mut states {
                self.filters.add_pod(states, cycle, &pod, overlay.view(cycle.snapshot))?;
            }
            let read = states.as_ref().unwrap_or(self.states);
            if !self.filters.fits_with_nominated(read, cycle, overlay.view(cycle.snapshot))? {
                overlay.remove_pod(cycle.snapshot, &pod.uid);
                if let Some(states) = &mut states {
                    self.filters.remove_pod(states, cycle, &pod, overlay.view(cycle.snapshot))?;
                }
                n_pdb_violations += usize::from(at < n_protected);
                victims.push(pod);
            }
        }
        if is_mixed {
            victims.sort_by(|a, b| by_importance(a, b, cycle.now));
        }
        if victims.is_empty() {
            return Err(PluginError::new(format!("expected at least one victim pod on node {:?}", view.name())));
        }
        Ok(DryRun::Victims(Candidate { node_name: Arc::clone(view.name()), victims, n_pdb_violations }))
    }

    /// Whether NodeResourcesFit rejected the node and would reject it without the victims, too. Then it is still the first
    /// plugin that does, since those before it accepted the fuller node.
    fn resources_never_suffice(&self, node: NodeIdx, emptied: NodeView<'_>) -> bool {
        let found = self.rejected.nodes.binary_search_by_key(&node, |rejected| rejected.node);
        let rejected_by = found.ok().and_then(|at| self.rejected.nodes[at].plugin);
        if rejected_by != Some("NodeResourcesFit") {
            return false;
        }
        let requests = &self.cycle.pod.resources.requests;
        let lacks = |resource: ResourceId, amount: i64| {
            amount > 0 && amount > emptied.allocatable(resource).saturating_sub(emptied.requested(resource))
        };
        lacks(ResourceId::PODS, 1)
            || lacks(ResourceId::MILLI_CPU, requests.milli_cpu)
            || lacks(ResourceId::MEMORY, requests.memory)
            || lacks(ResourceId::EPHEMERAL_STORAGE, requests.ephemeral_storage)
    }
}

/// Pods whose eviction would violate a disruption budget, and the others, each in the given order. A budget is used up in
/// that order, too. A budget with an empty selector protects nobody, and nothing protects a pod without labels.
fn split_by_budgets(pods: Vec<Arc<Pod>>, budgets: &[&PodDisruptionBudget]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut allowed: Vec<i64> = budgets.iter().map(|budget| i64::from(budget.disruptions_allowed)).collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        if pod.labels.is_empty() {
            return false;
        }
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let protects = budget.namespace == pod.namespace
                && !budget.selector.is_everything()
                && budget.selector.matches(&pod.labels)
                // Its eviction is counted already.
                && !budget.disrupted_pods.contains(&pod.name);
            if protects {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    })
}
