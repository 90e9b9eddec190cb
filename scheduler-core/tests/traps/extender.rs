//! The seam for extenders, with one in this process: between Filter and PreScore, after Score, in preemption, in binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Outcome};
use scheduler_core::framework::{EffectKind, Extender, ExtenderFilterResult, PluginError, Result};
use scheduler_core::model::Pod;
use scheduler_core::testing::{Cluster, node, pod};

use super::host::Host;

/// Knows by the names of nodes what it wants; cares for pods with the label `asks`.
#[derive(Default)]
struct ByName {
    fails: bool,
    ignorable: bool,
    binds: bool,
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
            result.nodes.retain(|name| !name.starts_with("never"));
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
        mut victims: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    ) -> Result<BTreeMap<Arc<str>, Vec<Arc<str>>>> {
        victims.retain(|node, _| !node.starts_with("spared"));
        self.answer(victims)
    }

    fn is_binder(&self) -> bool {
        self.binds
    }

    fn bind(&self, _: &Pod, _: &str) -> Result<()> {
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
fn an_extender_has_a_say_in_preemption() {
    let full = |name: &str| pod(&format!("on-{name}")).cpu("2").on(name);
    let cluster = |nodes: &[&str]| {
        Cluster::new().nodes(nodes.iter().map(|name| node(name).cpu("2"))).pods(nodes.iter().map(|name| full(name)))
    };
    let victims = |host: &Host| -> Vec<String> {
        let victim = |kind: &EffectKind| match kind {
            EffectKind::DeleteVictim { victim, .. } => Some(victim.name.to_string()),
            _ => None,
        };
        host.effects.iter().filter_map(|effect| victim(&effect.kind)).collect()
    };
    let mut narrowed = host(ByName::default(), &cluster(&["spared-1", "spared-2", "taken"]));
    outcome(&mut narrowed, asking("p").cpu("2").priority(10));
    assert_eq!(victims(&narrowed), ["on-taken"]);
    let mut refused = host(ByName::default(), &cluster(&["spared-1", "spared-2"]));
    let none = outcome(&mut refused, asking("p").cpu("2").priority(10));
    assert!(chosen(&none).ends_with("preemption: no candidate node for preemption"), "{none:?}");
    assert_eq!(victims(&refused), [""; 0]);
}

#[test]
fn an_extender_that_binds_does_so_instead_of_the_plugins() {
    let cluster = Cluster::new().with(node("n").cpu("4"));
    let n_binds =
        |host: &Host| host.effects.iter().filter(|effect| matches!(effect.kind, EffectKind::Bind { .. })).count();
    let mut binding = host(ByName { binds: true, ..ByName::default() }, &cluster);
    outcome(&mut binding, asking("p").cpu("1"));
    assert_eq!(n_binds(&binding), 0);
    assert!(binding.events().iter().any(|(reason, ..)| *reason == "Scheduled"));
    outcome(&mut binding, pod("q").cpu("1"));
    assert_eq!(n_binds(&binding), 1, "the plugins bind what it does not care for");
}
