//! Persistent volumes, claims, classes, CSI objects, attachments.

use std::sync::Arc;

use super::selector::{label_selector, node_selector};
use super::volume::persistent_volume_source;
use super::{ConvertError, labels, non_empty, quantity, text, texts, wire};
use crate::model::{
    CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, NodeSelectorTerm, ObjectRef, Operator, PersistentVolume,
    PersistentVolumeClaim, Quantity, Requirement, StorageClass, VolumeAttachment, VolumeBindingMode,
};

impl TryFrom<wire::PersistentVolume<'_>> for PersistentVolume {
    type Error = ConvertError;

    fn try_from(volume: wire::PersistentVolume<'_>) -> Result<Self, ConvertError> {
        let meta = &volume.metadata;
        let default_spec = wire::PersistentVolumeSpec::default();
        let spec = volume.spec.as_ref().unwrap_or(&default_spec);
        let capacity = match spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")) {
            Some(text) => quantity(text, || "spec.capacity[storage]".to_owned())
                .map_err(|error| error.on("PersistentVolume", meta))?,
            None => Quantity::ZERO,
        };
        Ok(Self {
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            resource_version: text(meta.resource_version.as_ref()),
            labels: labels(meta.labels.as_ref()),
            annotations: labels(meta.annotations.as_ref()),
            is_terminating: meta.deletion_timestamp.is_some(),
            capacity,
            access_modes: texts(spec.access_modes.as_ref()),
            claim_ref: spec.claim_ref.as_ref().map(|claim| ObjectRef {
                namespace: text(claim.namespace.as_ref()),
                name: text(claim.name.as_ref()),
                uid: text(claim.uid.as_ref()),
                resource_version: text(claim.resource_version.as_ref()),
            }),
            storage_class_name: text(spec.storage_class_name.as_ref()),
            node_affinity: spec
                .node_affinity
                .as_ref()
                .and_then(|affinity| affinity.required.as_ref())
                .map(node_selector),
            volume_mode: volume_mode(spec.volume_mode.as_ref()),
            volume_attributes_class_name: non_empty(spec.volume_attributes_class_name.as_ref()),
            source: persistent_volume_source(spec),
            phase: text(volume.status.as_ref().and_then(|status| status.phase.as_ref())),
        })
    }
}

impl TryFrom<wire::PersistentVolumeClaim<'_>> for PersistentVolumeClaim {
    type Error = ConvertError;

    fn try_from(claim: wire::PersistentVolumeClaim<'_>) -> Result<Self, ConvertError> {
        let meta = &claim.metadata;
        let default_spec = wire::PersistentVolumeClaimSpec::default();
        let spec = claim.spec.as_ref().unwrap_or(&default_spec);
        let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let request = match requests.and_then(|requests| requests.get("storage")) {
            Some(text) => quantity(text, || "spec.resources.requests[storage]".to_owned())
                .map_err(|error| error.on("PersistentVolumeClaim", meta))?,
            None => Quantity::ZERO,
        };
        Ok(Self {
            name: text(meta.name.as_ref()),
            namespace: text(meta.namespace.as_ref()),
            uid: text(meta.uid.as_ref()),
            resource_version: text(meta.resource_version.as_ref()),
            labels: labels(meta.labels.as_ref()),
            annotations: labels(meta.annotations.as_ref()),
            is_terminating: meta.deletion_timestamp.is_some(),
            controller_uid: meta
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| (&owner.uid).into()),
            access_modes: texts(spec.access_modes.as_ref()),
            selector: spec.selector.as_ref().map(|selector| label_selector(Some(selector))),
            request,
            volume_name: text(spec.volume_name.as_ref()),
            storage_class_name: spec.storage_class_name.as_ref().map(Arc::from),
            volume_mode: volume_mode(spec.volume_mode.as_ref()),
            volume_attributes_class_name: non_empty(spec.volume_attributes_class_name.as_ref()),
            phase: text(claim.status.as_ref().and_then(|status| status.phase.as_ref())),
        })
    }
}

fn volume_mode(mode: Option<&wire::Text<'_>>) -> Arc<str> {
    non_empty(mode).unwrap_or_else(|| "Filesystem".into())
}

impl From<wire::StorageClass<'_>> for StorageClass {
    fn from(class: wire::StorageClass<'_>) -> Self {
        Self {
            name: text(class.metadata.name.as_ref()),
            provisioner: (&class.provisioner).into(),
            volume_binding_mode: match class.volume_binding_mode.as_deref() {
                Some("WaitForFirstConsumer") => VolumeBindingMode::WaitForFirstConsumer,
                _ => VolumeBindingMode::Immediate,
            },
            allowed_topologies: class
                .allowed_topologies
                .iter()
                .flatten()
                .map(|term| NodeSelectorTerm {
                    match_expressions: term
                        .match_label_expressions
                        .iter()
                        .flatten()
                        .map(|expression| {
                            let mut values: Vec<Arc<str>> = expression.values.iter().flatten().map(Arc::from).collect();
                            values.sort();
                            values.dedup();
                            Requirement { key: (&expression.key).into(), operator: Operator::In, values: values.into() }
                        })
                        .collect(),
                    ..NodeSelectorTerm::default()
                })
                .collect(),
            annotations: labels(class.metadata.annotations.as_ref()),
        }
    }
}

impl From<wire::CsiNode<'_>> for CsiNode {
    fn from(node: wire::CsiNode<'_>) -> Self {
        Self {
            name: text(node.metadata.name.as_ref()),
            annotations: labels(node.metadata.annotations.as_ref()),
            drivers: node
                .spec
                .drivers
                .iter()
                .flatten()
                .map(|driver| CsiNodeDriver {
                    name: (&driver.name).into(),
                    allocatable: driver.allocatable.as_ref().and_then(|allocatable| allocatable.count),
                    topology_keys: texts(driver.topology_keys.as_ref()),
                })
                .collect(),
        }
    }
}

impl From<wire::CsiDriver<'_>> for CsiDriver {
    fn from(driver: wire::CsiDriver<'_>) -> Self {
        Self {
            name: text(driver.metadata.name.as_ref()),
            storage_capacity: driver.spec.storage_capacity.unwrap_or(false),
        }
    }
}

impl TryFrom<wire::CsiStorageCapacity<'_>> for CsiStorageCapacity {
    type Error = ConvertError;

    fn try_from(capacity: wire::CsiStorageCapacity<'_>) -> Result<Self, ConvertError> {
        let meta = &capacity.metadata;
        let parse = |text: Option<&str>, field: &'static str| {
            text.map(|text| quantity(text, || field.to_owned()).map_err(|error| error.on("CSIStorageCapacity", meta)))
                .transpose()
        };
        Ok(Self {
            name: text(meta.name.as_ref()),
            namespace: text(meta.namespace.as_ref()),
            storage_class_name: (&capacity.storage_class_name).into(),
            node_topology: capacity.node_topology.as_ref().map(|selector| label_selector(Some(selector))),
            capacity: parse(capacity.capacity.as_deref(), "capacity")?,
            maximum_volume_size: parse(capacity.maximum_volume_size.as_deref(), "maximumVolumeSize")?,
        })
    }
}

impl From<wire::VolumeAttachment<'_>> for VolumeAttachment {
    fn from(attachment: wire::VolumeAttachment<'_>) -> Self {
        Self {
            name: text(attachment.metadata.name.as_ref()),
            attacher: (&attachment.spec.attacher).into(),
            node_name: (&attachment.spec.node_name).into(),
            persistent_volume_name: text(attachment.spec.source.persistent_volume_name.as_ref()),
        }
    }
}
