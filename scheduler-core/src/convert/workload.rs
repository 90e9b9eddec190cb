//! Namespaces, services, controllers of pods, disruption budgets, device classes.

use std::sync::Arc;

use super::selector::label_selector;
use super::{labels, non_empty, text, wire};
use crate::model::{
    DeviceClass, Namespace, PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet,
};

impl From<wire::Namespace<'_>> for Namespace {
    fn from(namespace: wire::Namespace<'_>) -> Self {
        Self { name: text(namespace.metadata.name.as_ref()), labels: labels(namespace.metadata.labels.as_ref()) }
    }
}

impl From<wire::Service<'_>> for Service {
    fn from(service: wire::Service<'_>) -> Self {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Self {
            name: text(service.metadata.name.as_ref()),
            namespace: text(service.metadata.namespace.as_ref()),
            selector: selector.map(|selector| labels(Some(selector))),
        }
    }
}

impl From<wire::ReplicationController<'_>> for ReplicationController {
    fn from(controller: wire::ReplicationController<'_>) -> Self {
        Self {
            name: text(controller.metadata.name.as_ref()),
            namespace: text(controller.metadata.namespace.as_ref()),
            selector: labels(controller.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
        }
    }
}

impl From<wire::ReplicaSet<'_>> for ReplicaSet {
    fn from(set: wire::ReplicaSet<'_>) -> Self {
        Self {
            name: text(set.metadata.name.as_ref()),
            namespace: text(set.metadata.namespace.as_ref()),
            selector: label_selector(set.spec.as_ref().map(|spec| &spec.selector)),
        }
    }
}

impl From<wire::StatefulSet<'_>> for StatefulSet {
    fn from(set: wire::StatefulSet<'_>) -> Self {
        Self {
            name: text(set.metadata.name.as_ref()),
            namespace: text(set.metadata.namespace.as_ref()),
            selector: label_selector(set.spec.as_ref().map(|spec| &spec.selector)),
        }
    }
}

impl From<wire::PodDisruptionBudget<'_>> for PodDisruptionBudget {
    fn from(budget: wire::PodDisruptionBudget<'_>) -> Self {
        let status = budget.status.as_ref();
        Self {
            name: text(budget.metadata.name.as_ref()),
            namespace: text(budget.metadata.namespace.as_ref()),
            selector: label_selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
            disruptions_allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted_pods: status
                .and_then(|status| status.disrupted_pods.as_ref())
                .into_iter()
                .flat_map(|wire::Keys(names)| names)
                .map(Arc::from)
                .collect(),
        }
    }
}

impl From<wire::DeviceClass<'_>> for DeviceClass {
    fn from(class: wire::DeviceClass<'_>) -> Self {
        Self {
            name: text(class.metadata.name.as_ref()),
            extended_resource_name: non_empty(class.spec.extended_resource_name.as_ref()),
        }
    }
}
