//! One scheduling cycle: take a pod from the queue, decide, assume, reserve, permit, hand over to the binding cycle.
//! Upstream: schedule_one.go (v1.36.2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{Algorithm, Decision, Kept, NoDecision};
use super::attempt::{Attempt, Outcome};
use super::binding_cycle::BindingCycle;
use super::failure::Failure;
use super::record::DecisionRecord;
use super::rng::mix;
use super::scheduler::Scheduler;
use crate::cache::NodeIdx;
use crate::framework::{
    Binding, ClusterView, Cycle, CycleState, EffectKind, EventType, FilterStates, Filters, PermitStatus, PluginError,
    QueuedEntity, Reasons, ReserveStatus,
};
use crate::model::{Pod, Timestamp};

/// The longest that a Permit plugin may make a pod wait. Upstream: runtime `maxTimeout`.
const MAX_PERMIT_WAIT: Duration = Duration::from_secs(15 * 60);

impl Scheduler {
    /// Tries the pod whose turn it is; `None` when none waits. `pool` is used for large clusters only.
    pub fn schedule_one(&mut self, now: Timestamp, pool: &rayon::ThreadPool) -> Option<Attempt> {
        let (queue, rules) = self.queue_and_rules(now);
        queue.tick(now, &rules);
        let entity = queue.pop(now, &rules)?;
        Some(self.attempt(entity, now, pool))
    }

    /// Tries one pod out of turn; `None` if it does not wait, or is gated.
    pub fn schedule_pod(&mut self, uid: &str, now: Timestamp, pool: &rayon::ThreadPool) -> Option<Attempt> {
        let (queue, rules) = self.queue_and_rules(now);
        let entity = queue.pop_pod(uid, now, &rules)?;
        Some(self.attempt(entity, now, pool))
    }

    fn attempt(&mut self, entity: QueuedEntity, now: Timestamp, pool: &rayon::ThreadPool) -> Attempt {
        let Some(profile) = self.profile_position(&entity.pod.scheduler_name) else {
            self.queue.done(&entity.pod.uid);
            return Attempt::skipped(&entity);
        };
        if self.skips(profile, &entity.pod) {
            self.queue.done(&entity.pod.uid);
            return Attempt::skipped(&entity);
        }
        let mut record = self.records_decisions.then(Box::<DecisionRecord>::default);
        let mut shared = CycleState::default();
        let mut states = FilterStates::default();
        let seed = mix(self.seed, self.n_cycles);
        self.n_cycles += 1;

        let is_replica =
            self.batches.enabled && self.last_required.as_ref().is_some_and(|last| last.is_replica_of(&entity.pod));
        if !is_replica {
            self.require_indexes(profile, &entity.pod);
            self.last_required = Some(Arc::clone(&entity.pod));
        }
        let cycle = (now, seed, is_replica);
        let decision = self.decide(profile, &entity.pod, cycle, pool, &mut shared, &mut states, record.as_deref_mut());
        let (scheduler_name, attempts, pod) =
            (Arc::clone(&self.profiles[profile].scheduler_name), entity.attempts, Arc::clone(&entity.pod));
        let outcome = match decision {
            Ok(decision) => self.place(profile, entity, &decision, shared, (now, seed)),
            Err(no_decision) => {
                let failure = self.no_decision(profile, &entity, no_decision, &mut shared, &states, (now, seed));
                self.fail(profile, entity, failure, now)
            }
        };
        if let Some(record) = &mut record {
            record.seed = seed;
            if let Outcome::Scheduled { node, .. } = &outcome {
                record.selected = Some(Arc::clone(node));
            }
        }
        // A Permit plugin may have let other pods go in this cycle.
        self.advance_waiting(now);
        Attempt { pod, scheduler_name, attempts, outcome, record }
    }

    /// A pod that is being deleted, or was placed while it stood in the queue, is not tried.
    fn skips(&mut self, profile: usize, pod: &Pod) -> bool {
        if pod.is_terminating() {
            let note = format!("skip schedule deleting pod: {}/{}", pod.namespace, pod.name);
            self.push_effect(
                profile,
                EffectKind::RecordEvent {
                    regarding: pod.reference(),
                    related: None,
                    event_type: EventType::Warning,
                    reason: "FailedScheduling",
                    action: "Scheduling",
                    note,
                },
            );
            return true;
        }
        self.cache.is_assumed(&pod.uid)
    }

    pub(super) fn require_indexes(&mut self, profile: usize, pod: &Pod) {
        self.batches.forget_replicas();
        let profile = &self.profiles[profile];
        let mut indexes = self.cache.indexes();
        for entry in &profile.filters {
            entry.plugin.require(pod, &self.objects, &mut indexes);
        }
        for entry in &profile.scores {
            entry.plugin.require(pod, &self.objects, &mut indexes);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the cycle's parts are borrowed one by one")]
    fn decide(
        &mut self,
        profile: usize,
        pod: &Pod,
        (now, seed, is_replica): (Timestamp, u64, bool),
        pool: &rayon::ThreadPool,
        shared: &mut CycleState,
        states: &mut FilterStates,
        record: Option<&mut DecisionRecord>,
    ) -> Result<Decision, NoDecision> {
        let profile = &self.profiles[profile];
        let snapshot = self.cache.snapshot();
        let algorithm = Algorithm {
            profile,
            filters: Filters::new(profile, self.queue.nominator()),
            cycle: Cycle { pod, snapshot, objects: &self.objects, now, seed },
            extenders: &self.extenders,
            n_threads: pool.current_num_threads(),
        };
        let kept = Kept { scratch: &mut self.scratch, batches: &mut self.batches, start_index: &mut self.start_index };
        algorithm.run(pool, kept, is_replica, shared, states, record)
    }

    /// Assume, Reserve, Permit. Upstream: `prepareForBindingCycle`.
    fn place(
        &mut self,
        profile: usize,
        entity: QueuedEntity,
        decision: &Decision,
        shared: CycleState,
        (now, seed): (Timestamp, u64),
    ) -> Outcome {
        let node_name = Arc::clone(self.cache.snapshot().name(decision.node));
        if let Err(error) = self.cache.assume_on(Arc::clone(&entity.pod), decision.node) {
            return self.fail(profile, entity, Failure::error(error.to_string()), now);
        }
        self.batches.note_placed(self.cache.snapshot().changes().n_changes());
        self.queue.delete_nominated(&entity.pod.uid);
        let mut binding = Binding {
            pod: Arc::clone(&entity.pod),
            node_name: Arc::clone(&node_name),
            state: shared,
            results: Vec::new(),
        };
        let refusal = match self.reserve(profile, &mut binding, decision.node, (now, seed)) {
            Ok(()) => match self.permit(profile, &mut binding, decision.node, (now, seed)) {
                Ok(waits) => {
                    self.start_binding(Box::new(BindingCycle::new(profile, entity, binding)), waits, now);
                    return Outcome::Scheduled {
                        node: node_name,
                        n_evaluated: decision.n_evaluated,
                        n_feasible: decision.n_feasible,
                    };
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        self.unreserve_and_forget(profile, &mut binding, now);
        let failure = refusal.into_failure();
        self.fail(profile, entity, failure, now)
    }

    fn reserve(
        &mut self,
        profile: usize,
        binding: &mut Binding,
        node: NodeIdx,
        (now, seed): (Timestamp, u64),
    ) -> Result<(), Refusal> {
        let snapshot = self.cache.snapshot();
        let Binding { pod, state, .. } = binding;
        let cycle = Cycle { pod, snapshot, objects: &self.objects, now, seed };
        for plugin in &self.profiles[profile].reserve {
            let name = plugin.name();
            match plugin.reserve(cycle, state, snapshot.view(node)) {
                Ok(ReserveStatus::Success) => {}
                Ok(ReserveStatus::Unschedulable(reasons) | ReserveStatus::UnschedulableAndUnresolvable(reasons)) => {
                    return Err(Refusal::Rejected { plugin: name, reasons, pending: false });
                }
                Ok(ReserveStatus::Pending(reasons)) => {
                    return Err(Refusal::Rejected { plugin: name, reasons, pending: true });
                }
                Err(error) => return Err(Refusal::broken("Reserve", name, &error)),
            }
        }
        Ok(())
    }

    /// The plugins that make the pod wait, each with its deadline.
    fn permit(
        &mut self,
        profile: usize,
        binding: &mut Binding,
        node: NodeIdx,
        (now, seed): (Timestamp, u64),
    ) -> Result<BTreeMap<&'static str, Timestamp>, Refusal> {
        let snapshot = self.cache.snapshot();
        let mut waits = BTreeMap::new();
        let Binding { pod, state, .. } = binding;
        let cycle = Cycle { pod, snapshot, objects: &self.objects, now, seed };
        for plugin in &self.profiles[profile].permit {
            let name = plugin.name();
            match plugin.permit(cycle, state, snapshot.view(node), &mut self.waiting) {
                Ok(PermitStatus::Success) => {}
                Ok(PermitStatus::Wait(patience)) => {
                    waits.insert(name, now.after(patience.min(MAX_PERMIT_WAIT)));
                }
                Ok(PermitStatus::Unschedulable(reasons) | PermitStatus::UnschedulableAndUnresolvable(reasons)) => {
                    return Err(Refusal::Rejected { plugin: name, reasons, pending: false });
                }
                Err(error) => return Err(Refusal::broken("Permit", name, &error)),
            }
        }
        Ok(waits)
    }

    /// Takes back what Reserve plugins kept and frees the node. Infallible and idempotent.
    pub(super) fn unreserve_and_forget(&mut self, profile: usize, binding: &mut Binding, now: Timestamp) {
        let world = ClusterView { snapshot: self.cache.snapshot(), objects: &self.objects, now };
        for plugin in self.profiles[profile].reserve.iter().rev() {
            plugin.unreserve(binding, world);
        }
        self.cache.forget(&binding.pod.uid);
    }
}

/// Why the chosen node was not kept.
enum Refusal {
    Rejected { plugin: &'static str, reasons: Reasons, pending: bool },
    Broken(String),
}

impl Refusal {
    fn broken(point: &str, plugin: &str, error: &PluginError) -> Self {
        Self::Broken(format!("running {point} plugin {plugin:?}: {error}"))
    }

    fn into_failure(self) -> Failure {
        match self {
            Self::Rejected { plugin, reasons, pending } => Failure::rejected_on_one_node(plugin, &reasons, pending),
            Self::Broken(message) => Failure::error(message),
        }
    }
}
