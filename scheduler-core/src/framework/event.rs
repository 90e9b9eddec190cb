//! Changes of the cluster as the queue sees them, and a plugin's judgement of whether one helps a pod.

use std::ops::BitOr;

use crate::model::{Object, ObjectKind, Pod};

/// What an event is about. Upstream: framework `EventResource` (v1.36.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventResource {
    /// Any pod, bound or not.
    Pod,
    /// A pod on a node. Registering for `Pod` includes it.
    AssignedPod,
    /// The waiting pod itself. Registering for `Pod` includes it.
    UnschedulablePod,
    /// A node.
    Node,
    /// A persistent volume.
    PersistentVolume,
    /// A claim.
    PersistentVolumeClaim,
    /// CSI drivers of a node.
    CsiNode,
    /// A CSI driver.
    CsiDriver,
    /// Free capacity of a driver.
    CsiStorageCapacity,
    /// A storage class.
    StorageClass,
    /// A volume attachment.
    VolumeAttachment,
    /// A resource claim.
    ResourceClaim,
    /// A resource slice.
    ResourceSlice,
    /// A device class.
    DeviceClass,
    /// Everything.
    WildCard,
}

impl EventResource {
    /// All resources.
    pub const ALL: [Self; 15] = [
        Self::Pod,
        Self::AssignedPod,
        Self::UnschedulablePod,
        Self::Node,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::CsiNode,
        Self::CsiDriver,
        Self::CsiStorageCapacity,
        Self::StorageClass,
        Self::VolumeAttachment,
        Self::ResourceClaim,
        Self::ResourceSlice,
        Self::DeviceClass,
        Self::WildCard,
    ];

    /// Whether a registration for `self` covers an event about `resource`.
    /// Upstream: framework `matchEventResources` (v1.36.2).
    #[must_use]
    pub fn covers(self, resource: Self) -> bool {
        self == Self::WildCard
            || self == resource
            || (self == Self::Pod && matches!(resource, Self::AssignedPod | Self::UnschedulablePod))
    }

    /// The resource of an object that is no pod; pods and kinds without registrations give `None`.
    #[must_use]
    pub fn of(kind: ObjectKind) -> Option<Self> {
        Some(match kind {
            ObjectKind::Node => Self::Node,
            ObjectKind::PersistentVolume => Self::PersistentVolume,
            ObjectKind::PersistentVolumeClaim => Self::PersistentVolumeClaim,
            ObjectKind::CsiNode => Self::CsiNode,
            ObjectKind::CsiDriver => Self::CsiDriver,
            ObjectKind::CsiStorageCapacity => Self::CsiStorageCapacity,
            ObjectKind::StorageClass => Self::StorageClass,
            ObjectKind::VolumeAttachment => Self::VolumeAttachment,
            ObjectKind::DeviceClass => Self::DeviceClass,
            _ => return None,
        })
    }
}

/// What happened: a set of bits. Upstream: framework `ActionType` (v1.36.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionType(pub u32);

impl ActionType {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Created, or (pods) bound.
    pub const ADD: Self = Self(1);
    /// Deleted, or (pods) no longer assumed.
    pub const DELETE: Self = Self(1 << 1);
    /// A node's allocatable changed.
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// A node's labels changed.
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    /// A node's taints or `spec.unschedulable` changed.
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    /// A node's conditions changed.
    pub const UPDATE_NODE_CONDITION: Self = Self(1 << 5);
    /// A node's annotations changed.
    pub const UPDATE_NODE_ANNOTATION: Self = Self(1 << 6);
    /// A node's declared features changed.
    pub const UPDATE_NODE_DECLARED_FEATURE: Self = Self(1 << 7);
    /// A pod's labels changed.
    pub const UPDATE_POD_LABEL: Self = Self(1 << 8);
    /// A pod asks for less.
    pub const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 9);
    /// A pod tolerates more.
    pub const UPDATE_POD_TOLERATION: Self = Self(1 << 10);
    /// A pod lost its last scheduling gate.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Self = Self(1 << 11);
    /// A pod's generated claims changed.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Self = Self(1 << 12);
    /// Any update.
    pub const UPDATE: Self = Self((1 << 13) - 4);
    /// Anything.
    pub const ALL: Self = Self((1 << 13) - 1);

    /// Each single action, and the general update.
    pub fn singles() -> impl Iterator<Item = Self> {
        (0..13).map(|bit| Self(1 << bit)).chain([Self::UPDATE])
    }

    /// Whether no bit is set.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the two sets share a bit.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for ActionType {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A change of the cluster, with the objects before and after.
#[derive(Debug, Clone)]
pub struct ClusterEvent {
    /// What it is about.
    pub resource: EventResource,
    /// What happened; usually one bit.
    pub action: ActionType,
    /// The object before; absent for an addition.
    pub old: Option<Object>,
    /// The object after; absent for a deletion.
    pub new: Option<Object>,
}

impl ClusterEvent {
    /// The event that matches everything and moves every pod. Upstream: `EventUnschedulableTimeout` and friends.
    #[must_use]
    pub const fn wild_card() -> Self {
        Self { resource: EventResource::WildCard, action: ActionType::ALL, old: None, new: None }
    }

    /// Whether this is [`ClusterEvent::wild_card`].
    #[must_use]
    pub fn is_wild_card(&self) -> bool {
        self.resource == EventResource::WildCard && self.action == ActionType::ALL
    }

    /// The object after, or before a deletion.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// The pods before and after, when the event is about a pod.
    #[must_use]
    pub fn pods(&self) -> (Option<&Pod>, Option<&Pod>) {
        fn pod(object: Option<&Object>) -> Option<&Pod> {
            match object {
                Some(Object::Pod(pod)) => Some(pod),
                _ => None,
            }
        }
        (pod(self.old.as_ref()), pod(self.new.as_ref()))
    }
}

/// Which events a plugin wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventFilter {
    /// About what.
    pub resource: EventResource,
    /// Which actions.
    pub actions: ActionType,
}

impl EventFilter {
    /// A registration for some actions on a resource.
    #[must_use]
    pub const fn new(resource: EventResource, actions: ActionType) -> Self {
        Self { resource, actions }
    }

    /// Whether the event is registered for. Upstream: framework `MatchClusterEvents` (v1.36.2).
    #[must_use]
    pub fn matches(&self, event: &ClusterEvent) -> bool {
        self.matches_kind(event.resource, event.action)
    }

    /// Whether events of this kind are registered for.
    #[must_use]
    pub fn matches_kind(&self, resource: EventResource, action: ActionType) -> bool {
        (self.resource == EventResource::WildCard && self.actions == ActionType::ALL)
            || (self.resource.covers(resource)
                && self.actions.intersects(action)
                // The general update reaches only those who registered for no less.
                && action <= self.actions)
    }
}

/// A plugin's judgement of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The event may make the pod schedulable.
    Queue,
    /// It cannot.
    Skip,
}
