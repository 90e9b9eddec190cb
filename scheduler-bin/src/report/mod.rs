//! What a simulation has shown, as data. `text`, `csv` and `html` write it; docs/simulation.md describes the JSON form.

pub(crate) mod condition;
pub(crate) mod csv;
pub(crate) mod definitions;
pub(crate) mod html;
mod style;
mod svg;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::simulate::measure::{NodeUse, Sample};
use crate::simulate::run::Finished;

/// Version of the JSON form.
pub(crate) const API_VERSION: &str = "plimsoll.io/v1alpha1";

/// A simulation's results: one run for each configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SimulationReport {
    api_version: &'static str,
    kind: &'static str,
    /// Seed of the draws among equal nodes.
    pub(crate) seed: u64,
    /// The first run in short.
    pub(crate) summary: Summary,
    /// All runs, in the order of the configurations.
    pub(crate) runs: Vec<RunReport>,
    /// The first run's pods with a node; those of further runs stand in them.
    bindings: Vec<Binding>,
    /// The first run's pods without one.
    unschedulable: Vec<Unplaced>,
    /// Whether these two lists are whole.
    listed_all: bool,
    /// What was odd about the input.
    pub(crate) warnings: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    /// Name of the configuration.
    pub(crate) name: String,
    /// The run in short.
    pub(crate) summary: Summary,
    /// Names of the resources, in the order of the lists in `samples` and `nodes`.
    pub(crate) resources: Vec<Arc<str>>,
    /// The course of the run.
    pub(crate) samples: Vec<Sample>,
    /// Waits of pods that got a node.
    pub(crate) waits: Vec<WaitBucket>,
    /// Nodes at the end.
    pub(crate) nodes: Vec<NodeUse>,
    /// Messages of pods that wait at the end.
    pub(crate) messages: Vec<MessageCount>,
    /// Pods that got a node; the first ones only if `listed_all` is false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bindings: Vec<Binding>,
    /// Pods that never got one; the first ones only if `listed_all` is false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unschedulable: Vec<Unplaced>,
    /// Whether the two lists are whole.
    pub(crate) listed_all: bool,
}

/// A run in short. Maps are by resource; `definitions` says what each figure means.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Nodes at the end.
    pub(crate) nodes: usize,
    /// Pods that came.
    pub(crate) pods: u64,
    /// Pods that got a node.
    pub(crate) pods_scheduled: u64,
    /// Pods that never got one.
    pub(crate) pods_unschedulable: u64,
    /// Pods that wait at the end.
    pub(crate) pods_pending: usize,
    /// Pods that no profile here looks after: they name another scheduler. They count nowhere else.
    pub(crate) pods_of_other_schedulers: u64,
    /// Pods that ended or were deleted while they had a node.
    pub(crate) pods_left: u64,
    /// Pods that were evicted for others.
    pub(crate) preemptions: u64,
    /// Pods that lost their node to a drain, a failure or a deletion.
    pub(crate) displaced: u64,
    /// Scheduling attempts.
    pub(crate) attempts: u64,
    /// Real time in the engine, in milliseconds; `None` when only what is reproducible is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) engine_millis: Option<f64>,
    /// Attempts by second of that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decisions_per_second: Option<f64>,
    /// Virtual time from the first to the last event.
    pub(crate) simulated_seconds: f64,
    /// Requested share at the end.
    pub(crate) utilisation: BTreeMap<Arc<str>, f64>,
    /// Requested share, mean over time.
    pub(crate) mean_utilisation: BTreeMap<Arc<str>, f64>,
    /// Free share where the median pending request does not fit, at the end.
    pub(crate) fragmentation: BTreeMap<Arc<str>, f64>,
    /// Standard deviation of the nodes' utilisation at the end.
    pub(crate) imbalance: BTreeMap<Arc<str>, f64>,
    /// Waits until a node was found.
    pub(crate) wait_seconds: Waits,
    /// Hours of nodes.
    pub(crate) node_hours: f64,
    /// What they cost; `None` without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
    /// What the nodes cost an hour at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_per_hour: Option<f64>,
}

/// Waits in seconds, of the pods that got a node.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waits {
    /// Mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) median: f64,
    /// Nine of ten wait no longer.
    pub(crate) p90: f64,
    /// 99 of a hundred wait no longer.
    pub(crate) p99: f64,
    /// The longest.
    pub(crate) max: f64,
}

/// How many pods waited so long.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitBucket {
    /// Not longer than this, and longer than the bucket before; `None` for the last.
    pub(crate) up_to_seconds: Option<f64>,
    /// Pods.
    pub(crate) pods: u64,
}

/// A message and for how many pods it stands.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageCount {
    /// The scheduler's message.
    pub(crate) message: Arc<str>,
    /// Pods.
    pub(crate) pods: u64,
}

/// A pod and its node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Binding {
    /// Namespace.
    pub(crate) namespace: Arc<str>,
    /// Name.
    pub(crate) pod: Arc<str>,
    /// Node.
    pub(crate) node: Arc<str>,
    /// Seconds of waiting.
    pub(crate) wait_seconds: f64,
}

/// A pod without a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unplaced {
    /// Namespace.
    pub(crate) namespace: Arc<str>,
    /// Name.
    pub(crate) pod: Arc<str>,
    /// The scheduler's last message.
    pub(crate) message: Arc<str>,
}

/// Ends of the wait buckets, in seconds.
const WAIT_ENDS: [f64; 12] = [0.0, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0];

impl SimulationReport {
    /// The report of at least one run.
    pub(crate) fn new(seed: u64, mut runs: Vec<RunReport>, warnings: Vec<String>) -> Self {
        let summary = runs.first().map(|run| run.summary.clone()).unwrap_or_default();
        let (bindings, unschedulable, listed_all) = match runs.first_mut() {
            Some(run) => (std::mem::take(&mut run.bindings), std::mem::take(&mut run.unschedulable), run.listed_all),
            None => (Vec::new(), Vec::new(), true),
        };
        Self {
            api_version: API_VERSION,
            kind: "SimulationReport",
            seed,
            summary,
            runs,
            bindings,
            unschedulable,
            listed_all,
            warnings,
        }
    }
}

impl RunReport {
    /// What a finished run amounts to. Without `timed`, nothing depends on the machine's speed.
    pub(crate) fn new(name: String, finished: Finished, timed: bool) -> Self {
        let Finished { measure, nodes, n_pending, messages, other_schedulers, engine_time, .. } = finished;
        let counts = measure.counts;
        let by_resource = |amounts: &[f64]| -> BTreeMap<Arc<str>, f64> {
            measure.resources.iter().cloned().zip(amounts.iter().copied().map(rounded)).collect()
        };
        let last = measure.samples.last();
        let of_last = |of: fn(&Sample) -> &Vec<f64>| by_resource(last.map(of).map_or(&[], Vec::as_slice));
        let micros = |micros: u64| micros as f64 / 1e6;
        let (node_hours, cost) = measure.cost();
        let seconds = engine_time.as_secs_f64();
        let summary = Summary {
            nodes: nodes.len(),
            pods: counts.arrived,
            pods_scheduled: counts.scheduled,
            pods_unschedulable: n_pending as u64 + counts.gave_up,
            pods_pending: n_pending,
            pods_of_other_schedulers: other_schedulers.values().sum(),
            pods_left: counts.left,
            preemptions: counts.preempted,
            displaced: counts.displaced,
            attempts: counts.attempts,
            engine_millis: timed.then(|| (seconds * 1e6).round() / 1e3),
            decisions_per_second: timed
                .then(|| if seconds > 0.0 { (counts.attempts as f64 / seconds).round() } else { 0.0 }),
            simulated_seconds: measure.duration().as_secs_f64(),
            utilisation: of_last(|sample| &sample.utilisation),
            mean_utilisation: by_resource(&measure.mean_utilisation()),
            fragmentation: of_last(|sample| &sample.fragmentation),
            imbalance: of_last(|sample| &sample.imbalance),
            wait_seconds: Waits {
                mean: rounded(measure.waits.mean() / 1e6),
                median: micros(measure.waits.quantile(0.5)),
                p90: micros(measure.waits.quantile(0.9)),
                p99: micros(measure.waits.quantile(0.99)),
                max: micros(measure.waits.max()),
            },
            node_hours: rounded(node_hours),
            cost: measure.cost_per_hour().map(|_| rounded(cost)),
            cost_per_hour: measure.cost_per_hour().map(rounded),
        };
        let mut low = None;
        let mut waits: Vec<WaitBucket> = WAIT_ENDS
            .iter()
            .map(|end| {
                let high = (end * 1e6) as u64;
                let pods = measure.waits.between(low, high);
                low = Some(high);
                WaitBucket { up_to_seconds: Some(*end), pods }
            })
            .collect();
        waits.push(WaitBucket { up_to_seconds: None, pods: measure.waits.between(low, u64::MAX) });
        let mut messages: Vec<MessageCount> =
            messages.into_iter().map(|(message, pods)| MessageCount { message, pods }).collect();
        messages.sort_by(|a, b| b.pods.cmp(&a.pods).then_with(|| a.message.cmp(&b.message)));
        Self {
            name,
            summary,
            resources: measure.resources,
            samples: measure.samples,
            waits,
            nodes,
            messages,
            bindings: Vec::new(),
            unschedulable: Vec::new(),
            listed_all: true,
        }
    }
}

/// Nine decimals: what is written must not show how the sum was added up.
fn rounded(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}
