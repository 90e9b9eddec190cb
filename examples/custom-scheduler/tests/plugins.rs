//! Each plugin alone, then all of them in a scheduler. Nothing is started: the test kit needs no cluster.

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Outcome, Scheduler};
use scheduler_core::framework::EffectKind;
use scheduler_core::model::Timestamp;
use scheduler_core::testing::{Cluster, NodeBuilder, PodBuilder, node, pod, pool, run_cycle};

fn config() -> KubeSchedulerConfiguration {
    KubeSchedulerConfiguration::from_text(include_str!("../scheduler.yaml")).expect("the file is valid")
}

fn web(name: &str) -> PodBuilder {
    pod(name).scheduler_name("custom-scheduler").label("app", "web")
}

fn in_rack(name: &str, rack: &str) -> NodeBuilder {
    node(name).cpu("4").memory("8Gi").label("rack", rack)
}

#[test]
fn a_full_rack_is_left_alone_and_the_emptiest_comes_first() {
    let cluster = Cluster::new()
        .with(in_rack("a1", "a"))
        .with(in_rack("a2", "a"))
        .with(in_rack("b1", "b"))
        .with(in_rack("c1", "c"))
        .pods([web("w1").on("a1"), web("w2").on("a2"), web("w3").on("b1")]);
    let registry = custom_scheduler::registry().expect("the names are free");
    let decision = run_cycle(&registry, &config(), web("w4"), &cluster).expect("the configuration is valid");
    assert_eq!(decision.node(), Some("c1"));
    assert_eq!(decision.reasons("a1"), ["rack(s) had enough pods of this app"]);
    assert_eq!(decision.score("RackLimit", "b1"), Some(50));
    assert_eq!(decision.score("RackLimit", "c1"), Some(100));
    let other = web("other").label("app", "db");
    assert_eq!(run_cycle(&registry, &config(), other, &cluster).expect("valid").reasons("a1"), [""; 0]);
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let text = include_str!("../scheduler.yaml").replace("maxPods: 2", "maxPod: 2");
    let config = KubeSchedulerConfiguration::from_text(&text).expect("the engine leaves the arguments to the plugin");
    let registry = custom_scheduler::registry().expect("the names are free");
    let error = Scheduler::new(&config, &registry, Options::default()).expect_err("no such argument").to_string();
    assert!(error.contains("RackLimit") && error.contains("maxPod"), "{error}");
}

#[test]
fn small_pods_go_first_and_pairs_go_together() {
    let registry = custom_scheduler::registry().expect("the names are free");
    let mut scheduler = Scheduler::new(&config(), &registry, Options::default()).expect("the configuration is valid");
    let cluster = Cluster::new()
        .with(in_rack("a1", "a"))
        .with(web("large").cpu("2"))
        .with(web("left").cpu("500m").label("pair", "1"))
        .with(web("right").cpu("1").label("pair", "1"));
    cluster.apply_to(&mut scheduler);
    let mut bound_after = Vec::new();
    for expected in ["left", "right", "large"] {
        let attempt = scheduler.schedule_one(Timestamp::ZERO, pool()).expect("a pod waits");
        assert_eq!(&*attempt.pod.name, expected);
        let is_bind = |kind: &EffectKind| matches!(kind, EffectKind::Bind { .. });
        bound_after.push(scheduler.drain_effects().iter().filter(|effect| is_bind(&effect.kind)).count());
        // The third pod of the app finds its rack full.
        assert_eq!(matches!(attempt.outcome, Outcome::Scheduled { .. }), expected != "large");
    }
    assert_eq!(bound_after, [0, 2, 0], "nothing is bound before the pair is complete");
}
