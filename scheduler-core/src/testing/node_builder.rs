//! A node for a test, said in a line.

use super::{quantity, taint};
use crate::model::{ContainerImage, Node, Object, ResourceList, Resources};

/// Builds a [`Node`]; see [`node`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it becomes a node"]
pub struct NodeBuilder {
    node: Node,
    allocatable: ResourceList,
}

/// A node of this name that takes 110 pods, as a kubelet says by default, and has nothing else to give yet. It carries
/// the label `kubernetes.io/hostname`.
///
/// ```
/// use scheduler_core::model::Node;
/// use scheduler_core::testing::node;
///
/// let node: Node = node("n1").cpu("4").memory("16Gi").zone("z1").taint("gpu=yes:NoSchedule").into();
/// assert_eq!(node.allocatable.milli_cpu, 4_000);
/// ```
pub fn node(name: &str) -> NodeBuilder {
    let node = Node { name: name.into(), uid: format!("node-{name}").into(), ..Node::default() };
    NodeBuilder { node, allocatable: ResourceList::new() }
        .label("kubernetes.io/hostname", name)
        .allocatable("pods", "110")
}

impl NodeBuilder {
    /// Allocatable CPU, such as `500m` or `4`.
    pub fn cpu(self, amount: &str) -> Self {
        self.allocatable("cpu", amount)
    }

    /// Allocatable memory, such as `16Gi`.
    pub fn memory(self, amount: &str) -> Self {
        self.allocatable("memory", amount)
    }

    /// How many pods it takes.
    pub fn pods(self, n_pods: u32) -> Self {
        self.allocatable("pods", &n_pods.to_string())
    }

    /// Allocatable amount of any resource by name.
    ///
    /// # Panics
    /// When the amount is no quantity.
    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.allocatable.insert(resource.into(), quantity(amount));
        self
    }

    /// A label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.node.labels = pairs(&self.node.labels, key, value);
        self
    }

    /// The label `topology.kubernetes.io/zone`.
    pub fn zone(self, zone: &str) -> Self {
        self.label("topology.kubernetes.io/zone", zone)
    }

    /// An annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.node.annotations = pairs(&self.node.annotations, key, value);
        self
    }

    /// A taint as kubectl writes it: `key=value:NoSchedule`, or `key:NoExecute`.
    ///
    /// # Panics
    /// When the text is no taint.
    pub fn taint(mut self, text: &str) -> Self {
        self.node.taints = self.node.taints.iter().cloned().chain([taint(text)]).collect();
        self
    }

    /// `spec.unschedulable`: cordoned.
    pub fn unschedulable(mut self) -> Self {
        self.node.unschedulable = true;
        self
    }

    /// An image that the node holds, with its size in bytes.
    pub fn image(mut self, name: &str, size_bytes: i64) -> Self {
        let image = ContainerImage { names: [name.into()].into(), size_bytes };
        self.node.images = self.node.images.iter().cloned().chain([image]).collect();
        self
    }

    /// A condition with its status, such as `Ready` and `True`.
    pub fn condition(mut self, kind: &str, status: &str) -> Self {
        self.node.conditions = self.node.conditions.iter().cloned().chain([(kind.into(), status.into())]).collect();
        self
    }

    /// A name in `status.declaredFeatures`.
    pub fn declared_feature(mut self, name: &str) -> Self {
        self.node.declared_features = self.node.declared_features.iter().cloned().chain([name.into()]).collect();
        self
    }

    /// The finished node.
    #[must_use]
    pub fn build(mut self) -> Node {
        self.node.allocatable = Resources::from_list(&self.allocatable);
        self.node
    }
}

fn pairs(labels: &crate::model::Labels, key: &str, value: &str) -> crate::model::Labels {
    let known = labels.iter().map(|(key, value)| (&**key, &**value));
    known.chain([(key, value)]).collect()
}

impl From<NodeBuilder> for Node {
    fn from(builder: NodeBuilder) -> Self {
        builder.build()
    }
}

impl From<NodeBuilder> for Object {
    fn from(builder: NodeBuilder) -> Self {
        builder.build().into()
    }
}
