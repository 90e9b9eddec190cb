//! Volume types that were part of Kubernetes and are served by CSI drivers now: names and handles of the drivers.
//! Upstream: csi-translation-lib (v1.36.2).

use super::VolumeSource;

/// In-tree name of a migrated type, and its CSI driver. Types whose migration counts for volume limits.
const MIGRATED: [(&str, &str); 5] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

/// In-tree types with a CSI driver, whose migration does not count for volume limits.
const TRANSLATABLE_ONLY: [&str; 2] = ["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

/// The CSI driver that serves an in-tree provisioner or volume plugin; `None` if it is not migrated.
#[must_use]
pub fn migrated_driver(in_tree_name: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(name, _)| *name == in_tree_name).map(|(_, driver)| *driver)
}

/// Whether the name is that of an in-tree plugin with a CSI translation, migrated or not.
#[must_use]
pub fn is_translatable(in_tree_name: &str) -> bool {
    migrated_driver(in_tree_name).is_some() || TRANSLATABLE_ONLY.contains(&in_tree_name)
}

impl VolumeSource {
    /// The in-tree plugin of the volume; `None` if it is none with a CSI translation.
    #[must_use]
    pub fn in_tree_plugin(&self) -> Option<&'static str> {
        Some(match self {
            Self::AwsElasticBlockStore { .. } => "kubernetes.io/aws-ebs",
            Self::GcePersistentDisk { .. } => "kubernetes.io/gce-pd",
            Self::AzureDisk { .. } => "kubernetes.io/azure-disk",
            Self::Cinder { .. } => "kubernetes.io/cinder",
            Self::PortworxVolume { .. } => "kubernetes.io/portworx-volume",
            Self::AzureFile { .. } => "kubernetes.io/azure-file",
            Self::VsphereVolume { .. } => "kubernetes.io/vsphere-volume",
            _ => return None,
        })
    }

    /// CSI driver and a handle that is the same for the same volume; `None` for what no driver serves.
    #[must_use]
    pub fn csi_volume(&self) -> Option<(&str, &str)> {
        let handle = match self {
            Self::Csi { driver, volume_handle } => return Some((driver, volume_handle)),
            // A volume ID may stand behind its zone: aws://zone/vol-1.
            Self::AwsElasticBlockStore { volume_id, .. } => volume_id.rsplit('/').next().unwrap_or(volume_id),
            Self::GcePersistentDisk { pd_name, .. } => pd_name,
            Self::AzureDisk { disk_uri, .. } => disk_uri,
            Self::Cinder { volume_id } | Self::PortworxVolume { volume_id } => volume_id,
            _ => return None,
        };
        Some((migrated_driver(self.in_tree_plugin()?)?, handle))
    }
}
