//! Pods.

use std::sync::Arc;

use super::affinity::{affinity, spread_constraint};
use super::node::taint_effect;
use super::pod_resources::pod_resources;
use super::volume::pod_volume;
use super::{ConvertError, labels, non_empty, shared, text, time, wire};
use crate::model::{
    Container, HostPort, OwnerReference, Pod, PodPhase, PodTemplate, PreemptionPolicy, ScheduledCondition, TaintEffect,
    Toleration, TolerationOperator, shared_text,
};

impl TryFrom<wire::Pod<'_>> for Pod {
    type Error = ConvertError;

    fn try_from(pod: wire::Pod<'_>) -> Result<Self, ConvertError> {
        let meta = &pod.metadata;
        let default_spec = wire::PodSpec::default();
        let default_status = wire::PodStatus::default();
        let spec = pod.spec.as_ref().unwrap_or(&default_spec);
        let status = pod.status.as_ref().unwrap_or(&default_status);
        let namespace = meta.namespace.as_ref().map(shared).unwrap_or_default();
        let pod_labels = labels(meta.labels.as_ref());
        let template = PodTemplate {
            controller: controller(meta),
            scheduler_name: match spec.scheduler_name.as_deref() {
                None | Some("") => shared_text("default-scheduler"),
                Some(name) => shared_text(name),
            },
            priority: spec.priority.unwrap_or(0),
            preemption_policy: match spec.preemption_policy.as_deref() {
                Some("Never") => PreemptionPolicy::Never,
                _ => PreemptionPolicy::PreemptLowerPriority,
            },
            scheduling_gates: spec.scheduling_gates.iter().flatten().map(|gate| (&gate.name).into()).collect(),
            node_selector: labels(spec.node_selector.as_ref()),
            affinity: spec.affinity.as_ref().map(|pod_affinity| Box::new(affinity(pod_affinity, &namespace))),
            tolerations: spec.tolerations.iter().flatten().filter_map(toleration).collect(),
            topology_spread_constraints: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| spread_constraint(constraint, &pod_labels))
                .collect(),
            volumes: spec.volumes.iter().flatten().map(pod_volume).collect(),
            containers: containers(spec),
            host_ports: host_ports(spec),
            resource_claims: spec.resource_claims.iter().flatten().map(|claim| (&claim.name).into()).collect(),
            required_node_features: required_node_features(spec),
            resources: pod_resources(spec, status).map_err(|error| error.on("Pod", meta))?,
            labels: pod_labels,
            namespace,
        };
        let mut result = with_template(meta, non_empty(spec.node_name.as_ref()), status, template.into());
        result.name = text(meta.name.as_ref());
        result.uid = text(meta.uid.as_ref());
        result.resource_version = text(meta.resource_version.as_ref());
        Ok(result)
    }
}

/// A pod of this template, without what it is known by.
pub(super) fn with_template(
    meta: &wire::ObjectMeta<'_>,
    node_name: Option<Arc<str>>,
    status: &wire::PodStatus<'_>,
    template: Arc<PodTemplate>,
) -> Pod {
    let conditions = || status.conditions.iter().flatten();
    Pod {
        generation: meta.generation.unwrap_or(0),
        creation_timestamp: time(meta.creation_timestamp.as_ref()),
        deletion_timestamp: time(meta.deletion_timestamp.as_ref()),
        node_name,
        nominated_node_name: non_empty(status.nominated_node_name.as_ref()),
        phase: match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        start_time: time(status.start_time.as_ref()),
        scheduled_condition: conditions().find(|condition| &*condition.type_ == "PodScheduled").map(|condition| {
            Box::new(ScheduledCondition {
                status: &*condition.status == "True",
                reason: condition.reason.as_deref().unwrap_or_default().into(),
                message: condition.message.as_deref().unwrap_or_default().into(),
                observed_generation: condition.observed_generation,
            })
        }),
        preempted_by_scheduler: conditions().any(|condition| {
            &*condition.type_ == "DisruptionTarget"
                && &*condition.status == "True"
                && condition.reason.as_deref() == Some("PreemptionByScheduler")
        }),
        template,
        ..Pod::default()
    }
}

fn controller(meta: &wire::ObjectMeta<'_>) -> Option<Arc<OwnerReference>> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some(Arc::new(OwnerReference {
        api_version: (&owner.api_version).into(),
        kind: (&owner.kind).into(),
        name: (&owner.name).into(),
        uid: (&owner.uid).into(),
    }))
}

/// `None` for an effect that does not exist: such a toleration tolerates nothing.
fn toleration(toleration: &wire::Toleration<'_>) -> Option<Toleration> {
    let effect: Option<TaintEffect> = match toleration.effect.as_deref() {
        None | Some("") => None,
        Some(effect) => Some(taint_effect(effect)?),
    };
    Some(Toleration {
        key: toleration.key.as_ref().map(shared).unwrap_or_default(),
        operator: match toleration.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some(_) => TolerationOperator::Unknown,
        },
        value: toleration.value.as_ref().map(shared).unwrap_or_default(),
        effect,
    })
}

fn containers(spec: &wire::PodSpec<'_>) -> Box<[Container]> {
    let container = |container: &wire::Container<'_>, init| Container {
        name: shared(&container.name),
        image: container.image.as_ref().map(shared).unwrap_or_default(),
        init,
    };
    spec.containers
        .iter()
        .flatten()
        .map(|c| container(c, false))
        .chain(spec.init_containers.iter().flatten().map(|c| container(c, true)))
        .collect()
}

/// Host ports of containers and sidecars; plain init containers are done before the pod serves.
/// Upstream: scheduler/util `GetHostPorts` (v1.36.2).
fn host_ports(spec: &wire::PodSpec<'_>) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .flatten()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                ip: non_empty(port.host_ip.as_ref()).unwrap_or_else(|| shared_text("0.0.0.0")),
                protocol: non_empty(port.protocol.as_ref()).unwrap_or_else(|| shared_text("TCP")),
                port: u16::try_from(port.host_port?).ok().filter(|port| *port != 0)?,
            })
        })
        .collect()
}

/// Upstream: component-helpers/nodedeclaredfeatures features (v1.36.2).
fn required_node_features(spec: &wire::PodSpec<'_>) -> Box<[&'static str]> {
    let mut features = Vec::new();
    let restarts_all = spec
        .containers
        .iter()
        .flatten()
        .chain(spec.init_containers.iter().flatten())
        .flat_map(|container| container.restart_policy_rules.iter().flatten())
        .any(|rule| &*rule.action == "RestartAllContainers");
    if restarts_all {
        features.push("RestartAllContainersOnContainerExits");
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        features.push("UserNamespacesHostNetworkSupport");
    }
    features.into()
}
