//! NodePorts: a host port is free on the node. Upstream: plugins/nodeports (v1.36.2).

use std::hash::Hash;

use crate::cache::{Candidates, NodeView};
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, Reason, Result, Reuse, Sharing, Signature,
};
use crate::model::{HostPort, Object, Pod};

/// Compares host ports.
#[derive(Debug, Default)]
pub struct NodePorts;

impl NodePorts {
    /// Name in configurations.
    pub const NAME: &'static str = "NodePorts";
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.host_ports.hash(signature);
        Sharing::ByNode
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

/// Only `0.0.0.0` stands for every address; `::` does not.
fn conflict(a: &HostPort, b: &HostPort) -> bool {
    const ANY: &str = "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip.as_ref() == ANY || b.ip.as_ref() == ANY)
}

impl FilterPlugin for NodePorts {
    type State = ();

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<()>> {
        Ok(if cycle.pod.host_ports.is_empty() { PreFilterStatus::Skip } else { PreFilterStatus::success(()) })
    }

    fn filter(&self, state: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        state.ok_or_else(PluginError::not_found)?;
        let taken = node.host_ports().any(|used| cycle.pod.host_ports.iter().any(|wanted| conflict(wanted, used)));
        Ok(FilterStatus::fits_if(!taken))
    }

    fn filter_chunk(&self, state: Option<&()>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        state.ok_or_else(PluginError::not_found)?;
        for wanted in &cycle.pod.host_ports {
            for (node, used) in cycle.snapshot.host_ports().holders(wanted.port) {
                if conflict(wanted, used) {
                    nodes.remove(node);
                }
            }
        }
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("node(s) didn't have free ports for the requested pod ports".into());
    }
}

impl EnqueueExtensions for NodePorts {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Pod, ActionType::DELETE),
            EventFilter::new(EventResource::Node, ActionType::ADD),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let Some(Object::Pod(deleted)) = &event.old else { return Ok(Hint::Queue) };
        let was_somewhere = deleted.node_name.is_some() || deleted.nominated_node_name.is_some();
        let helps = was_somewhere
            && deleted.host_ports.iter().any(|freed| pod.host_ports.iter().any(|wanted| conflict(wanted, freed)));
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}
