//! Nodes.

use super::{ConvertError, labels, resource_list, text, texts, wire};
use crate::model::{ContainerImage, Node, Resources, Taint, TaintEffect};

impl TryFrom<wire::Node<'_>> for Node {
    type Error = ConvertError;

    fn try_from(node: wire::Node<'_>) -> Result<Self, ConvertError> {
        let meta = &node.metadata;
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = resource_list(status.and_then(|status| status.allocatable.as_ref()), "status.allocatable")
            .map_err(|error| error.on("Node", meta))?;
        Ok(Self {
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            labels: labels(meta.labels.as_ref()),
            annotations: labels(meta.annotations.as_ref()),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec
                .and_then(|spec| spec.taints.as_ref())
                .into_iter()
                .flatten()
                .filter_map(|taint| {
                    Some(Taint {
                        key: (&taint.key).into(),
                        value: text(taint.value.as_ref()),
                        effect: taint_effect(&taint.effect)?,
                    })
                })
                .collect(),
            allocatable: Resources::from_list(&allocatable),
            images: status
                .and_then(|status| status.images.as_ref())
                .into_iter()
                .flatten()
                .map(|image| ContainerImage {
                    names: texts(image.names.as_ref()),
                    size_bytes: image.size_bytes.unwrap_or(0),
                })
                .collect(),
            conditions: status
                .and_then(|status| status.conditions.as_ref())
                .into_iter()
                .flatten()
                .map(|condition| ((&condition.type_).into(), (&condition.status).into()))
                .collect(),
            declared_features: texts(status.and_then(|status| status.declared_features.as_ref())),
        })
    }
}

/// An unknown effect does nothing in upstream either: no plugin looks at it.
pub(super) fn taint_effect(effect: &str) -> Option<TaintEffect> {
    match effect {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}
