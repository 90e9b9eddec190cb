//! PodTopologyLabels: a pod carries the zone and region of its node from the moment it is bound.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/podtopologylabels/admission.go`.

use futures::future::BoxFuture;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::{GroupResource, Objects};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const NODES: GroupResource = GroupResource::of("", "nodes");
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// See the module.
pub(super) struct PodTopologyLabels;

impl AdmissionPlugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn lets_bind(&self, node: &str, objects: &dyn Objects) -> bool {
        !objects.has_label(&NODES, "", node, &TOPOLOGY_LABELS)
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        add(request);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn add(request: &mut AdmissionRequest<'_>) {
    if !request.is_resource("", "pods") && !request.is("", "bindings") {
        return;
    }
    let node = match request.subresource {
        "" if request.is_resource("", "pods") => request.object.at("spec").text("nodeName").to_owned(),
        "binding" | "" if matches!(request.object.at("target").text("kind"), "Node" | "") => {
            request.object.at("target").text("name").to_owned()
        }
        _ => return,
    };
    if node.is_empty() || request.operation == Operation::Delete {
        return;
    }
    let Some(node) = request.objects.get(&NODES, "", &node) else { return };
    let labels = node.at("metadata").at("labels");
    for key in TOPOLOGY_LABELS {
        if labels.has(key) {
            request.object.object_mut("metadata").object_mut("labels").put(key, labels.at(key).clone());
        }
    }
}
