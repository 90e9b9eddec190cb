//! The seam for extenders, with one in this process: between Filter and PreScore, after Score, in preemption, in binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Outcome};
use scheduler_core::framework::{
    EffectError, EffectKind, Extender, ExtenderFilterResult, MetaVictims, PluginError, Result, Victims,
};
use scheduler_core::model::{ObjectRef, Pod, Timestamp};
use scheduler_core::testing::{Cluster, node, pod};

use super::host::Host;

/// Knows by the names of nodes what it wants; cares for pods with the label `asks`.
#[derive(Default)]
struct ByName {
    fails: bool,
    ignorable: bool,
    binds: bool,
    /// Victims on the node `other`, instead of those that it is asked about.
    names_victims: Option<Vec<Arc<str>>>,
}

impl ByName {
    fn answer<T>(&self, answer: T) -> Result<T> {
        if self.fails { Err(PluginError::new("out of reach")) } else { Ok(answer) }
    }
}

impl Extender for ByName {
    fn name(&self) -> &str {
        "by-name"
    }

    fn is_ignorable(&self) -> bool {
        self.ignorable
    }

    fn is_interested(&self, pod: &Pod) -> bool {
        pod.labels.contains_key("asks")
    }

    fn is_filter(&self) -> bool {
        true
    }

    fn filter(&self, _: &Pod, nodes: &[Arc<str>]) -> Result<ExtenderFilterResult> {
        let refused = |prefix: &str, why: &str| {
            let named = nodes.iter().filter(|name| name.starts_with(prefix));
            named.map(|name| (Arc::clone(name), why.to_owned())).collect()
        };
        self.answer(ExtenderFilterResult {
            nodes: nodes.iter().filter(|name| !name.starts_with("no")).cloned().collect(),
            failed: refused("not-now", "come back later"),
            failed_and_unresolvable: refused("never", "not here"),
        })
        .map(|mut result| {
            result.nodes.retain(|name| !name.starts_with("never") && !name.starts_with("silent"));
            result
        })
    }

    fn weight(&self) -> i64 {
        10
    }

    fn prioritize(&self, _: &Pod, nodes: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>> {
        self.answer(nodes.iter().filter(|name| name.starts_with("best")).map(|name| (Arc::clone(name), 10)).collect())
    }

    fn supports_preemption(&self) -> bool {
        true
    }

    fn process_preemption(
        &self,
        _: &Pod,
        victims: &BTreeMap<Arc<str>, Victims>,
    ) -> Result<BTreeMap<Arc<str>, MetaVictims>> {
        if let Some(uids) = self.names_victims.clone() {
            return self.answer([("other".into(), MetaVictims { uids, n_pdb_violations: 0 })].into());
        }
        let left = victims.iter().filter(|(node, _)| !node.starts_with("spared"));
        self.answer(left.map(|(node, victims)| (Arc::clone(node), victims.into())).collect())
    }

    fn is_binder(&self) -> bool {
        self.binds
    }

    fn bind(&self, _: &ObjectRef, _: &str) -> Result<()> {
        self.answer(())
    }
}

fn host(extender: ByName, cluster: &Cluster) -> Host {
    let options = Options { extenders: vec![Arc::new(extender)], ..Options::default() };
    Host::with(&scheduler_core::plugins::registry(), &KubeSchedulerConfiguration::default(), options, cluster)
}

fn outcome(host: &mut Host, new: impl Into<Pod>) -> Outcome {
    host.apply(new.into());
    host.run().pop().expect("it was tried").outcome
}

fn chosen(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Scheduled { node, .. } => node,
        Outcome::Unschedulable { message, .. } | Outcome::Error { message } => message,
        Outcome::Skipped => "skipped",
    }
}

fn asking(name: &str) -> scheduler_core::testing::PodBuilder {
    pod(name).label("asks", "")
}

#[test]
fn an_extender_filters_and_scores_after_the_plugins() {
    let cluster =
        Cluster::new().nodes(["best", "plain", "not-now", "never"].map(|name| node(name).cpu("4").memory("4Gi")));
    let mut host = host(ByName::default(), &cluster);
    assert_eq!(chosen(&outcome(&mut host, asking("p").cpu("1"))), "best");
    // Full up, the weight of the extender no longer helps.
    host.apply(pod("tenant").cpu("3").on("best"));
    assert_eq!(chosen(&outcome(&mut host, asking("q").cpu("1"))), "plain");
}

#[test]
fn a_pod_that_an_extender_does_not_care_for_goes_anywhere() {
    let mut host = host(ByName { fails: true, ..ByName::default() }, &Cluster::new().with(node("never").cpu("4")));
    assert_eq!(chosen(&outcome(&mut host, pod("p").cpu("1"))), "never");
}

#[test]
fn what_extenders_say_against_nodes_is_told_and_counted() {
    let cluster = Cluster::new().nodes(["not-now-1", "not-now-2", "never"].map(|name| node(name).cpu("4")));
    let mut host = host(ByName::default(), &cluster);
    let outcome = outcome(&mut host, asking("p").cpu("1"));
    let message = chosen(&outcome);
    assert!(message.starts_with("0/3 nodes are available: 1 not here, 2 come back later."), "{message}");
    assert_eq!(host.scheduler.queue().get("p").expect("it waits").unschedulable_plugins, ["Extender"]);
}

#[test]
fn an_extender_that_fails_breaks_the_cycle_unless_it_may_be_ignored() {
    let cluster = Cluster::new().with(node("a").cpu("4")).with(node("b").cpu("4"));
    let mut strict = host(ByName { fails: true, ..ByName::default() }, &cluster);
    let failed = outcome(&mut strict, asking("p").cpu("1"));
    assert!(matches!(&failed, Outcome::Error { message } if message.contains("out of reach")), "{failed:?}");
    let mut lenient = host(ByName { fails: true, ignorable: true, ..ByName::default() }, &cluster);
    assert!(["a", "b"].contains(&chosen(&outcome(&mut lenient, asking("p").cpu("1")))));
}

#[test]
fn no_node_is_known_to_fit_when_an_extender_fails() {
    let cluster = Cluster::new().with(node("a").cpu("4")).with(node("never").cpu("4"));
    for (fails, ignorable, feasible, error) in [
        (false, false, &["a"][..], None),
        (true, true, &["a", "never"], None),
        (true, false, &[], Some("out of reach")),
    ] {
        let mut host = host(ByName { fails, ignorable, ..ByName::default() }, &cluster);
        let pod = asking("p").cpu("1").into();
        let (examination, ()) = host.scheduler.examine(&pod, Timestamp::ZERO, |_| ()).expect("a profile serves it");
        let names: Vec<&str> = examination.feasible.iter().map(|name| &**name).collect();
        assert_eq!((&names[..], examination.error.as_deref()), (feasible, error));
    }
}

#[test]
fn an_extender_has_a_say_in_preemption() {
    let full = |name: &str| pod(&format!("on-{name}")).cpu("2").on(name);
    let cluster = |nodes: &[&str]| {
        Cluster::new().nodes(nodes.iter().map(|name| node(name).cpu("2"))).pods(nodes.iter().map(|name| full(name)))
    };
    let mut narrowed = host(ByName::default(), &cluster(&["spared-1", "spared-2", "taken"]));
    outcome(&mut narrowed, asking("p").cpu("2").priority(10));
    assert_eq!(victims(&narrowed), ["on-taken"]);
    let mut refused = host(ByName::default(), &cluster(&["spared-1", "spared-2"]));
    let none = outcome(&mut refused, asking("p").cpu("2").priority(10));
    assert!(chosen(&none).ends_with("preemption: no candidate node for preemption"), "{none:?}");
    assert_eq!(victims(&refused), [""; 0]);
}

/// UIDs of the victims that are to go.
fn victims(host: &Host) -> Vec<String> {
    let victim = |kind: &EffectKind| match kind {
        EffectKind::DeleteVictim { victim, .. } => Some(victim.uid.to_string()),
        _ => None,
    };
    host.effects.iter().filter_map(|effect| victim(&effect.kind)).collect()
}

#[test]
fn an_extender_may_name_other_victims_but_only_pods_that_are_there() {
    let cluster = Cluster::new()
        .nodes(["taken", "other"].map(|name| node(name).cpu("2")))
        .with(pod("a").cpu("2").on("taken"))
        .with(pod("b").cpu("1").on("other"))
        .with(pod("c").cpu("1").on("other"));
    let uid = |name: &str| Arc::clone(&Pod::from(pod(name)).uid);
    let b = uid("b");
    let cases: [(&[Arc<str>], bool, Option<&str>); 4] = [
        (&[Arc::clone(&b)], false, None),
        (
            &[uid("a")],
            false,
            Some("claims to preempt pod (UID: &{a}) on node: other, but the pod is not found on that node"),
        ),
        (&[], false, Some("preemption: expected at least one victim pod on node \"other\"")),
        (&[], true, Some("preemption: no candidate node for preemption")),
    ];
    for (names, ignorable, want) in cases {
        let by_name = ByName { names_victims: Some(names.to_vec()), ignorable, ..ByName::default() };
        let mut host = host(by_name, &cluster);
        let outcome = outcome(&mut host, asking("p").cpu("2").priority(10));
        match want {
            None => assert_eq!(victims(&host), [&*b]),
            Some(want) => {
                let want = want.replace("&{a}", &format!("&{{{}}}", uid("a")));
                assert!(chosen(&outcome).contains(&want), "{outcome:?}");
                assert_eq!(victims(&host), [""; 0]);
            }
        }
    }
}

#[test]
fn a_node_of_which_an_extender_says_nothing_is_lost_without_a_reason_and_for_good() {
    let mut host = host(
        ByName::default(),
        &Cluster::new()
            .nodes(["silent-1", "silent-2", "not-now"].map(|name| node(name).cpu("2")))
            .with(pod("low").cpu("1").on("silent-1")),
    );
    let outcome = outcome(&mut host, asking("p").cpu("1").priority(10));
    let message = chosen(&outcome);
    assert!(message.starts_with("0/3 nodes are available: 1 come back later. "), "{message}");
    assert!(message.ends_with("2 Preemption is not helpful for scheduling."), "{message}");
    assert_eq!(victims(&host), [""; 0]);
    assert_eq!(host.scheduler.queue().get("p").expect("it waits").unschedulable_plugins, ["Extender"]);
}

#[test]
fn any_event_may_help_a_pod_that_extenders_rejected() {
    let mut host = host(ByName::default(), &Cluster::new().with(node("not-now").cpu("4")));
    host.apply(asking("p").cpu("1"));
    assert_eq!(host.n_attempts("p"), 1);
    host.at(60);
    assert_eq!(host.n_attempts("p"), 0, "nothing has happened");
    host.apply(node("not-now").cpu("4").label("a", "b"));
    host.at(120);
    assert_eq!(host.n_attempts("p"), 1, "a label is no matter of the plugins, as the pod selects no nodes");
}

#[test]
fn nodes_that_a_sample_left_out_have_no_verdict_when_an_extender_rejects_the_sample() {
    let cluster = Cluster::new().nodes((0..260).map(|at| node(&format!("not-now-{at:03}")).cpu("4")));
    let options = Options { extenders: vec![Arc::new(ByName::default())], ..Options::default() };
    let config = KubeSchedulerConfiguration { percentage_of_nodes_to_score: 50, ..Default::default() };
    let mut host = Host::with(&scheduler_core::plugins::registry(), &config, options, &cluster);
    let outcome = outcome(&mut host, asking("p").cpu("1"));
    let want = "0/260 nodes are available: 130 come back later.";
    assert!(chosen(&outcome).starts_with(want), "{outcome:?}");
}

#[test]
fn an_extender_that_fails_over_the_nominated_node_is_asked_about_all() {
    let cluster = Cluster::new().with(node("a").cpu("4"));
    let mut strict = host(ByName { fails: true, ..ByName::default() }, &cluster);
    let failed = outcome(&mut strict, asking("p").cpu("1").nominated_to("a"));
    assert!(matches!(&failed, Outcome::Error { message } if message == "out of reach"), "{failed:?}");
}

#[test]
fn resources_that_the_scheduler_ignores_for_an_extender_are_not_counted() {
    let config = |ignored: bool| {
        let text = format!(
            "{{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, extenders: [\
             {{urlPrefix: 'http://x', managedResources: [{{name: example.com/gpu, ignoredByScheduler: {ignored}}}]}}]}}"
        );
        KubeSchedulerConfiguration::from_text(&text).expect("valid")
    };
    let cluster = Cluster::new().with(node("n").cpu("4"));
    for (ignored, want) in [(true, "n"), (false, "0/1 nodes are available: 1 Insufficient example.com/gpu.")] {
        let registry = scheduler_core::plugins::registry();
        let mut host = Host::with(&registry, &config(ignored), Options::default(), &cluster);
        let outcome = outcome(&mut host, pod("p").cpu("1").request("example.com/gpu", "2"));
        assert!(chosen(&outcome).starts_with(want), "{outcome:?}");
    }
}

/// Effects that bind: those of the plugins, and those of extenders.
fn n_binds(host: &Host) -> (usize, usize) {
    let count = |is: fn(&EffectKind) -> bool| host.effects.iter().filter(|effect| is(&effect.kind)).count();
    (
        count(|kind| matches!(kind, EffectKind::Bind { .. })),
        count(|kind| matches!(kind, EffectKind::BindByExtender { extender: 0, .. })),
    )
}

#[test]
fn an_extender_that_binds_does_so_instead_of_the_plugins() {
    let mut host = host(ByName { binds: true, ..ByName::default() }, &Cluster::new().with(node("n").cpu("4")));
    outcome(&mut host, asking("p").cpu("1"));
    assert_eq!(n_binds(&host), (0, 1));
    host.perform();
    assert!(host.events().iter().any(|(reason, ..)| *reason == "Scheduled"));
    outcome(&mut host, pod("q").cpu("1"));
    assert_eq!(n_binds(&host), (1, 0), "the plugins bind what it does not care for");
}

#[test]
fn a_binding_that_an_extender_fails_is_an_error_or_left_to_the_plugins() {
    for ignorable in [false, true] {
        let by_name = ByName { binds: true, ignorable, ..ByName::default() };
        let mut host = host(by_name, &Cluster::new().with(node("n").cpu("4")));
        outcome(&mut host, asking("p").cpu("1"));
        let is_asked = |kind: &EffectKind| matches!(kind, EffectKind::BindByExtender { .. });
        let asked = host.effects.iter().find(|effect| is_asked(&effect.kind)).expect("it is asked").id;
        host.effects.clear();
        host.report(asked, Err(EffectError { message: "no room".to_owned(), not_found: false }));
        let failed = host.events().into_iter().find(|(reason, ..)| *reason == "FailedScheduling");
        if ignorable {
            assert_eq!((n_binds(&host), failed), ((1, 0), None));
        } else {
            assert_eq!((n_binds(&host), failed.expect("it is told").2.as_str()), ((0, 0), "no room"));
        }
    }
}
