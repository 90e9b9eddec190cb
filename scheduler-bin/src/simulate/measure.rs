//! What a run is measured by: shares over time, waits, counts. Constant memory, however long the run is.

use std::sync::Arc;
use std::time::Duration;

use scheduler_core::cache::Snapshot;
use scheduler_core::model::{Node, Pod, Resources, Timestamp};
use serde::Serialize;

use super::histogram::Histogram;

/// Most samples that are kept: when there are more, every second one is dropped and the steps become twice as long.
const MAX_SAMPLES: usize = 400;

/// Requests above which the median of those that wait is taken from an even selection.
const MAX_MEDIAN: usize = 4096;

/// The state of the cluster at one time. Lists are in the order of [`Measure::resources`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Seconds since the start.
    pub(crate) seconds: f64,
    /// Attempts since the start.
    pub(crate) attempts: u64,
    /// Nodes.
    pub(crate) nodes: usize,
    /// Pods that have a node.
    pub(crate) placed: usize,
    /// Pods that wait for one.
    pub(crate) pending: usize,
    /// Requested share of what is allocatable.
    pub(crate) utilisation: Vec<f64>,
    /// Share of the free amount on nodes where the median pending request does not fit.
    pub(crate) fragmentation: Vec<f64>,
    /// Standard deviation of the nodes' utilisation.
    pub(crate) imbalance: Vec<f64>,
}

/// What a node held at the end.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeUse {
    /// Name.
    pub(crate) name: Arc<str>,
    /// Pods on it.
    pub(crate) pods: usize,
    /// Allocatable amounts.
    pub(crate) allocatable: Vec<i64>,
    /// Requested amounts.
    pub(crate) requested: Vec<i64>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// Pods that came.
    pub(crate) arrived: u64,
    /// Pods that got a node.
    pub(crate) scheduled: u64,
    /// Pods that ended or were deleted while they had a node.
    pub(crate) left: u64,
    /// Pods that were deleted before they got one.
    pub(crate) gave_up: u64,
    /// Pods that were evicted for others.
    pub(crate) preempted: u64,
    /// Pods that lost their node: it was drained, failed or deleted.
    pub(crate) displaced: u64,
    /// Scheduling attempts.
    pub(crate) attempts: u64,
}

/// Everything that is measured during a run.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Names of the resources that are measured: cpu, memory, and what else nodes offer.
    pub(crate) resources: Vec<Arc<str>>,
    /// Counts.
    pub(crate) counts: Counts,
    /// Waits of pods that got a node, in microseconds.
    pub(crate) waits: Histogram,
    /// The course of the run.
    pub(crate) samples: Vec<Sample>,
    allocatable: Vec<i64>,
    requested: Vec<i64>,
    n_nodes: usize,
    n_placed: usize,
    start: Timestamp,
    last: Timestamp,
    /// Integrals over time, in seconds: of utilisation, and of the number of nodes.
    use_seconds: Vec<f64>,
    node_seconds: f64,
    prices: Vec<Price>,
    cost_rate: f64,
    cost: f64,
    stride: u64,
    n_steps: u64,
}

/// What an hour of a node costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Price {
    /// Label and value that the node must have; `None` for all that no other price is for.
    pub(crate) label: Option<(String, String)>,
    /// Per hour, in whatever currency.
    pub(crate) per_hour: f64,
}

impl Price {
    /// Reads `AMOUNT` or `LABEL=VALUE:AMOUNT`.
    ///
    /// # Errors
    /// The amount is no number of 0 or more, or the label has no value.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: expected an amount per node and hour, such as 0.19 or node.kubernetes.io/instance-type=m5.large:0.096"
            )
        };
        let (label, amount) = match text.rsplit_once(':') {
            Some((label, amount)) => (Some(label.split_once('=').ok_or_else(wrong)?), amount),
            None => (None, text),
        };
        let per_hour =
            amount.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0).ok_or_else(wrong)?;
        Ok(Self { label: label.map(|(key, value)| (key.to_owned(), value.to_owned())), per_hour })
    }

    fn of(prices: &[Self], node: &Node) -> f64 {
        let labelled = prices.iter().find(|price| {
            price.label.as_ref().is_some_and(|(key, value)| node.labels.get(key).is_some_and(|own| **own == **value))
        });
        labelled.or_else(|| prices.iter().find(|price| price.label.is_none())).map_or(0.0, |price| price.per_hour)
    }
}

impl Measure {
    /// A measure that begins at `start`; with `prices` it adds up what nodes cost.
    pub(crate) fn new(start: Timestamp, prices: Vec<Price>) -> Self {
        Self {
            resources: vec!["cpu".into(), "memory".into()],
            counts: Counts::default(),
            waits: Histogram::default(),
            samples: Vec::new(),
            allocatable: vec![0; 2],
            requested: vec![0; 2],
            n_nodes: 0,
            n_placed: 0,
            start,
            last: start,
            use_seconds: vec![0.0; 2],
            node_seconds: 0.0,
            prices,
            cost_rate: 0.0,
            cost: 0.0,
            stride: 1,
            n_steps: 0,
        }
    }

    /// The clock goes on.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let seconds = now.since(self.last).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        self.last = now;
        self.node_seconds += self.n_nodes as f64 * seconds;
        self.cost += self.cost_rate * seconds / 3600.0;
        for at in 0..self.resources.len() {
            self.use_seconds[at] += share(self.requested[at], self.allocatable[at]) * seconds;
        }
    }

    /// The run begins: everything before now was preparation.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        (self.start, self.last) = (now, now);
        self.use_seconds.iter_mut().for_each(|seconds| *seconds = 0.0);
        (self.node_seconds, self.cost) = (0.0, 0.0);
    }

    /// Nodes came, changed or went.
    pub(crate) fn nodes_changed(&mut self, snapshot: &Snapshot) {
        let columns = snapshot.resources();
        for id in columns.iter() {
            let name = columns.name(id);
            let offered = || snapshot.iter().any(|node| columns.allocatable(id)[node.slot()] > 0);
            let measured =
                !matches!(&**name, "pods" | "ephemeral-storage") && !self.resources.contains(name) && offered();
            if measured {
                self.resources.push(Arc::clone(name));
                self.use_seconds.push(0.0);
            }
        }
        let sum = |of: &dyn Fn(scheduler_core::cache::ResourceId) -> Vec<i64>, name: &Arc<str>| {
            columns.id(name).map_or(0, |id| of(id).into_iter().fold(0_i64, i64::saturating_add))
        };
        let on_nodes = |column: &[i64]| snapshot.iter().map(|node| column[node.slot()]).collect::<Vec<_>>();
        self.allocatable =
            self.resources.iter().map(|name| sum(&|id| on_nodes(columns.allocatable(id)), name)).collect();
        self.requested = self.resources.iter().map(|name| sum(&|id| on_nodes(columns.requested(id)), name)).collect();
        self.n_nodes = snapshot.n_nodes();
        self.n_placed = snapshot.iter().map(|node| snapshot.pods(node).len()).sum();
        self.cost_rate = snapshot.iter().map(|node| Price::of(&self.prices, snapshot.node(node))).sum();
    }

    /// A pod got its node.
    pub(crate) fn placed(&mut self, pod: &Pod) {
        self.n_placed += 1;
        self.change(pod, 1);
    }

    /// A pod gave its node up.
    pub(crate) fn removed(&mut self, pod: &Pod) {
        self.n_placed = self.n_placed.saturating_sub(1);
        self.change(pod, -1);
    }

    fn change(&mut self, pod: &Pod, sign: i64) {
        let used = pod.resources.used();
        for (requested, name) in self.requested.iter_mut().zip(&self.resources) {
            *requested = requested.saturating_add(sign * used.get(name));
        }
    }

    /// Whether a sample is due after one more step of the run.
    pub(crate) fn step(&mut self) -> bool {
        self.n_steps += 1;
        self.n_steps.is_multiple_of(self.stride)
    }

    /// Notes the state of the cluster. `pending` are the requests of pods that wait.
    pub(crate) fn sample<'a>(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        pending: impl ExactSizeIterator<Item = &'a Resources>,
    ) {
        let n_pending = pending.len();
        let sample = self.state(now, snapshot, n_pending, self.median(pending).as_deref());
        if self.samples.len() >= MAX_SAMPLES {
            // The first one stays: the chart begins where the run begins.
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
        self.samples.push(sample);
    }

    /// The median request of pods that wait, resource by resource; `None` when none waits.
    fn median<'a>(&self, pending: impl ExactSizeIterator<Item = &'a Resources>) -> Option<Vec<i64>> {
        let every = (pending.len() / MAX_MEDIAN).max(1);
        let requests: Vec<&Resources> = pending.step_by(every).collect();
        if requests.is_empty() {
            return None;
        }
        let middle = |name: &Arc<str>| {
            let mut amounts: Vec<i64> = requests.iter().map(|request| request.get(name)).collect();
            let at = (amounts.len() - 1) / 2;
            *amounts.select_nth_unstable(at).1
        };
        Some(self.resources.iter().map(middle).collect())
    }

    fn state(&self, now: Timestamp, snapshot: &Snapshot, n_pending: usize, median: Option<&[i64]>) -> Sample {
        let columns = snapshot.resources();
        let of: Vec<Option<(&[i64], &[i64])>> = self
            .resources
            .iter()
            .map(|name| columns.id(name).map(|id| (columns.allocatable(id), columns.requested(id))))
            .collect();
        let n = of.len();
        let (mut free, mut stuck) = (vec![0_i64; n], vec![0_i64; n]);
        let (mut sum, mut squares, mut n_with) = (vec![0.0; n], vec![0.0; n], vec![0_u64; n]);
        // Column by column: this runs for every sample over every node.
        let slots: Vec<usize> = snapshot.iter().map(|node| node.slot()).collect();
        let mut fits = vec![true; slots.len()];
        for (at, column) in of.iter().enumerate() {
            let Some(least) = median.map(|median| median[at]).filter(|least| *least > 0) else { continue };
            match column {
                None => fits.fill(false),
                Some((allocatable, requested)) => {
                    for (fits, &slot) in fits.iter_mut().zip(&slots) {
                        *fits &= least <= allocatable[slot] - requested[slot];
                    }
                }
            }
        }
        for (at, column) in of.iter().enumerate() {
            let Some((allocatable, requested)) = column else { continue };
            for (&fits, &slot) in fits.iter().zip(&slots) {
                let (whole, used) = (allocatable[slot], requested[slot]);
                if whole > used {
                    free[at] = free[at].saturating_add(whole - used);
                    if !fits {
                        stuck[at] = stuck[at].saturating_add(whole - used);
                    }
                }
                if whole > 0 {
                    let used = share(used, whole);
                    sum[at] += used;
                    squares[at] += used * used;
                    n_with[at] += 1;
                }
            }
        }
        let deviation = |at: usize| {
            let n = n_with[at].max(1) as f64;
            (squares[at] / n - (sum[at] / n).powi(2)).max(0.0).sqrt()
        };
        Sample {
            seconds: now.min(self.last).since(self.start).as_secs_f64(),
            attempts: self.counts.attempts,
            nodes: self.n_nodes,
            placed: self.n_placed,
            pending: n_pending,
            utilisation: (0..n).map(|at| share(self.requested[at], self.allocatable[at])).collect(),
            fragmentation: (0..n).map(|at| share(stuck[at], free[at])).collect(),
            imbalance: (0..n).map(deviation).collect(),
        }
    }

    /// What each node holds now.
    pub(crate) fn node_uses(&self, snapshot: &Snapshot) -> Vec<NodeUse> {
        let columns = snapshot.resources();
        let ids: Vec<_> = self.resources.iter().map(|name| columns.id(name)).collect();
        snapshot
            .iter()
            .map(|node| NodeUse {
                name: Arc::clone(&snapshot.node(node).name),
                pods: snapshot.pods(node).len(),
                allocatable: ids.iter().map(|id| id.map_or(0, |id| columns.allocatable(id)[node.slot()])).collect(),
                requested: ids.iter().map(|id| id.map_or(0, |id| columns.requested(id)[node.slot()])).collect(),
            })
            .collect()
    }

    /// Virtual time from the beginning to now.
    pub(crate) fn duration(&self) -> Duration {
        self.last.since(self.start)
    }

    /// Mean utilisation over time; that of the end when no time has passed.
    pub(crate) fn mean_utilisation(&self) -> Vec<f64> {
        let seconds = self.duration().as_secs_f64();
        let now = |at: usize| share(self.requested[at], self.allocatable[at]);
        (0..self.resources.len())
            .map(|at| if seconds > 0.0 { self.use_seconds[at] / seconds } else { now(at) })
            .collect()
    }

    /// Hours of nodes, and what they cost.
    pub(crate) fn cost(&self) -> (f64, f64) {
        (self.node_seconds / 3600.0, self.cost)
    }

    /// What the nodes cost an hour now; `None` without prices.
    pub(crate) fn cost_per_hour(&self) -> Option<f64> {
        (!self.prices.is_empty()).then_some(self.cost_rate)
    }
}

fn share(part: i64, whole: i64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler_core::cache::Cache;
    use scheduler_core::model::NodeTemplate;

    fn amounts(milli_cpu: i64, memory: i64) -> Resources {
        Resources { milli_cpu, memory, pods: 110, ..Resources::default() }
    }

    fn world() -> Cache {
        let mut cache = Cache::new();
        for (name, milli_cpu) in [("a", 4000), ("b", 2000)] {
            let template = NodeTemplate { allocatable: amounts(milli_cpu, 100), ..NodeTemplate::default() };
            let node = Node { name: name.into(), ..template.into() };
            cache.set_node(Arc::new(node));
        }
        cache
    }

    #[test]
    fn fragmentation_is_the_free_share_where_the_median_does_not_fit() {
        let cache = world();
        let mut measure = Measure::new(Timestamp::ZERO, Vec::new());
        measure.nodes_changed(cache.snapshot());
        for (name, pending, want) in [
            ("fits everywhere", vec![amounts(2000, 1)], 0.0),
            ("fits on a only", vec![amounts(3000, 1), amounts(2500, 1), amounts(100, 1)], 2000.0 / 6000.0),
            ("fits nowhere", vec![amounts(5000, 1)], 1.0),
            ("short of another resource", vec![amounts(1, 101)], 1.0),
            ("nobody waits", vec![], 0.0),
        ] {
            measure.sample(Timestamp::ZERO, cache.snapshot(), pending.iter());
            let got = measure.samples.last().expect("a sample").fragmentation[0];
            assert!((got - want).abs() < 1e-9, "{name}: {got}");
        }
    }

    #[test]
    fn utilisation_is_weighted_by_time_and_cost_adds_up() {
        let cache = world();
        let prices = vec![Price::parse("1").expect("a price"), Price::parse("x=y:5").expect("a price")];
        let mut measure = Measure::new(Timestamp::ZERO, prices);
        measure.nodes_changed(cache.snapshot());
        let mut pod = Pod::default();
        pod.resources.requests = amounts(3000, 0);
        measure.advance(Timestamp::from_secs(1800));
        measure.placed(&pod);
        measure.advance(Timestamp::from_secs(3600));
        measure.removed(&pod);
        assert!((measure.mean_utilisation()[0] - 0.25).abs() < 1e-9);
        assert_eq!(measure.cost(), (2.0, 2.0));
    }

    #[test]
    fn samples_are_thinned_out() {
        let cache = world();
        let mut measure = Measure::new(Timestamp::ZERO, Vec::new());
        for second in 0..10_000 {
            measure.advance(Timestamp::from_secs(second));
            if measure.step() {
                measure.sample(Timestamp::from_secs(second), cache.snapshot(), [].iter());
            }
        }
        assert!((MAX_SAMPLES / 2 - 1..=MAX_SAMPLES).contains(&measure.samples.len()), "{}", measure.samples.len());
        assert!(measure.samples.is_sorted_by(|a, b| a.seconds < b.seconds));
    }

    #[test]
    fn prices_are_read() {
        assert_eq!(Price::parse("0.5"), Ok(Price { label: None, per_hour: 0.5 }));
        let labelled = Price { label: Some(("a/b".into(), "c".into())), per_hour: 2.0 };
        assert_eq!(Price::parse("a/b=c:2"), Ok(labelled));
        for text in ["", "-1", "a:1", "nan", "a=b:"] {
            assert!(Price::parse(text).is_err(), "{text}");
        }
    }
}
