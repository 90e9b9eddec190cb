//! One whole scheduling cycle on a small cluster, with the record of why it ended as it did.

use std::sync::LazyLock;

use super::Cluster;
use crate::config::KubeSchedulerConfiguration;
use crate::config::error::ConfigError;
use crate::engine::{Attempt, Change, DecisionRecord, NodeVerdict, Options, Outcome, Scheduler};
use crate::framework::{Effect, Registry};
use crate::model::Pod;

/// What came of a pod, and why.
#[derive(Debug)]
pub struct Decision {
    /// The cycle; `None` if no cycle began: a PreEnqueue plugin holds the pod back, or no profile serves it.
    pub attempt: Option<Attempt>,
    /// What the scheduler asked of the world.
    pub effects: Vec<Effect>,
    /// The scheduler, for a test that goes on.
    pub scheduler: Scheduler,
}

/// Runs one cycle for a pod with the in-tree plugins and the default profile.
///
/// ```
/// use scheduler_core::testing::{Cluster, node, pod, schedule};
///
/// let cluster = Cluster::new().with(node("a").cpu("1")).with(node("b").cpu("1"));
/// let decision = schedule(pod("p").cpu("2"), &cluster);
/// assert_eq!(decision.node(), None);
/// assert!(decision.message().unwrap().starts_with("0/2 nodes are available: 2 Insufficient cpu."));
/// ```
pub fn schedule(pod: impl Into<Pod>, cluster: &Cluster) -> Decision {
    let registry = crate::plugins::registry();
    let config = KubeSchedulerConfiguration::default();
    run_cycle(&registry, &config, pod, cluster).expect("the default configuration names in-tree plugins alone")
}

/// Runs one cycle for a pod with your own plugins and configuration; the decision record is kept.
///
/// ```
/// use scheduler_core::config::KubeSchedulerConfiguration;
/// use scheduler_core::plugins;
/// use scheduler_core::testing::{Cluster, node, pod, run_cycle};
///
/// let config = KubeSchedulerConfiguration::from_text(
///     "
/// apiVersion: kubescheduler.config.k8s.io/v1
/// kind: KubeSchedulerConfiguration
/// profiles:
/// - pluginConfig:
///   - name: NodeResourcesFit
///     args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
/// ",
/// )
/// .unwrap();
/// let cluster = Cluster::new().with(node("empty").cpu("8")).with(node("small").cpu("2"));
/// let decision = run_cycle(&plugins::registry(), &config, pod("p").cpu("1"), &cluster).unwrap();
/// assert_eq!(decision.score("NodeResourcesFit", "small"), Some(50));
/// assert_eq!(decision.score("NodeResourcesFit", "empty"), Some(12));
/// ```
///
/// # Errors
/// The configuration names plugins that the registry does not have, or a plugin refuses its arguments.
pub fn run_cycle(
    registry: &Registry,
    config: &KubeSchedulerConfiguration,
    pod: impl Into<Pod>,
    cluster: &Cluster,
) -> Result<Decision, ConfigError> {
    let options = Options { record_decisions: true, ..Options::default() };
    let mut scheduler = Scheduler::new(config, registry, options)?;
    cluster.apply_to(&mut scheduler);
    let pod = pod.into();
    let uid = pod.uid.clone();
    scheduler.handle(Change::Applied(pod.into()), cluster.now());
    let attempt = scheduler.schedule_pod(&uid, cluster.now(), pool());
    let effects = scheduler.drain_effects();
    Ok(Decision { attempt, effects, scheduler })
}

/// A pool of one thread, for [`Scheduler::schedule_one`] in tests.
pub fn pool() -> &'static rayon::ThreadPool {
    static POOL: LazyLock<rayon::ThreadPool> = LazyLock::new(|| {
        rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("the system can start one more thread")
    });
    &POOL
}

impl Decision {
    /// The node that was chosen.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match &self.attempt.as_ref()?.outcome {
            Outcome::Scheduled { node, .. } => Some(node),
            Outcome::Unschedulable { .. } | Outcome::Error { .. } | Outcome::Skipped => None,
        }
    }

    /// The message of a pod that was not placed, as in its condition.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match &self.attempt.as_ref()?.outcome {
            Outcome::Unschedulable { message, .. } | Outcome::Error { message } => Some(message),
            Outcome::Scheduled { .. } | Outcome::Skipped => None,
        }
    }

    /// Why node by node.
    #[must_use]
    pub fn record(&self) -> Option<&DecisionRecord> {
        self.attempt.as_ref()?.record.as_deref()
    }

    /// Why a node did not do; empty if it did, or was not looked at.
    #[must_use]
    pub fn reasons(&self, node: &str) -> Vec<&str> {
        let Some(record) = self.record() else { return Vec::new() };
        reasons_of(record.nodes.iter().map(|name| &**name).zip(&record.verdicts), node)
    }

    /// A plugin's normalised score of a node, without weight. `None` when nothing was scored: with one feasible node
    /// there is nothing to choose.
    #[must_use]
    pub fn score(&self, plugin: &str, node: &str) -> Option<i64> {
        let record = self.record()?;
        let at = record
            .scored
            .iter()
            .position(|&position| record.nodes.get(position as usize).is_some_and(|name| &**name == node))?;
        record.scores.iter().find(|scores| scores.plugin == plugin)?.normalized.get(at).copied()
    }
}

/// The reasons against the node of this name.
pub(super) fn reasons_of<'a>(
    mut verdicts: impl Iterator<Item = (&'a str, &'a NodeVerdict)>,
    node: &str,
) -> Vec<&'a str> {
    match verdicts.find(|(name, _)| *name == node) {
        Some((_, NodeVerdict::Rejected { reasons, .. })) => reasons.iter().map(|reason| &**reason).collect(),
        Some((_, NodeVerdict::Feasible | NodeVerdict::NotEvaluated)) | None => Vec::new(),
    }
}
