//! One decision, top-down: PreFilter, Filter, PreScore, Score, and the choice. Changes nothing but what it is lent.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::batch::Batches;
use super::find_nodes::Found;
use super::record::DecisionRecord;
use super::scratch::Scratch;
use crate::cache::{Candidates, NodeIdx};
use crate::framework::{
    Cycle, CycleState, EXTENDER, Extender, FilterStates, FilterStatus, Filters, PluginError, PreFilterVerdict, Profile,
    Reasons, Rejected,
};

/// Everything a decision reads.
pub(super) struct Algorithm<'a> {
    pub(super) profile: &'a Profile,
    pub(super) filters: Filters<'a>,
    pub(super) cycle: Cycle<'a>,
    pub(super) extenders: &'a [Arc<dyn Extender>],
    pub(super) n_threads: usize,
}

/// What one decision leaves for the next.
pub(super) struct Kept<'a> {
    pub(super) scratch: &'a mut Scratch,
    pub(super) batches: &'a mut Batches,
    /// Where the search for feasible nodes goes on, when it does not look at all of them.
    pub(super) start_index: &'a mut usize,
}

/// A node was chosen.
pub(super) struct Decision {
    pub(super) node: NodeIdx,
    pub(super) n_evaluated: usize,
    pub(super) n_feasible: usize,
}

/// No node was chosen.
pub(super) enum NoDecision {
    /// There are no nodes at all.
    NoNodes,
    /// None fits.
    Unfit(Box<Rejected>),
    /// A plugin broke.
    Broken(PluginError),
}

impl From<PluginError> for NoDecision {
    fn from(error: PluginError) -> Self {
        Self::Broken(error)
    }
}

/// Nodes that alone come into question, and the plugins that say so.
pub(super) struct Restriction {
    pub(super) nodes: BTreeSet<Arc<str>>,
    pub(super) plugins: BTreeSet<&'static str>,
}

impl Restriction {
    /// What is said of the nodes outside.
    pub(super) fn verdict_on_others(&self) -> (FilterStatus, Reasons) {
        let plugins: Vec<&str> = self.plugins.iter().copied().collect();
        let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
        (FilterStatus::UnschedulableAndUnresolvable, vec![reason.into()])
    }
}

impl Algorithm<'_> {
    /// Chooses a node: as for the last pod, if this one is a replica of it; as for the last pod that was alike; or by
    /// looking at every node. Upstream: `schedulePod` (v1.36.2 schedule_one.go).
    pub(super) fn run(
        mut self,
        pool: &rayon::ThreadPool,
        kept: Kept<'_>,
        is_replica: bool,
        shared: &mut CycleState,
        states: &mut FilterStates,
        record: Option<&mut DecisionRecord>,
    ) -> Result<Decision, NoDecision> {
        if self.cycle.snapshot.n_nodes() == 0 {
            return Err(NoDecision::NoNodes);
        }
        let Kept { scratch, batches, start_index } = kept;
        if is_replica
            && record.is_none()
            && let Some(decision) = self.schedule_replica(batches, shared, start_index)
        {
            return Ok(decision);
        }
        batches.forget_replicas();
        let restriction = self.pre_filter(shared, states)?;
        if restriction.is_none()
            && record.is_none()
            && let Some(decision) = self.schedule_alike(batches, shared, states, start_index)
        {
            return Ok(decision);
        }
        let restriction = restriction.as_ref();
        if self.n_threads > 1 && self.cycle.snapshot.n_slots() >= MIN_NODES_FOR_POOL {
            return pool.install(|| self.full_pass(scratch, shared, states, restriction, start_index, record));
        }
        self.n_threads = 1;
        self.full_pass(scratch, shared, states, restriction, start_index, record)
    }

    /// Filters and scores every node in question.
    fn full_pass(
        &self,
        scratch: &mut Scratch,
        shared: &CycleState,
        states: &FilterStates,
        restriction: Option<&Restriction>,
        start_index: &mut usize,
        mut record: Option<&mut DecisionRecord>,
    ) -> Result<Decision, NoDecision> {
        let mut found = self.find_feasible_nodes(scratch, shared, states, restriction, start_index)?;
        if let Some(record) = record.as_deref_mut() {
            scratch.list_feasible();
            self.record_verdicts(record, scratch, states, restriction, &found)?;
        }
        let Found { n_feasible, n_evaluated, .. } = found;
        let node = match n_feasible {
            0 => {
                let rejected = self.diagnose(scratch, states, restriction, &found)?;
                return Err(NoDecision::Unfit(Box::new(rejected)));
            }
            // Without a score plugin one feasible node ended the search, unless an extender wanted all.
            1 => Candidates::new(0, &mut scratch.mask).iter().next().expect("one bit is set"),
            _ => {
                let scored = found.scored.take();
                let by_tile = record.is_none() && !self.extenders.iter().any(|extender| extender.weight() != 0);
                let chosen = by_tile.then(|| self.choose_in_tiles(scratch, shared, scored)).flatten();
                match chosen {
                    Some(node) => node,
                    None => {
                        scratch.list_feasible();
                        self.prioritize(scratch, shared, record.as_deref_mut())?;
                        self.select_host(scratch, record)
                    }
                }
            }
        };
        Ok(Decision { node, n_evaluated, n_feasible })
    }

    /// Runs the PreFilter plugins. Upstream: `RunPreFilterPlugins` (v1.36.2 framework/runtime/framework.go).
    pub(super) fn pre_filter(
        &self,
        shared: &mut CycleState,
        states: &mut FilterStates,
    ) -> Result<Option<Restriction>, NoDecision> {
        states.slots.clear();
        states.slots.resize_with(self.profile.filters.len(), Default::default);
        let mut restriction: Option<Restriction> = None;
        let mut rejection: Option<(&'static str, Reasons)> = None;
        for &at in &self.profile.pre_filter_order {
            let name = self.profile.filters[at].plugin.name();
            match self.filters.pre_filter(at, self.cycle, shared, states)? {
                PreFilterVerdict::Skip | PreFilterVerdict::Success(None) => {}
                PreFilterVerdict::Unschedulable(reasons) => rejection = Some((name, reasons)),
                PreFilterVerdict::UnschedulableAndUnresolvable(reasons) => {
                    return Err(self.rejected(FilterStatus::UnschedulableAndUnresolvable, reasons, [name].into()));
                }
                PreFilterVerdict::Success(Some(nodes)) => {
                    let merged = restriction
                        .get_or_insert_with(|| Restriction { nodes: nodes.clone(), plugins: BTreeSet::new() });
                    merged.nodes.retain(|name| nodes.contains(name));
                    merged.plugins.insert(name);
                    if merged.nodes.is_empty() {
                        let reason = unsatisfied(&merged.plugins);
                        let plugins = std::mem::take(&mut merged.plugins);
                        return Err(self.rejected(
                            FilterStatus::UnschedulableAndUnresolvable,
                            vec![reason.into()],
                            plugins,
                        ));
                    }
                }
            }
        }
        match rejection {
            Some((name, reasons)) => Err(self.rejected(FilterStatus::Unschedulable, reasons, [name].into())),
            None => Ok(restriction),
        }
    }

    /// All nodes have the same verdict.
    fn rejected(&self, status: FilterStatus, reasons: Reasons, plugins: BTreeSet<&'static str>) -> NoDecision {
        NoDecision::Unfit(Box::new(Rejected {
            n_nodes: self.cycle.snapshot.n_nodes(),
            pre_filter_message: Some(reasons.join(", ")),
            pre_filter_unresolvable: status == FilterStatus::UnschedulableAndUnresolvable,
            absent: Some((status, reasons)),
            unschedulable_plugins: plugins,
            ..Rejected::default()
        }))
    }

    /// Verdicts are recorded for every node, also when the pod fits somewhere: the filters run again.
    fn record_verdicts(
        &self,
        record: &mut DecisionRecord,
        scratch: &Scratch,
        states: &FilterStates,
        restriction: Option<&Restriction>,
        found: &Found,
    ) -> Result<(), NoDecision> {
        let snapshot = self.cycle.snapshot;
        for node in snapshot.iter() {
            let verdict = if scratch.feasible.binary_search(&node).is_ok() {
                super::NodeVerdict::Feasible
            } else if let Some((status, reasons)) = found.by_extenders.verdict(node) {
                super::NodeVerdict::Rejected { plugin: EXTENDER, status, reasons }
            } else if restriction.is_some_and(|restriction| !restriction.nodes.contains(snapshot.name(node))) {
                super::NodeVerdict::NotEvaluated
            } else {
                match self.filters.filter_with_nominated(states, self.cycle, snapshot.view(node))? {
                    Some(by) => {
                        super::NodeVerdict::Rejected { plugin: by.plugin, status: by.status, reasons: by.reasons }
                    }
                    // It fits, but the search had ended before it came there.
                    None => super::NodeVerdict::NotEvaluated,
                }
            };
            record.nodes.push(Arc::clone(snapshot.name(node)));
            record.verdicts.push(verdict);
        }
        Ok(())
    }
}

fn unsatisfied(plugins: &BTreeSet<&'static str>) -> String {
    let names: Vec<&str> = plugins.iter().copied().collect();
    match &names[..] {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        several => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", several.join(" ")),
    }
}

/// Clusters of fewer nodes are scheduled on the calling thread: entering the pool costs more than it saves. On two cores,
/// 12 000 nodes take as long either way.
const MIN_NODES_FOR_POOL: usize = 16_384;
