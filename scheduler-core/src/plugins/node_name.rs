//! NodeName: a pod that names a node goes nowhere else. Upstream: plugins/nodename (v1.36.2).

use std::hash::Hash;

use crate::cache::{Candidates, NodeView};
use crate::framework::{
    ActionType, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource, FilterPlugin, FilterStatus, Plugin,
    Reason, Result, Reuse, Sharing, Signature,
};

/// Compares `spec.nodeName`.
#[derive(Debug, Default)]
pub struct NodeName;

impl NodeName {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeName";
}

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.node_name.hash(signature);
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

impl FilterPlugin for NodeName {
    type State = ();

    fn filter(&self, _: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let fits = cycle.pod.node_name.as_ref().is_none_or(|name| name == node.name());
        Ok(FilterStatus::resolvable_never_unless(fits))
    }

    fn filter_chunk(&self, _: Option<&()>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        if let Some(name) = &cycle.pod.node_name {
            let wanted = cycle.snapshot.find(name);
            nodes.retain(|node| Some(node) == wanted);
        }
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("node(s) didn't match the requested node name".into());
    }
}

impl EnqueueExtensions for NodeName {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![EventFilter::new(EventResource::Node, ActionType::ADD)]
    }
}
