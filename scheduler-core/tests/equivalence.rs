//! However the cluster came to be as it is, and whichever path decides: the verdicts and scores are the same.
//! Incremental state ≡ rebuilt state, chunk methods ≡ node methods, shared work ≡ full passes, one thread ≡ several.
//!
//! More histories: `PROPTEST_CASES=10000 cargo test -p scheduler-core --test equivalence --release`; a longer one:
//! `N_EVENTS=1000000`.

mod equivalence_support;

use std::collections::BTreeMap;

use equivalence_support::world::World;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;
use scheduler_core::engine::{Change, Examination, NodeVerdict, Outcome, Scheduler};
use scheduler_core::framework::FitError;
use scheduler_core::model::{Pod, Timestamp};
use scheduler_core::testing::{Cluster, node, pod};

fn examine(scheduler: &mut Scheduler, pod: &Pod) -> Examination {
    scheduler.examine(pod, Timestamp::ZERO, |_| ()).expect("the default profile serves the pod").0
}

/// Raw and normalised scores by node and plugin.
type Scores = BTreeMap<(String, &'static str), (i64, i64)>;

fn scores(examination: &Examination) -> Option<Scores> {
    let scores = examination.scores.as_ref().ok()?;
    let of = |at: usize, name: &str| {
        scores.iter().map(move |s| ((name.to_owned(), s.plugin), (s.raw[at], s.normalized[at]))).collect::<Vec<_>>()
    };
    Some(examination.feasible.iter().enumerate().flat_map(|(at, name)| of(at, name)).collect())
}

proptest! {
    #[test]
    fn a_history_of_events_leaves_the_state_that_a_fresh_start_would(seed in any::<u64>()) {
        let mut world = World::new(seed);
        let mut lived = equivalence_support::scheduler();
        for step in 0..60 {
            for change in world.random_changes() {
                lived.handle(change, Timestamp::from_micros(step));
            }
            if step % 7 == 0 {
                // Asks for indexes early, so that later events have to keep them.
                examine(&mut lived, &world.random_new_pod());
            }
        }
        let mut fresh = equivalence_support::scheduler();
        for object in world.objects() {
            fresh.handle(Change::Applied(object), Timestamp::ZERO);
        }
        for _ in 0..4 {
            let pod = world.random_new_pod();
            let (a, b) = (examine(&mut lived, &pod), examine(&mut fresh, &pod));
            prop_assert_eq!(&a.error, &b.error);
            prop_assert_eq!(&a.filter, &b.filter);
            prop_assert_eq!(&a.filter_all, &b.filter_all);
            prop_assert_eq!(&a.skip_score, &b.skip_score);
            prop_assert_eq!(scores(&a), scores(&b));
        }
    }

    #[test]
    fn the_chunk_methods_decide_as_the_node_methods_do(seed in any::<u64>()) {
        let mut world = World::new(seed);
        let mut scheduler = equivalence_support::scheduler();
        scheduler.record_decisions(true);
        for _ in 0..40 {
            for change in world.random_changes() {
                scheduler.handle(change, Timestamp::ZERO);
            }
        }
        let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        for _ in 0..4 {
            let pod = world.random_new_pod();
            let by_node = examine(&mut scheduler, &pod);
            let uid = pod.uid.clone();
            scheduler.handle(Change::Applied(pod.into()), Timestamp::ZERO);
            let Some(attempt) = scheduler.schedule_pod(&uid, Timestamp::ZERO, &pool) else { continue };
            if let Outcome::Unschedulable { message, .. } = &attempt.outcome
                && by_node.pre_filter.rejection.is_none()
            {
                let mut text = FitError::new(by_node.filter.len());
                by_node.filter.values().flatten().for_each(|rejection| text.node(&rejection.reasons));
                prop_assert!(message.starts_with(&text.to_string()), "{}, by node: {}", message, text);
            }
            let record = attempt.record.expect("records are kept");
            if let Outcome::Error { message } = &attempt.outcome {
                prop_assert!(false, "{}", message);
            }
            for (name, verdict) in record.nodes.iter().zip(&record.verdicts) {
                let fits = by_node.filter.get(name).is_some_and(Option::is_none);
                prop_assert_eq!(matches!(verdict, NodeVerdict::Feasible), fits, "{}", name);
            }
            if by_node.feasible.len() > 1 {
                prop_assert_eq!(by_node.scores.as_ref().ok(), Some(&record.scores));
                prop_assert_eq!(&by_node.totals, &record.totals);
            }
        }
    }
}

/// What two schedulers that hear the same decide, one of which shares work among alike pods.
struct Twins {
    sharing: Scheduler,
    alone: Scheduler,
    pool: rayon::ThreadPool,
}

impl Twins {
    fn new() -> Self {
        let mut alone = equivalence_support::scheduler();
        alone.share_among_alike_pods(false);
        let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        Self { sharing: equivalence_support::scheduler(), alone, pool }
    }

    fn handle(&mut self, change: &Change, now: Timestamp) {
        self.sharing.handle(change.clone(), now);
        self.alone.handle(change.clone(), now);
    }

    fn schedule(&mut self, uid: &str, now: Timestamp) -> [Option<Outcome>; 2] {
        let pool = &self.pool;
        [&mut self.sharing, &mut self.alone].map(|scheduler| {
            let outcome = scheduler.schedule_pod(uid, now, pool).map(|attempt| attempt.outcome);
            scheduler.drain_effects();
            outcome
        })
    }
}

proptest! {
    #[test]
    fn alike_pods_are_decided_on_as_if_each_were_the_first(
        seed in any::<u64>(),
        n_nodes in prop_oneof![2 => Just(9_usize), 1 => Just(150)],
        events_seldom in any::<bool>(),
    ) {
        let mut world = World::new(seed).with_nodes(n_nodes);
        let mut twins = Twins::new();
        for object in world.objects() {
            twins.handle(&Change::Applied(object), Timestamp::ZERO);
        }
        let mut templates: Vec<Pod> = (0..3).map(|_| world.random_new_pod()).collect();
        for template in &mut templates[..2] {
            // Most pods are simple.
            template.affinity = template.affinity.take().filter(|_| world.chance(4));
            template.topology_spread_constraints = Box::default();
        }
        let mut last = 0;
        for step in 0..80 {
            let now = Timestamp::from_micros(step);
            if world.chance(if events_seldom { 12 } else { 3 }) {
                for change in world.random_changes() {
                    twins.handle(&change, now);
                }
                continue;
            }
            // Replicas often follow each other.
            last = if world.chance(3) { world.below(3) } else { last };
            let template = &templates[last];
            let pod = world.replica_of(template);
            let uid = pod.uid.clone();
            twins.handle(&Change::Applied(pod.clone().into()), now);
            let [shared, alone] = twins.schedule(&uid, now);
            prop_assert_eq!(&shared, &alone, "step {}", step);
            match shared {
                Some(Outcome::Scheduled { node, .. }) if world.chance(2) => {
                    let bound = world.bind(pod, &node);
                    twins.handle(&bound, now);
                }
                Some(Outcome::Scheduled { .. }) => {}
                _ => twins.handle(&Change::Deleted(pod.into()), now),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn scoring_by_slot_chooses_as_plugin_after_plugin_does(
        seed in any::<u64>(),
        n_nodes in prop_oneof![1 => Just(9_usize), 2 => Just(150), 1 => Just(700)],
        sampled in any::<bool>(),
    ) {
        let mut world = World::new(seed).with_nodes(n_nodes);
        let mut by_slot = equivalence_support::scheduler_that_scores(if sampled { 40 } else { 100 });
        by_slot.share_among_alike_pods(false);
        let mut by_plugin = equivalence_support::scheduler_that_scores(if sampled { 40 } else { 100 });
        by_plugin.record_decisions(true);
        by_plugin.share_among_alike_pods(false);
        let mut both = [by_slot, by_plugin];
        for object in world.objects() {
            both.iter_mut().for_each(|scheduler| scheduler.handle(Change::Applied(object.clone()), Timestamp::ZERO));
        }
        let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        for step in 0..12 {
            let now = Timestamp::from_micros(step);
            for change in if world.chance(3) { world.random_changes() } else { Vec::new() } {
                both.iter_mut().for_each(|scheduler| scheduler.handle(change.clone(), now));
            }
            let mut pod = world.random_new_pod();
            if world.chance(2) {
                // More nodes are feasible for simple pods.
                pod.affinity = None;
                pod.node_selector = scheduler_core::model::Labels::default();
            }
            let [by_slot, by_plugin] = both.each_mut().map(|scheduler| {
                scheduler.handle(Change::Applied(pod.clone().into()), now);
                let outcome = scheduler.schedule_pod(&pod.uid, now, &pool).map(|attempt| attempt.outcome);
                scheduler.drain_effects();
                outcome
            });
            prop_assert_eq!(by_slot, by_plugin, "step {}", step);
        }
    }
}

#[test]
fn a_long_history_leaves_the_state_that_a_fresh_start_would() {
    let n_events = std::env::var("N_EVENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000_usize);
    let mut world = World::new(11);
    let mut lived = equivalence_support::scheduler();
    let mut until_compared = 0;
    for event in 0..n_events {
        for change in world.random_changes() {
            lived.handle(change, Timestamp::ZERO);
        }
        if world.chance(50) {
            examine(&mut lived, &world.random_new_pod());
        }
        if until_compared > 0 && event + 1 < n_events {
            until_compared -= 1;
            continue;
        }
        until_compared = world.below(n_events.div_ceil(10));
        let mut fresh = equivalence_support::scheduler();
        for object in world.objects() {
            fresh.handle(Change::Applied(object), Timestamp::ZERO);
        }
        for _ in 0..3 {
            let pod = world.random_new_pod();
            let (a, b) = (examine(&mut lived, &pod), examine(&mut fresh, &pod));
            assert_eq!(a.error, b.error, "after {event} events");
            assert_eq!(a.filter, b.filter, "after {event} events");
            assert_eq!(scores(&a), scores(&b), "after {event} events");
        }
    }
}

#[test]
fn several_threads_decide_as_one_does() {
    let attempts = |n_threads| {
        let mut world = World::new(7);
        let mut scheduler = equivalence_support::scheduler();
        for object in world.many_nodes(17_000) {
            scheduler.handle(Change::Applied(object), Timestamp::ZERO);
        }
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started");
        let outcomes = (0..12).map(|_| {
            let pod = world.random_new_pod();
            scheduler.handle(Change::Applied(pod.into()), Timestamp::ZERO);
            scheduler.schedule_one(Timestamp::ZERO, &pool).map(|attempt| attempt.outcome)
        });
        outcomes.collect::<Vec<_>>()
    };
    assert_eq!(attempts(1), attempts(3));
}

/// The masks of pod anti-affinity cover the slots that have pods: chunks far beyond them meet masks that have ended.
#[test]
fn anti_affinity_over_nodes_reaches_every_chunk_of_a_large_cluster() {
    let attempts = |n_threads| {
        let mut scheduler = equivalence_support::scheduler();
        let nodes = (0..17_000).map(|i| node(&format!("n{i}")).cpu("4").memory("16Gi"));
        Cluster::new().nodes(nodes).apply_to(&mut scheduler);
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started");
        let placed = (0..40).map(|i| {
            let apart = pod(&format!("p{i}"))
                .label("app", "a")
                // No two alike: nothing is shared, every pod sees every chunk.
                .cpu(&format!("{}m", 100 + i))
                .pod_anti_affinity("kubernetes.io/hostname", ("app", "a"))
                .build();
            scheduler.handle(Change::Applied(apart.into()), Timestamp::ZERO);
            match scheduler.schedule_one(Timestamp::ZERO, &pool).map(|attempt| attempt.outcome) {
                Some(Outcome::Scheduled { node, .. }) => node,
                other => panic!("pod p{i}: {other:?}"),
            }
        });
        placed.collect::<Vec<_>>()
    };
    let placed = attempts(1);
    assert_eq!(placed.iter().collect::<std::collections::HashSet<_>>().len(), 40, "no two on one node");
    assert_eq!(placed, attempts(3));
}
