//! One measurement of the engine: a cluster of a shape, pods one after the other, the time of every decision. No cluster
//! is contacted and no clock is read but to measure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::bare_loop::BareLoop;
use benches::workload::{self, Incoming, Shape};
use rayon::{ThreadPool, ThreadPoolBuilder};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{EffectKind, Registry};
use scheduler_core::model::{Object, Pod, Timestamp};

use super::memory::{Footprint, n_allocations};
use super::{Progress, Stop};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What the pods ask for.
    pub(crate) shape: Shape,
    /// Nodes.
    pub(crate) n_nodes: usize,
    /// Pods on the nodes at the start.
    pub(crate) n_existing: usize,
    /// Pods that are measured; a tenth more come before them.
    pub(crate) n_pods: usize,
    /// Threads for filtering and scoring.
    pub(crate) n_threads: usize,
    /// Share of pods that differ from every other.
    pub(crate) distinct: f64,
    /// Pods of the same shape that follow each other.
    pub(crate) n_replicas: usize,
    /// `percentageOfNodesToScore`.
    pub(crate) sample: i32,
    /// Seed of the draws among equally good nodes.
    pub(crate) seed: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was asked.
    pub(crate) case: Case,
    /// Time of each decision: from taking the pod out of the queue to its effects, sorted.
    pub(crate) decisions: Vec<Duration>,
    /// Time of the whole loop: queueing, deciding, hearing of the binding and of the bound pod.
    pub(crate) whole_loop: Duration,
    /// Pods that found no node.
    pub(crate) n_unscheduled: usize,
    /// Nodes that were looked at, over all placed pods.
    pub(crate) n_evaluated: usize,
    /// Nodes that fit, over all placed pods.
    pub(crate) n_feasible: usize,
    /// Allocations of all decisions; `None` when nobody counts.
    pub(crate) n_allocations: Option<u64>,
    /// One pass of the bare loop over as many nodes, on as many threads.
    pub(crate) bare_loop: Duration,
    /// Memory of the cluster in the engine; whoever can start a fresh process fills it in.
    pub(crate) footprint: Option<Footprint>,
    /// Hash over the pods' nodes in order: equal decisions have equal hashes.
    pub(crate) placements: u64,
}

/// The engine for a case, without nodes.
///
/// # Errors
/// The registry lacks a plugin of the default profile.
pub(crate) fn scheduler(case: &Case, registry: &Registry) -> Result<Scheduler, String> {
    let configuration = KubeSchedulerConfiguration {
        percentage_of_nodes_to_score: case.sample,
        ..KubeSchedulerConfiguration::default()
    };
    Scheduler::new(&configuration, registry, Options { seed: case.seed, ..Options::default() })
        .map_err(|error| error.to_string())
}

/// Measures `case`; `None` when it was stopped.
///
/// # Errors
/// The engine or its threads cannot be made.
pub(crate) fn measure(
    case: Case,
    registry: &Registry,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Row>, String> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(case.n_threads)
        .build()
        .map_err(|error| format!("cannot start {} threads: {error}", case.n_threads))?;
    let mut scheduler = scheduler(&case, registry)?;
    workload::add_nodes(&mut scheduler, case.n_nodes);
    workload::add_bound_pods(&mut scheduler, case.n_nodes, case.n_existing);
    workload::add_services(&mut scheduler, case.shape);

    let incoming =
        Incoming { shape: case.shape, n_nodes: case.n_nodes, distinct: case.distinct, n_replicas: case.n_replicas };
    let n_warm_up = case.n_pods.div_ceil(10);
    let mut bench = Bench::new(scheduler, pool);
    bench.queue((0..n_warm_up).map(|k| incoming.pod(k)));
    for _ in 0..n_warm_up {
        bench.step();
        if stop.is_set() {
            return Ok(None);
        }
    }
    bench.forget_times();
    bench.queue((n_warm_up..n_warm_up + case.n_pods).map(|k| incoming.pod(k)));
    for k in 0..case.n_pods {
        bench.step();
        if stop.is_set() {
            return Ok(None);
        }
        progress.say(&format!(": {k} of {} pods", case.n_pods));
    }
    progress.say(": the bare loop");
    let bare_loop = BareLoop::new(case.n_nodes, case.n_existing).time(&bench.pool, &incoming.pod(0));
    Ok(Some(bench.row(case, bare_loop)))
}

/// An engine and what was measured of it.
struct Bench {
    scheduler: Scheduler,
    pool: ThreadPool,
    decisions: Vec<Duration>,
    whole_loop: Duration,
    n_unscheduled: usize,
    n_evaluated: usize,
    n_feasible: usize,
    n_allocations: Option<u64>,
    placements: u64,
}

impl Bench {
    fn new(scheduler: Scheduler, pool: ThreadPool) -> Self {
        Self {
            scheduler,
            pool,
            decisions: Vec::new(),
            whole_loop: Duration::ZERO,
            n_unscheduled: 0,
            n_evaluated: 0,
            n_feasible: 0,
            n_allocations: Some(0),
            placements: 0,
        }
    }

    /// Forgets what the first pods took.
    fn forget_times(&mut self) {
        self.decisions.clear();
        (self.whole_loop, self.n_allocations) = (Duration::ZERO, Some(0));
        (self.n_unscheduled, self.n_evaluated, self.n_feasible) = (0, 0, 0);
    }

    fn queue(&mut self, pods: impl Iterator<Item = Pod>) {
        let pods: Vec<Arc<Pod>> = pods.map(Arc::new).collect();
        let started = Instant::now();
        for pod in pods {
            self.scheduler.handle(Change::Applied(Object::Pod(pod)), Timestamp::ZERO);
        }
        self.whole_loop += started.elapsed();
    }

    /// One decision and what follows it: the binding succeeds, and the watch shows the pod on its node.
    fn step(&mut self) {
        let allocated = n_allocations();
        let started = Instant::now();
        let attempt = self.scheduler.schedule_one(Timestamp::ZERO, &self.pool);
        let effects = self.scheduler.drain_effects();
        let decision = started.elapsed();
        self.n_allocations =
            self.n_allocations.zip(n_allocations()).zip(allocated).map(|((sum, now), then)| sum + (now - then));
        let Some(attempt) = attempt else { return };
        self.decisions.push(decision);
        self.whole_loop += decision;
        self.note(&attempt);
        for effect in effects {
            let bound = match effect.kind {
                EffectKind::Bind { node, .. } => Some(Pod { node_name: Some(node), ..Pod::clone(&attempt.pod) }),
                _ => None,
            };
            let started = Instant::now();
            self.scheduler.handle_result(effect.id, Ok(()), Timestamp::ZERO);
            if let Some(bound) = bound {
                self.scheduler.handle(Change::Applied(bound.into()), Timestamp::ZERO);
            }
            self.whole_loop += started.elapsed();
        }
    }

    fn note(&mut self, attempt: &Attempt) {
        let node = match &attempt.outcome {
            Outcome::Scheduled { node, n_evaluated, n_feasible } => {
                self.n_evaluated += n_evaluated;
                self.n_feasible += n_feasible;
                &**node
            }
            _ => {
                self.n_unscheduled += 1;
                ""
            }
        };
        self.placements = hash(self.placements, node);
    }

    fn row(mut self, case: Case, bare_loop: Duration) -> Row {
        self.decisions.sort_unstable();
        Row {
            case,
            decisions: self.decisions,
            whole_loop: self.whole_loop,
            n_unscheduled: self.n_unscheduled,
            n_evaluated: self.n_evaluated,
            n_feasible: self.n_feasible,
            n_allocations: self.n_allocations,
            bare_loop,
            footprint: None,
            placements: self.placements,
        }
    }
}

/// FNV-1a over what came before and `text`.
fn hash(before: u64, text: &str) -> u64 {
    text.bytes()
        .chain([0])
        .fold(before ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(shape: Shape, n_threads: usize) -> Row {
        let case = Case {
            shape,
            n_nodes: 40,
            n_existing: 200,
            n_pods: 20,
            n_threads,
            distinct: 0.5,
            n_replicas: 2,
            sample: 100,
            seed: 7,
        };
        let registry = scheduler_core::plugins::registry();
        let mut progress = Progress::new();
        measure(case, &registry, &Stop::default(), &mut progress)
            .expect("the engine can be made")
            .expect("nobody stops it")
    }

    #[test]
    fn every_pod_is_measured_and_placed_the_same_on_any_number_of_threads() {
        for shape in Shape::ALL {
            let (one, two) = (run(shape, 1), run(shape, 2));
            assert_eq!((one.decisions.len(), one.n_unscheduled), (20, 0), "{}", shape.name());
            assert_eq!(one.placements, two.placements, "{}", shape.name());
            assert!(one.n_feasible > 0 && one.n_feasible <= one.n_evaluated && one.n_evaluated <= 20 * 40);
        }
    }

    #[test]
    fn a_stopped_measurement_has_no_row() {
        let stop = Stop::default();
        stop.set();
        let case = Case { n_pods: 5, ..run(Shape::Basic, 1).case };
        let registry = scheduler_core::plugins::registry();
        let row = measure(case, &registry, &stop, &mut Progress::new()).expect("the engine can be made");
        assert!(row.is_none());
    }
}
