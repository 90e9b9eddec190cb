//! Volume types that were part of Kubernetes and are served by CSI drivers now: names and handles of the drivers.
//! Upstream: csi-translation-lib (v1.36.2).

use std::borrow::Cow;

use super::{CsiNode, Labels, NodeSelector, NodeSelectorTerm, Operator, PersistentVolume, Requirement, VolumeSource};

/// Annotation of a CSINode that lists the in-tree plugins that drivers serve there.
pub const ANNOTATION_MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// In-tree name, and the node label by which its driver says where a volume can be reached.
const TOPOLOGY_KEYS: [(&str, &str); 3] = [
    ("kubernetes.io/aws-ebs", "topology.ebs.csi.aws.com/zone"),
    ("kubernetes.io/gce-pd", "topology.gke.io/zone"),
    ("kubernetes.io/cinder", "topology.cinder.csi.openstack.org/zone"),
];

const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

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

impl PersistentVolume {
    /// Whether a node with these labels can reach the volume, by the words of its driver if that serves it there.
    /// Upstream: volumebinding `tryTranslatePVToCSI`, then `CheckNodeAffinity` (v1.36.2).
    #[must_use]
    pub fn is_reachable_with(&self, labels: &Labels, csi_node: Option<&CsiNode>) -> bool {
        let Some(plugin) = self.source.in_tree_plugin() else { return self.is_reachable_from(labels) };
        let annotation = csi_node.and_then(|node| node.annotations.get(ANNOTATION_MIGRATED_PLUGINS));
        let is_migrated = annotation.is_some_and(|plugins| plugins.split(',').any(|name| name == plugin));
        match TOPOLOGY_KEYS.iter().find(|(name, _)| *name == plugin) {
            Some((_, key)) if is_migrated => {
                self.affinity_in_terms_of(key).is_none_or(|affinity| affinity.matches("", labels))
            }
            _ => self.is_reachable_from(labels),
        }
    }

    /// The volume's affinity with the driver's label in place of the zone; zone labels count if the affinity names no zone.
    fn affinity_in_terms_of(&self, key: &str) -> Option<Cow<'_, NodeSelector>> {
        let terms = self.node_affinity.as_ref().map_or(&[][..], |affinity| &affinity.terms);
        let names = |wanted: &str| terms.iter().flat_map(|term| &term.match_expressions).any(|r| *r.key == *wanted);
        let is_beta = match (names(ZONE), names(BETA_ZONE)) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => !self.labels.contains_key(ZONE) && self.labels.contains_key(BETA_ZONE),
        };
        let (zone, region) = if is_beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) };
        let renamed = |requirement: &Requirement| {
            let key = match &*requirement.key {
                name if name == zone => key,
                name if name == region => REGION,
                name => name,
            };
            Requirement { key: key.into(), ..requirement.clone() }
        };
        let mut translated: Vec<Vec<Requirement>> =
            terms.iter().map(|term| term.match_expressions.iter().map(renamed).collect()).collect();
        let zones = self.labels.get(zone).filter(|_| !names(zone));
        let mut zones: Vec<_> = zones.iter().flat_map(|zones| zones.split("__")).map(str::trim).collect();
        zones.retain(|zone| !zone.is_empty());
        zones.sort_unstable();
        if !zones.is_empty() {
            if translated.is_empty() {
                translated.push(Vec::new());
            }
            let values = zones.into_iter().map(Into::into).collect();
            let requirement = Requirement { key: key.into(), operator: Operator::In, values };
            translated.iter_mut().for_each(|term| term.push(requirement.clone()));
        }
        if translated.is_empty() {
            return self.node_affinity.as_ref().map(Cow::Borrowed);
        }
        let others = terms.iter().cloned().chain(std::iter::repeat_with(NodeSelectorTerm::default));
        let terms = translated.into_iter().zip(others);
        let terms = terms.map(|(expressions, term)| NodeSelectorTerm { match_expressions: expressions.into(), ..term });
        Some(Cow::Owned(NodeSelector { terms: terms.collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ANNOTATION_MIGRATED_PLUGINS, BETA_ZONE, ZONE};
    use crate::model::{
        CsiNode, Labels, NodeSelector, NodeSelectorTerm, Operator, PersistentVolume, Quantity, Requirement,
        VolumeSource,
    };

    fn volume(affinity: Option<(&str, &str)>, labels: &[(&str, &str)]) -> PersistentVolume {
        let term = |(key, value): (&str, &str)| NodeSelectorTerm {
            match_expressions: [Requirement { key: key.into(), operator: Operator::In, values: [value.into()].into() }]
                .into(),
            ..NodeSelectorTerm::default()
        };
        PersistentVolume {
            name: "v".into(),
            uid: "".into(),
            resource_version: "".into(),
            labels: labels.iter().copied().collect(),
            annotations: Labels::default(),
            is_terminating: false,
            capacity: Quantity::default(),
            access_modes: [].into(),
            claim_ref: None,
            storage_class_name: "".into(),
            node_affinity: affinity.map(|pair| NodeSelector { terms: [term(pair)].into() }),
            volume_mode: "Filesystem".into(),
            volume_attributes_class_name: None,
            source: VolumeSource::AwsElasticBlockStore { volume_id: "aws://a/vol-1".into(), read_only: false },
            phase: "Bound".into(),
        }
    }

    #[test]
    fn a_migrated_volume_is_found_by_the_label_of_its_driver() {
        let csi_node = |plugins: &str| CsiNode {
            name: "n".into(),
            annotations: [(ANNOTATION_MIGRATED_PLUGINS, plugins)].into_iter().collect(),
            drivers: [].into(),
        };
        let here: Labels = [("topology.ebs.csi.aws.com/zone", "a"), (ZONE, "other")].into_iter().collect();
        let migrated = csi_node("kubernetes.io/gce-pd,kubernetes.io/aws-ebs");
        let cases = [
            ("zone in the affinity", volume(Some((ZONE, "a")), &[]), Some(&migrated), true),
            ("beta zone in the affinity", volume(Some((BETA_ZONE, "a")), &[]), Some(&migrated), true),
            ("another zone", volume(Some((ZONE, "b")), &[]), Some(&migrated), false),
            ("zone label only", volume(None, &[(ZONE, "b__a")]), Some(&migrated), true),
            ("zone label elsewhere", volume(None, &[(BETA_ZONE, "b")]), Some(&migrated), false),
            ("nothing said", volume(None, &[]), Some(&migrated), true),
            ("not migrated there", volume(Some((ZONE, "a")), &[]), Some(&csi_node("kubernetes.io/gce-pd")), false),
            ("no CSINode", volume(Some((ZONE, "other")), &[]), None, true),
        ];
        for (name, volume, csi_node, want) in cases {
            assert_eq!(volume.is_reachable_with(&here, csi_node), want, "{name}");
        }
        let source = volume(None, &[]).source;
        assert_eq!(source.csi_volume(), Some(("ebs.csi.aws.com", "vol-1")));
    }
}
