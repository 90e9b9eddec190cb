//! Nodes.

use std::sync::Arc;

use super::wire::{Map, Text};
use super::{ConvertError, labels, resource_list, shared, text, texts, wire};
use crate::model::{ContainerImage, Node, NodeTemplate, Resources, Taint, TaintEffect};

impl TryFrom<wire::Node<'_>> for Node {
    type Error = ConvertError;

    fn try_from(node: wire::Node<'_>) -> Result<Self, ConvertError> {
        let meta = &node.metadata;
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = resource_list(status.and_then(|status| status.allocatable.as_ref()), "status.allocatable")
            .map_err(|error| error.on("Node", meta))?;
        let name = text(meta.name.as_ref());
        // One of the values is the name, as a rule.
        let value = |value: &Text<'_>| if **value == *name { Arc::clone(&name) } else { shared(value) };
        let labels_of = meta.labels.iter().flat_map(Map::iter);
        let template = NodeTemplate {
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec
                .and_then(|spec| spec.taints.as_ref())
                .into_iter()
                .flatten()
                .filter_map(|taint| {
                    Some(Taint {
                        key: shared(&taint.key),
                        value: taint.value.as_ref().map(shared).unwrap_or_default(),
                        effect: taint_effect(&taint.effect)?,
                    })
                })
                .collect(),
            allocatable: Resources::from_list(&allocatable),
            conditions: status
                .and_then(|status| status.conditions.as_ref())
                .into_iter()
                .flatten()
                .map(|condition| (shared(&condition.type_), shared(&condition.status)))
                .collect(),
            declared_features: texts(status.and_then(|status| status.declared_features.as_ref())),
        };
        Ok(Self {
            labels: labels_of.map(|(key, of)| (shared(key), value(of))).collect(),
            uid: text(meta.uid.as_ref()),
            annotations: labels(meta.annotations.as_ref()),
            images: status
                .and_then(|status| status.images.as_ref())
                .into_iter()
                .flatten()
                .map(|image| ContainerImage {
                    names: texts(image.names.as_ref()),
                    size_bytes: image.size_bytes.unwrap_or(0),
                })
                .collect(),
            name,
            template: template.into(),
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
