//! A node as the scheduler needs it: who it is, and the template that says what its like have in common.

use std::ops::{Deref, DerefMut};
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

/// A node: who it is, and the [`NodeTemplate`] that it shares with the nodes of its pool, whose fields read as its own.
/// Upstream: `v1.Node` with what framework `NodeInfo` derives from it (v1.36.2).
///
/// ```
/// use scheduler_core::model::{Node, NodeTemplate, Resources};
///
/// let allocatable = Resources { milli_cpu: 4_000, pods: 110, ..Resources::default() };
/// let template = NodeTemplate { allocatable, ..NodeTemplate::default() };
/// let mut node = Node { name: "n1".into(), ..template.into() };
/// let other = Node { name: "n2".into(), ..node.clone() };
/// node.unschedulable = true; // this node alone
/// assert_eq!((node.allocatable.milli_cpu, other.unschedulable), (4_000, false));
/// ```
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
    /// Images present.
    pub images: Box<[ContainerImage]>,
    /// Everything else.
    pub template: Arc<NodeTemplate>,
}

/// What the nodes of a pool have in common as a rule: amounts, taints, features.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeTemplate {
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Taints, in the order given.
    pub taints: Box<[Taint]>,
    /// What pods may take.
    pub allocatable: Resources,
    /// Types of the conditions that are `True`, and of those that are not: `(type, status)`.
    pub conditions: Box<[(Arc<str>, Arc<str>)]>,
    /// Names in `status.declaredFeatures`.
    pub declared_features: Box<[Arc<str>]>,
}

impl From<NodeTemplate> for Node {
    /// A node without a name.
    fn from(template: NodeTemplate) -> Self {
        Self { template: template.into(), ..Self::default() }
    }
}

impl Deref for Node {
    type Target = NodeTemplate;

    fn deref(&self) -> &NodeTemplate {
        &self.template
    }
}

impl DerefMut for Node {
    /// A template of this node's own from now on.
    fn deref_mut(&mut self) -> &mut NodeTemplate {
        Arc::make_mut(&mut self.template)
    }
}
