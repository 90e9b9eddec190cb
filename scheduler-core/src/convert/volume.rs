//! Volumes of pods and sources of persistent volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;

use super::{non_empty, text, texts};
use crate::model::{Volume, VolumeSource};

pub(super) fn pod_volume(volume: &api::Volume) -> Volume {
    Volume { name: volume.name.as_str().into(), source: pod_volume_source(volume) }
}

fn pod_volume_source(volume: &api::Volume) -> VolumeSource {
    if let Some(claim) = &volume.persistent_volume_claim {
        return VolumeSource::PersistentVolumeClaim {
            claim_name: claim.claim_name.as_str().into(),
            read_only: claim.read_only.unwrap_or(false),
        };
    }
    if volume.ephemeral.is_some() {
        return VolumeSource::Ephemeral;
    }
    if let Some(image) = &volume.image {
        return VolumeSource::Image { reference: text(image.reference.as_ref()) };
    }
    if let Some(csi) = &volume.csi {
        return VolumeSource::Csi { driver: csi.driver.as_str().into(), volume_handle: Arc::default() };
    }
    if let Some(disk) = &volume.gce_persistent_disk {
        return gce(disk);
    }
    if let Some(store) = &volume.aws_elastic_block_store {
        return aws(store);
    }
    if let Some(iscsi) = &volume.iscsi {
        return VolumeSource::Iscsi {
            target_portal: iscsi.target_portal.as_str().into(),
            iqn: iscsi.iqn.as_str().into(),
            lun: iscsi.lun,
            read_only: iscsi.read_only.unwrap_or(false),
        };
    }
    if let Some(rbd) = &volume.rbd {
        return VolumeSource::Rbd {
            monitors: texts(Some(&rbd.monitors)),
            pool: rbd_pool(rbd.pool.as_ref()),
            image: rbd.image.as_str().into(),
            read_only: rbd.read_only.unwrap_or(false),
        };
    }
    if let Some(disk) = &volume.azure_disk {
        return azure_disk(disk);
    }
    if let Some(file) = &volume.azure_file {
        return VolumeSource::AzureFile { share_name: file.share_name.as_str().into() };
    }
    if let Some(cinder) = &volume.cinder {
        return VolumeSource::Cinder { volume_id: cinder.volume_id.as_str().into() };
    }
    if let Some(disk) = &volume.vsphere_volume {
        return VolumeSource::VsphereVolume { volume_path: disk.volume_path.as_str().into() };
    }
    if let Some(portworx) = &volume.portworx_volume {
        return VolumeSource::PortworxVolume { volume_id: portworx.volume_id.as_str().into() };
    }
    VolumeSource::Other
}

pub(super) fn persistent_volume_source(spec: &api::PersistentVolumeSpec) -> VolumeSource {
    if let Some(csi) = &spec.csi {
        return VolumeSource::Csi {
            driver: csi.driver.as_str().into(),
            volume_handle: csi.volume_handle.as_str().into(),
        };
    }
    if let Some(local) = &spec.local {
        return VolumeSource::Local { path: local.path.as_str().into() };
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        return gce(disk);
    }
    if let Some(store) = &spec.aws_elastic_block_store {
        return aws(store);
    }
    if let Some(iscsi) = &spec.iscsi {
        return VolumeSource::Iscsi {
            target_portal: iscsi.target_portal.as_str().into(),
            iqn: iscsi.iqn.as_str().into(),
            lun: iscsi.lun,
            read_only: iscsi.read_only.unwrap_or(false),
        };
    }
    if let Some(rbd) = &spec.rbd {
        return VolumeSource::Rbd {
            monitors: texts(Some(&rbd.monitors)),
            pool: rbd_pool(rbd.pool.as_ref()),
            image: rbd.image.as_str().into(),
            read_only: rbd.read_only.unwrap_or(false),
        };
    }
    if let Some(disk) = &spec.azure_disk {
        return azure_disk(disk);
    }
    if let Some(file) = &spec.azure_file {
        return VolumeSource::AzureFile { share_name: file.share_name.as_str().into() };
    }
    if let Some(cinder) = &spec.cinder {
        return VolumeSource::Cinder { volume_id: cinder.volume_id.as_str().into() };
    }
    if let Some(disk) = &spec.vsphere_volume {
        return VolumeSource::VsphereVolume { volume_path: disk.volume_path.as_str().into() };
    }
    if let Some(portworx) = &spec.portworx_volume {
        return VolumeSource::PortworxVolume { volume_id: portworx.volume_id.as_str().into() };
    }
    VolumeSource::Other
}

fn gce(disk: &api::GCEPersistentDiskVolumeSource) -> VolumeSource {
    VolumeSource::GcePersistentDisk {
        pd_name: disk.pd_name.as_str().into(),
        read_only: disk.read_only.unwrap_or(false),
    }
}

fn aws(store: &api::AWSElasticBlockStoreVolumeSource) -> VolumeSource {
    VolumeSource::AwsElasticBlockStore {
        volume_id: store.volume_id.as_str().into(),
        read_only: store.read_only.unwrap_or(false),
    }
}

fn azure_disk(disk: &api::AzureDiskVolumeSource) -> VolumeSource {
    VolumeSource::AzureDisk { disk_name: disk.disk_name.as_str().into(), disk_uri: disk.disk_uri.as_str().into() }
}

fn rbd_pool(pool: Option<&String>) -> Arc<str> {
    non_empty(pool).unwrap_or_else(|| "rbd".into())
}
