//! NodeDeclaredFeatures: the node declares what the pod needs. Upstream: plugins/nodedeclaredfeatures (v1.36.2).

use std::hash::Hash;

use crate::cache::NodeView;
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result, Reuse, Sharing, Signature,
};
use crate::model::{Object, Pod};

/// Compares features.
#[derive(Debug, Default)]
pub struct NodeDeclaredFeatures;

impl NodeDeclaredFeatures {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeDeclaredFeatures";
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.required_node_features.hash(signature);
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

impl FilterPlugin for NodeDeclaredFeatures {
    type State = ();

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<()>> {
        Ok(if cycle.pod.required_node_features.is_empty() {
            PreFilterStatus::Skip
        } else {
            PreFilterStatus::success(())
        })
    }

    fn filter(&self, state: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        state.ok_or_else(PluginError::not_found)?;
        let declared = &node.node().declared_features;
        let fits =
            cycle.pod.required_node_features.iter().all(|needed| declared.iter().any(|name| name.as_ref() == *needed));
        Ok(FilterStatus::resolvable_never_unless(fits))
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("node(s) didn't match Pod's required features".into());
    }
}

impl EnqueueExtensions for NodeDeclaredFeatures {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_DECLARED_FEATURE),
            EventFilter::new(EventResource::Pod, ActionType::UPDATE),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::Node(old)), Some(Object::Node(new))) => old.declared_features != new.declared_features,
            (_, Some(Object::Node(_))) => true,
            (Some(Object::Pod(old)), Some(Object::Pod(new))) => {
                new.uid == pod.uid && old.required_node_features != new.required_node_features
            }
            _ => false,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}
