//! Nodes, and what CSI drivers report of them.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::api::{core::v1 as api, storage::v1 as storage};

use super::{Map, ObjectMeta, Text, or_default, wire};

wire! {
    Node = api::Node => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        spec: Option<NodeSpec<'a>>,
        status: Option<NodeStatus<'a>>,
    }

    NodeSpec = api::NodeSpec => {
        unschedulable: Option<bool>,
        taints: Option<Vec<Taint<'a>>>,
    }

    Taint = api::Taint => {
        key: Text<'a>,
        value: Option<Text<'a>>,
        effect: Text<'a>,
    }

    NodeStatus = api::NodeStatus => {
        allocatable: Option<Map<'a>>,
        images: Option<Vec<ContainerImage<'a>>>,
        conditions: Option<Vec<NodeCondition<'a>>>,
        declared_features: Option<Vec<Text<'a>>>,
    }

    ContainerImage = api::ContainerImage => {
        names: Option<Vec<Text<'a>>>,
        size_bytes: Option<i64>,
    }

    NodeCondition = api::NodeCondition => {
        #[serde(rename = "type")]
        type_: Text<'a>,
        status: Text<'a>,
    }

    CsiNode = storage::CSINode => {
        #[serde(deserialize_with = "or_default")]
        metadata: ObjectMeta<'a>,
        #[serde(deserialize_with = "or_default")]
        spec: CsiNodeSpec<'a>,
    }

    CsiNodeSpec = storage::CSINodeSpec => {
        drivers: Option<Vec<CsiNodeDriver<'a>>>,
    }

    CsiNodeDriver = storage::CSINodeDriver => {
        name: Text<'a>,
        allocatable: Option<VolumeNodeResources>,
        topology_keys: Option<Vec<Text<'a>>>,
    }
}

/// How many volumes a driver can attach.
#[derive(Debug, Default, serde::Deserialize)]
pub(in crate::convert) struct VolumeNodeResources {
    pub(in crate::convert) count: Option<i32>,
}

#[cfg(feature = "k8s-openapi")]
impl super::View<'_, storage::VolumeNodeResources> for VolumeNodeResources {
    fn view(object: &storage::VolumeNodeResources) -> Self {
        Self { count: object.count }
    }
}
