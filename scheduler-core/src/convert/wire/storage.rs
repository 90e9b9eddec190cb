//! Persistent volumes, claims, classes, capacities, attachments.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::api::{core::v1 as api, storage::v1 as storage};

use super::{
    AwsElasticBlockStore, AzureDisk, AzureFile, Cinder, GcePersistentDisk, Iscsi, LabelSelector, Map, NodeSelector,
    ObjectMeta, Portworx, Rbd, Text, Vsphere, or_default, wire,
};

wire! {
    PersistentVolume = api::PersistentVolume => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<PersistentVolumeSpec<'a>>,
        status: Option<PersistentVolumeStatus<'a>>,
    }

    PersistentVolumeSpec = api::PersistentVolumeSpec => {
        capacity: Option<Map<'a>>,
        access_modes: Option<Vec<Text<'a>>>,
        claim_ref: Option<ObjectReference<'a>>,
        storage_class_name: Option<Text<'a>>,
        node_affinity: Option<VolumeNodeAffinity<'a>>,
        volume_mode: Option<Text<'a>>,
        volume_attributes_class_name: Option<Text<'a>>,
        csi: Option<CsiPersistentVolume<'a>>,
        local: Option<Local<'a>>,
        gce_persistent_disk: Option<GcePersistentDisk<'a>>,
        aws_elastic_block_store: Option<AwsElasticBlockStore<'a>>,
        iscsi: Option<Iscsi<'a>>,
        rbd: Option<Rbd<'a>>,
        azure_disk: Option<AzureDisk<'a>>,
        azure_file: Option<AzureFile<'a>>,
        cinder: Option<Cinder<'a>>,
        vsphere_volume: Option<Vsphere<'a>>,
        portworx_volume: Option<Portworx<'a>>,
    }

    ObjectReference = api::ObjectReference => {
        namespace: Option<Text<'a>>,
        name: Option<Text<'a>>,
        uid: Option<Text<'a>>,
        resource_version: Option<Text<'a>>,
    }

    VolumeNodeAffinity = api::VolumeNodeAffinity => { required: Option<NodeSelector<'a>> }

    CsiPersistentVolume = api::CSIPersistentVolumeSource => {
        driver: Text<'a>,
        volume_handle: Text<'a>,
    }

    Local = api::LocalVolumeSource => { path: Text<'a> }

    PersistentVolumeStatus = api::PersistentVolumeStatus => { phase: Option<Text<'a>> }

    PersistentVolumeClaim = api::PersistentVolumeClaim => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<PersistentVolumeClaimSpec<'a>>,
        status: Option<PersistentVolumeClaimStatus<'a>>,
    }

    PersistentVolumeClaimSpec = api::PersistentVolumeClaimSpec => {
        access_modes: Option<Vec<Text<'a>>>,
        selector: Option<LabelSelector<'a>>,
        resources: Option<VolumeResourceRequirements<'a>>,
        volume_name: Option<Text<'a>>,
        storage_class_name: Option<Text<'a>>,
        volume_mode: Option<Text<'a>>,
        volume_attributes_class_name: Option<Text<'a>>,
    }

    VolumeResourceRequirements = api::VolumeResourceRequirements => { requests: Option<Map<'a>> }

    PersistentVolumeClaimStatus = api::PersistentVolumeClaimStatus => { phase: Option<Text<'a>> }

    StorageClass = storage::StorageClass => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        provisioner: Text<'a>,
        volume_binding_mode: Option<Text<'a>>,
        allowed_topologies: Option<Vec<TopologySelectorTerm<'a>>>,
    }

    TopologySelectorTerm = api::TopologySelectorTerm => {
        match_label_expressions: Option<Vec<TopologySelectorRequirement<'a>>>,
    }

    TopologySelectorRequirement = api::TopologySelectorLabelRequirement => {
        key: Text<'a>,
        values: Option<Vec<Text<'a>>>,
    }

    CsiDriver = storage::CSIDriver => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        #[serde(deserialize_with = "or_default")]
        spec: CsiDriverSpec,
    }

    CsiStorageCapacity = storage::CSIStorageCapacity => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        storage_class_name: Text<'a>,
        node_topology: Option<LabelSelector<'a>>,
        capacity: Option<Text<'a>>,
        maximum_volume_size: Option<Text<'a>>,
    }

    VolumeAttachment = storage::VolumeAttachment => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        #[serde(deserialize_with = "or_default")]
        spec: VolumeAttachmentSpec<'a>,
    }

    VolumeAttachmentSpec = storage::VolumeAttachmentSpec => {
        attacher: Text<'a>,
        node_name: Text<'a>,
        #[serde(deserialize_with = "or_default")]
        source: VolumeAttachmentSource<'a>,
    }

    VolumeAttachmentSource = storage::VolumeAttachmentSource => { persistent_volume_name: Option<Text<'a>> }
}

/// What a CSI driver says of itself.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::convert) struct CsiDriverSpec {
    pub(in crate::convert) storage_capacity: Option<bool>,
}

#[cfg(feature = "k8s-openapi")]
impl super::View<'_, storage::CSIDriverSpec> for CsiDriverSpec {
    fn view(object: &storage::CSIDriverSpec) -> Self {
        Self { storage_capacity: object.storage_capacity }
    }
}
