//! What pods a pod belongs to, for plugins that spread pods which name no selector of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Objects;
use crate::model::{Labels, Operator, Pod, Requirement, Selector};

/// What the pod's services and its controller select. Upstream: helper `DefaultSelector` (v1.36.2).
pub(super) fn default_selector(pod: &Pod, objects: &Objects) -> Selector {
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut merge = |more: &Labels| labels.extend(more.iter().map(|(k, v)| (Arc::clone(k), Arc::clone(v))));
    let selects = |selector: &Labels| selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
    for service in objects.services_in(&pod.namespace) {
        if let Some(selector) = service.selector.as_ref().filter(|selector| selects(selector)) {
            merge(selector);
        }
    }
    let mut more: Vec<Requirement> = Vec::new();
    if let Some(owner) = &pod.controller {
        match (&*owner.api_version, &*owner.kind) {
            ("v1", "ReplicationController") => {
                if let Some(controller) = objects.replication_controller(&pod.namespace, &owner.name) {
                    merge(&controller.selector);
                }
            }
            ("apps/v1", "ReplicaSet") => {
                if let Some(set) = objects.replica_set(&pod.namespace, &owner.name) {
                    more.extend_from_slice(set.selector.requirements());
                }
            }
            ("apps/v1", "StatefulSet") => {
                if let Some(set) = objects.stateful_set(&pod.namespace, &owner.name) {
                    more.extend_from_slice(set.selector.requirements());
                }
            }
            _ => {}
        }
    }
    let by_label =
        labels.into_iter().map(|(key, value)| Requirement { key, operator: Operator::In, values: [value].into() });
    let mut requirements: Vec<Requirement> = by_label.chain(more).collect();
    requirements.sort();
    requirements.dedup();
    Selector::All(requirements.into())
}
