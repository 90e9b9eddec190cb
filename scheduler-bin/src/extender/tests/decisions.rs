//! Whole decisions with extenders that are called over HTTP. The table has the cases of upstream's
//! TestSchedulerWithExtenders (v1.36.2 extender_test.go) as far as they are about extenders, not about its fakes.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Outcome, Scheduler};
use scheduler_core::framework::EffectKind;
use scheduler_core::model::{Object, Pod, Timestamp};
use scheduler_core::testing::{Cluster, node, pod, pool};
use serde_json::{Value, json};

use super::server::Server;
use super::{Extenders, Wanted, WholeObjects, json_answer};

fn configuration(extenders: &[Value]) -> KubeSchedulerConfiguration {
    KubeSchedulerConfiguration::from_value(&json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100, "extenders": extenders,
    }))
    .expect("the configuration is valid")
}

/// Outcomes for the pods, one after the other, as text; and who was to be evicted.
fn decide(configuration: &KubeSchedulerConfiguration, cluster: &Cluster, pods: &[Pod]) -> (Vec<String>, Vec<String>) {
    let objects = Arc::new(WholeObjects::new(Wanted::ALL));
    let extenders = Extenders::of_simulation(configuration, &objects).expect("they are built").seam();
    let options = Options { seed: 5, extenders, ..Options::default() };
    let mut scheduler = Scheduler::new(configuration, &scheduler_core::plugins::registry(), options).expect("valid");
    cluster.apply_to(&mut scheduler);
    let snapshot = scheduler.cache().snapshot();
    snapshot.iter().for_each(|node| objects.describe_if_unknown(snapshot.node(node)));
    let (mut outcomes, mut victims) = (Vec::new(), Vec::new());
    for pod in pods {
        let applied = scheduler_core::engine::Change::Applied(Object::Pod(Arc::new(pod.clone())));
        scheduler.handle(applied, Timestamp::ZERO);
        let attempt = scheduler.schedule_pod(&pod.uid, Timestamp::ZERO, pool()).expect("it is tried");
        outcomes.push(match attempt.outcome {
            Outcome::Scheduled { node, .. } => node.to_string(),
            Outcome::Unschedulable { message, .. } | Outcome::Error { message } => message,
            Outcome::Skipped => "skipped".to_owned(),
        });
        for effect in scheduler.drain_effects() {
            if let EffectKind::DeleteVictim { victim, .. } = effect.kind {
                victims.push(victim.name.to_string());
            }
        }
    }
    (outcomes, victims)
}

/// Answers filter calls with the nodes that `keeps` says, and prioritize calls with 10 for the node `best`.
fn server(keeps: Option<fn(&str) -> bool>, best: Option<&'static str>) -> Server {
    Server::start(move |verb, sent| {
        let names: Vec<&str> = sent["NodeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match (verb, keeps, best) {
            ("filter", Some(keeps), _) => {
                let kept: Vec<&str> = names.into_iter().filter(|name| keeps(name)).collect();
                json_answer(&json!({ "NodeNames": kept }))
            }
            ("prioritize", _, Some(best)) => {
                let score = |name| json!({ "Host": name, "Score": if name == best { 10 } else { 1 } });
                json_answer(&names.into_iter().map(score).collect())
            }
            _ => (500, Vec::new()),
        }
    })
}

#[test]
fn decisions_with_extenders() {
    type Keeps = fn(&str) -> bool;
    let (all, none): (Keeps, Keeps) = (|_| true, |_| false);
    let (first, second): (Keeps, Keeps) = (|name| name == "node1", |name| name == "node2");
    let filters =
        |server: &Server| json!({ "urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": true });
    let both = |server: &Server, weight: i64| {
        let mut extender = filters(server);
        extender["prioritizeVerb"] = json!("prioritize");
        extender["weight"] = json!(weight);
        extender
    };
    let broken = || server(None, None);
    let ignorable = |server: &Server| {
        let mut extender = filters(server);
        extender["ignorable"] = json!(true);
        extender
    };
    let others = |server: &Server| {
        let mut extender = both(server, 10);
        extender["managedResources"] = json!([{ "name": "example.com/gpu" }]);
        extender
    };
    let nothing = "0/2 nodes are available: ";
    type Build<'a> = Box<dyn Fn(&[Server]) -> Vec<Value> + 'a>;
    let cases: Vec<(&str, Vec<Server>, Build<'_>, &str)> = vec![
        (
            "one fails",
            vec![server(Some(all), None), broken()],
            Box::new(|of| vec![filters(&of[0]), filters(&of[1])]),
            "failed filter with extender at URL ",
        ),
        (
            "one lets nothing through",
            vec![server(Some(all), None), server(Some(none), None)],
            Box::new(|of| vec![filters(&of[0]), filters(&of[1])]),
            nothing.trim_end(),
        ),
        (
            "the second takes what the first left",
            vec![server(Some(all), None), server(Some(first), None)],
            Box::new(|of| vec![filters(&of[0]), filters(&of[1])]),
            "node1",
        ),
        (
            "they leave nothing in common",
            vec![server(Some(second), None), server(Some(first), None)],
            Box::new(|of| vec![filters(&of[0]), filters(&of[1])]),
            nothing.trim_end(),
        ),
        (
            "the weights decide",
            vec![server(Some(all), Some("node1")), server(Some(all), Some("node2"))],
            Box::new(|of| vec![both(&of[0], 1), both(&of[1], 5)]),
            "node2",
        ),
        (
            "an extender outweighs the plugins",
            vec![server(Some(all), Some("node1"))],
            Box::new(|of| vec![both(&of[0], 10)]),
            "node1",
        ),
        (
            "scores that do not come are left out",
            vec![server(Some(all), None), server(Some(all), Some("node1"))],
            Box::new(|of| vec![both(&of[0], 100), both(&of[1], 10)]),
            "node1",
        ),
        ("one is not interested in the pod", vec![broken()], Box::new(|of| vec![others(&of[0])]), "node2"),
        (
            "one that fails may be ignored",
            vec![broken(), server(Some(first), None)],
            Box::new(|of| vec![ignorable(&of[0]), filters(&of[1])]),
            "node1",
        ),
    ];
    // The plugins prefer node2, the emptier one.
    let cluster = Cluster::new()
        .nodes(["node1", "node2"].map(|name| node(name).cpu("4").memory("4Gi")))
        .with(pod("there").cpu("2").on("node1"));
    for (name, servers, build, want) in cases {
        let (outcomes, _) = decide(&configuration(&build(&servers)), &cluster, &[pod("p").cpu("1").into()]);
        assert!(outcomes[0].starts_with(want), "{name}: {outcomes:?}, want {want}");
    }
}

#[test]
fn an_extender_names_the_victims() {
    let server = Server::start(|_, sent| {
        let asked = sent["NodeNameToMetaVictims"].as_object().expect("the victims are named");
        assert_eq!(asked.len(), 2);
        json_answer(&json!({ "NodeNameToMetaVictims": { "node2": asked["node2"] } }))
    });
    let extender = json!({ "urlPrefix": server.url, "preemptVerb": "preempt", "nodeCacheCapable": true });
    // Without a word from outside node1's pod would go: it is less important.
    let cluster = Cluster::new()
        .nodes(["node1", "node2"].map(|name| node(name).cpu("2")))
        .with(pod("less").cpu("2").priority(1).on("node1"))
        .with(pod("more").cpu("2").priority(2).on("node2"));
    let preemptor = [pod("p").cpu("2").priority(10).into()];
    assert_eq!(decide(&configuration(&[]), &cluster, &preemptor).1, ["less"]);
    assert_eq!(decide(&configuration(&[extender]), &cluster, &preemptor).1, ["more"]);
}

#[test]
fn scores_of_several_extenders_are_asked_for_at_the_same_time() {
    // Each answers when both have been asked.
    let asked = Arc::new((Mutex::new(0), Condvar::new()));
    let waits = || {
        let asked = Arc::clone(&asked);
        Server::start(move |_, _| {
            let (n_asked, changed) = &*asked;
            let mut n_asked = n_asked.lock().expect("no panic");
            *n_asked += 1;
            changed.notify_all();
            let waited = changed.wait_timeout_while(n_asked, Duration::from_secs(60), |n_asked| *n_asked < 2);
            assert!(!waited.expect("no panic").1.timed_out(), "the other was never asked");
            json_answer(&json!([{ "Host": "node1", "Score": 10 }]))
        })
    };
    let servers = [waits(), waits()];
    let extender = |server: &Server| json!({ "urlPrefix": server.url, "prioritizeVerb": "prioritize", "weight": 50, "httpTimeout": "2m" });
    let cluster = Cluster::new().nodes(["node1", "node2"].map(|name| node(name).cpu("4")));
    let configuration = configuration(&[extender(&servers[0]), extender(&servers[1])]);
    assert_eq!(decide(&configuration, &cluster, &[pod("p").into()]).0, ["node1"]);
}

/// Answers as it was asked: all nodes, no scores, the victims that preemption proposes.
fn lets_everything_through() -> Server {
    Server::start(|verb, sent| match verb {
        "filter" => json_answer(&json!({ "Nodes": sent["Nodes"], "NodeNames": sent["NodeNames"] })),
        "prioritize" => json_answer(&json!([])),
        _ => {
            let meta = |victims: &Value| {
                let pods = victims["Pods"].as_array().into_iter().flatten();
                let uid =
                    |pod: &Value| if pod["UID"].is_null() { &pod["metadata"]["uid"] } else { &pod["UID"] }.clone();
                let uids: Vec<Value> = pods.map(|pod| json!({ "UID": uid(pod) })).collect();
                json!({ "Pods": uids, "NumPDBViolations": victims["NumPDBViolations"] })
            };
            let asked = [&sent["NodeNameToVictims"], &sent["NodeNameToMetaVictims"]];
            let asked = asked.into_iter().find_map(Value::as_object).expect("one of them is sent");
            let by_node: serde_json::Map<String, Value> =
                asked.iter().map(|(node, victims)| (node.clone(), meta(victims))).collect();
            json_answer(&json!({ "NodeNameToMetaVictims": by_node }))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_extender_that_lets_everything_through_changes_no_decision(
        nodes in proptest::collection::vec((1_u32..6, 0_u32..3), 1..6),
        pods in proptest::collection::vec((1_u32..4, 0_i32..3), 1..8),
        names_only in any::<bool>(),
    ) {
        let mut cluster = Cluster::new();
        for (at, (cpu, n_pods)) in nodes.iter().enumerate() {
            let name = format!("n{at}");
            cluster = cluster.with(node(&name).cpu(&cpu.to_string()).memory("8Gi"));
            for index in 0..(*n_pods).min(*cpu) {
                cluster = cluster.with(pod(&format!("on-{at}-{index}")).cpu("1").on(&name));
            }
        }
        let pods: Vec<Pod> = pods
            .iter()
            .enumerate()
            .map(|(at, (cpu, priority))| pod(&format!("p{at}")).cpu(&cpu.to_string()).priority(*priority).into())
            .collect();
        let server = lets_everything_through();
        let extender = json!({
            "urlPrefix": server.url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1,
            "preemptVerb": "preempt", "nodeCacheCapable": names_only,
        });
        let with = decide(&configuration(&[extender]), &cluster, &pods);
        prop_assert_eq!(with, decide(&configuration(&[]), &cluster, &pods));
        prop_assert!(server.last("filter").is_some() || cluster_is_full(&nodes));
    }
}

/// Whether no pod fits anywhere, so that no extender is asked to filter.
fn cluster_is_full(nodes: &[(u32, u32)]) -> bool {
    nodes.iter().all(|(cpu, n_pods)| n_pods >= cpu) || nodes.iter().all(|(cpu, n_pods)| cpu.saturating_sub(*n_pods) < 4)
}
