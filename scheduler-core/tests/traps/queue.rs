//! When a pod is tried again, seen from outside.

use scheduler_core::engine::Outcome;
use scheduler_core::model::Node;
use scheduler_core::testing::{Cluster, node, pod};

use super::host::{Host, bound};

#[test]
fn an_unschedulable_pod_is_tried_with_every_helpful_change() {
    // The node is large enough for the pod, but somebody else is on it: each time the node grows, there is hope.
    let sized = |cpu: &str| Node::from(node("n").cpu(cpu));
    let mut host = Host::new(&Cluster::new().with(sized("3")).with(pod("tenant").cpu("1").on("n")));
    host.apply(pod("p").cpu("4"));
    assert_eq!(host.n_attempts("p"), 1);
    let mut n_attempts = 0;
    for second in 1..=60 {
        host.at(second);
        host.apply(sized(if second % 2 == 0 { "4" } else { "3" }));
        n_attempts += host.n_attempts("p");
    }
    assert_eq!(n_attempts, 30, "one for each growth, no back-off between them");
}

#[test]
fn without_nodes_a_pod_is_retried_with_back_off() {
    let mut host = Host::new(&Cluster::new());
    host.apply(pod("p").cpu("1"));
    let attempts = host.run();
    let [first] = &attempts[..] else { panic!("{attempts:?}") };
    let Outcome::Unschedulable { message, .. } = &first.outcome else { panic!("{first:?}") };
    assert_eq!(message, "no nodes available to schedule pods");
    let mut tried_at = Vec::new();
    for tenth in 1..=450 {
        host.at_millis(tenth * 100);
        if host.n_attempts("p") > 0 {
            tried_at.push(tenth.div_euclid(10));
        }
    }
    assert_eq!(tried_at, [2, 5, 10, 19, 30, 41], "1, 2, 4, 8, 10, 10 seconds, and to the end of the second");
    // A first node does not cut the wait short.
    host.at_millis(46_000);
    host.apply(node("n").cpu("4"));
    assert_eq!(host.n_attempts("p"), 0);
    host.at_millis(51_900);
    assert_eq!(host.n_attempts("p"), 0);
    host.at_millis(52_000);
    assert_eq!(host.n_attempts("p"), 1);
    assert!(host.scheduler.cache().is_assumed("p"));
}

#[test]
fn a_pod_with_affinity_waits_for_the_flush_when_its_last_peer_goes() {
    const HOST: &str = "kubernetes.io/hostname";
    // The peer sits where the pod cannot go; without it, the pod would be the first of its group and fit.
    let peer = pod("peer").label("app", "a").on("other").build();
    let cluster =
        Cluster::new().with(node("n").cpu("4")).with(node("other").cpu("4").taint("t:NoSchedule")).with(peer.clone());
    let mut host = Host::new(&cluster);
    host.apply(pod("p").label("app", "a").pod_affinity(HOST, ("app", "a")));
    assert_eq!(host.n_attempts("p"), 1);
    host.at(10);
    host.delete(peer);
    assert_eq!(host.n_attempts("p"), 0);
    let mut tried_at = None;
    for second in 11..=400 {
        host.at(second);
        if tried_at.is_none() && host.n_attempts("p") > 0 {
            tried_at = Some(second);
        }
    }
    assert!(tried_at.is_some_and(|second| (300..=331).contains(&second)), "{tried_at:?}");
    assert!(host.scheduler.cache().is_assumed("p"));
}

#[test]
fn a_pod_deleted_on_its_way_frees_its_node() {
    let mut host = Host::new(&Cluster::new().with(node("n").cpu("2")));
    let first = pod("first").cpu("2").build();
    host.apply(first.clone());
    host.apply(pod("second").cpu("2"));
    host.run();
    assert!(host.scheduler.cache().is_assumed("first"));
    host.delete(first);
    assert_eq!(host.n_attempts("second"), 1);
    assert!(host.scheduler.cache().is_assumed("second"));
}

#[test]
fn a_pod_created_anew_starts_from_nothing() {
    let mut host = Host::new(&Cluster::new().with(node("n").cpu("1")));
    let old = pod("p").uid("old").cpu("2").build();
    host.apply(old.clone());
    assert_eq!(host.n_attempts("p"), 1);
    host.delete(old.clone());
    host.apply(pod("p").uid("new").cpu("2"));
    let attempts = host.run();
    assert_eq!((attempts.len(), attempts[0].attempts), (1, 1), "its first attempt");
    // Late news of the old one change nothing.
    host.delete(bound(&old, "n"));
    assert_eq!(host.scheduler.queue().get("new").map(|entity| entity.attempts), Some(1));
}

#[test]
fn an_event_names_the_version_of_the_pod() {
    let mut host = Host::new(&Cluster::new().with(node("n").cpu("1")));
    host.apply(pod("p").cpu("2").change(|pod| pod.resource_version = "7".into()));
    host.run();
    host.apply(pod("p").cpu("2").change(|pod| pod.resource_version = "8".into()));
    host.apply(node("n").cpu("2").memory("1Gi"));
    host.apply(node("n").cpu("1"));
    host.run();
    let versions: Vec<String> = host
        .effects
        .iter()
        .filter_map(|effect| match &effect.kind {
            scheduler_core::framework::EffectKind::RecordEvent { regarding, .. } => {
                Some(regarding.resource_version.to_string())
            }
            _ => None,
        })
        .collect();
    assert_eq!(versions, ["7", "8"]);
}
