//! Persistent volumes, claims, classes and what CSI drivers report.

use std::sync::Arc;

use super::{Labels, NodeSelector, Quantity, Selector, VolumeSource};

/// When a claim is bound to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VolumeBindingMode {
    /// As soon as the claim exists.
    #[default]
    Immediate,
    /// When the first pod that uses it is placed.
    WaitForFirstConsumer,
}

/// A persistent volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Set once deletion began.
    pub is_terminating: bool,
    /// `spec.capacity.storage`.
    pub capacity: Quantity,
    /// Access modes, such as `ReadWriteOnce`.
    pub access_modes: Box<[Arc<str>]>,
    /// The claim it is reserved for: namespace, name and (once bound) UID.
    pub claim_ref: Option<super::ObjectRef>,
    /// Class name; empty when none.
    pub storage_class_name: Arc<str>,
    /// Nodes that can reach it; `None` when all.
    pub node_affinity: Option<NodeSelector>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Arc<str>,
    /// `spec.volumeAttributesClassName`.
    pub volume_attributes_class_name: Option<Arc<str>>,
    /// What it is.
    pub source: VolumeSource,
    /// `status.phase`, such as `Available`.
    pub phase: Arc<str>,
}

/// A claim for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Annotations, such as `pv.kubernetes.io/bind-completed`.
    pub annotations: Labels,
    /// Set once deletion began.
    pub is_terminating: bool,
    /// UID of the controlling owner, for ephemeral volumes.
    pub controller_uid: Option<Arc<str>>,
    /// Access modes.
    pub access_modes: Box<[Arc<str>]>,
    /// Which volumes fit; `None` when any.
    pub selector: Option<Selector>,
    /// `spec.resources.requests.storage`.
    pub request: Quantity,
    /// Bound volume; empty when none.
    pub volume_name: Arc<str>,
    /// Class name; `None` when absent, which differs from empty.
    pub storage_class_name: Option<Arc<str>>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Arc<str>,
    /// `spec.volumeAttributesClassName`.
    pub volume_attributes_class_name: Option<Arc<str>>,
    /// `status.phase`, such as `Bound`.
    pub phase: Arc<str>,
}

/// A storage class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    /// Name.
    pub name: Arc<str>,
    /// Who makes volumes.
    pub provisioner: Arc<str>,
    /// When claims are bound.
    pub volume_binding_mode: VolumeBindingMode,
    /// Where volumes can be made: alternatives of label requirements.
    pub allowed_topologies: Box<[super::NodeSelectorTerm]>,
    /// Annotations.
    pub annotations: Labels,
}

/// One driver on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNodeDriver {
    /// Driver name.
    pub name: Arc<str>,
    /// Volumes it can attach; `None` when unlimited.
    pub allocatable: Option<i32>,
    /// Label keys of its topology.
    pub topology_keys: Box<[Arc<str>]>,
}

/// CSI drivers of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNode {
    /// Node name.
    pub name: Arc<str>,
    /// Annotations, such as the migrated plugins.
    pub annotations: Labels,
    /// Drivers installed.
    pub drivers: Box<[CsiNodeDriver]>,
}

/// A CSI driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriver {
    /// Name.
    pub name: Arc<str>,
    /// Whether storage capacity is published and must be checked.
    pub storage_capacity: bool,
}

/// How much a driver can still provision in one topology segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiStorageCapacity {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Class it is about.
    pub storage_class_name: Arc<str>,
    /// Nodes it is about; `None` selects none.
    pub node_topology: Option<Selector>,
    /// Free capacity.
    pub capacity: Option<Quantity>,
    /// Largest volume that can be made; wins over `capacity`.
    pub maximum_volume_size: Option<Quantity>,
}

/// A volume attached, or being attached, to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// Name.
    pub name: Arc<str>,
    /// Driver that attaches.
    pub attacher: Arc<str>,
    /// Node.
    pub node_name: Arc<str>,
    /// Persistent volume; empty for an inline one.
    pub persistent_volume_name: Arc<str>,
}
