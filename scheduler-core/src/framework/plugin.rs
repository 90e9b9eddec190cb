//! The extension points, one trait each; coupled points (PreFilter+Filter, PreScore+Score+Normalize) share a trait.

use std::cmp::Ordering;

use super::{
    BindStep, Binding, ClusterEvent, ClusterView, Cycle, CycleState, EventFilter, FilterStates, FilterStatus, Filters,
    Hint, PermitStatus, PostFilterStatus, PreEnqueueStatus, PreFilterStatus, PreFlight, PreScoreStatus, QueuedEntity,
    Reason, ReasonCounts, Rejected, ReserveStatus, Result, Reuse, Sharing, Signature, Step, WaitingPods,
};
use crate::cache::{Candidates, Indexes, NodeIdx, NodeView, Objects, SlotRun};
use crate::model::Pod;

/// What every plugin has, whatever extension points it implements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a plugin",
    note = "write `impl Plugin for {Self} {{}}`; `name` is the type's own name unless you give another"
)]
pub trait Plugin: Send + Sync + 'static {
    /// The name by which configurations and messages refer to it: the one it is registered under. When nothing is said,
    /// the name of the type.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Asks the cache for the incremental indexes that this plugin's chunk methods read for such a pod: label
    /// columns, pod counts, or one of its own ([`ClusterIndex`](crate::cache::ClusterIndex)). Called before the cycle; an
    /// index once asked for is kept up to date by events. The per-node methods must not depend on those of the cache.
    /// Of replicas that follow each other only the first is asked about: see [`Pod::is_replica_of`].
    fn require(&self, pod: &Pod, objects: &Objects, indexes: &mut Indexes<'_>) {
        let _ = (pod, objects, indexes);
    }

    /// Writes down everything that the plugin's PreFilter, Filter, PreScore, Score and NormalizeScore look at besides the
    /// nodes and the pods on them: parts of the pod, and of other objects. Says how far results hold for the next pod
    /// that signs the same. NormalizeScore of a plugin that shares must depend only on which raw scores there are, not
    /// on how many nodes have them. Called after PreFilter; [`Sharing::Never`] is always right.
    ///
    /// Upstream: `SignPlugin` (v1.36.2 kube-scheduler framework/interface.go).
    fn sign(&self, cycle: Cycle<'_>, shared: &CycleState, signature: &mut Signature) -> Sharing {
        let _ = (cycle, shared, signature);
        Sharing::Never
    }

    /// Whether what Filter and Score say of a node may change when pods come to it or leave it. Only speed: `true` is always
    /// right. `false` promises that they look at the node's object alone, and at what the plugin signs.
    fn looks_at_pods(&self) -> bool {
        true
    }

    /// How much of what the plugin said for this pod holds for its replicas. When something does, PreFilter of a replica
    /// finds in the shared state what was left for the pod before. Only speed: [`Reuse::Nothing`] is always right.
    /// Called after PreFilter and `sign`.
    fn reuse(&self, cycle: Cycle<'_>, shared: &CycleState) -> Reuse {
        let _ = (cycle, shared);
        Reuse::Nothing
    }

    /// For a plugin that shares by class: the class of each node, `classes[i]` for `nodes[i]`. Nodes of one class get the
    /// same verdict, the same raw score and the same NormalizeScore, whatever happens to other nodes. A class may change
    /// only with the node itself and the pods on it.
    fn classify(&self, cycle: Cycle<'_>, shared: &CycleState, nodes: &[NodeIdx], classes: &mut [u64]) {
        let _ = (cycle, shared, nodes, classes);
    }
}

/// Decides before queueing whether a pod may be tried at all. Upstream: `PreEnqueuePlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PreEnqueue plugin",
    note = "implement `PreEnqueuePlugin` with `pre_enqueue`, and `Plugin`"
)]
pub trait PreEnqueuePlugin: Plugin {
    /// Whether the pod may enter the active queue.
    fn pre_enqueue(&self, pod: &Pod, world: ClusterView<'_>) -> PreEnqueueStatus;
}

/// Orders the active queue; each scheduler has exactly one. Upstream: `QueueSortPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a QueueSort plugin",
    note = "implement `QueueSortPlugin` with `compare`, and `Plugin`"
)]
pub trait QueueSortPlugin: Plugin {
    /// `Less` when `a` is to be tried before `b`. Must be a total order.
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> Ordering;

    /// A number that stands for the entity in the order. Only speed: of any two entities that have ranks these must
    /// compare as [`compare`](Self::compare) says.
    fn rank(&self, entity: &QueuedEntity) -> Option<u128> {
        let _ = entity;
        None
    }
}

/// Tells which changes of the cluster may help a pod that this plugin rejected. Upstream: `EnqueueExtensions`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no enqueue extensions",
    note = "implement `EnqueueExtensions` with `events_to_register`, and `Plugin`"
)]
pub trait EnqueueExtensions: Plugin {
    /// Events worth asking about.
    fn events_to_register(&self) -> Vec<EventFilter>;

    /// Whether this event may make the pod schedulable. An error counts as [`Hint::Queue`].
    ///
    /// # Errors
    /// When the event cannot be judged.
    fn hint(&self, pod: &Pod, event: &ClusterEvent, world: ClusterView<'_>) -> Result<Hint> {
        let _ = (pod, event, world);
        Ok(Hint::Queue)
    }
}

/// PreFilter and Filter: which nodes can take the pod.
///
/// [`filter`](FilterPlugin::filter) is required: it is the specification, the explanation and the test oracle, and
/// must be a pure function of state, cycle and node. [`filter_chunk`](FilterPlugin::filter_chunk) is optional and
/// only speed: it must clear exactly the bits of the nodes that `filter` rejects.
///
/// ```
/// use std::sync::Arc;
/// use scheduler_core::cache::NodeView;
/// use scheduler_core::framework::{Cycle, FilterPlugin, FilterStatus, Plugin, Reason, Result};
///
/// struct SpareNode;
///
/// impl Plugin for SpareNode {
///     fn name(&self) -> &'static str {
///         "SpareNode"
///     }
/// }
///
/// impl FilterPlugin for SpareNode {
///     type State = ();
///
///     fn filter(&self, _: Option<&()>, _: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
///         Ok(FilterStatus::fits_if(&**node.name() != "spare"))
///     }
///
///     fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
///         out.push("node is kept as a spare".into());
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a filter plugin",
    note = "implement `FilterPlugin` with at least `type State`, `filter` and `reasons`, and `Plugin`"
)]
pub trait FilterPlugin: Plugin {
    /// What PreFilter computes once per cycle; `()` when nothing. Cloned for what-if runs: keep it cheap to clone.
    type State: Clone + Send + Sync + 'static;

    /// Looks at the pod once. Runs only if the plugin is registered for the PreFilter point.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn pre_filter(&self, cycle: Cycle<'_>, shared: &mut CycleState) -> Result<PreFilterStatus<Self::State>> {
        let _ = (cycle, shared);
        Ok(PreFilterStatus::Skip)
    }

    /// Whether the node can take the pod. `state` is `None` when PreFilter did not run in this profile.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn filter(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus>;

    /// Clears the bits of the nodes that cannot take the pod.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn filter_chunk(&self, state: Option<&Self::State>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        nodes.try_retain(|node| self.filter(state, cycle, cycle.snapshot.view(node)).map(FilterStatus::is_success))
    }

    /// Why `filter` rejected the node, in upstream's words. Called only for nodes it rejects, after the search.
    fn reasons(&self, state: Option<&Self::State>, cycle: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>);

    /// Why `filter` rejects these nodes, each of which it does: the status of each, and the reasons of all, counted. Only
    /// speed; must come to what `filter` and `reasons` say node by node.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn diagnose_chunk(
        &self,
        state: Option<&Self::State>,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) -> Result<()> {
        let mut of_node = Vec::new();
        for (status, &node) in statuses.iter_mut().zip(nodes) {
            let view = cycle.snapshot.view(node);
            *status = self.filter(state, cycle, view)?;
            self.reasons(state, cycle, view, &mut of_node);
            of_node.drain(..).for_each(|reason| reasons.add(&reason, 1));
        }
        Ok(())
    }

    /// Whether [`add_pod`](Self::add_pod) and [`remove_pod`](Self::remove_pod) do anything. Only speed: without such a
    /// plugin, what-if runs need no copies of states.
    fn follows_pods(&self) -> bool {
        true
    }

    /// What if `pod` ran on the node, too? Changes a copy of the state.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the what-if run ends with an error.
    fn add_pod(&self, state: &mut Self::State, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        let _ = (state, cycle, pod, node);
        Ok(())
    }

    /// What if `pod` no longer ran on the node? Changes a copy of the state.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the what-if run ends with an error.
    fn remove_pod(&self, state: &mut Self::State, cycle: Cycle<'_>, pod: &Pod, node: NodeView<'_>) -> Result<()> {
        let _ = (state, cycle, pod, node);
        Ok(())
    }
}

/// PreScore, Score and NormalizeScore: which of the feasible nodes is best.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a score plugin",
    note = "implement `ScorePlugin` with at least `type State` and `score`, and `Plugin`"
)]
pub trait ScorePlugin: Plugin {
    /// What PreScore computes once per cycle; `()` when nothing.
    type State: Send + Sync + 'static;

    /// Looks at the pod and the feasible nodes once. Runs only if registered for the PreScore point.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn pre_score(
        &self,
        cycle: Cycle<'_>,
        feasible: &[NodeIdx],
        shared: &CycleState,
    ) -> Result<PreScoreStatus<Self::State>> {
        let _ = (cycle, feasible, shared);
        Ok(PreScoreStatus::Skip)
    }

    /// As [`pre_score`](ScorePlugin::pre_score), for feasible nodes by class: one node of each, with the number of nodes
    /// that it stands for. A plugin that shares by class and counts nodes must not leave it at the default.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn pre_score_classes(
        &self,
        cycle: Cycle<'_>,
        feasible: &[(NodeIdx, usize)],
        shared: &CycleState,
    ) -> Result<PreScoreStatus<Self::State>> {
        let nodes: Vec<NodeIdx> = feasible.iter().map(|(node, _)| *node).collect();
        self.pre_score(cycle, &nodes, shared)
    }

    /// As [`pre_score`](ScorePlugin::pre_score), for feasible nodes that are known as a mask, one bit a slot, or not known
    /// yet: the engine then scores each node as soon as the filters let it pass. `None` if that does not do for this
    /// plugin. Only speed: what it leaves must be what `pre_score` would.
    ///
    /// # Errors
    /// When the plugin cannot do its work; `pre_score` is asked again and reports it.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        feasible: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<Self::State>>> {
        let _ = (cycle, feasible, shared);
        Ok(None)
    }

    /// The node's raw score. `state` is `None` when PreScore did not run in this profile.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn score(
        &self,
        state: Option<&Self::State>,
        cycle: Cycle<'_>,
        shared: &CycleState,
        node: NodeView<'_>,
    ) -> Result<i64>;

    /// Raw scores of several nodes: `scores[i]` belongs to `nodes[i]`. Must equal `score` node by node.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn score_chunk(
        &self,
        state: Option<&Self::State>,
        cycle: Cycle<'_>,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        for (score, &node) in scores.iter_mut().zip(nodes) {
            *score = self.score(state, cycle, shared, cycle.snapshot.view(node))?;
        }
        Ok(())
    }

    /// Raw scores of a run of slots, most of them feasible: `scores[i]` belongs to the run's slot `i`. What is left for
    /// slots that are not feasible does not matter. False, and anything in `scores`, if these nodes must be scored one by
    /// one. Only speed.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the nodes are then scored one by one.
    fn score_slots(
        &self,
        state: Option<&Self::State>,
        cycle: Cycle<'_>,
        shared: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let _ = (state, cycle, shared, slots, scores);
        Ok(false)
    }

    /// The normalised score that every feasible node gets, if that is known without looking at the nodes. Only speed: it
    /// must be what [`score`](ScorePlugin::score) and [`normalize`](ScorePlugin::normalize) would come to.
    fn uniform_score(&self, state: Option<&Self::State>, cycle: Cycle<'_>, shared: &CycleState) -> Option<i64> {
        let _ = (state, cycle, shared);
        None
    }

    /// Whether [`normalize`](ScorePlugin::normalize) does anything. Only speed: scores that are right as they are can be
    /// added up a few nodes at a time.
    fn normalizes(&self) -> bool {
        true
    }

    /// Brings the raw scores of all feasible nodes into 0..=100.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn normalize(
        &self,
        state: Option<&Self::State>,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let _ = (state, cycle, nodes, scores);
        Ok(())
    }

    /// As [`normalize`](ScorePlugin::normalize), for some of the feasible nodes, when the lowest and the highest raw score
    /// of all of them say everything. False, and nothing done, when they do not; no scores at all ask just that. Only
    /// speed.
    fn normalize_between(&self, state: Option<&Self::State>, lowest: i64, highest: i64, scores: &mut [i64]) -> bool {
        let _ = (state, lowest, highest, scores);
        false
    }
}

/// What to do for a pod that fits nowhere, such as preemption. Upstream: `PostFilterPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PostFilter plugin",
    note = "implement `PostFilterPlugin` with `post_filter`, and `Plugin`"
)]
pub trait PostFilterPlugin: Plugin {
    /// Tries to make the pod schedulable in a later cycle.
    ///
    /// # Errors
    /// When the plugin cannot do its work; its text is appended to the message and no later plugin runs.
    fn post_filter(
        &self,
        cycle: Cycle<'_>,
        shared: &mut CycleState,
        filters: &Filters<'_>,
        states: &FilterStates,
        rejected: &Rejected,
    ) -> Result<PostFilterStatus>;

    /// Every effect of the pod's last successful [`post_filter`](Self::post_filter) has been reported, failed or not.
    /// After a failure the engine activates the pod.
    fn effects_finished(&self, pod: &Pod) {
        let _ = pod;
    }
}

/// Keeps something on the chosen node for the pod. Upstream: `ReservePlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Reserve plugin",
    note = "implement `ReservePlugin` with `reserve` and `unreserve`, and `Plugin`"
)]
pub trait ReservePlugin: Plugin {
    /// Reserves.
    ///
    /// # Errors
    /// When the plugin cannot do its work; everything reserved so far is released.
    fn reserve(&self, cycle: Cycle<'_>, shared: &mut CycleState, node: NodeView<'_>) -> Result<ReserveStatus>;

    /// Releases. Must be idempotent and cannot fail; may be called without `reserve`. Runs in reverse order.
    fn unreserve(&self, binding: &mut Binding, world: ClusterView<'_>);
}

/// Approves, delays or refuses the chosen placement. Upstream: `PermitPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Permit plugin",
    note = "implement `PermitPlugin` with `permit`, and `Plugin`"
)]
pub trait PermitPlugin: Plugin {
    /// Says whether binding may start. `waiting` holds pods that were told to wait earlier.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn permit(
        &self,
        cycle: Cycle<'_>,
        shared: &mut CycleState,
        node: NodeView<'_>,
        waiting: &mut WaitingPods,
    ) -> Result<PermitStatus>;
}

/// Work before the binding, such as waiting for volumes. Upstream: `PreBindPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PreBind plugin",
    note = "implement `PreBindPlugin` with `pre_flight` and `pre_bind`, and `Plugin`"
)]
pub trait PreBindPlugin: Plugin {
    /// Whether there will be work. Any work makes the engine nominate the node first.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn pre_flight(&self, binding: &Binding, world: ClusterView<'_>) -> Result<PreFlight>;

    /// Does the next step. Called again when an effect of it finished, an awaited event came, or the time is up.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn pre_bind(&self, binding: &mut Binding, world: ClusterView<'_>) -> Result<Step>;
}

/// Binds the pod to the node. The first that does not skip does it. Upstream: `BindPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Bind plugin",
    note = "implement `BindPlugin` with `bind`, and `Plugin`"
)]
pub trait BindPlugin: Plugin {
    /// Does the next step.
    ///
    /// # Errors
    /// When the plugin cannot do its work; the attempt ends with an error.
    fn bind(&self, binding: &mut Binding, world: ClusterView<'_>) -> Result<BindStep>;
}

/// Hears of successful bindings. Upstream: `PostBindPlugin`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PostBind plugin",
    note = "implement `PostBindPlugin` with `post_bind`, and `Plugin`"
)]
pub trait PostBindPlugin: Plugin {
    /// The pod is bound.
    fn post_bind(&self, binding: &Binding, world: ClusterView<'_>);
}
