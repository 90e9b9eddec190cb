//! `status.nominatedNodeName` while a pod is on its way to its node.

use std::sync::Arc;
use std::time::Duration;

use scheduler_core::cache::NodeView;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::plugins::ExtensionPoint;
use scheduler_core::engine::Options;
use scheduler_core::framework::{
    Cycle, CycleState, EffectKind, Extensions, NominatedNode, PermitPlugin, PermitStatus, Plugin, Registry, Result,
    WaitingPods,
};
use scheduler_core::testing::{Cluster, node, pod};
use serde_json::json;

use super::host::{Host, claim, storage_class};

/// Makes pods with the label `wait` wait for half a minute.
pub(crate) struct Hold;

impl Plugin for Hold {}

impl PermitPlugin for Hold {
    fn permit(
        &self,
        cycle: Cycle<'_>,
        _: &mut CycleState,
        _: NodeView<'_>,
        _: &mut WaitingPods,
    ) -> Result<PermitStatus> {
        let waits = cycle.pod.labels.contains_key("wait");
        Ok(if waits { PermitStatus::Wait(Duration::from_secs(30)) } else { PermitStatus::Success })
    }
}

pub(crate) fn registry() -> Registry {
    let mut registry = scheduler_core::plugins::registry();
    registry
        .register("Hold", &[ExtensionPoint::Permit], |_| Ok(Extensions::new().permit(&Arc::new(Hold))))
        .expect("the name is free");
    registry
}

pub(crate) fn holding(cluster: &Cluster) -> Host {
    let config = KubeSchedulerConfiguration::from_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, \
         profiles: [{plugins: {multiPoint: {enabled: [{name: Hold}]}}}]}",
    );
    Host::with(&registry(), &config.expect("valid"), Options::default(), cluster)
}

#[test]
fn a_wait_in_permit_nominates_the_node_and_its_end_clears_it() {
    let mut host = holding(&Cluster::new().with(node("n").cpu("4")));
    host.apply(pod("quick").cpu("1"));
    host.apply(pod("slow").cpu("1").label("wait", ""));
    assert_eq!(host.run().len(), 2);
    assert_eq!(host.patches("quick"), [], "no work, no nomination");
    assert_eq!(host.patches("slow"), [(false, NominatedNode::Set("n".into()))]);
    // The API server's answer to the patch.
    host.apply(
        pod("slow").cpu("1").label("wait", "").nominated_to("n").change(|pod| pod.resource_version = "2".into()),
    );
    host.effects.clear();
    host.at(31);
    host.run();
    let patches = host.patches("slow");
    assert_eq!(patches.first(), Some(&(true, NominatedNode::Clear)), "the wait ran out");
}

#[test]
fn a_pod_that_waits_for_its_volume_is_nominated_and_has_no_condition() {
    let class = storage_class(&json!({"metadata": {"name": "late"}, "provisioner": "example.test/csi",
        "volumeBindingMode": "WaitForFirstConsumer"}));
    let claim = claim(&json!({"metadata": {"name": "c", "namespace": "default", "uid": "claim"},
        "spec": {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}}));
    let mut host = Host::new(&Cluster::new().with(node("n").cpu("4")).with(class).with(claim));
    host.apply(pod("p").cpu("1").claim("c"));
    host.run();
    assert_eq!(host.patches("p"), [(false, NominatedNode::Set("n".into()))]);
    assert!(host.effects.iter().any(|effect| matches!(&effect.kind, EffectKind::BindVolume { volume: None, .. })));
    assert!(
        !host.effects.iter().any(|effect| matches!(&effect.kind, EffectKind::Bind { .. })),
        "not bound before its volume"
    );
}
