//! What becomes of victims, and what a nomination is worth.

use scheduler_core::framework::EffectKind;
use scheduler_core::queue::Place;
use scheduler_core::testing::{Cluster, node, pod, pool};
use serde_json::json;

use super::host::{Host, claim, volume};
use super::nomination::holding;

fn n_deletions(host: &Host) -> usize {
    host.effects.iter().filter(|effect| matches!(effect.kind, EffectKind::DeleteVictim { .. })).count()
}

#[test]
fn a_victim_is_told_who_preempted_it() {
    let mut host = Host::new(&Cluster::new().with(node("n").cpu("2")).with(pod("low").cpu("2").on("n")));
    host.apply(pod("high").cpu("2").priority(10).uid("uid-of-high"));
    host.run();
    assert_eq!(n_deletions(&host), 1);
    assert!(host.events().iter().all(|(reason, ..)| *reason != "Preempted"), "not before it is done");
    host.perform();
    let wanted = ("Preempted", "low".to_owned(), "Preempted by pod uid-of-high on node n".to_owned());
    assert!(host.events().contains(&wanted), "{:?}", host.events());
}

#[test]
fn a_victim_in_permit_gives_way_in_memory() {
    let mut host = holding(&Cluster::new().with(node("n").cpu("2")));
    host.apply(pod("low").cpu("2").label("wait", ""));
    host.run();
    host.effects.clear();
    host.apply(pod("high").cpu("2").priority(10));
    let attempts = host.run();
    assert_eq!(n_deletions(&host), 0);
    let wanted =
        ("Preempted", "low".to_owned(), "Preempted by pod high on node n (in kube-scheduler memory).".to_owned());
    assert!(host.events().contains(&wanted), "{:?}", host.events());
    // Its node was free at once: the preemptor is on it with its second try.
    let tried: Vec<_> = attempts.iter().map(|attempt| &*attempt.pod.name).collect();
    assert_eq!(tried[..2], ["high", "high"]);
    assert!(host.scheduler.cache().is_assumed("high"));
    assert!(
        host.scheduler.queue().place("low").is_some_and(|place| place != Place::InFlight),
        "low is tried again later"
    );
}

#[test]
fn a_nomination_does_not_hold_a_read_write_once_pod_claim() {
    let claim = claim(&json!({
        "metadata": {"name": "c", "namespace": "default", "uid": "claim", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}},
    }));
    let volume = volume(&json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "claimRef": {"name": "c", "namespace": "default", "uid": "claim"}}}));
    let cluster = Cluster::new().with(node("n").cpu("4")).with(claim).with(volume);
    // The victim is gone, the preemptor has not been tried again yet: anybody may take the claim.
    let cluster = cluster.with(pod("preemptor").cpu("1").claim("c").priority(10).nominated_to("n"));
    let mut host = Host::new(&cluster);
    host.apply(pod("other").cpu("1").claim("c"));
    let attempt = host.scheduler.schedule_pod("other", scheduler_core::model::Timestamp::ZERO, pool());
    let outcome = attempt.expect("it was tried").outcome;
    assert!(matches!(outcome, scheduler_core::engine::Outcome::Scheduled { .. }), "{outcome:?}");
}
