//! DefaultPreemption: makes room for a pod that fits nowhere by evicting pods of lower priority from one node.
//! Upstream v1.36.2: plugins/defaultpreemption, framework/preemption. The dry runs are in `candidates`, the choice in `select`,
//! the say of extenders in `extenders`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::config::args::{DefaultPreemptionArgs, PluginArgs};
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EffectKind, EnqueueExtensions, EventFilter,
    EventResource, Extensions, FilterStates, FilterStatus, Filters, FitError, Hint, NominatedNode, Plugin, PluginError,
    PodCondition, PostFilterPlugin, PostFilterStatus, PreEnqueuePlugin, PreEnqueueStatus, Reasons, Rejected, Result,
};
use crate::model::{Pod, PreemptionPolicy};

mod candidates;
mod extenders;
#[cfg(test)]
mod fast_path_tests;
mod select;
#[cfg(test)]
mod tests;

pub use candidates::{Candidate, DryRunFailure, DryRuns, Preemptor};
pub use select::best_candidates;

use extenders::call_extenders;

/// Name of the plugin.
pub const NAME: &str = "DefaultPreemption";

/// Where the plugin runs.
pub const POINTS: &[ExtensionPoint] = &[ExtensionPoint::PreEnqueue, ExtensionPoint::PostFilter];

/// The plugin.
#[derive(Debug)]
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
    /// Victims by preemptor (UIDs), from the decision until the host has asked for all deletions.
    preempting: Mutex<FxHashMap<Arc<str>, Vec<(Arc<str>, Arc<str>)>>>,
}

impl DefaultPreemption {
    /// A plugin with these (valid) arguments.
    pub fn new(args: DefaultPreemptionArgs) -> Self {
        Self { args, preempting: Mutex::default() }
    }

    /// Builds the plugin for the registry.
    ///
    /// # Errors
    /// When the arguments are those of another plugin.
    pub fn build(args: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
        let args = match args.cloned().or_else(|| PluginArgs::defaults(NAME)) {
            Some(PluginArgs::DefaultPreemption(args)) => args,
            other => return Err(BuildError(format!("got arguments {other:?}, want DefaultPreemptionArgs"))),
        };
        let plugin = Arc::new(Self::new(args));
        Ok(Extensions::new().pre_enqueue(&plugin).post_filter(&plugin).enqueue(&plugin))
    }

    /// How many candidates the dry runs look for among `n_nodes`. Upstream: calculateNumCandidates.
    fn n_candidates(&self, n_nodes: usize) -> usize {
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let share = n_nodes.saturating_mul(count(self.args.min_candidate_nodes_percentage)) / 100;
        share.max(count(self.args.min_candidate_nodes_absolute)).min(n_nodes)
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Arc<str>, Vec<(Arc<str>, Arc<str>)>>> {
        // A panic elsewhere leaves whole entries: each change is one call.
        self.preempting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }
}

impl PreEnqueuePlugin for DefaultPreemption {
    /// Holds a preemptor back while deletions are on their way: a cycle that does not see them would preempt again.
    fn pre_enqueue(&self, pod: &Pod, world: ClusterView<'_>) -> PreEnqueueStatus {
        let preempting = self.lock();
        let pending = preempting.get(&pod.uid).is_some_and(|victims| {
            victims.iter().any(|(node, victim)| {
                let pods = world.snapshot.find(node).map(|node| world.snapshot.pods(node)).unwrap_or_default();
                pods.iter().any(|pod| pod.uid == *victim && !pod.is_terminating())
            })
        });
        if pending {
            let reason = "waiting for the preemption for this pod to be finished";
            PreEnqueueStatus::UnschedulableAndUnresolvable(vec![reason.into()])
        } else {
            PreEnqueueStatus::Success
        }
    }
}

impl EnqueueExtensions for DefaultPreemption {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![EventFilter::new(EventResource::Pod, ActionType::DELETE)]
    }

    /// The plugins whose rejection preemption resolves judge the event; this one never does.
    fn hint(&self, _: &Pod, _: &ClusterEvent, _: ClusterView<'_>) -> Result<Hint> {
        Ok(Hint::Skip)
    }
}

impl PostFilterPlugin for DefaultPreemption {
    fn post_filter(
        &self,
        cycle: Cycle<'_>,
        _: &mut CycleState,
        filters: &Filters<'_>,
        states: &FilterStates,
        rejected: &Rejected,
    ) -> Result<PostFilterStatus> {
        if let Some(reason) = ineligible(cycle, rejected) {
            return Ok(unschedulable(reason, NominatedNode::Keep));
        }
        if rejected.n_nodes == 0 {
            return Err(PluginError::new("preemption: no nodes available"));
        }
        let preemptor = Preemptor { cycle, filters, states, rejected };
        let nodes = preemptor.potential_nodes();
        let offset = if nodes.is_empty() { 0 } else { draw(cycle.seed, nodes.len()) };
        let mut runs = preemptor.dry_run(&nodes, offset, self.n_candidates(nodes.len()));
        let found_some = !runs.candidates.is_empty();
        let candidates = std::mem::take(&mut runs.candidates);
        runs.candidates = call_extenders(filters.extenders(), cycle, candidates)
            .map_err(|error| PluginError::new(format!("preemption: {error}")))?;
        let best = best_candidates(&runs.candidates, cycle.now);
        if best.is_empty() && found_some {
            return Ok(unschedulable("no candidate node for preemption", NominatedNode::Keep));
        }
        if best.is_empty() {
            if !runs.errors.is_empty() {
                return Err(PluginError::new(format!("preemption: {}", runs.errors.remove(0))));
            }
            let mut message = FitError::new(rejected.n_nodes);
            message.alike_nodes(runs.without_victims.len(), &DryRuns::NO_VICTIMS.into());
            for failure in &runs.failures {
                message.node(&failure.reasons);
            }
            message.absent_nodes(&vec!["Preemption is not helpful for scheduling".into()]);
            return Ok(unschedulable(&message.to_string(), NominatedNode::Clear));
        }
        let best = best[draw(cycle.seed, best.len())];
        Ok(PostFilterStatus::Success {
            nominated: NominatedNode::Set(Arc::clone(&best.node_name)),
            effects: self.prepare(cycle, filters, best),
        })
    }

    fn effects_finished(&self, pod: &Pod) {
        self.lock().remove(&pod.uid);
    }
}

impl DefaultPreemption {
    /// Deletes the victims that do not go already, and takes the nomination from pods of lower priority on the node, which
    /// may no longer fit. Upstream: executor.go prepareCandidateAsync.
    fn prepare(&self, cycle: Cycle<'_>, filters: &Filters<'_>, best: &Candidate) -> Vec<EffectKind> {
        let preemptor = cycle.pod;
        let going: Vec<_> = best.victims.iter().filter(|victim| !victim.is_terminating()).collect();
        if going.is_empty() {
            return Vec::new();
        }
        let victims = going.iter().map(|victim| (Arc::clone(&best.node_name), Arc::clone(&victim.uid)));
        self.lock().insert(Arc::clone(&preemptor.uid), victims.collect());
        let nominated = filters.nominations().nominated_on(&best.node_name).iter();
        let lower = nominated.filter(|pod| pod.priority < preemptor.priority);
        let clear = lower.map(|pod| EffectKind::PatchPodStatus {
            pod: pod.reference(),
            condition: None,
            nominated: NominatedNode::Clear,
        });
        let delete = going.iter().map(|victim| EffectKind::DeleteVictim {
            preemptor: preemptor.reference(),
            victim: victim.reference(),
            node: Arc::clone(&best.node_name),
            condition: PodCondition {
                condition_type: "DisruptionTarget",
                status: true,
                reason: "PreemptionByScheduler",
                message: format!("{}: preempting to accommodate a higher priority pod", preemptor.scheduler_name),
                observed_generation: Some(victim.generation),
            },
        });
        clear.chain(delete).collect()
    }
}

/// Why the pod may not preempt: its policy, or victims of its last preemption that are still going.
/// Upstream: PodEligibleToPreemptOthers.
fn ineligible(cycle: Cycle<'_>, rejected: &Rejected) -> Option<&'static str> {
    let pod = cycle.pod;
    if pod.preemption_policy == PreemptionPolicy::Never {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cycle.snapshot.find(pod.nominated_node_name.as_deref().filter(|name| !name.is_empty())?)?;
    let explicit = rejected.nodes.iter().find(|rejected| rejected.node == node).map(|rejected| rejected.status);
    let absent = || rejected.absent.as_ref().map_or(FilterStatus::UnschedulableAndUnresolvable, |(status, _)| *status);
    if explicit.unwrap_or_else(absent) == FilterStatus::UnschedulableAndUnresolvable {
        return None;
    }
    let is_going =
        |other: &Arc<Pod>| other.priority < pod.priority && other.is_terminating() && other.preempted_by_scheduler;
    let waits = cycle.snapshot.pods(node).iter().any(is_going);
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

fn unschedulable(message: &str, nominated: NominatedNode) -> PostFilterStatus {
    let reasons: Reasons = vec![format!("preemption: {message}").into()];
    PostFilterStatus::Unschedulable { reasons, nominated }
}

/// A number below `n` from the seed of the cycle. The constants are those of splitmix64.
fn draw(seed: u64, n: usize) -> usize {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((x ^ (x >> 31)) % n as u64).expect("the rest is below n, a usize")
}
