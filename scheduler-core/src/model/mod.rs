//! Pods, nodes and the objects around them as plain data, parsed once. No behaviour of any plugin lives here.
//!
//! Everything is built by `convert` (from Kubernetes API objects) or by hand,
//! shared as `Arc`, and never changed afterwards: an update is a new value.

mod affinity;
mod csi_migration;
mod labels;
mod node;
mod object;
mod pod;
mod pod_template;
mod quantity;
mod resources;
mod selector;
mod shared_text;
mod storage;
mod taint;
mod time;
mod volume;
mod volume_claims;
mod workload;

pub use affinity::{Affinity, AffinityTerm, TopologySpreadConstraint, UnsatisfiableAction, WeightedAffinityTerm};
pub use csi_migration::{ANNOTATION_MIGRATED_PLUGINS, is_translatable, migrated_driver};
pub use labels::Labels;
pub use node::{ContainerImage, Node, NodeTemplate};
pub use object::{Object, ObjectKind, ObjectRef};
pub use pod::{Pod, PodPhase, ScheduledCondition};
pub use pod_template::{Container, HostPort, OwnerReference, PodResources, PodTemplate, PreemptionPolicy};
pub use quantity::{Quantity, QuantityError};
pub use resources::{ResourceList, Resources, is_extended_resource, is_scalar_resource};
pub use selector::{NodeSelector, NodeSelectorTerm, Operator, PreferredSchedulingTerm, Requirement, Selector};
pub use shared_text::shared_text;
pub use storage::{
    CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment, VolumeBindingMode,
};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use time::Timestamp;
pub use volume::{Volume, VolumeSource};
pub use volume_claims::{ANNOTATION_BIND_COMPLETED, ANNOTATION_SELECTED_NODE};
pub use workload::{
    DeviceClass, Namespace, PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet,
};
