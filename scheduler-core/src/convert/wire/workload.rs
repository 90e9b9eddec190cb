//! Namespaces, services, controllers of pods, disruption budgets, device classes.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::api::{apps::v1 as apps, core::v1 as api, policy::v1 as policy, resource::v1 as resource};

use super::{Keys, LabelSelector, Map, ObjectMeta, Text, or_default, wire};

wire! {
    Namespace = api::Namespace => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
    }

    Service = api::Service => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<ServiceSpec<'a>>,
    }

    ServiceSpec = api::ServiceSpec | api::ReplicationControllerSpec => { selector: Option<Map<'a>> }

    ReplicationController = api::ReplicationController => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<ServiceSpec<'a>>,
    }

    ReplicaSet = apps::ReplicaSet => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<SetSpec<'a>>,
    }

    StatefulSet = apps::StatefulSet => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<SetSpec<'a>>,
    }

    SetSpec = apps::ReplicaSetSpec | apps::StatefulSetSpec => {
        #[serde(deserialize_with = "or_default")]
        selector: LabelSelector<'a>,
    }

    PodDisruptionBudget = policy::PodDisruptionBudget => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<PodDisruptionBudgetSpec<'a>>,
        status: Option<PodDisruptionBudgetStatus<'a>>,
    }

    PodDisruptionBudgetSpec = policy::PodDisruptionBudgetSpec => { selector: Option<LabelSelector<'a>> }

    PodDisruptionBudgetStatus = policy::PodDisruptionBudgetStatus => {
        disruptions_allowed: Option<i32>,
        disrupted_pods: Option<Keys<'a>>,
    }

    DeviceClass = resource::DeviceClass => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        #[serde(deserialize_with = "or_default")]
        spec: DeviceClassSpec<'a>,
    }

    DeviceClassSpec = resource::DeviceClassSpec => { extended_resource_name: Option<Text<'a>> }
}
