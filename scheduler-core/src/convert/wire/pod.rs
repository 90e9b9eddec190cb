//! Pods.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::api::core::v1 as api;

use super::{LabelSelector, Map, NodeSelector, NodeSelectorTerm, ObjectMeta, Text, Time, Volume, or_default, wire};

wire! {
    Pod = api::Pod => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<PodSpec<'a>>,
        status: Option<PodStatus<'a>>,
    }

    PodSpec = api::PodSpec => {
        scheduler_name: Option<Text<'a>>,
        node_name: Option<Text<'a>>,
        priority: Option<i32>,
        preemption_policy: Option<Text<'a>>,
        scheduling_gates: Option<Vec<PodSchedulingGate<'a>>>,
        node_selector: Option<Map<'a>>,
        affinity: Option<Affinity<'a>>,
        tolerations: Option<Vec<Toleration<'a>>>,
        topology_spread_constraints: Option<Vec<TopologySpreadConstraint<'a>>>,
        volumes: Option<Vec<Volume<'a>>>,
        containers: Option<Vec<Container<'a>>>,
        init_containers: Option<Vec<Container<'a>>>,
        resource_claims: Option<Vec<PodResourceClaim<'a>>>,
        resources: Option<ResourceRequirements<'a>>,
        overhead: Option<Map<'a>>,
        host_network: Option<bool>,
        host_users: Option<bool>,
    }

    PodSchedulingGate = api::PodSchedulingGate => { name: Text<'a> }

    PodResourceClaim = api::PodResourceClaim => { name: Text<'a> }

    Toleration = api::Toleration => {
        key: Option<Text<'a>>,
        operator: Option<Text<'a>>,
        value: Option<Text<'a>>,
        effect: Option<Text<'a>>,
    }

    TopologySpreadConstraint = api::TopologySpreadConstraint => {
        max_skew: Option<i32>,
        topology_key: Text<'a>,
        when_unsatisfiable: Text<'a>,
        label_selector: Option<LabelSelector<'a>>,
        match_label_keys: Option<Vec<Text<'a>>>,
        min_domains: Option<i32>,
        node_affinity_policy: Option<Text<'a>>,
        node_taints_policy: Option<Text<'a>>,
    }

    Container = api::Container => {
        name: Text<'a>,
        image: Option<Text<'a>>,
        resources: Option<ResourceRequirements<'a>>,
        restart_policy: Option<Text<'a>>,
        restart_policy_rules: Option<Vec<ContainerRestartRule<'a>>>,
        ports: Option<Vec<ContainerPort<'a>>>,
    }

    ContainerRestartRule = api::ContainerRestartRule => { action: Text<'a> }

    ContainerPort = api::ContainerPort => {
        #[serde(rename = "hostIP")]
        host_ip: Option<Text<'a>>,
        host_port: Option<i32>,
        protocol: Option<Text<'a>>,
    }

    ResourceRequirements = api::ResourceRequirements => { requests: Option<Map<'a>> }

    Affinity = api::Affinity => {
        node_affinity: Option<NodeAffinity<'a>>,
        pod_affinity: Option<PodAffinity<'a>>,
        pod_anti_affinity: Option<PodAffinity<'a>>,
    }

    NodeAffinity = api::NodeAffinity => {
        required_during_scheduling_ignored_during_execution: Option<NodeSelector<'a>>,
        preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredSchedulingTerm<'a>>>,
    }

    PreferredSchedulingTerm = api::PreferredSchedulingTerm => {
        weight: Option<i32>,
        #[serde(deserialize_with = "or_default")]
        preference: NodeSelectorTerm<'a>,
    }

    PodAffinity = api::PodAffinity | api::PodAntiAffinity => {
        required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm<'a>>>,
        preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm<'a>>>,
    }

    PodAffinityTerm = api::PodAffinityTerm => {
        label_selector: Option<LabelSelector<'a>>,
        namespaces: Option<Vec<Text<'a>>>,
        namespace_selector: Option<LabelSelector<'a>>,
        topology_key: Text<'a>,
    }

    WeightedPodAffinityTerm = api::WeightedPodAffinityTerm => {
        weight: Option<i32>,
        #[serde(deserialize_with = "or_default")]
        pod_affinity_term: PodAffinityTerm<'a>,
    }

    PodStatus = api::PodStatus => {
        phase: Option<Text<'a>>,
        nominated_node_name: Option<Text<'a>>,
        start_time: Option<Time>,
        conditions: Option<Vec<PodCondition<'a>>>,
        container_statuses: Option<Vec<ContainerStatus<'a>>>,
        init_container_statuses: Option<Vec<ContainerStatus<'a>>>,
        resources: Option<ResourceRequirements<'a>>,
        allocated_resources: Option<Map<'a>>,
    }

    PodCondition = api::PodCondition => {
        #[serde(rename = "type")]
        type_: Text<'a>,
        status: Text<'a>,
        reason: Option<Text<'a>>,
        message: Option<Text<'a>>,
        observed_generation: Option<i64>,
    }

    ContainerStatus = api::ContainerStatus => {
        name: Text<'a>,
        resources: Option<ResourceRequirements<'a>>,
        allocated_resources: Option<Map<'a>>,
    }
}
