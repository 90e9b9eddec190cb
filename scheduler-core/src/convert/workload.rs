//! Namespaces, services, controllers of pods, disruption budgets, device classes.

use k8s_openapi::api::{apps::v1 as apps, core::v1 as api, policy::v1 as policy, resource::v1 as resource};

use super::selector::label_selector;
use super::{labels, non_empty, text};
use crate::model::{
    DeviceClass, Namespace, PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet,
};

impl From<&api::Namespace> for Namespace {
    fn from(namespace: &api::Namespace) -> Self {
        Self { name: text(namespace.metadata.name.as_ref()), labels: labels(namespace.metadata.labels.as_ref()) }
    }
}

impl From<&api::Service> for Service {
    fn from(service: &api::Service) -> Self {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Self {
            name: text(service.metadata.name.as_ref()),
            namespace: text(service.metadata.namespace.as_ref()),
            selector: selector.map(|selector| labels(Some(selector))),
        }
    }
}

impl From<&api::ReplicationController> for ReplicationController {
    fn from(controller: &api::ReplicationController) -> Self {
        Self {
            name: text(controller.metadata.name.as_ref()),
            namespace: text(controller.metadata.namespace.as_ref()),
            selector: labels(controller.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
        }
    }
}

impl From<&apps::ReplicaSet> for ReplicaSet {
    fn from(set: &apps::ReplicaSet) -> Self {
        Self {
            name: text(set.metadata.name.as_ref()),
            namespace: text(set.metadata.namespace.as_ref()),
            selector: label_selector(set.spec.as_ref().map(|spec| &spec.selector)),
        }
    }
}

impl From<&apps::StatefulSet> for StatefulSet {
    fn from(set: &apps::StatefulSet) -> Self {
        Self {
            name: text(set.metadata.name.as_ref()),
            namespace: text(set.metadata.namespace.as_ref()),
            selector: label_selector(set.spec.as_ref().map(|spec| &spec.selector)),
        }
    }
}

impl From<&policy::PodDisruptionBudget> for PodDisruptionBudget {
    fn from(budget: &policy::PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        Self {
            name: text(budget.metadata.name.as_ref()),
            namespace: text(budget.metadata.namespace.as_ref()),
            selector: label_selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
            disruptions_allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted_pods: status
                .and_then(|status| status.disrupted_pods.as_ref())
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str().into())
                .collect(),
        }
    }
}

impl From<&resource::DeviceClass> for DeviceClass {
    fn from(class: &resource::DeviceClass) -> Self {
        Self {
            name: text(class.metadata.name.as_ref()),
            extended_resource_name: non_empty(class.spec.extended_resource_name.as_ref()),
        }
    }
}
