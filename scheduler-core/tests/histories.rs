//! Ten thousand short histories of small clusters: whichever way a decision is reached, it is the same one. The node
//! methods ≡ the chunk methods ≡ a scheduler that starts afresh ≡ one that is given several threads.
//!
//! `HISTORIES=1000000 cargo test -p scheduler-core --test histories --release` runs more.

#[expect(dead_code, reason = "another test uses the rest of the world")]
mod equivalence_support;

use std::collections::BTreeMap;

use equivalence_support::world::World;
use rayon::prelude::*;
use scheduler_core::engine::{Attempt, Change, Examination, NodeVerdict, Scheduler};
use scheduler_core::model::{Pod, Timestamp};

const NOW: Timestamp = Timestamp::ZERO;

fn examine(scheduler: &mut Scheduler, pod: &Pod) -> Examination {
    scheduler.examine(pod, NOW, |_| ()).expect("the default profile serves the pod").0
}

/// Raw and normalised scores by node and plugin.
fn scores(examination: &Examination) -> BTreeMap<(String, &'static str), (i64, i64)> {
    let scores = examination.scores.iter().flatten();
    let nodes = |s: &scheduler_core::engine::PluginScores| {
        let named = examination.feasible.iter().map(ToString::to_string).zip(s.raw.iter().zip(&s.normalized));
        named.map(|(name, (raw, normalized))| ((name, s.plugin), (*raw, *normalized))).collect::<Vec<_>>()
    };
    scores.flat_map(nodes).collect()
}

fn schedule(scheduler: &mut Scheduler, pod: &Pod, pool: &rayon::ThreadPool) -> Option<Attempt> {
    scheduler.handle(Change::Applied(pod.clone().into()), NOW);
    scheduler.schedule_pod(&pod.uid, NOW, pool)
}

/// What is not the same, if something is not.
fn difference(seed: u64, one: &rayon::ThreadPool, several: &rayon::ThreadPool) -> Option<&'static str> {
    let mut world = World::new(seed);
    let (mut lived, mut twin) = (equivalence_support::scheduler(), equivalence_support::scheduler());
    lived.record_decisions(true);
    twin.record_decisions(true);
    for step in 0..8 + seed % 12 {
        for change in world.random_changes() {
            lived.handle(change.clone(), NOW);
            twin.handle(change, NOW);
        }
        if step % 5 == 0 {
            // Asks for indexes early, so that later events have to keep them. The twin asks late.
            examine(&mut lived, &world.random_new_pod());
        }
    }
    let mut fresh = equivalence_support::scheduler();
    for object in world.objects() {
        fresh.handle(Change::Applied(object), NOW);
    }
    let pod = world.random_new_pod();
    let (by_node, from_fresh) = (examine(&mut lived, &pod), examine(&mut fresh, &pod));
    if by_node.filter != from_fresh.filter || by_node.filter_all != from_fresh.filter_all {
        return Some("verdicts after the history and afresh");
    }
    if by_node.skip_score != from_fresh.skip_score || scores(&by_node) != scores(&from_fresh) {
        return Some("scores after the history and afresh");
    }
    let (Some(a), Some(b)) = (schedule(&mut lived, &pod, one), schedule(&mut twin, &pod, several)) else { return None };
    if a.outcome != b.outcome || a.record != b.record {
        return Some("decisions with one thread and several");
    }
    let record = a.record.expect("records are kept");
    let fits = |name| by_node.filter.get(name).is_some_and(Option::is_none);
    if record
        .nodes
        .iter()
        .zip(&record.verdicts)
        .any(|(name, verdict)| (*verdict == NodeVerdict::Feasible) != fits(name))
    {
        return Some("verdicts of node methods and chunk methods");
    }
    if by_node.feasible.len() > 1 && (by_node.scores.as_ref() != Ok(&record.scores) || by_node.totals != record.totals)
    {
        return Some("scores of node methods and chunk methods");
    }
    None
}

#[test]
fn every_way_to_a_decision_leads_to_the_same_one() {
    let n_histories = std::env::var("HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000_u64);
    let pool =
        |n_threads| rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started");
    let (one, several) = (pool(1), pool(3));
    let found = (0..n_histories).into_par_iter().find_map_any(|seed| Some((seed, difference(seed, &one, &several)?)));
    assert_eq!(found, None, "the seed of the history, and what differs in it");
}
