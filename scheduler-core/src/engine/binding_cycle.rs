//! From the chosen node to the binding: Permit's wait, PreBind, Bind, PostBind, or the way back. A state machine that
//! effects' results, events and time drive; nothing here waits. Upstream: `bindingCycle` (v1.36.2 schedule_one.go).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::events::{assigned_pod_deleted, placed};
use super::failure::Failure;
use super::scheduler::{Origin, Scheduler};
use crate::framework::WaitOutcome;
use crate::framework::{
    BindStep, Binding, ClusterEvent, ClusterView, EffectError, EffectId, EffectKind, EventFilter, EventType, Extender,
    NominatedNode, PluginError, PreFlight, QueuedEntity, Step,
};
use crate::model::{Pod, Timestamp};

/// Where a binding cycle stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Permit plugins hold it, or have just let it go.
    Permit,
    /// PreBind plugins are at work; the one at this position comes next.
    PreBind(usize),
    /// An extender binds; the one at this position comes next, and after them the Bind plugins.
    Extend(usize),
    /// A Bind plugin is at work; the one at this position comes next.
    Bind(usize),
}

/// A plugin at work for a pod.
#[derive(Debug, Default)]
struct Work {
    /// Its position at the point.
    at: usize,
    /// Its effects that are out, and their results; it is called again when all are there.
    outstanding: SmallVec<[(EffectId, Option<Result<(), EffectError>>); 1]>,
    /// What it waits for instead.
    waits_for: Option<(Vec<EventFilter>, Timestamp)>,
}

impl Work {
    fn new(at: usize) -> Self {
        Self { at, ..Self::default() }
    }

    fn is_ready(&self) -> bool {
        self.waits_for.is_none() && self.outstanding.iter().all(|(_, result)| result.is_some())
    }
}

/// A pod on its way to its node.
#[derive(Debug)]
pub(super) struct BindingCycle {
    profile: usize,
    entity: QueuedEntity,
    binding: Binding,
    stage: Stage,
    /// The plugins at work: several only if they are PreBind plugins that allow it.
    works: SmallVec<[Work; 1]>,
    /// What each PreBind plugin has announced.
    flights: SmallVec<[PreFlight; 4]>,
}

/// How a binding cycle ended.
enum End {
    Bound,
    Failed(Failure),
}

impl BindingCycle {
    pub(super) fn new(profile: usize, entity: QueuedEntity, binding: Binding) -> Self {
        Self { profile, entity, binding, stage: Stage::Permit, works: SmallVec::new(), flights: SmallVec::new() }
    }

    pub(super) fn uid(&self) -> &Arc<str> {
        &self.binding.pod.uid
    }

    /// The events that each plugin at work waits for, and the time at which it is called anyway.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = (&[EventFilter], Timestamp)> {
        self.works.iter().filter_map(|work| work.waits_for.as_ref()).map(|(events, until)| (&**events, *until))
    }

    /// Notes what came of an effect; whether the plugin that asked for it can go on.
    fn finish(&mut self, id: EffectId, result: Result<(), EffectError>) -> bool {
        let outstanding = |work: &mut Work| work.outstanding.iter().position(|(outstanding, _)| *outstanding == id);
        let found = self.works.iter_mut().find_map(|work| outstanding(work).map(|at| (work, at)));
        let Some((work, at)) = found else { return false };
        work.outstanding[at].1 = Some(result);
        work.is_ready()
    }

    /// The PreBind plugins that work next, from this position, at the same time; and the position after them.
    /// Upstream: `getPreBindPluginGroups` (v1.36.2 framework/runtime/framework.go).
    fn next_group(&self, from: usize) -> (SmallVec<[Work; 1]>, usize) {
        let mut group = SmallVec::new();
        for (at, flight) in self.flights.iter().enumerate().skip(from) {
            match flight {
                PreFlight::Skip => {}
                PreFlight::Work { parallel: true } => group.push(Work::new(at)),
                PreFlight::Work { parallel: false } if group.is_empty() => {
                    group.push(Work::new(at));
                    return (group, at + 1);
                }
                PreFlight::Work { parallel: false } => return (group, at),
            }
        }
        (group, self.flights.len())
    }
}

impl Scheduler {
    pub(super) fn start_binding(
        &mut self,
        mut cycle: Box<BindingCycle>,
        waits: BTreeMap<&'static str, Timestamp>,
        now: Timestamp,
    ) {
        match self.pre_flight(cycle.profile, &cycle.binding, now) {
            Ok(flights) => cycle.flights = flights,
            Err(error) => {
                self.end_binding(cycle, End::Failed(Failure::error(error.to_string())), now);
                return;
            }
        }
        let has_work = cycle.flights.iter().any(|flight| *flight != PreFlight::Skip);
        if has_work || !waits.is_empty() {
            // Others may rely on the node while the pod is not bound yet.
            let nominated = NominatedNode::Set(Arc::clone(&cycle.binding.node_name));
            let pod = Arc::clone(&cycle.binding.pod);
            self.patch_status(cycle.profile, &pod, None, nominated);
        }
        if waits.is_empty() {
            self.permitted(cycle, now);
        } else {
            self.waiting.insert(Arc::clone(&cycle.binding.pod), Arc::clone(&cycle.binding.node_name), waits);
            self.bindings.insert(cycle);
        }
    }

    fn pre_flight(
        &self,
        profile: usize,
        binding: &Binding,
        now: Timestamp,
    ) -> Result<SmallVec<[PreFlight; 4]>, PluginError> {
        let world = self.world(now);
        let mut flights = SmallVec::new();
        for plugin in &self.profiles[profile].pre_bind {
            flights.push(plugin.pre_flight(binding, world)?);
        }
        Ok(flights)
    }

    fn world(&self, now: Timestamp) -> ClusterView<'_> {
        ClusterView { snapshot: self.cache.snapshot(), objects: &self.objects, now }
    }

    /// Looks after pods whose Permit wait is over.
    pub(super) fn advance_waiting(&mut self, now: Timestamp) {
        if self.waiting.is_empty() {
            return;
        }
        for (uid, outcome) in self.waiting.take_finished(now) {
            let Some(cycle) = self.bindings.remove(&uid) else { continue };
            match outcome {
                WaitOutcome::Allowed => self.permitted(cycle, now),
                WaitOutcome::Rejected { plugin, reasons } => {
                    let failure = Failure::rejected_on_one_node(plugin, &reasons, false);
                    self.end_binding(cycle, End::Failed(failure), now);
                }
            }
        }
    }

    /// From here on the pod counts as scheduled for the queue; failures are errors, not rejections.
    fn permitted(&mut self, cycle: Box<BindingCycle>, now: Timestamp) {
        self.queue.done(cycle.uid());
        self.advance_binding(cycle, now);
    }

    /// Calls the plugins at work again whose time has come.
    pub(super) fn advance_timed_bindings(&mut self, now: Timestamp) {
        let due = self.bindings.due(now);
        self.wake_bindings(due, |_, until| until <= now, now);
    }

    /// Calls the plugins at work that wait for such an event.
    pub(super) fn advance_bindings_on(&mut self, event: &ClusterEvent, now: Timestamp) {
        let due = self.bindings.due_on(event);
        self.wake_bindings(due, |events, _| events.iter().any(|filter| filter.matches(event)), now);
    }

    fn wake_bindings(
        &mut self,
        due: BTreeSet<Arc<str>>,
        is_due: impl Fn(&[EventFilter], Timestamp) -> bool,
        now: Timestamp,
    ) {
        for uid in due {
            let Some(mut cycle) = self.bindings.remove(&uid) else { continue };
            for work in &mut cycle.works {
                work.waits_for.take_if(|(events, until)| is_due(events, *until));
            }
            self.advance_binding(cycle, now);
        }
    }

    /// An effect was performed, or failed. Results nobody waits for are ignored.
    pub fn handle_result(&mut self, id: EffectId, result: Result<(), EffectError>, now: Timestamp) {
        match self.origins.remove(&id) {
            Some(Origin::Binding { uid }) => {
                // Most wait for this one result.
                let Some(mut cycle) = self.bindings.remove(&uid) else { return };
                match cycle.finish(id, result) {
                    true => self.advance_binding(cycle, now),
                    false => self.bindings.insert(cycle),
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

    /// Runs plugins until all at work have to wait, or the cycle ends.
    fn advance_binding(&mut self, mut cycle: Box<BindingCycle>, now: Timestamp) {
        loop {
            if cycle.works.is_empty()
                && let Some(end) = self.next_work(&mut cycle)
            {
                return self.end_binding(cycle, end, now);
            }
            while let Some(at) = cycle.works.iter().position(Work::is_ready) {
                match self.step(&mut cycle, at, now) {
                    Progress::Again => {}
                    Progress::Done => drop(cycle.works.remove(at)),
                    Progress::Effects(kinds) => {
                        for kind in kinds {
                            let id = self.push_effect(cycle.profile, kind);
                            cycle.works[at].outstanding.push((id, None));
                            self.origins.insert(id, Origin::Binding { uid: Arc::clone(cycle.uid()) });
                        }
                    }
                    Progress::Wait(events, until) => cycle.works[at].waits_for = Some((events, until)),
                    Progress::End(end) => return self.end_binding(cycle, end, now),
                }
            }
            if !cycle.works.is_empty() {
                return self.bindings.insert(cycle);
            }
        }
    }

    /// Puts those to work whose turn it is now that nobody is at work. An end if there is nobody.
    fn next_work(&self, cycle: &mut BindingCycle) -> Option<End> {
        match cycle.stage {
            Stage::Permit => cycle.stage = Stage::PreBind(0),
            Stage::PreBind(next) => {
                let (group, next) = cycle.next_group(next);
                cycle.stage = if group.is_empty() { Stage::Extend(0) } else { Stage::PreBind(next) };
                cycle.works = group;
            }
            // An extender binds instead of the plugins. Upstream: `extendersBinding`.
            Stage::Extend(next) => {
                let pod = &*cycle.binding.pod;
                let binds = |extender: &Arc<dyn Extender>| extender.is_binder() && extender.is_interested(pod);
                match self.extenders.iter().skip(next).position(binds) {
                    Some(found) => {
                        cycle.works.push(Work::new(next + found));
                        cycle.stage = Stage::Extend(next + found + 1);
                    }
                    None => cycle.stage = Stage::Bind(0),
                }
            }
            Stage::Bind(next) if next < self.profiles[cycle.profile].bind.len() => {
                cycle.works.push(Work::new(next));
                cycle.stage = Stage::Bind(next + 1);
            }
            Stage::Bind(_) => {
                let message = "no Bind plugin binds the pod: every one skipped it".to_owned();
                return Some(End::Failed(Failure::error(message)));
            }
        }
        None
    }

    /// One step of the plugin at work at this position of the list.
    fn step(&self, cycle: &mut BindingCycle, at: usize, now: Timestamp) -> Progress {
        let world = self.world(now);
        let profile = &self.profiles[cycle.profile];
        let failed = |point: &str, name: &str, error: &PluginError| {
            Progress::End(End::Failed(Failure::error(format!("running {point} plugin {name:?}: {error}"))))
        };
        let work = &mut cycle.works[at];
        let at = work.at;
        cycle.binding.results.clear();
        cycle.binding.results.extend(work.outstanding.drain(..).filter_map(|(_, result)| result));
        if matches!(cycle.stage, Stage::Extend(_)) {
            return self.extender_step(&cycle.binding, at);
        }
        if matches!(cycle.stage, Stage::Bind(_)) {
            let plugin = &profile.bind[at];
            return match plugin.bind(&mut cycle.binding, world) {
                Ok(BindStep::Done) => Progress::End(End::Bound),
                Ok(BindStep::Skip) => Progress::Done,
                Ok(BindStep::Do(kinds)) if !kinds.is_empty() => Progress::Effects(kinds),
                Ok(BindStep::Do(_)) => Progress::Again,
                Err(error) => failed("Bind", plugin.name(), &error),
            };
        }
        let plugin = &profile.pre_bind[at];
        match plugin.pre_bind(&mut cycle.binding, world) {
            Ok(Step::Done) => Progress::Done,
            Ok(Step::Do(kinds)) if !kinds.is_empty() => Progress::Effects(kinds),
            Ok(Step::Do(_)) => Progress::Again,
            Ok(Step::Wait { events, until }) => Progress::Wait(events, until),
            Ok(Step::Reject(reasons)) => failed("PreBind", plugin.name(), &PluginError::new(reasons.join(", "))),
            Err(error) => failed("PreBind", plugin.name(), &error),
        }
    }

    /// One step of the extender at this position: it is asked, or has answered.
    fn extender_step(&self, binding: &Binding, at: usize) -> Progress {
        match binding.results.first() {
            None => Progress::Effects(vec![EffectKind::BindByExtender {
                pod: self.reference(&binding.pod),
                node: Arc::clone(&binding.node_name),
                extender: at,
            }]),
            Some(Ok(())) => Progress::End(End::Bound),
            Some(Err(_)) if self.extenders[at].is_ignorable() => Progress::Done,
            Some(Err(error)) => Progress::End(End::Failed(Failure::error(error.message.clone()))),
        }
    }

    /// The cycle is no longer among the bindings.
    fn end_binding(&mut self, mut cycle: Box<BindingCycle>, end: End, now: Timestamp) {
        let profile = cycle.profile;
        match end {
            End::Bound => {
                let pod = &cycle.binding.pod;
                let note = assigned_note(pod, &cycle.binding.node_name);
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
                // What its plugins asked for may still be under way; nobody waits for it any more.
                for (id, _) in cycle.works.iter().flat_map(|work| &work.outstanding) {
                    self.origins.remove(id);
                }
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
            Some(Stage::Extend(_) | Stage::Bind(_)) | None => return false,
        };
        self.waiting.remove(uid);
        let Some(cycle) = self.bindings.remove(uid) else { return false };
        self.end_binding(cycle, End::Failed(Failure::error(message)), now);
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

/// The text of the event that tells of a binding.
fn assigned_note(pod: &Pod, node_name: &str) -> String {
    let parts = ["Successfully assigned ", &pod.namespace, "/", &pod.name, " to ", node_name];
    let mut note = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| note.push_str(part));
    note
}

/// What a step of a binding cycle leads to.
enum Progress {
    Again,
    Done,
    Effects(Vec<EffectKind>),
    Wait(Vec<EventFilter>, Timestamp),
    End(End),
}
