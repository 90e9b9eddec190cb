//! Topology spread where no recorded case isolates the rule.

use std::sync::Arc;

use scheduler_core::cache::{Cache, Objects};
use scheduler_core::config::args::{PluginArgs, PodTopologySpreadArgs};
use scheduler_core::framework::{Cycle, Extensions, FilterPlugin, FilterStatus, Plugin, PreFilterStatus};
use scheduler_core::model::{Node, Pod, Timestamp};
use scheduler_core::plugins::pod_topology_spread::PodTopologySpread;
use scheduler_core::testing::{Cluster, PodBuilder, node, pod, run_plugin};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn args() -> PodTopologySpreadArgs {
    match PluginArgs::defaults("PodTopologySpread") {
        Some(PluginArgs::PodTopologySpread(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn plugin() -> Extensions {
    let plugin = Arc::new(PodTopologySpread::new(&args()));
    Extensions::new().pre_filter(&plugin).filter(&plugin).pre_score(&plugin).score(&plugin)
}

fn web(name: &str) -> PodBuilder {
    pod(name).label("app", "web")
}

fn honoring(builder: PodBuilder) -> PodBuilder {
    builder.change(|pod| {
        pod.topology_spread_constraints.iter_mut().for_each(|constraint| constraint.honor_node_taints = true)
    })
}

#[test]
fn cordoned_nodes_are_domains_and_tainted_ones_only_by_policy() {
    let cluster = |last: Node| {
        Cluster::new()
            .with(node("a").zone("a"))
            .with(node("b").zone("b"))
            .with(last)
            .pods([web("w1").on("a"), web("w2").on("b")])
    };
    let incoming = || web("w3").spread(1, ZONE, ("app", "web"));
    let cordoned = cluster(node("c").zone("c").unschedulable().into());
    let tainted = cluster(node("c").zone("c").taint("t:NoSchedule").into());
    for (name, pod, cluster, feasible) in [
        ("a cordoned zone keeps the minimum at zero", incoming(), &cordoned, &["c"][..]),
        ("even with Honor", honoring(incoming()), &cordoned, &["c"]),
        ("a tainted zone does so, too", incoming(), &tainted, &["c"]),
        ("but not with Honor", honoring(incoming()), &tainted, &["a", "b", "c"]),
    ] {
        let run = run_plugin(&plugin(), pod, cluster).expect(name);
        // The constraint alone decides here: cordons and taints are other plugins' business.
        let feasible_here: Vec<_> = run.feasible().into_iter().filter(|node| feasible.contains(node)).collect();
        assert!(!feasible_here.is_empty(), "{name}");
        let others: Vec<_> = run.feasible().into_iter().filter(|node| !feasible.contains(node)).collect();
        assert!(others.is_empty(), "{name}: {others:?}");
    }
}

#[test]
fn soft_counts_by_hostname_ignore_the_policies() {
    let cluster = Cluster::new()
        .with(node("a").zone("z"))
        .with(node("b").zone("z").taint("t:NoSchedule"))
        .pods([web("w1").on("b"), web("w2").on("b")]);
    let by_host =
        run_plugin(&plugin(), honoring(web("p").spread_softly(1, HOST, ("app", "web"))), &cluster).expect("runs");
    assert_eq!(by_host.scores(), [("a", 100), ("b", 0)], "pods on the tainted node count");
    let by_zone =
        run_plugin(&plugin(), honoring(web("p").spread_softly(1, ZONE, ("app", "web"))), &cluster).expect("runs");
    assert_eq!(by_zone.scores(), [("a", 100), ("b", 100)], "the tainted node adds nothing to its zone");
}

#[test]
fn preemption_sees_the_two_emptiest_domains_alone() {
    let mut cache = Cache::new();
    let victims: Vec<Arc<Pod>> = (0..3).map(|i| Arc::new(web(&format!("c{i}")).on("c").build())).collect();
    for zone in ["a", "b", "c"] {
        cache.set_node(Arc::new(node(zone).zone(zone).build()));
    }
    for (zone, count) in [("a", 1), ("b", 2)] {
        for i in 0..count {
            cache.set_pod(Arc::new(web(&format!("{zone}{i}")).on(zone).build()));
        }
    }
    victims.iter().for_each(|victim| cache.set_pod(Arc::clone(victim)));
    let plugin = PodTopologySpread::new(&args());
    let incoming = web("p").spread(1, ZONE, ("app", "web")).build();
    let objects = Objects::default();
    Plugin::require(&plugin, &incoming, &objects, &mut cache.indexes());
    let snapshot = cache.snapshot();
    let cycle = Cycle { pod: &incoming, snapshot, objects: &objects, now: Timestamp::ZERO, seed: 0 };
    let mut shared = scheduler_core::framework::CycleState::default();
    let Ok(PreFilterStatus::Success { mut state, .. }) = plugin.pre_filter(cycle, &mut shared) else {
        panic!("the pod has a constraint")
    };
    let view = |name: &str| snapshot.view(snapshot.find(name).expect("the node is there"));
    let fits = |state: &_, name| {
        plugin.filter(Some(state), cycle, view(name)).expect("the state is there") == FilterStatus::Success
    };
    assert_eq!(["a", "b", "c"].map(|name| fits(&state, name)), [true, false, false], "counts 1, 2, 3");
    for victim in &victims {
        plugin.remove_pod(&mut state, cycle, victim, view("c")).expect("a what-if run");
    }
    // c has gone from 3 to 0: it is found to be the emptiest, since its own count went below the two that are kept.
    assert_eq!(["a", "b", "c"].map(|name| fits(&state, name)), [false, false, true], "counts 1, 2, 0");
    for victim in &victims {
        plugin.add_pod(&mut state, cycle, victim, view("c")).expect("a what-if run");
    }
    // Back at 3, it stays one of the two that are kept: the minimum is that of a, and b, pushed out, is not missed.
    assert_eq!(["a", "b", "c"].map(|name| fits(&state, name)), [true, false, false], "counts 1, 2, 3 again");
}
