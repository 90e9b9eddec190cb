//! Volumes of pods, and sources of persistent volumes that have the same shape.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::api::core::v1 as api;

use super::{Present, Text, wire};

wire! {
    Volume = api::Volume => {
        name: Text<'a>,
        persistent_volume_claim: Option<ClaimSource<'a>>,
        ephemeral: Option<Present>,
        image: Option<ImageSource<'a>>,
        csi: Option<Csi<'a>>,
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

    ClaimSource = api::PersistentVolumeClaimVolumeSource => {
        claim_name: Text<'a>,
        read_only: Option<bool>,
    }

    ImageSource = api::ImageVolumeSource => { reference: Option<Text<'a>> }

    GcePersistentDisk = api::GCEPersistentDiskVolumeSource => {
        pd_name: Text<'a>,
        read_only: Option<bool>,
    }

    AwsElasticBlockStore = api::AWSElasticBlockStoreVolumeSource => {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
        read_only: Option<bool>,
    }

    Iscsi = api::ISCSIVolumeSource | api::ISCSIPersistentVolumeSource => {
        target_portal: Text<'a>,
        iqn: Text<'a>,
        lun: Option<i32>,
        read_only: Option<bool>,
    }

    Rbd = api::RBDVolumeSource | api::RBDPersistentVolumeSource => {
        monitors: Option<Vec<Text<'a>>>,
        pool: Option<Text<'a>>,
        image: Text<'a>,
        read_only: Option<bool>,
    }

    AzureDisk = api::AzureDiskVolumeSource => {
        disk_name: Text<'a>,
        #[serde(rename = "diskURI")]
        disk_uri: Text<'a>,
    }

    AzureFile = api::AzureFileVolumeSource | api::AzureFilePersistentVolumeSource => { share_name: Text<'a> }

    Cinder = api::CinderVolumeSource | api::CinderPersistentVolumeSource => {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
    }

    Vsphere = api::VsphereVirtualDiskVolumeSource => { volume_path: Text<'a> }

    Portworx = api::PortworxVolumeSource => {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
    }

    Csi = api::CSIVolumeSource => { driver: Text<'a> }
}
