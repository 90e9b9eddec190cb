//! Volumes of a pod.

use std::sync::Arc;

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Volume {
    /// Name inside the pod.
    pub name: Arc<str>,
    /// What is mounted.
    pub source: VolumeSource,
}

/// What a volume mounts, as far as scheduling looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeSource {
    /// A claim in the pod's namespace.
    PersistentVolumeClaim {
        /// Claim name.
        claim_name: Arc<str>,
        /// Mounted read-only.
        read_only: bool,
    },
    /// A claim made for the pod, named `<pod>-<volume>`.
    Ephemeral,
    /// GCE persistent disk.
    GcePersistentDisk {
        /// Disk name.
        pd_name: Arc<str>,
        /// Mounted read-only.
        read_only: bool,
    },
    /// AWS elastic block store.
    AwsElasticBlockStore {
        /// Volume id.
        volume_id: Arc<str>,
        /// Mounted read-only.
        read_only: bool,
    },
    /// iSCSI.
    Iscsi {
        /// Target portal.
        target_portal: Arc<str>,
        /// Qualified name of the target.
        iqn: Arc<str>,
        /// Logical unit.
        lun: i32,
        /// Mounted read-only.
        read_only: bool,
    },
    /// Ceph block device.
    Rbd {
        /// Monitors.
        monitors: Box<[Arc<str>]>,
        /// Pool; `rbd` when absent.
        pool: Arc<str>,
        /// Image.
        image: Arc<str>,
        /// Mounted read-only.
        read_only: bool,
    },
    /// Azure disk.
    AzureDisk {
        /// Disk name.
        disk_name: Arc<str>,
        /// Disk URI.
        disk_uri: Arc<str>,
    },
    /// Azure file share.
    AzureFile {
        /// Share name.
        share_name: Arc<str>,
    },
    /// OpenStack Cinder.
    Cinder {
        /// Volume id.
        volume_id: Arc<str>,
    },
    /// vSphere disk.
    VsphereVolume {
        /// Path of the disk.
        volume_path: Arc<str>,
    },
    /// Portworx volume.
    PortworxVolume {
        /// Volume id.
        volume_id: Arc<str>,
    },
    /// CSI volume, inline in a pod or of a persistent volume.
    Csi {
        /// Driver name.
        driver: Arc<str>,
        /// `volumeHandle`; empty inline.
        volume_handle: Arc<str>,
    },
    /// An image mounted as a volume.
    Image {
        /// Image reference.
        reference: Arc<str>,
    },
    /// Local disk of a node.
    Local {
        /// Path.
        path: Arc<str>,
    },
    /// Anything that never matters to scheduling.
    Other,
}
