//! Looking at a pod without scheduling it: every plugin's verdict on every node, through the per-node methods.
//! What `explain` shows, and the oracle that tests hold the chunk path against.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::algorithm::{Algorithm, NoDecision, Restriction};
use super::record::PluginScores;
use super::rng::mix;
use super::scheduler::Scheduler;
use crate::cache::NodeIdx;
use crate::framework::{
    ClusterView, Cycle, CycleState, EXTENDER, FilterStates, FilterStatus, Filters, NominatedNode, PluginError,
    PostFilterStatus, PreEnqueueStatus, PreFilterVerdict, Reasons, Rejected, RejectedNode, Result, ScoreStates,
};
use crate::model::{Pod, Timestamp};

/// Everything that plugins say of a pod and the nodes.
#[derive(Debug)]
pub struct Examination {
    /// The PreEnqueue plugin that holds the pod back; then nothing else is filled in.
    pub gated: Option<(&'static str, Reasons)>,
    /// What PreFilter as a whole says.
    pub pre_filter: PreFilterOutcome,
    /// The verdict of the filters, nominated pods minded, by node name. Empty when PreFilter rejected the pod.
    pub filter: BTreeMap<Arc<str>, Option<NodeRejection>>,
    /// What each filter plugin alone says against a node, nominated pods not minded: `node -> plugin -> verdict`.
    pub filter_all: BTreeMap<Arc<str>, BTreeMap<&'static str, NodeRejection>>,
    /// Nodes that fit, in node order.
    pub feasible: Vec<Arc<str>>,
    /// Plugins whose PreScore said Skip, sorted.
    pub skip_score: Vec<&'static str>,
    /// Scores in the order of `feasible`, by plugin in the order of the Score point. The error is that of the phase.
    pub scores: std::result::Result<Vec<PluginScores>, String>,
    /// Weighted sums in the order of `feasible`.
    pub totals: Vec<i64>,
    /// What PostFilter would do; only when nothing fits and the profile has such plugins.
    pub post_filter: Option<PostFilterOutcome>,
    /// The error that ended the examination.
    pub error: Option<String>,
}

impl Default for Examination {
    fn default() -> Self {
        Self {
            gated: None,
            pre_filter: PreFilterOutcome::default(),
            filter: BTreeMap::new(),
            filter_all: BTreeMap::new(),
            feasible: Vec::new(),
            skip_score: Vec::new(),
            scores: Ok(Vec::new()),
            totals: Vec::new(),
            post_filter: None,
            error: None,
        }
    }
}

/// What PreFilter says.
#[derive(Debug, Default)]
pub struct PreFilterOutcome {
    /// The rejection, with the plugin unless several rejected together.
    pub rejection: Option<NodeRejection>,
    /// The nodes that alone come into question; they may not exist.
    pub nodes: Option<BTreeSet<Arc<str>>>,
    /// The plugins behind `nodes`.
    pub nodes_from: BTreeSet<&'static str>,
    /// Plugins that said Skip before the end, sorted.
    pub skip: BTreeSet<&'static str>,
    /// Each plugin run alone.
    pub per_plugin: BTreeMap<&'static str, PreFilterVerdict>,
}

/// A verdict against a node, or against all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRejection {
    /// The plugin; `None` for nodes outside a PreFilter's node set.
    pub plugin: Option<&'static str>,
    /// Resolvable or not.
    pub status: FilterStatus,
    /// Why.
    pub reasons: Reasons,
}

/// What PostFilter did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostFilterOutcome {
    /// It made room: where.
    Success(NominatedNode),
    /// It did not: what is appended to the message.
    Unschedulable(String),
    /// It broke: what is appended to the message.
    Error(String),
}

/// What a closure that joins an examination may use: the cycle, its filters and their states, and the rejections.
#[derive(Debug, Clone, Copy)]
pub struct Examined<'a> {
    /// The cycle.
    pub cycle: Cycle<'a>,
    /// The profile's filters.
    pub filters: &'a Filters<'a>,
    /// Their states after PreFilter.
    pub states: &'a FilterStates,
    /// The verdicts, if nothing fits.
    pub rejected: Option<&'a Rejected>,
}

impl Scheduler {
    /// Looks at a pod as if its turn had come; changes nothing but indexes. `None` if no profile serves it. `then` runs
    /// while the cycle is there, for further questions; see [`Examined`].
    pub fn examine<R>(
        &mut self,
        pod: &Pod,
        now: Timestamp,
        then: impl FnOnce(Examined<'_>) -> R,
    ) -> Option<(Examination, R)> {
        let profile = self.profile_position(&pod.scheduler_name)?;
        self.require_indexes(profile, pod);
        let profile = &self.profiles[profile];
        let snapshot = self.cache.snapshot();
        let cycle = Cycle { pod, snapshot, objects: &self.objects, now, seed: mix(self.seed, self.n_cycles) };
        let filters = Filters::new(profile, self.queue.nominator()).with_extenders(&self.extenders);
        let algorithm = Algorithm { profile, filters, cycle, extenders: &self.extenders, n_threads: 1 };
        let mut states = FilterStates::default();
        let mut shared = CycleState::default();
        let mut examination = Examination::default();
        let world = ClusterView { snapshot, objects: &self.objects, now };
        examination.gated = profile.pre_enqueue.iter().find_map(|plugin| match plugin.pre_enqueue(pod, world) {
            PreEnqueueStatus::Success => None,
            PreEnqueueStatus::UnschedulableAndUnresolvable(reasons) => Some((plugin.name(), reasons)),
        });
        let mut rejected = None;
        if examination.gated.is_none() {
            match algorithm.examine(&mut examination, &mut shared, &mut states) {
                Ok(rejections) => rejected = rejections,
                Err(error) => examination.error = Some(error.to_string()),
            }
        }
        let joined = then(Examined { cycle, filters: &filters, states: &states, rejected: rejected.as_ref() });
        if let Some(rejected) = rejected.filter(|_| !profile.post_filter.is_empty()) {
            let outcome = algorithm.examine_post_filter(&mut shared, &states, &rejected);
            examination.post_filter = Some(outcome);
        }
        Some((examination, joined))
    }
}

impl Algorithm<'_> {
    /// Fills in the examination; gives the rejections if nothing fits.
    fn examine(
        &self,
        examination: &mut Examination,
        shared: &mut CycleState,
        states: &mut FilterStates,
    ) -> Result<Option<Rejected>> {
        if self.cycle.snapshot.n_nodes() == 0 {
            return Ok(None);
        }
        self.examine_pre_filter_alone(examination)?;
        let restriction = match self.pre_filter(shared, states) {
            Ok(restriction) => restriction,
            Err(NoDecision::Broken(error)) => return Err(error),
            Err(NoDecision::NoNodes) => None,
            Err(NoDecision::Unfit(rejected)) => {
                self.note_skips(examination, states);
                let plugin = rejected.unschedulable_plugins.first().copied();
                let plugin = plugin.filter(|_| rejected.unschedulable_plugins.len() == 1);
                examination.pre_filter.rejection =
                    rejected.absent.clone().map(|(status, reasons)| NodeRejection { plugin, status, reasons });
                return Ok(Some(*rejected));
            }
        };
        self.note_skips(examination, states);
        if let Some(restriction) = &restriction {
            examination.pre_filter.nodes = Some(restriction.nodes.clone());
            examination.pre_filter.nodes_from.clone_from(&restriction.plugins);
        }
        let (mut feasible, mut rejected) = self.examine_filter(examination, states, restriction.as_ref())?;
        self.examine_extenders(examination, &mut feasible, &mut rejected)?;
        if feasible.is_empty() {
            return Ok(Some(rejected));
        }
        self.examine_scores(examination, shared, &feasible);
        Ok(None)
    }

    fn note_skips(&self, examination: &mut Examination, states: &FilterStates) {
        let skipped = self.profile.pre_filter_order.iter().filter(|at| states.slots[**at].is_skipped());
        examination.pre_filter.skip = skipped.map(|at| self.profile.filters[*at].plugin.name()).collect();
    }

    fn examine_pre_filter_alone(&self, examination: &mut Examination) -> Result<()> {
        for &at in &self.profile.pre_filter_order {
            let mut states = FilterStates::default();
            states.slots.resize_with(self.profile.filters.len(), Default::default);
            let verdict = self.filters.pre_filter(at, self.cycle, &mut CycleState::default(), &mut states)?;
            examination.pre_filter.per_plugin.insert(self.profile.filters[at].plugin.name(), verdict);
        }
        Ok(())
    }

    fn examine_filter(
        &self,
        examination: &mut Examination,
        states: &FilterStates,
        restriction: Option<&Restriction>,
    ) -> Result<(Vec<NodeIdx>, Rejected)> {
        let snapshot = self.cycle.snapshot;
        let mut feasible = Vec::new();
        let mut rejected = Rejected { n_nodes: snapshot.n_nodes(), ..Rejected::default() };
        rejected.absent = restriction.map(Restriction::verdict_on_others);
        for node in snapshot.iter() {
            let view = snapshot.view(node);
            let name = Arc::clone(view.name());
            let mut alone = BTreeMap::new();
            for &at in self.profile.filter_order.iter().filter(|at| !states.slots[**at].is_skipped()) {
                let plugin = &self.profile.filters[at].plugin;
                let status = plugin.filter(states, at, self.cycle, view)?;
                if !status.is_success() {
                    let mut reasons = Vec::new();
                    plugin.reasons(states, at, self.cycle, view, &mut reasons);
                    alone.insert(plugin.name(), NodeRejection { plugin: Some(plugin.name()), status, reasons });
                }
            }
            if !alone.is_empty() {
                examination.filter_all.insert(Arc::clone(&name), alone);
            }
            let is_outside = restriction.is_some_and(|restriction| !restriction.nodes.contains(&name));
            let rejection = if is_outside {
                let verdict = rejected.absent.clone();
                verdict.map(|(status, reasons)| NodeRejection { plugin: None, status, reasons })
            } else {
                let by = self.filters.filter_with_nominated(states, self.cycle, view)?;
                by.map(|by| NodeRejection { plugin: Some(by.plugin), status: by.status, reasons: by.reasons })
            };
            match &rejection {
                None => {
                    feasible.push(node);
                    examination.feasible.push(Arc::clone(&name));
                }
                Some(rejection) if !is_outside => {
                    rejected.unschedulable_plugins.extend(rejection.plugin);
                    rejected.nodes.push(RejectedNode { node, status: rejection.status, plugin: rejection.plugin });
                    rejection.reasons.iter().for_each(|reason| rejected.reasons.add(reason, 1));
                }
                Some(_) => {}
            }
            examination.filter.insert(name, rejection);
        }
        Ok((feasible, rejected))
    }

    /// What extenders say of the nodes that plugins found feasible.
    fn examine_extenders(
        &self,
        examination: &mut Examination,
        feasible: &mut Vec<NodeIdx>,
        rejected: &mut Rejected,
    ) -> Result<()> {
        if feasible.is_empty() || self.filtering_extenders().next().is_none() {
            return Ok(());
        }
        let snapshot = self.cycle.snapshot;
        // If one fails, nobody knows of any node that it fits.
        examination.feasible.clear();
        let by_extenders = self.run_extenders(feasible)?;
        examination.feasible = feasible.iter().map(|node| Arc::clone(snapshot.name(*node))).collect();
        for &node in &by_extenders.lost {
            let Some((status, reasons)) = by_extenders.verdict(node) else { continue };
            rejected.unschedulable_plugins.insert(EXTENDER);
            if by_extenders.rejected.contains_key(&node) {
                rejected.nodes.push(RejectedNode { node, status, plugin: None });
                reasons.iter().for_each(|reason| rejected.reasons.add(reason, 1));
            }
            let rejection = NodeRejection { plugin: Some(EXTENDER), status, reasons };
            examination.filter.insert(Arc::clone(snapshot.name(node)), Some(rejection));
        }
        rejected.nodes.sort_by_key(|rejected| rejected.node);
        Ok(())
    }

    fn examine_scores(&self, examination: &mut Examination, shared: &CycleState, feasible: &[NodeIdx]) {
        let mut states = ScoreStates::default();
        let scores = self.scores_by_node(&mut states, shared, feasible);
        let skipped = self
            .profile
            .score_order
            .iter()
            .filter(|at| states.slots.get(**at).is_some_and(crate::framework::ScoreSlot::is_skipped));
        examination.skip_score = skipped.map(|at| self.profile.scores[*at].plugin.name()).collect();
        examination.skip_score.sort_unstable();
        if let Ok(scores) = &scores {
            let of_extenders = self.extender_scores(feasible).unwrap_or_else(|| vec![0; feasible.len()]);
            let of_plugins = |at| -> i64 { scores.iter().map(|of| of.weight * of.normalized[at]).sum() };
            examination.totals =
                of_extenders.iter().enumerate().map(|(at, score)| score.saturating_add(of_plugins(at))).collect();
        }
        examination.scores = scores.map_err(|error| error.to_string());
    }

    fn scores_by_node(
        &self,
        states: &mut ScoreStates,
        shared: &CycleState,
        feasible: &[NodeIdx],
    ) -> Result<Vec<PluginScores>> {
        states.slots.resize_with(self.profile.scores.len(), Default::default);
        self.pre_score(states, feasible, shared)?;
        let mut all = Vec::new();
        for &at in &self.profile.score_order {
            let entry = &self.profile.scores[at];
            let skipped = states.slots[at].is_skipped();
            let mut scores = PluginScores::new(entry.plugin.name(), entry.weight.unwrap_or(1), skipped, feasible.len());
            if !skipped {
                for (score, &node) in scores.raw.iter_mut().zip(feasible) {
                    let view = self.cycle.snapshot.view(node);
                    *score = entry.plugin.score(states, at, self.cycle, shared, view).map_err(|error| {
                        let name = entry.plugin.name();
                        PluginError::new(format!("running Score plugins: plugin {name:?} failed with: {error}"))
                    })?;
                }
                scores.normalized.copy_from_slice(&scores.raw);
                self.normalize_plugin(&*entry.plugin, states, at, feasible, &mut scores.normalized)?;
            }
            all.push(scores);
        }
        Ok(all)
    }

    fn examine_post_filter(
        &self,
        shared: &mut CycleState,
        states: &FilterStates,
        rejected: &Rejected,
    ) -> PostFilterOutcome {
        let mut all_reasons: Reasons = Vec::new();
        for plugin in &self.profile.post_filter {
            match plugin.post_filter(self.cycle, shared, &self.filters, states, rejected) {
                Ok(PostFilterStatus::Success { nominated, .. }) => {
                    plugin.effects_finished(self.cycle.pod);
                    return PostFilterOutcome::Success(nominated);
                }
                Ok(PostFilterStatus::UnschedulableAndUnresolvable { reasons, .. }) => {
                    return PostFilterOutcome::Unschedulable(reasons.join(", "));
                }
                Ok(PostFilterStatus::Unschedulable { reasons, .. }) => all_reasons.extend(reasons),
                Err(error) => return PostFilterOutcome::Error(error.to_string()),
            }
        }
        PostFilterOutcome::Unschedulable(all_reasons.join(", "))
    }
}
