//! One plugin alone: PreFilter, Filter, PreScore, Score and NormalizeScore on every node of a small cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use crate::cache::{Cache, Candidates, NodeIdx, Objects, Snapshot};
use crate::config::plugins::ExtensionPoint;
use crate::engine::NodeVerdict;
use crate::framework::{
    Cycle, CycleState, DynFilter, DynScore, Extensions, FilterStates, MAX_NODE_SCORE, PluginError, PreFilterVerdict,
    Result, ScoreStates,
};
use crate::model::Pod;

/// What one plugin says of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginRun {
    /// What PreFilter says; `None` if the plugin has no such point.
    pub pre_filter: Option<PreFilterVerdict>,
    /// Every node, in the order of the cluster.
    pub nodes: Vec<NodeRun>,
}

/// What one plugin says of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRun {
    /// The node.
    pub name: Arc<str>,
    /// What Filter says. `NotEvaluated` when PreFilter rejected the pod, or left the node out.
    pub verdict: NodeVerdict,
    /// What Score says of a feasible node, before normalising; 0 when PreScore said Skip.
    pub raw: Option<i64>,
    /// The score of a feasible node after NormalizeScore, 0..=100, without weight.
    pub score: Option<i64>,
}

/// Runs a plugin alone, through all filter and score points that it has. A plugin without Filter finds every node
/// feasible; one without Score leaves the scores out. Where it has chunk methods they run, too.
///
/// ```
/// use std::sync::Arc;
///
/// use scheduler_core::framework::Extensions;
/// use scheduler_core::plugins::taint_toleration::TaintToleration;
/// use scheduler_core::testing::{Cluster, node, pod, run_plugin};
///
/// let plugin = Arc::new(TaintToleration);
/// let extensions = Extensions::new().filter(&plugin).pre_score(&plugin).score(&plugin);
/// let cluster = Cluster::new()
///     .with(node("clean"))
///     .with(node("spot").taint("spot:PreferNoSchedule"))
///     .with(node("gpu").taint("gpu=yes:NoSchedule"));
///
/// let run = run_plugin(&extensions, pod("p"), &cluster).unwrap();
/// assert_eq!(run.feasible(), ["clean", "spot"]);
/// assert_eq!(run.reasons("gpu"), ["node(s) had untolerated taint(s)"]);
/// assert_eq!(run.scores(), [("clean", 100), ("spot", 0)]);
/// ```
///
/// # Errors
/// The plugin's own error; or its chunk method differs from its method for one node; or a score is not in 0..=100, or
/// not what `uniform_score` or `normalizes` promise.
pub fn run_plugin(plugin: &Extensions, pod: impl Into<Pod>, cluster: &Cluster) -> Result<PluginRun> {
    let pod = pod.into();
    let (mut cache, objects) = cluster.world();
    require(plugin, &pod, &mut cache, &objects);
    let snapshot = cache.snapshot();
    let cycle = Cycle { pod: &pod, snapshot, objects: &objects, now: cluster.now(), seed: 0 };
    let mut shared = CycleState::default();
    let mut run = PluginRun { pre_filter: None, nodes: Vec::new() };
    let mut feasible: Vec<NodeIdx> = snapshot.iter().collect();
    run.nodes.extend(feasible.iter().map(|&node| NodeRun {
        name: Arc::clone(&snapshot.node(node).name),
        verdict: NodeVerdict::Feasible,
        raw: None,
        score: None,
    }));
    if let Some(filter) = &plugin.filter {
        let with_pre_filter = plugin.has(ExtensionPoint::PreFilter);
        feasible = run_filter(&**filter, with_pre_filter, cycle, &mut shared, &feasible, &mut run)?;
    }
    if let Some(score) = &plugin.score
        && plugin.has(ExtensionPoint::Score)
        && !feasible.is_empty()
    {
        run_score(&**score, plugin.has(ExtensionPoint::PreScore), cycle, &shared, &feasible, &mut run)?;
    }
    Ok(run)
}

fn require(plugin: &Extensions, pod: &Pod, cache: &mut Cache, objects: &Objects) {
    let mut indexes = cache.indexes();
    if let Some(filter) = &plugin.filter {
        filter.require(pod, objects, &mut indexes);
    }
    if let Some(score) = &plugin.score {
        score.require(pod, objects, &mut indexes);
    }
}

/// Notes the verdicts; gives the feasible nodes.
fn run_filter(
    plugin: &dyn DynFilter,
    with_pre_filter: bool,
    cycle: Cycle<'_>,
    shared: &mut CycleState,
    nodes: &[NodeIdx],
    run: &mut PluginRun,
) -> Result<Vec<NodeIdx>> {
    let mut states = FilterStates::default();
    states.slots.resize_with(1, Default::default);
    let mut restriction: Option<BTreeSet<Arc<str>>> = None;
    if with_pre_filter {
        let verdict = plugin.pre_filter(cycle, shared, &mut states, 0)?;
        run.pre_filter = Some(verdict.clone());
        match verdict {
            PreFilterVerdict::Skip => return Ok(nodes.to_vec()),
            PreFilterVerdict::Success(names) => restriction = names,
            PreFilterVerdict::Unschedulable(_) | PreFilterVerdict::UnschedulableAndUnresolvable(_) => {
                run.nodes.iter_mut().for_each(|node| node.verdict = NodeVerdict::NotEvaluated);
                return Ok(Vec::new());
            }
        }
    }
    let kept = kept_by_chunk(plugin, &states, cycle)?;
    let mut feasible = Vec::new();
    for (entry, &node) in run.nodes.iter_mut().zip(nodes) {
        let view = cycle.snapshot.view(node);
        let status = plugin.filter(&states, 0, cycle, view)?;
        if status.is_success() != kept.contains(&node) {
            return Err(differ(plugin.name(), "filter", &entry.name, status.is_success(), kept.contains(&node)));
        }
        if restriction.as_ref().is_some_and(|names| !names.contains(&entry.name)) {
            entry.verdict = NodeVerdict::NotEvaluated;
        } else if status.is_success() {
            feasible.push(node);
        } else {
            let mut reasons = Vec::new();
            plugin.reasons(&states, 0, cycle, view, &mut reasons);
            entry.verdict = NodeVerdict::Rejected { plugin: plugin.name(), status, reasons };
        }
    }
    Ok(feasible)
}

fn kept_by_chunk(plugin: &dyn DynFilter, states: &FilterStates, cycle: Cycle<'_>) -> Result<BTreeSet<NodeIdx>> {
    let mut mask = cycle.snapshot.live().to_vec();
    let mut candidates = Candidates::new(0, &mut mask);
    plugin.filter_chunk(states, 0, cycle, &mut candidates)?;
    Ok(candidates.iter().collect())
}

fn run_score(
    plugin: &dyn DynScore,
    with_pre_score: bool,
    cycle: Cycle<'_>,
    shared: &CycleState,
    feasible: &[NodeIdx],
    run: &mut PluginRun,
) -> Result<()> {
    let mut states = ScoreStates::default();
    states.slots.resize_with(1, Default::default);
    if with_pre_score {
        plugin.pre_score(cycle, feasible, shared, &mut states, 0)?;
    }
    let mut raw = vec![0; feasible.len()];
    let mut scores = raw.clone();
    if !states.slots[0].is_skipped() {
        for (score, &node) in raw.iter_mut().zip(feasible) {
            *score = plugin.score(&states, 0, cycle, shared, cycle.snapshot.view(node))?;
        }
        plugin.score_chunk(&states, 0, cycle, shared, feasible, &mut scores)?;
        if let Some((at, &node)) = feasible.iter().enumerate().find(|(at, _)| raw[*at] != scores[*at]) {
            return Err(differ(plugin.name(), "score", name(cycle.snapshot, node), raw[at], scores[at]));
        }
        plugin.normalize(&states, 0, cycle, feasible, &mut scores)?;
        let uniform = plugin.uniform_score(&states, 0, cycle, shared);
        check_shortcuts(plugin, uniform, cycle, feasible, &raw, &scores)?;
    }
    if let Some(at) = scores.iter().position(|score| !(0..=MAX_NODE_SCORE).contains(score)) {
        return Err(PluginError::new(format!(
            "plugin {:?} scored node {:?} {} after normalizing, want 0..={MAX_NODE_SCORE}",
            plugin.name(),
            name(cycle.snapshot, feasible[at]),
            scores[at]
        )));
    }
    let scored = run.nodes.iter_mut().filter(|node| node.verdict == NodeVerdict::Feasible);
    for ((node, raw), score) in scored.zip(raw).zip(scores) {
        (node.raw, node.score) = (Some(raw), Some(score));
    }
    Ok(())
}

/// What a plugin says to spare the engine work must be what the work would come to.
fn check_shortcuts(
    plugin: &dyn DynScore,
    uniform: Option<i64>,
    cycle: Cycle<'_>,
    feasible: &[NodeIdx],
    raw: &[i64],
    scores: &[i64],
) -> Result<()> {
    let odd_one = |want: &dyn Fn(usize) -> i64| (0..scores.len()).find(|&at| scores[at] != want(at));
    let name_of = |at: usize| name(cycle.snapshot, feasible[at]);
    if let Some(all) = uniform
        && let Some(at) = odd_one(&|_| all)
    {
        return Err(PluginError::new(format!(
            "plugin {:?}: uniform_score is {all}, but node {:?} is scored {}",
            plugin.name(),
            name_of(at),
            scores[at]
        )));
    }
    if !plugin.normalizes()
        && let Some(at) = odd_one(&|at| raw[at])
    {
        return Err(PluginError::new(format!(
            "plugin {:?}: normalizes is false, but normalize makes {} of the {} of node {:?}",
            plugin.name(),
            scores[at],
            raw[at],
            name_of(at)
        )));
    }
    Ok(())
}

fn name(snapshot: &Snapshot, node: NodeIdx) -> &str {
    &snapshot.node(node).name
}

fn differ(
    plugin: &str,
    method: &str,
    node: &str,
    one: impl std::fmt::Debug,
    chunk: impl std::fmt::Debug,
) -> PluginError {
    PluginError::new(format!(
        "plugin {plugin:?}: {method} of node {node:?} is {one:?}, but {method}_chunk says {chunk:?}"
    ))
}

impl PluginRun {
    /// Names of the nodes that can take the pod.
    #[must_use]
    pub fn feasible(&self) -> Vec<&str> {
        let feasible = self.nodes.iter().filter(|node| node.verdict == NodeVerdict::Feasible);
        feasible.map(|node| &*node.name).collect()
    }

    /// Why a node cannot; empty if it can, or was not looked at.
    #[must_use]
    pub fn reasons(&self, node: &str) -> Vec<&str> {
        super::cycle::reasons_of(self.nodes.iter().map(|run| (&*run.name, &run.verdict)), node)
    }

    /// Normalised scores of the feasible nodes.
    #[must_use]
    pub fn scores(&self) -> Vec<(&str, i64)> {
        self.nodes.iter().filter_map(|node| Some((&*node.name, node.score?))).collect()
    }

    /// Scores before normalising.
    #[must_use]
    pub fn raw_scores(&self) -> Vec<(&str, i64)> {
        self.nodes.iter().filter_map(|node| Some((&*node.name, node.raw?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NodeView;
    use crate::framework::{Plugin, ScorePlugin};
    use crate::testing::{node, pod};

    /// Scores nodes by the length of their name, and promises what it is told to.
    struct Promising {
        uniform: Option<i64>,
        normalizes: bool,
    }

    impl Plugin for Promising {}

    impl ScorePlugin for Promising {
        type State = ();

        fn score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
            Ok(i64::try_from(node.name().len()).expect("names are short"))
        }

        fn uniform_score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState) -> Option<i64> {
            self.uniform
        }

        fn normalizes(&self) -> bool {
            self.normalizes
        }

        fn normalize(&self, _: Option<&()>, _: Cycle<'_>, _: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
            scores.iter_mut().for_each(|score| *score = 10 * *score / 2);
            Ok(())
        }
    }

    #[test]
    fn shortcuts_must_be_true() {
        let cluster = |second: &str| Cluster::new().with(node("a")).with(node(second));
        for (uniform, normalizes, second, want) in [
            (None, true, "bb", None),
            (Some(5), true, "b", None),
            (Some(5), true, "bb", Some("uniform_score is 5, but node \"bb\" is scored 10")),
            (None, false, "b", Some("normalizes is false, but normalize makes 5 of the 1 of node \"a\"")),
        ] {
            let extensions = Extensions::new().score(&Arc::new(Promising { uniform, normalizes }));
            let error = run_plugin(&extensions, pod("p"), &cluster(second)).err().map(|error| error.to_string());
            match (&error, want) {
                (None, None) => {}
                (Some(error), Some(want)) if error.contains(want) => {}
                _ => panic!("uniform {uniform:?}, normalizes {normalizes}, {second}: {error:?}"),
            }
        }
    }
}
