//! From the chosen node to the binding: Permit's wait, PreBind, Bind, PostBind, or the way back. A state machine that
//! effects' results, events and time drive; nothing here waits. Upstream: `bindingCycle` (v1.36.2 schedule_one.go).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events::{assigned_pod_deleted, placed};
use super::failure::Failure;
use super::scheduler::{Origin, Scheduler};
use crate::framework::WaitOutcome;
use crate::framework::{
    BindStep, Binding, ClusterEvent, ClusterView, EffectError, EffectId, EffectKind, EventFilter, EventType,
    NominatedNode, PluginError, PreFlight, QueuedEntity, Step,
};
use crate::model::Timestamp;

/// Where a binding cycle stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Permit plugins hold it.
    Permit,
    /// The PreBind plugin at this position is at work.
    PreBind(usize),
    /// The Bind plugin at this position is at work; extenders stand before position 0.
    Bind(usize),
}

/// A pod on its way to its node.
#[derive(Debug)]
pub(super) struct BindingCycle {
    profile: usize,
    entity: QueuedEntity,
    binding: Binding,
    stage: Stage,
    /// Results of the effects that are out, by position; the step is called again when all are there.
    outstanding: Vec<Option<Result<(), EffectError>>>,
    /// What the step waits for instead.
    waits_for: Option<(Vec<EventFilter>, Timestamp)>,
    /// PreBind plugins without work for this pod.
    skips: Vec<bool>,
}

/// How a binding cycle ended.
enum End {
    Bound,
    Failed(Failure),
}

impl BindingCycle {
    pub(super) fn new(profile: usize, entity: QueuedEntity, binding: Binding) -> Self {
        Self {
            profile,
            entity,
            binding,
            stage: Stage::Permit,
            outstanding: Vec::new(),
            waits_for: None,
            skips: Vec::new(),
        }
    }

    /// When it must be looked at if nothing else happens.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.waits_for.as_ref().map(|(_, until)| *until)
    }
}

impl Scheduler {
    pub(super) fn start_binding(
        &mut self,
        profile: usize,
        mut cycle: BindingCycle,
        waits: BTreeMap<&'static str, Timestamp>,
        now: Timestamp,
    ) {
        let uid = Arc::clone(&cycle.binding.pod.uid);
        match self.pre_flight(profile, &cycle.binding, now) {
            Ok(skips) => cycle.skips = skips,
            Err(error) => {
                self.bindings.insert(Arc::clone(&uid), cycle);
                self.end_binding(&uid, End::Failed(Failure::error(error.to_string())), now);
                return;
            }
        }
        let has_work = cycle.skips.iter().any(|skips| !skips);
        if has_work || !waits.is_empty() {
            // Others may rely on the node while the pod is not bound yet.
            let nominated = NominatedNode::Set(Arc::clone(&cycle.binding.node_name));
            let pod = Arc::clone(&cycle.binding.pod);
            self.patch_status(profile, &pod, None, nominated);
        }
        if waits.is_empty() {
            self.bindings.insert(Arc::clone(&uid), cycle);
            self.permitted(&uid, now);
        } else {
            self.waiting.insert(Arc::clone(&cycle.binding.pod), Arc::clone(&cycle.binding.node_name), waits);
            self.bindings.insert(uid, cycle);
        }
    }

    fn pre_flight(&self, profile: usize, binding: &Binding, now: Timestamp) -> Result<Vec<bool>, PluginError> {
        let world = self.world(now);
        let plugins = &self.profiles[profile].pre_bind;
        plugins.iter().map(|plugin| Ok(plugin.pre_flight(binding, world)? == PreFlight::Skip)).collect()
    }

    fn world(&self, now: Timestamp) -> ClusterView<'_> {
        ClusterView { snapshot: self.cache.snapshot(), objects: &self.objects, now }
    }

    /// Looks after pods whose Permit wait is over.
    pub(super) fn advance_waiting(&mut self, now: Timestamp) {
        for (uid, outcome) in self.waiting.take_finished(now) {
            match outcome {
                WaitOutcome::Allowed => self.permitted(&uid, now),
                WaitOutcome::Rejected { plugin, reasons } => {
                    let failure = Failure::rejected_on_one_node(plugin, &reasons, false);
                    self.end_binding(&uid, End::Failed(failure), now);
                }
            }
        }
    }

    /// From here on the pod counts as scheduled for the queue; failures are errors, not rejections.
    fn permitted(&mut self, uid: &Arc<str>, now: Timestamp) {
        self.queue.done(uid);
        if let Some(cycle) = self.bindings.get_mut(uid) {
            cycle.stage = Stage::PreBind(0);
        }
        self.advance_binding(uid, now);
    }

    /// Calls the plugin at work again if its time has come.
    pub(super) fn advance_timed_bindings(&mut self, now: Timestamp) {
        self.wake_bindings(now, |cycle| cycle.wakes_at().is_some_and(|until| until <= now));
    }

    /// Calls the plugins at work that wait for such an event.
    pub(super) fn advance_bindings_on(&mut self, event: &ClusterEvent, now: Timestamp) {
        self.wake_bindings(now, |cycle| {
            cycle.waits_for.as_ref().is_some_and(|(events, _)| events.iter().any(|filter| filter.matches(event)))
        });
    }

    fn wake_bindings(&mut self, now: Timestamp, is_due: impl Fn(&BindingCycle) -> bool) {
        let mut due: Vec<Arc<str>> =
            self.bindings.iter().filter(|(_, cycle)| is_due(cycle)).map(|(uid, _)| Arc::clone(uid)).collect();
        due.sort_unstable();
        for uid in due {
            if let Some(cycle) = self.bindings.get_mut(&uid) {
                cycle.waits_for = None;
            }
            self.advance_binding(&uid, now);
        }
    }

    /// An effect was performed, or failed. Results nobody waits for are ignored.
    pub fn handle_result(&mut self, id: EffectId, result: Result<(), EffectError>, now: Timestamp) {
        match self.origins.remove(&id) {
            Some(Origin::Binding { uid, at }) => {
                let Some(cycle) = self.bindings.get_mut(&uid) else { return };
                if let Some(slot) = cycle.outstanding.get_mut(at) {
                    *slot = Some(result);
                }
                if cycle.outstanding.iter().all(Option::is_some) {
                    cycle.binding.results = cycle.outstanding.drain(..).flatten().collect();
                    self.advance_binding(&uid, now);
                }
            }
            Some(Origin::PostFilter { preemptor, victim }) => {
                if let (Ok(()), Some(victim)) = (&result, &victim) {
                    self.record_preempted(&preemptor, victim, "");
                }
                // A victim that is gone already is what was wanted.
                let failed = result.is_err_and(|error| !error.not_found);
                self.preemption_result(&preemptor, failed, now);
            }
            None => {}
        }
    }

    /// Runs plugins until one of them has to wait, or the cycle ends.
    fn advance_binding(&mut self, uid: &Arc<str>, now: Timestamp) {
        let Some(mut cycle) = self.bindings.remove(uid) else { return };
        let end = loop {
            match self.step(&mut cycle, now) {
                Progress::Next => {}
                Progress::Effects(kinds) => {
                    cycle.outstanding = kinds.iter().map(|_| None).collect();
                    for (at, kind) in kinds.into_iter().enumerate() {
                        let id = self.push_effect(cycle.profile, kind);
                        self.origins.insert(id, Origin::Binding { uid: Arc::clone(uid), at });
                    }
                    self.bindings.insert(Arc::clone(uid), cycle);
                    return;
                }
                Progress::Wait(events, until) => {
                    cycle.waits_for = Some((events, until));
                    self.bindings.insert(Arc::clone(uid), cycle);
                    return;
                }
                Progress::End(end) => break end,
            }
        };
        self.bindings.insert(Arc::clone(uid), cycle);
        self.end_binding(uid, end, now);
    }

    fn step(&self, cycle: &mut BindingCycle, now: Timestamp) -> Progress {
        let world = self.world(now);
        let profile = &self.profiles[cycle.profile];
        let failed = |point: &str, name: &str, error: &PluginError| {
            Progress::End(End::Failed(Failure::error(format!("running {point} plugin {name:?}: {error}"))))
        };
        match cycle.stage {
            Stage::Permit => Progress::Wait(Vec::new(), Timestamp(i64::MAX)),
            Stage::PreBind(at) => {
                let Some(plugin) = profile.pre_bind.get(at) else {
                    cycle.stage = Stage::Bind(0);
                    return self.extender_binds(cycle).unwrap_or(Progress::Next);
                };
                if cycle.skips.get(at).copied().unwrap_or(false) {
                    cycle.stage = Stage::PreBind(at + 1);
                    return Progress::Next;
                }
                let step = plugin.pre_bind(&mut cycle.binding, world);
                cycle.binding.results.clear();
                match step {
                    Ok(Step::Done) => {
                        cycle.stage = Stage::PreBind(at + 1);
                        Progress::Next
                    }
                    Ok(Step::Do(kinds)) if !kinds.is_empty() => Progress::Effects(kinds),
                    Ok(Step::Do(_)) => Progress::Next,
                    Ok(Step::Wait { events, until }) => Progress::Wait(events, until),
                    Ok(Step::Reject(reasons)) => {
                        failed("PreBind", plugin.name(), &PluginError::new(reasons.join(", ")))
                    }
                    Err(error) => failed("PreBind", plugin.name(), &error),
                }
            }
            Stage::Bind(at) => {
                let Some(plugin) = profile.bind.get(at) else {
                    let message = "no Bind plugin binds the pod: every one skipped it".to_owned();
                    return Progress::End(End::Failed(Failure::error(message)));
                };
                let step = plugin.bind(&mut cycle.binding, world);
                cycle.binding.results.clear();
                match step {
                    Ok(BindStep::Done) => Progress::End(End::Bound),
                    Ok(BindStep::Skip) => {
                        cycle.stage = Stage::Bind(at + 1);
                        Progress::Next
                    }
                    Ok(BindStep::Do(kinds)) if !kinds.is_empty() => Progress::Effects(kinds),
                    Ok(BindStep::Do(_)) => Progress::Next,
                    Err(error) => failed("Bind", plugin.name(), &error),
                }
            }
        }
    }

    /// The first extender that binds does so instead of the plugins. Upstream: `extendersBinding`.
    fn extender_binds(&self, cycle: &BindingCycle) -> Option<Progress> {
        let pod = &*cycle.binding.pod;
        for extender in self.extenders.iter().filter(|e| e.is_binder() && e.is_interested(pod)) {
            match extender.bind(pod, &cycle.binding.node_name) {
                Ok(()) => return Some(Progress::End(End::Bound)),
                Err(_) if extender.is_ignorable() => {}
                Err(error) => return Some(Progress::End(End::Failed(Failure::error(error.to_string())))),
            }
        }
        None
    }

    fn end_binding(&mut self, uid: &Arc<str>, end: End, now: Timestamp) {
        let Some(mut cycle) = self.bindings.remove(uid) else { return };
        let profile = cycle.profile;
        match end {
            End::Bound => {
                let pod = &cycle.binding.pod;
                let note =
                    format!("Successfully assigned {}/{} to {}", pod.namespace, pod.name, cycle.binding.node_name);
                let regarding = self.reference(pod);
                self.push_effect(
                    profile,
                    EffectKind::RecordEvent {
                        regarding,
                        related: None,
                        event_type: EventType::Normal,
                        reason: "Scheduled",
                        action: "Binding",
                        note,
                    },
                );
                let world = self.world(now);
                for plugin in &self.profiles[profile].post_bind {
                    plugin.post_bind(&cycle.binding, world);
                }
            }
            End::Failed(failure) => {
                self.unreserve_and_forget(profile, &mut cycle.binding, now);
                let pod = Arc::clone(&cycle.binding.pod);
                let event = assigned_pod_deleted(placed(&pod, &cycle.binding.node_name));
                // A rejected pod must not be woken by its own leaving: that comes after it is back in the queue.
                if failure.is_rejection {
                    self.fail(profile, cycle.entity, failure, now);
                    let (queue, rules) = self.queue_and_rules(now);
                    queue.move_all(&event, Some(&|other| other.uid != pod.uid), now, &rules);
                } else {
                    let (queue, rules) = self.queue_and_rules(now);
                    queue.move_all(&event, None, now, &rules);
                    self.fail(profile, cycle.entity, failure, now);
                }
            }
        }
    }

    /// A victim of preemption that is placed in the engine's memory alone: it gives its node back and is tried again,
    /// instead of being deleted. False if it is bound already, or being bound. Upstream: executor.go `PreemptPod`.
    pub(super) fn preempt_in_memory(&mut self, uid: &Arc<str>, plugin: &str, now: Timestamp) -> bool {
        let message = match self.bindings.get(uid).map(|cycle| cycle.stage) {
            Some(Stage::Permit) => "waiting on permit for pod: preempted".to_owned(),
            Some(Stage::PreBind(_)) => format!("preempted by {plugin}"),
            Some(Stage::Bind(_)) | None => return false,
        };
        self.waiting.remove(uid);
        // What its PreBind plugins asked for may still be under way; nobody waits for it any more.
        self.origins.retain(|_, origin| !matches!(origin, Origin::Binding { uid: other, .. } if other == uid));
        self.end_binding(uid, End::Failed(Failure::error(message)), now);
        true
    }

    /// The pod is being deleted, or is gone: its node is free at once. What is under way ends by its own result.
    pub(super) fn abandon_binding(&mut self, uid: &Arc<str>, now: Timestamp) {
        self.waiting.remove(uid);
        if self.bindings.get(uid).is_some_and(|cycle| cycle.stage == Stage::Permit)
            && let Some(mut cycle) = self.bindings.remove(uid)
        {
            self.unreserve_and_forget(cycle.profile, &mut cycle.binding, now);
            self.queue.done(uid);
        }
    }
}

/// What a step of a binding cycle leads to.
enum Progress {
    Next,
    Effects(Vec<EffectKind>),
    Wait(Vec<EventFilter>, Timestamp),
    End(End),
}
