//! Typed API objects, seen as the shapes that conversion starts from.

use k8s_openapi::api::{
    apps::v1 as apps, core::v1 as core, policy::v1 as policy, resource::v1 as resource, storage::v1 as storage,
};

use super::ConvertError;
use super::wire::{self, View as _};
use crate::model;

macro_rules! fallible {
    ($($api:path => $shape:ident => $model:ident),* $(,)?) => {$(
        impl TryFrom<&$api> for model::$model {
            type Error = ConvertError;

            fn try_from(object: &$api) -> Result<Self, ConvertError> {
                wire::$shape::view(object).try_into()
            }
        }
    )*};
}

macro_rules! infallible {
    ($($api:path => $shape:ident => $model:ident),* $(,)?) => {$(
        impl From<&$api> for model::$model {
            fn from(object: &$api) -> Self {
                wire::$shape::view(object).into()
            }
        }
    )*};
}

fallible! {
    core::Pod => Pod => Pod,
    core::Node => Node => Node,
    core::PersistentVolume => PersistentVolume => PersistentVolume,
    core::PersistentVolumeClaim => PersistentVolumeClaim => PersistentVolumeClaim,
    storage::CSIStorageCapacity => CsiStorageCapacity => CsiStorageCapacity,
}

infallible! {
    core::Namespace => Namespace => Namespace,
    core::Service => Service => Service,
    core::ReplicationController => ReplicationController => ReplicationController,
    apps::ReplicaSet => ReplicaSet => ReplicaSet,
    apps::StatefulSet => StatefulSet => StatefulSet,
    policy::PodDisruptionBudget => PodDisruptionBudget => PodDisruptionBudget,
    storage::StorageClass => StorageClass => StorageClass,
    storage::CSINode => CsiNode => CsiNode,
    storage::CSIDriver => CsiDriver => CsiDriver,
    storage::VolumeAttachment => VolumeAttachment => VolumeAttachment,
    resource::DeviceClass => DeviceClass => DeviceClass,
}
