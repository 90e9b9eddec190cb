//! NodeUnschedulable: keeps pods off cordoned nodes. Upstream: plugins/nodeunschedulable (v1.36.2).

use std::hash::Hash;
use std::sync::LazyLock;

use crate::cache::{Candidates, NodeView};
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, Reason, Result, Reuse, Sharing, Signature,
};
use crate::model::{Object, Pod, Taint, TaintEffect};

/// Filters out nodes with `spec.unschedulable`, unless the pod tolerates the taint of that name.
#[derive(Debug, Default)]
pub struct NodeUnschedulable;

static UNSCHEDULABLE_TAINT: LazyLock<Taint> = LazyLock::new(|| Taint {
    key: "node.kubernetes.io/unschedulable".into(),
    value: "".into(),
    effect: TaintEffect::NoSchedule,
});

impl NodeUnschedulable {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeUnschedulable";
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.tolerates(&UNSCHEDULABLE_TAINT).hash(signature);
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

impl FilterPlugin for NodeUnschedulable {
    type State = ();

    fn filter(&self, _: Option<&()>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let fits = !node.node().unschedulable || cycle.pod.tolerates(&UNSCHEDULABLE_TAINT);
        Ok(FilterStatus::resolvable_never_unless(fits))
    }

    fn filter_chunk(&self, _: Option<&()>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        if !cycle.pod.tolerates(&UNSCHEDULABLE_TAINT) {
            nodes.subtract(cycle.snapshot.unschedulable());
        }
        Ok(())
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("node(s) were unschedulable".into());
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_TAINT),
            EventFilter::new(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::Node(old)), Some(Object::Node(new))) => old.unschedulable && !new.unschedulable,
            (None, Some(Object::Node(new))) => !new.unschedulable,
            (_, Some(Object::Pod(new))) => new.uid == pod.uid && new.tolerates(&UNSCHEDULABLE_TAINT),
            _ => false,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}
