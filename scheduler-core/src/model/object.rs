//! Any object that the engine hears of, and how it is referred to.

use std::fmt;
use std::sync::Arc;

use super::{
    CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass, VolumeAttachment,
};

/// Points at one object: enough for an API call and for an event's `regarding`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version the reference was made from; empty when unknown.
    pub resource_version: Arc<str>,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

macro_rules! objects {
    ($($(#[$doc:meta])* $kind:ident),* $(,)?) => {
        /// One object of a kind that the engine knows.
        #[derive(Debug, Clone)]
        pub enum Object {
            $($(#[$doc])* $kind(Arc<$kind>),)*
        }

        /// The kinds that the engine knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ObjectKind {
            $($(#[$doc])* $kind,)*
        }

        impl Object {
            /// The object's kind.
            #[must_use]
            pub fn kind(&self) -> ObjectKind {
                match self {
                    $(Self::$kind(_) => ObjectKind::$kind,)*
                }
            }
        }

        $(
            impl From<Arc<$kind>> for Object {
                fn from(object: Arc<$kind>) -> Self {
                    Self::$kind(object)
                }
            }

            impl From<$kind> for Object {
                fn from(object: $kind) -> Self {
                    Self::$kind(Arc::new(object))
                }
            }
        )*
    };
}

objects! {
    /// core/v1 Pod.
    Pod,
    /// core/v1 Node.
    Node,
    /// core/v1 Namespace.
    Namespace,
    /// core/v1 Service.
    Service,
    /// core/v1 ReplicationController.
    ReplicationController,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// policy/v1 PodDisruptionBudget.
    PodDisruptionBudget,
    /// core/v1 PersistentVolume.
    PersistentVolume,
    /// core/v1 PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// storage.k8s.io/v1 StorageClass.
    StorageClass,
    /// storage.k8s.io/v1 CSINode.
    CsiNode,
    /// storage.k8s.io/v1 CSIDriver.
    CsiDriver,
    /// storage.k8s.io/v1 CSIStorageCapacity.
    CsiStorageCapacity,
    /// storage.k8s.io/v1 VolumeAttachment.
    VolumeAttachment,
    /// resource.k8s.io/v1 DeviceClass.
    DeviceClass,
}
