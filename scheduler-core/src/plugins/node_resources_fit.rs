//! NodeResourcesFit: the node has room, and scores by how much it has. Upstream: plugins/noderesources/fit.go (v1.36.2).

use std::hash::Hash;
use std::sync::Arc;

use super::resource_allocation::{AllocationScorer, Inputs, Strategy};
use crate::cache::{
    Candidates, LANES, NodeIdx, NodeView, Objects, ResourceColumns, ResourceId, SlotRun, WordMask, mask_of, words,
};
use crate::config::args::NodeResourcesFitArgs;
use crate::framework::{
    ActionType, BuildError, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter,
    EventResource, FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, PreScoreStatus, Reason,
    ReasonCounts, Result, Reuse, ScorePlugin, Sharing, Signature,
};
use crate::model::{DeviceClass, Node, Object, Pod, Resources, is_extended_resource};

/// Compares requests with what is free.
#[derive(Debug)]
pub struct NodeResourcesFit {
    ignored_resources: Vec<String>,
    ignored_groups: Vec<String>,
    scorer: AllocationScorer,
}

impl NodeResourcesFit {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeResourcesFit";

    /// Takes ignored resources and the scoring strategy from the arguments.
    ///
    /// # Errors
    /// When the strategy is none of the known ones.
    pub fn new(args: &NodeResourcesFitArgs) -> std::result::Result<Self, BuildError> {
        let strategy = match args.scoring_strategy.strategy_type.as_str() {
            "LeastAllocated" => Strategy::LeastAllocated,
            "MostAllocated" => Strategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                let shape = args.scoring_strategy.requested_to_capacity_ratio.as_deref().unwrap_or_default();
                Strategy::RequestedToCapacityRatio(
                    shape.iter().map(|point| (i64::from(point.utilization), i64::from(point.score))).collect(),
                )
            }
            other => return Err(BuildError(format!("scoring strategy {other} is not supported"))),
        };
        Ok(Self {
            ignored_resources: args.ignored_resources.clone(),
            ignored_groups: args.ignored_resource_groups.clone(),
            scorer: AllocationScorer::new(strategy, &args.scoring_strategy.resources),
        })
    }

    fn is_ignored(&self, resource: &str) -> bool {
        is_extended_resource(resource)
            && (self.ignored_resources.iter().any(|name| name == resource)
                || resource.split_once('/').is_some_and(|(group, _)| self.ignored_groups.iter().any(|g| g == group)))
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn sign(&self, Cycle { pod, objects, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.resources.hash(signature);
        for (name, _) in &pod.resources.requests.scalars {
            objects.device_class_for(name).is_some().hash(signature);
        }
        Sharing::ByNode
    }

    /// Columns of other resources than the usual ones come with the first pod or node that has some.
    fn reuse(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState) -> Reuse {
        if pod.resources.has_scalars() { Reuse::Signature } else { Reuse::Everything }
    }
}

/// What the pod asks for, scalars resolved to columns.
#[derive(Debug, Clone)]
pub struct Request {
    fixed: [(ResourceId, i64, &'static str); 3],
    scalars: Arc<[ScalarRequest]>,
}

#[derive(Debug)]
struct ScalarRequest {
    name: Arc<str>,
    /// `None` when no node and no bound pod has it.
    id: Option<ResourceId>,
    amount: i64,
    /// Whether devices may back it on nodes that do not offer it themselves.
    has_device_class: bool,
}

impl Request {
    fn new(plugin: &NodeResourcesFit, requests: &Resources, columns: &ResourceColumns, objects: &Objects) -> Self {
        let scalars = requests.scalars.iter();
        let scalars =
            scalars.filter(|(name, amount)| *amount != 0 && !plugin.is_ignored(name)).map(|(name, amount)| {
                ScalarRequest {
                    name: Arc::clone(name),
                    id: columns.id(name),
                    amount: *amount,
                    has_device_class: objects.device_class_for(name).is_some(),
                }
            });
        Self {
            fixed: [
                (ResourceId::MILLI_CPU, requests.milli_cpu, "Insufficient cpu"),
                (ResourceId::MEMORY, requests.memory, "Insufficient memory"),
                (ResourceId::EPHEMERAL_STORAGE, requests.ephemeral_storage, "Insufficient ephemeral-storage"),
            ],
            scalars: if requests.scalars.is_empty() { Arc::default() } else { scalars.collect() },
        }
    }

    /// Calls `found` for each resource that does not suffice: its reason, and whether the whole node is too small.
    fn insufficient(&self, node: NodeView<'_>, mut found: impl FnMut(Reason, bool)) {
        if node.requested(ResourceId::PODS).wrapping_add(1) > node.allocatable(ResourceId::PODS) {
            found("Too many pods".into(), false);
        }
        for &(id, amount, reason) in &self.fixed {
            let allocatable = node.allocatable(id);
            if amount > 0 && amount > allocatable.wrapping_sub(node.requested(id)) {
                found(reason.into(), amount > allocatable);
            }
        }
        for scalar in &*self.scalars {
            let (allocatable, requested) = match scalar.id {
                Some(id) => (node.allocatable(id), node.requested(id)),
                None => (0, 0),
            };
            if scalar.has_device_class && allocatable <= 0 {
                continue;
            }
            if scalar.amount > allocatable.wrapping_sub(requested) {
                found(format!("Insufficient {}", scalar.name).into(), scalar.amount > allocatable);
            }
        }
    }
}

impl Request {
    /// [`Request::insufficient`] of many nodes. A node that is too small as a whole gets its status here.
    fn count_insufficient(
        &self,
        columns: &ResourceColumns,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) {
        let (max_pods, n_pods) = (columns.allocatable(ResourceId::PODS), columns.requested(ResourceId::PODS));
        let is_full = |node: &&NodeIdx| n_pods[node.slot()].wrapping_add(1) > max_pods[node.slot()];
        reasons.add(&"Too many pods".into(), nodes.iter().filter(is_full).count());

        let mut count = |column: Option<ResourceId>, amount: i64, ignores_absent: bool| {
            let columns = column.map(|id| (columns.allocatable(id), columns.requested(id)));
            let mut n_lacking = 0;
            for (status, node) in statuses.iter_mut().zip(nodes) {
                let (allocatable, requested) =
                    columns.map_or((0, 0), |(all, used)| (all[node.slot()], used[node.slot()]));
                let lacks = amount > allocatable.wrapping_sub(requested) && !(ignores_absent && allocatable <= 0);
                n_lacking += usize::from(lacks);
                if lacks && amount > allocatable {
                    *status = FilterStatus::UnschedulableAndUnresolvable;
                }
            }
            n_lacking
        };
        for &(id, amount, reason) in self.fixed.iter().filter(|(_, amount, _)| *amount > 0) {
            reasons.add(&reason.into(), count(Some(id), amount, false));
        }
        for scalar in &*self.scalars {
            let n_lacking = count(scalar.id, scalar.amount, scalar.has_device_class);
            reasons.add(&format!("Insufficient {}", scalar.name).into(), n_lacking);
        }
    }
}

/// A column in words of slots.
type Words<'a> = &'a [[i64; LANES]];

/// An amount of one resource, asked of the 64 slots of one word.
#[derive(Clone, Copy)]
struct Need<'a> {
    amount: i64,
    allocatable: &'a [i64; LANES],
    requested: &'a [i64; LANES],
}

impl<'a> Need<'a> {
    #[inline(always)]
    fn at(((allocatable, requested), amount): ((Words<'a>, Words<'a>), i64), word: usize) -> Self {
        Self { amount, allocatable: &allocatable[word], requested: &requested[word] }
    }

    #[inline(always)]
    fn is_met(&self, lane: usize) -> bool {
        self.amount <= self.allocatable[lane].wrapping_sub(self.requested[lane])
    }
}

/// Which nodes have enough of two resources.
struct Room<'a>([((Words<'a>, Words<'a>), i64); 2]);

impl WordMask for Room<'_> {
    #[inline(always)]
    fn of_word(&self, at: usize) -> u64 {
        let [a, b] = self.0.map(|need| Need::at(need, at));
        mask_of(|lane| a.is_met(lane) & b.is_met(lane))
    }
}

impl FilterPlugin for NodeResourcesFit {
    type State = Request;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<Request>> {
        let requests = &cycle.pod.resources.requests;
        Ok(PreFilterStatus::success(Request::new(self, requests, cycle.snapshot.resources(), cycle.objects)))
    }

    fn filter(&self, state: Option<&Request>, _: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let request = state.ok_or_else(PluginError::not_found)?;
        let mut status = FilterStatus::Success;
        request.insufficient(node, |_, too_small| {
            status = match status {
                FilterStatus::Success | FilterStatus::Unschedulable if !too_small => FilterStatus::Unschedulable,
                _ => FilterStatus::UnschedulableAndUnresolvable,
            };
        });
        Ok(status)
    }

    fn filter_chunk(&self, state: Option<&Request>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        let request = state.ok_or_else(PluginError::not_found)?;
        let columns = cycle.snapshot.resources();
        let column = |id| (words(columns.allocatable(id)), words(columns.requested(id)));
        // An amount that is not asked for fits everywhere: nothing is less than the least number.
        let [cpu, memory, storage] =
            request.fixed.map(|(id, amount, _)| (column(id), if amount > 0 { amount } else { i64::MIN }));
        nodes.intersect(columns.has_pod_room());
        nodes.retain_words(Room([cpu, memory]));
        if storage.1 != i64::MIN {
            nodes.retain_words(|at: usize| {
                let storage = Need::at(storage, at);
                mask_of(|lane| storage.is_met(lane))
            });
        }
        for scalar in &*request.scalars {
            let Some(id) = scalar.id else {
                if !scalar.has_device_class && scalar.amount > 0 {
                    nodes.clear();
                }
                continue;
            };
            let column = column(id);
            nodes.retain_words(|at: usize| {
                let need = Need::at((column, scalar.amount), at);
                mask_of(|lane| (scalar.has_device_class & (need.allocatable[lane] <= 0)) | need.is_met(lane))
            });
        }
        Ok(())
    }

    fn reasons(&self, state: Option<&Request>, _: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        if let Some(request) = state {
            request.insufficient(node, |reason, _| out.push(reason));
        }
    }

    /// Counts each resource over all nodes, so that its reason is written once.
    fn diagnose_chunk(
        &self,
        state: Option<&Request>,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        statuses: &mut [FilterStatus],
        reasons: &mut ReasonCounts,
    ) -> Result<()> {
        let request = state.ok_or_else(PluginError::not_found)?;
        statuses.fill(FilterStatus::Unschedulable);
        request.count_insufficient(cycle.snapshot.resources(), nodes, statuses, reasons);
        Ok(())
    }

    fn follows_pods(&self) -> bool {
        false
    }
}

impl ScorePlugin for NodeResourcesFit {
    type State = Inputs;

    fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<Inputs>> {
        Ok(PreScoreStatus::Success(self.scorer.inputs_for_scoring(cycle.pod, cycle.snapshot.resources())))
    }

    /// Does not look at the feasible nodes.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        _: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<Inputs>>> {
        self.pre_score(cycle, &[], shared).map(Some)
    }

    fn score(&self, state: Option<&Inputs>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        Ok(match state {
            Some(inputs) => self.scorer.score(inputs, node),
            None => self.scorer.score(&self.scorer.inputs_for_scoring(cycle.pod, cycle.snapshot.resources()), node),
        })
    }

    fn normalizes(&self) -> bool {
        false
    }

    fn score_chunk(
        &self,
        state: Option<&Inputs>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        match state {
            Some(inputs) => self.scorer.score_chunk(inputs, cycle.snapshot.resources(), nodes, scores),
            None => {
                let inputs = self.scorer.inputs_for_scoring(cycle.pod, cycle.snapshot.resources());
                self.scorer.score_chunk(&inputs, cycle.snapshot.resources(), nodes, scores);
            }
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&Inputs>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let columns = cycle.snapshot.resources();
        Ok(state.is_some_and(|inputs| self.scorer.score_slots(inputs, columns, None, slots, scores)))
    }
}

impl EnqueueExtensions for NodeResourcesFit {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![
            EventFilter::new(EventResource::Pod, ActionType::DELETE | ActionType::UPDATE_POD_SCALE_DOWN),
            EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE),
            EventFilter::new(EventResource::DeviceClass, ActionType::ADD | ActionType::UPDATE),
        ]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, world: ClusterView<'_>) -> Result<Hint> {
        let helps = match (&event.old, &event.new) {
            (Some(Object::Pod(old)), None) => old.node_name.is_some() || old.nominated_node_name.is_some(),
            (Some(Object::Pod(old)), Some(Object::Pod(new))) => scaled_down(pod, old, new),
            (old, Some(Object::Node(new))) => {
                let old = match old {
                    Some(Object::Node(old)) => Some(&**old),
                    _ => None,
                };
                self.node_helps(pod, old, new, world.objects)
            }
            (old, Some(Object::DeviceClass(new))) => {
                let old = match old {
                    Some(Object::DeviceClass(old)) => Some(&**old),
                    _ => None,
                };
                device_class_helps(pod, old, new)
            }
            _ => true,
        };
        Ok(if helps { Hint::Queue } else { Hint::Skip })
    }
}

/// Whether the update frees something that the pod asks for.
fn scaled_down(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    if new.uid == pod.uid {
        return true;
    }
    if new.node_name.is_none() {
        return false;
    }
    let (wanted, before, after) = (pod.resources.used(), old.resources.used(), new.resources.used());
    (wanted.milli_cpu != 0 && before.milli_cpu > after.milli_cpu)
        || (wanted.memory != 0 && before.memory > after.memory)
        || (wanted.ephemeral_storage != 0 && before.ephemeral_storage > after.ephemeral_storage)
        || wanted.scalars.iter().any(|(name, amount)| *amount != 0 && before.scalar(name) > after.scalar(name))
}

fn device_class_helps(pod: &Pod, old: Option<&DeviceClass>, new: &DeviceClass) -> bool {
    let asks = |name: &str| pod.resources.requests.scalars.iter().any(|(asked, _)| asked.as_ref() == name);
    let by_class_name = || asks(&format!("deviceclass.resource.kubernetes.io/{}", new.name));
    match old {
        Some(old) if old.extended_resource_name == new.extended_resource_name => return false,
        Some(_) => {}
        None if by_class_name() => return true,
        None => {}
    }
    new.extended_resource_name.as_deref().is_some_and(asks)
}

impl NodeResourcesFit {
    /// Whether the empty node would do, and offers more than before of something that the pod asks for.
    fn node_helps(&self, pod: &Pod, old: Option<&Node>, new: &Node, objects: &Objects) -> bool {
        let requests = &pod.resources.requests;
        let delegated = |name: &str| new.allocatable.scalar(name) <= 0 && objects.device_class_for(name).is_some();
        let fits = new.allocatable.pods >= 1
            && [
                (requests.milli_cpu, new.allocatable.milli_cpu),
                (requests.memory, new.allocatable.memory),
                (requests.ephemeral_storage, new.allocatable.ephemeral_storage),
            ]
            .iter()
            .all(|(asked, offered)| *asked <= 0 || asked <= offered)
            && requests
                .scalars
                .iter()
                .all(|(name, asked)| *asked == 0 || delegated(name) || *asked <= new.allocatable.scalar(name));
        let Some(old) = old else { return fits };
        fits && (new.allocatable.pods > old.allocatable.pods
            || (requests.milli_cpu > 0 && new.allocatable.milli_cpu > old.allocatable.milli_cpu)
            || (requests.memory > 0 && new.allocatable.memory > old.allocatable.memory)
            || (requests.ephemeral_storage > 0
                && new.allocatable.ephemeral_storage > old.allocatable.ephemeral_storage)
            || requests.scalars.iter().any(|(name, asked)| {
                *asked != 0 && (new.allocatable.scalar(name) > old.allocatable.scalar(name) || delegated(name))
            }))
    }
}
