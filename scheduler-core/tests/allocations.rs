//! Once the engine is warm, filtering and scoring 5 000 nodes allocates nothing, and the rest of a cycle no more than on
//! a few nodes. Counted by an allocator that wraps the system's; this binary has one test, so nobody else allocates.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scheduler_core::cache::{Candidates, NodeIdx, NodeView};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::plugins::ExtensionPoint as Point;
use scheduler_core::engine::{Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{
    Cycle, CycleState, Extensions, FilterPlugin, FilterStatus, Plugin, Reason, Result, ScorePlugin,
};
use scheduler_core::model::Timestamp;
use scheduler_core::testing::{Cluster, NodeBuilder, PodBuilder, node, pod, pool};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn n_allocations() -> usize {
    let stats = GLOBAL.stats();
    stats.allocations + stats.reallocations
}

/// Allocations between two plugins that stand first and last.
#[derive(Default)]
struct Span {
    begin: AtomicUsize,
    total: AtomicUsize,
}

impl Span {
    const fn new() -> Self {
        Self { begin: AtomicUsize::new(0), total: AtomicUsize::new(0) }
    }

    fn begin(&self) {
        self.begin.store(n_allocations(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.total.fetch_add(n_allocations() - self.begin.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take(&self) -> usize {
        self.total.swap(0, Ordering::Relaxed)
    }
}

static FILTER: Span = Span::new();
static SCORE: Span = Span::new();

/// The first plugin at Filter and Score.
struct First;

/// The last plugin at Filter and Score.
struct Last;

impl Plugin for First {}

impl Plugin for Last {}

impl FilterPlugin for First {
    type State = ();

    fn filter(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>) -> Result<FilterStatus> {
        Ok(FilterStatus::Success)
    }

    fn filter_chunk(&self, _: Option<&()>, _: Cycle<'_>, _: &mut Candidates<'_>) -> Result<()> {
        FILTER.begin();
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, _: &mut Vec<Reason>) {}
}

impl FilterPlugin for Last {
    type State = ();

    fn filter(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>) -> Result<FilterStatus> {
        Ok(FilterStatus::Success)
    }

    fn filter_chunk(&self, _: Option<&()>, _: Cycle<'_>, _: &mut Candidates<'_>) -> Result<()> {
        FILTER.end();
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, _: &mut Vec<Reason>) {}
}

impl ScorePlugin for First {
    type State = ();

    fn score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState, _: NodeView<'_>) -> Result<i64> {
        Ok(0)
    }

    fn score_chunk(
        &self,
        _: Option<&()>,
        _: Cycle<'_>,
        _: &CycleState,
        _: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        scores.fill(0);
        SCORE.begin();
        Ok(())
    }
}

impl ScorePlugin for Last {
    type State = ();

    fn score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState, _: NodeView<'_>) -> Result<i64> {
        Ok(0)
    }

    fn score_chunk(
        &self,
        _: Option<&()>,
        _: Cycle<'_>,
        _: &CycleState,
        _: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        scores.fill(0);
        SCORE.end();
        Ok(())
    }
}

/// All default plugins between the two.
fn scheduler() -> Scheduler {
    let mut registry = scheduler_core::plugins::registry();
    let points = &[Point::Filter, Point::Score];
    registry
        .register("First", points, |_| {
            let plugin = Arc::new(First);
            Ok(Extensions::new().filter(&plugin).score(&plugin))
        })
        .expect("the name is free");
    registry
        .register("Last", points, |_| {
            let plugin = Arc::new(Last);
            Ok(Extensions::new().filter(&plugin).score(&plugin))
        })
        .expect("the name is free");
    let config = KubeSchedulerConfiguration::from_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, percentageOfNodesToScore: 100, profiles: \
         [{plugins: {multiPoint: {enabled: [{name: First}, {name: Last}]}, filter: {enabled: [{name: First}]}, \
         score: {enabled: [{name: First}]}}}]}",
    );
    Scheduler::new(&config.expect("valid"), &registry, Options::default()).expect("the plugins are registered")
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn nth_node(i: usize) -> NodeBuilder {
    let builder = node(&format!("n{i}")).cpu("8").memory("32Gi").zone(&format!("z{}", i % 10)).image("a:1", 400 << 20);
    match i % 20 {
        0 => builder.taint("dedicated:NoSchedule"),
        1 => builder.taint("spot:PreferNoSchedule"),
        2 => builder.label("disk", "ssd"),
        3 => builder.unschedulable(),
        _ => builder,
    }
}

type Shape = (&'static str, fn(PodBuilder) -> PodBuilder);

const SHAPES: [Shape; 9] = [
    ("plain", |pod| pod),
    ("selector", |pod| pod.node_selector("disk", "ssd")),
    ("node affinity", |pod| pod.node_affinity("disk", &["ssd", "hdd"]).preferred_node_affinity(7, ZONE, &["z2"])),
    ("tolerations", |pod| pod.tolerates("dedicated:NoSchedule").tolerates("spot:PreferNoSchedule")),
    ("host port", |pod| pod.host_port(8080)),
    ("image", |pod| pod.image("a:1")),
    ("spread", |pod| pod.spread(5, ZONE, ("app", "web")).spread_softly(1, HOST, ("app", "web"))),
    ("affinity", |pod| pod.pod_affinity(ZONE, ("app", "web")).preferred_pod_affinity(3, HOST, ("app", "db"))),
    ("anti-affinity", |pod| {
        pod.pod_anti_affinity(HOST, ("app", "web")).preferred_pod_anti_affinity(3, ZONE, ("app", "db"))
    }),
];

/// Allocations of Filter, of Score and of the whole call in the last of some cycles with pods of one shape.
fn last_cycle(n_nodes: usize, (name, shape): &Shape) -> (usize, usize, usize) {
    let mut scheduler = scheduler();
    let tenants =
        (0..n_nodes).map(|i| pod(&format!("t{i}")).label("app", "web").cpu("1").on(&format!("n{}", i * 7 % n_nodes)));
    Cluster::new().nodes((0..n_nodes).map(nth_node)).pods(tenants.step_by(100)).apply_to(&mut scheduler);
    let mut counts = (0, 0, 0);
    for i in 0..4 {
        let new = shape(pod(&format!("p{i}")).label("app", "web").image("b:1").cpu("100m").memory("128Mi")).build();
        scheduler.handle(Change::Applied(new.into()), Timestamp::ZERO);
        FILTER.take();
        SCORE.take();
        let before = n_allocations();
        let attempt = scheduler.schedule_one(Timestamp::ZERO, pool()).expect("a pod waits");
        counts = (FILTER.take(), SCORE.take(), n_allocations() - before);
        let Outcome::Scheduled { n_feasible, .. } = attempt.outcome else { panic!("{name}: {:?}", attempt.outcome) };
        assert!(n_feasible > 1, "{name}: there is something to score");
        scheduler.drain_effects();
    }
    counts
}

#[test]
fn filter_and_score_allocate_nothing_after_warm_up() {
    for shape in &SHAPES {
        let (filter, score, large) = last_cycle(5_000, shape);
        assert_eq!((filter, score), (0, 0), "{}: allocations in Filter and Score of 5 000 nodes", shape.0);
        let (.., small) = last_cycle(200, shape);
        assert!(
            large <= small + 8,
            "{}: a cycle allocates {large} times on 5 000 nodes, {small} times on 200",
            shape.0
        );
    }
}
