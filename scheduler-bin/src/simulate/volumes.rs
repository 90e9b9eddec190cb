//! The volume controller on virtual time: what the scheduler asks for is bound at once. Also looks objects up by name.

use std::sync::Arc;

use scheduler_core::cache::Objects;
use scheduler_core::engine::Scheduler;
use scheduler_core::model::{
    ANNOTATION_BIND_COMPLETED, NodeSelector, NodeSelectorTerm, Object, ObjectRef, Operator, PersistentVolume,
    PersistentVolumeClaim, Requirement, VolumeSource,
};

use super::script::Name;

/// The claim bound to `volume`, or to one that is provisioned on `node`; nothing if the claim is not there.
pub(crate) fn bind(scheduler: &Scheduler, claim: &ObjectRef, volume: Option<&ObjectRef>, node: &str) -> Vec<Object> {
    let objects = scheduler.objects();
    let Some(claim) = objects.claim(&claim.namespace, &claim.name) else { return Vec::new() };
    let volume = match volume {
        Some(volume) => match objects.persistent_volume(&volume.name) {
            Some(volume) => PersistentVolume::clone(volume),
            None => return Vec::new(),
        },
        None => provisioned(claim, node),
    };
    let reference = ObjectRef {
        namespace: Arc::clone(&claim.namespace),
        name: Arc::clone(&claim.name),
        uid: Arc::clone(&claim.uid),
        resource_version: Arc::default(),
    };
    let mut annotations: Vec<(Arc<str>, Arc<str>)> =
        claim.annotations.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect();
    annotations.push((ANNOTATION_BIND_COMPLETED.into(), "yes".into()));
    let bound = PersistentVolumeClaim {
        volume_name: Arc::clone(&volume.name),
        phase: "Bound".into(),
        annotations: annotations.into_iter().collect(),
        ..PersistentVolumeClaim::clone(claim)
    };
    let volume = PersistentVolume { claim_ref: Some(reference), phase: "Bound".into(), ..volume };
    vec![volume.into(), bound.into()]
}

fn provisioned(claim: &PersistentVolumeClaim, node: &str) -> PersistentVolume {
    let hostname = Requirement { key: "metadata.name".into(), operator: Operator::In, values: Box::new([node.into()]) };
    let term = NodeSelectorTerm { match_fields: Box::new([hostname]), ..NodeSelectorTerm::default() };
    PersistentVolume {
        name: format!("pvc-{}", claim.uid).into(),
        uid: format!("pv/{}", claim.uid).into(),
        resource_version: Arc::default(),
        labels: claim.labels.clone(),
        annotations: scheduler_core::model::Labels::default(),
        is_terminating: false,
        capacity: claim.request,
        access_modes: claim.access_modes.clone(),
        claim_ref: None,
        storage_class_name: claim.storage_class_name.clone().unwrap_or_default(),
        node_affinity: Some(NodeSelector { terms: Box::new([term]) }),
        volume_mode: Arc::clone(&claim.volume_mode),
        volume_attributes_class_name: claim.volume_attributes_class_name.clone(),
        source: VolumeSource::Other,
        phase: "Available".into(),
    }
}

/// An object that is neither pod nor node, by its name.
pub(crate) fn find(objects: &Objects, name: &Name) -> Option<Object> {
    match name.kind.as_str() {
        "Namespace" => objects.namespace(&name.name).map(|object| Arc::clone(object).into()),
        "PersistentVolume" => objects.persistent_volume(&name.name).map(|object| Arc::clone(object).into()),
        "PersistentVolumeClaim" => objects.claim(&name.namespace, &name.name).map(|object| Arc::clone(object).into()),
        "StorageClass" => objects.storage_class(&name.name).map(|object| Arc::clone(object).into()),
        "CSINode" => objects.csi_node(&name.name).map(|object| Arc::clone(object).into()),
        "Service" => objects
            .services_in(&name.namespace)
            .find(|service| *service.name == *name.name)
            .map(|object| Arc::clone(object).into()),
        "PodDisruptionBudget" => objects
            .disruption_budgets_in(&name.namespace)
            .find(|budget| *budget.name == *name.name)
            .map(|object| Arc::clone(object).into()),
        _ => None,
    }
}
