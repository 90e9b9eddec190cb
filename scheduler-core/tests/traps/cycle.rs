//! What one cycle looks at.

use std::collections::BTreeSet;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Outcome, Scheduler};
use scheduler_core::model::{Pod, Timestamp};
use scheduler_core::testing::{Cluster, node, pod, pool, run_cycle, schedule};

fn counts(outcome: &Outcome) -> (usize, usize) {
    match outcome {
        Outcome::Scheduled { n_evaluated, n_feasible, .. } => (*n_evaluated, *n_feasible),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_feasible_node_is_chosen_without_scores() {
    let cluster = Cluster::new().with(node("small").cpu("1")).with(node("large").cpu("4"));
    let decision = schedule(pod("p").cpu("2"), &cluster);
    assert_eq!(decision.node(), Some("large"));
    assert!(decision.record().expect("records are kept").scores.is_empty());
    let both = schedule(pod("p").cpu("1"), &cluster);
    assert!(!both.record().expect("records are kept").scores.is_empty());
}

#[test]
fn the_nominated_node_is_taken_if_it_fits() {
    let cluster = Cluster::new()
        .with(node("empty").cpu("8"))
        .with(node("busy").cpu("8"))
        .with(pod("tenant").cpu("6").on("busy"))
        .with(node("full").cpu("1"));
    assert_eq!(schedule(pod("p").cpu("2"), &cluster).node(), Some("empty"));
    let nominated = schedule(pod("p").cpu("2").nominated_to("busy"), &cluster);
    assert_eq!(nominated.node(), Some("busy"), "though another is better");
    assert_eq!(counts(&nominated.attempt.expect("it was tried").outcome), (1, 1));
    for unfit in ["full", "gone"] {
        assert_eq!(schedule(pod("p").cpu("2").nominated_to(unfit), &cluster).node(), Some("empty"), "{unfit}");
    }
}

#[test]
fn the_percentage_of_the_profile_wins() {
    let config = |global: i32, profile: &str| {
        KubeSchedulerConfiguration::from_text(&format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npercentageOfNodesToScore: {global}\n\
             profiles: [{{schedulerName: default-scheduler{profile}}}]"
        ))
        .expect("the configuration is valid")
    };
    let cluster = Cluster::new().nodes((0..400).map(|i| node(&format!("n{i}"))));
    for (global, profile, n_feasible) in [
        (100, "", 400),
        (50, "", 200),
        (10, "", 100),
        (50, ", percentageOfNodesToScore: 75", 300),
        (100, ", percentageOfNodesToScore: 50", 200),
        (100, ", percentageOfNodesToScore: 0", 400 * 47 / 100),
    ] {
        let decision = run_cycle(&scheduler_core::plugins::registry(), &config(global, profile), pod("p"), &cluster);
        let outcome = decision.expect("in-tree plugins").attempt.expect("it was tried").outcome;
        assert_eq!(counts(&outcome).1, n_feasible, "{global}{profile}");
    }
}

#[test]
fn one_of_the_best_is_chosen() {
    let registry = scheduler_core::plugins::registry();
    let cluster = Cluster::new()
        .nodes(["a", "b", "c"].map(|name| node(name).cpu("4").memory("4Gi")))
        .with(node("worse").cpu("4").memory("4Gi").taint("soft:PreferNoSchedule"));
    let mut chosen = BTreeSet::new();
    for seed in 0..32 {
        let options = Options { seed, record_decisions: true, ..Options::default() };
        let mut scheduler = Scheduler::new(&KubeSchedulerConfiguration::default(), &registry, options).expect("valid");
        cluster.apply_to(&mut scheduler);
        let new: Pod = pod("p").cpu("1").memory("1Gi").into();
        scheduler.handle(scheduler_core::engine::Change::Applied(new.into()), Timestamp::ZERO);
        let attempt = scheduler.schedule_one(Timestamp::ZERO, pool()).expect("a pod waits");
        let record = attempt.record.expect("records are kept");
        let best: BTreeSet<_> =
            record.ties.iter().map(|&position| record.nodes[position as usize].to_string()).collect();
        assert_eq!(best, ["a", "b", "c"].map(str::to_owned).into());
        chosen.insert(record.selected.expect("it was placed").to_string());
    }
    assert_eq!(chosen, ["a", "b", "c"].map(str::to_owned).into(), "the seed decides among equals");
}
