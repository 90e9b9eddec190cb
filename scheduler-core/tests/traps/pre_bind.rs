//! PreBind plugins: which of them work at the same time.

use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::plugins::ExtensionPoint;
use scheduler_core::engine::Options;
use scheduler_core::framework::{
    Binding, ClusterView, EffectError, EffectId, EffectKind, Extensions, Plugin, PreBindPlugin, PreFlight, Registry,
    Result, Step,
};
use scheduler_core::model::Timestamp;
use scheduler_core::testing::{Cluster, node, pod};

use super::host::Host;

/// Asks for one effect, and is done when it is.
struct Preparing {
    name: &'static str,
    parallel: bool,
}

impl Plugin for Preparing {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl PreBindPlugin for Preparing {
    fn pre_flight(&self, binding: &Binding, _: ClusterView<'_>) -> Result<PreFlight> {
        let skips = binding.pod.labels.get("skips").is_some_and(|name| &**name == self.name);
        Ok(if skips { PreFlight::Skip } else { PreFlight::Work { parallel: self.parallel } })
    }

    fn pre_bind(&self, binding: &mut Binding, _: ClusterView<'_>) -> Result<Step> {
        match binding.results.first() {
            None => Ok(Step::Do(vec![EffectKind::Custom(Box::new(self.name))])),
            Some(Ok(())) => Ok(Step::Done),
            Some(Err(error)) => Err(scheduler_core::framework::PluginError::new(error.message.clone())),
        }
    }
}

fn host() -> Host {
    let mut registry: Registry = scheduler_core::plugins::registry();
    for (name, parallel) in [("A", true), ("B", true), ("C", false), ("D", true)] {
        registry
            .register(name, &[ExtensionPoint::PreBind], move |_| {
                Ok(Extensions::new().pre_bind(&Arc::new(Preparing { name, parallel })))
            })
            .expect("the name is free");
    }
    let config = KubeSchedulerConfiguration::from_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, \
         profiles: [{plugins: {preBind: {enabled: [{name: A}, {name: B}, {name: C}, {name: D}]}}}]}",
    );
    let cluster = Cluster::new().with(node("n").cpu("4"));
    Host::with(&registry, &config.expect("valid"), Options::default(), &cluster)
}

/// The plugins' effects that are out, and bindings.
fn out(host: &mut Host) -> Vec<(EffectId, String)> {
    host.effects.extend(host.scheduler.drain_effects());
    let effects = std::mem::take(&mut host.effects);
    let named = effects.into_iter().filter_map(|effect| match effect.kind {
        EffectKind::Custom(name) => {
            let name: Box<dyn std::any::Any> = name;
            Some((effect.id, name.downcast_ref::<&str>().expect("a plugin's name").to_string()))
        }
        EffectKind::Bind { .. } => Some((effect.id, "bind".to_owned())),
        _ => None,
    });
    named.collect()
}

fn names(out: &[(EffectId, String)]) -> Vec<&str> {
    out.iter().map(|(_, name)| &**name).collect()
}

#[test]
fn plugins_that_allow_it_work_at_the_same_time() {
    for finished_first in [0, 1] {
        let mut host = host();
        host.apply(pod("p").cpu("1"));
        host.run();
        let both = out(&mut host);
        assert_eq!(names(&both), ["A", "B"], "neighbours that allow it");
        host.scheduler.handle_result(both[finished_first].0, Ok(()), Timestamp::ZERO);
        assert_eq!(names(&out(&mut host)), [""; 0], "the other one is still at work");
        host.scheduler.handle_result(both[1 - finished_first].0, Ok(()), Timestamp::ZERO);
        for want in ["C", "D", "bind"] {
            let next = out(&mut host);
            assert_eq!(names(&next), [want]);
            host.scheduler.handle_result(next[0].0, Ok(()), Timestamp::ZERO);
        }
        assert_eq!(names(&out(&mut host)), [""; 0]);
    }
}

#[test]
fn a_plugin_without_work_does_not_part_its_neighbours() {
    let mut host = host();
    host.apply(pod("p").cpu("1").label("skips", "C"));
    host.run();
    assert_eq!(names(&out(&mut host)), ["A", "B", "D"]);
}

#[test]
fn one_that_fails_ends_the_binding_and_nobody_waits_for_the_others() {
    let mut host = host();
    host.apply(pod("p").cpu("1"));
    host.run();
    let both = out(&mut host);
    let error = EffectError { message: "no".to_owned(), not_found: false };
    host.scheduler.handle_result(both[0].0, Err(error), Timestamp::ZERO);
    host.scheduler.handle_result(both[1].0, Ok(()), Timestamp::ZERO);
    assert_eq!(names(&out(&mut host)), [""; 0], "neither C nor the binding");
    host.at(2);
    assert_eq!(host.n_attempts("p"), 1, "it is tried again after its back-off");
    assert_eq!(names(&out(&mut host)), ["A", "B"]);
}
