//! Volumes of pods and sources of persistent volumes.

use std::sync::Arc;

use super::{non_empty, text, texts, wire};
use crate::model::{Volume, VolumeSource};

pub(super) fn pod_volume(volume: &wire::Volume<'_>) -> Volume {
    Volume { name: (&volume.name).into(), source: pod_volume_source(volume) }
}

fn pod_volume_source(volume: &wire::Volume<'_>) -> VolumeSource {
    if let Some(claim) = &volume.persistent_volume_claim {
        return VolumeSource::PersistentVolumeClaim {
            claim_name: (&claim.claim_name).into(),
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
        return VolumeSource::Csi { driver: (&csi.driver).into(), volume_handle: Arc::default() };
    }
    if let Some(disk) = &volume.gce_persistent_disk {
        return gce(disk);
    }
    if let Some(store) = &volume.aws_elastic_block_store {
        return aws(store);
    }
    if let Some(iscsi) = &volume.iscsi {
        return VolumeSource::Iscsi {
            target_portal: (&iscsi.target_portal).into(),
            iqn: (&iscsi.iqn).into(),
            lun: iscsi.lun.unwrap_or_default(),
            read_only: iscsi.read_only.unwrap_or(false),
        };
    }
    if let Some(rbd) = &volume.rbd {
        return VolumeSource::Rbd {
            monitors: texts(rbd.monitors.as_ref()),
            pool: rbd_pool(rbd.pool.as_ref()),
            image: (&rbd.image).into(),
            read_only: rbd.read_only.unwrap_or(false),
        };
    }
    if let Some(disk) = &volume.azure_disk {
        return azure_disk(disk);
    }
    if let Some(file) = &volume.azure_file {
        return VolumeSource::AzureFile { share_name: (&file.share_name).into() };
    }
    if let Some(cinder) = &volume.cinder {
        return VolumeSource::Cinder { volume_id: (&cinder.volume_id).into() };
    }
    if let Some(disk) = &volume.vsphere_volume {
        return VolumeSource::VsphereVolume { volume_path: (&disk.volume_path).into() };
    }
    if let Some(portworx) = &volume.portworx_volume {
        return VolumeSource::PortworxVolume { volume_id: (&portworx.volume_id).into() };
    }
    VolumeSource::Other
}

pub(super) fn persistent_volume_source(spec: &wire::PersistentVolumeSpec<'_>) -> VolumeSource {
    if let Some(csi) = &spec.csi {
        return VolumeSource::Csi { driver: (&csi.driver).into(), volume_handle: (&csi.volume_handle).into() };
    }
    if let Some(local) = &spec.local {
        return VolumeSource::Local { path: (&local.path).into() };
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        return gce(disk);
    }
    if let Some(store) = &spec.aws_elastic_block_store {
        return aws(store);
    }
    if let Some(iscsi) = &spec.iscsi {
        return VolumeSource::Iscsi {
            target_portal: (&iscsi.target_portal).into(),
            iqn: (&iscsi.iqn).into(),
            lun: iscsi.lun.unwrap_or_default(),
            read_only: iscsi.read_only.unwrap_or(false),
        };
    }
    if let Some(rbd) = &spec.rbd {
        return VolumeSource::Rbd {
            monitors: texts(rbd.monitors.as_ref()),
            pool: rbd_pool(rbd.pool.as_ref()),
            image: (&rbd.image).into(),
            read_only: rbd.read_only.unwrap_or(false),
        };
    }
    if let Some(disk) = &spec.azure_disk {
        return azure_disk(disk);
    }
    if let Some(file) = &spec.azure_file {
        return VolumeSource::AzureFile { share_name: (&file.share_name).into() };
    }
    if let Some(cinder) = &spec.cinder {
        return VolumeSource::Cinder { volume_id: (&cinder.volume_id).into() };
    }
    if let Some(disk) = &spec.vsphere_volume {
        return VolumeSource::VsphereVolume { volume_path: (&disk.volume_path).into() };
    }
    if let Some(portworx) = &spec.portworx_volume {
        return VolumeSource::PortworxVolume { volume_id: (&portworx.volume_id).into() };
    }
    VolumeSource::Other
}

fn gce(disk: &wire::GcePersistentDisk<'_>) -> VolumeSource {
    VolumeSource::GcePersistentDisk { pd_name: (&disk.pd_name).into(), read_only: disk.read_only.unwrap_or(false) }
}

fn aws(store: &wire::AwsElasticBlockStore<'_>) -> VolumeSource {
    VolumeSource::AwsElasticBlockStore {
        volume_id: (&store.volume_id).into(),
        read_only: store.read_only.unwrap_or(false),
    }
}

fn azure_disk(disk: &wire::AzureDisk<'_>) -> VolumeSource {
    VolumeSource::AzureDisk { disk_name: (&disk.disk_name).into(), disk_uri: (&disk.disk_uri).into() }
}

fn rbd_pool(pool: Option<&wire::Text<'_>>) -> Arc<str> {
    non_empty(pool).unwrap_or_else(|| "rbd".into())
}
