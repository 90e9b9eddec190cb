//! A node as the scheduler needs it.

use std::sync::Arc;

use super::{Labels, Resources, Taint};

/// An image that a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerImage {
    /// All names of the image, digests included.
    pub names: Box<[Arc<str>]>,
    /// Bytes.
    pub size_bytes: i64,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Name: the identity in the cache.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Taints, in the order given.
    pub taints: Box<[Taint]>,
    /// What pods may take.
    pub allocatable: Resources,
    /// Images present.
    pub images: Box<[ContainerImage]>,
    /// Types of the conditions that are `True`, and of those that are not: `(type, status)`.
    pub conditions: Box<[(Arc<str>, Arc<str>)]>,
    /// Names in `status.declaredFeatures`.
    pub declared_features: Box<[Arc<str>]>,
}
