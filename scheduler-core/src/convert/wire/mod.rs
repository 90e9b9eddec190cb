//! What the scheduler reads of API objects, field by field, and nothing else: the shapes from which `convert` builds the model.
//!
//! They come from JSON, where unknown members are skipped without being kept and texts point into the input, or, with the
//! feature `k8s-openapi`, from typed objects. Both end in the same shape, so each rule of conversion stands once.
//! As in Go, `null` means absent, and an absent required member is its zero value.

mod meta;
mod node;
mod pod;
mod storage;
mod value;
#[cfg(feature = "k8s-openapi")]
mod view;
mod volume;
mod workload;

#[cfg(test)]
pub(super) use meta::Requirement;
pub(super) use meta::{LabelSelector, NodeSelector, NodeSelectorTerm, ObjectMeta};
pub(super) use node::{CsiNode, Node};
pub(super) use pod::{
    Affinity, Container, ContainerStatus, Pod, PodAffinityTerm, PodSpec, PodStatus, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub(super) use storage::{
    CsiDriver, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec, StorageClass, VolumeAttachment,
};
pub(super) use value::{Keys, Map, Present, Text, Time, or_default};
#[cfg(feature = "k8s-openapi")]
pub(super) use view::View;
pub(super) use volume::{
    AwsElasticBlockStore, AzureDisk, AzureFile, Cinder, GcePersistentDisk, Iscsi, Portworx, Rbd, Volume, Vsphere,
};
pub(super) use workload::{
    DeviceClass, Namespace, PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet,
};

/// Declares shapes: name, the typed API objects that it is a part of, and the fields that are read, under the API's names.
macro_rules! wire {
    ($($name:ident = $($api:path)|+ => $fields:tt)*) => {$(
        wire!(@shape $name $fields);
        $(
            #[cfg(feature = "k8s-openapi")]
            wire!(@view $name $api, $fields);
        )+
    )*};
    (@shape $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
        pub(in crate::convert) struct $name<'a> {
            $($(#[$attribute])* pub(in crate::convert) $field: $type,)*
        }
    };
    (@view $name:ident $api:path, { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        impl<'a> $crate::convert::wire::View<'a, $api> for $name<'a> {
            fn view(object: &'a $api) -> Self {
                Self { $($field: $crate::convert::wire::View::view(&object.$field),)* }
            }
        }
    };
}
use wire;
