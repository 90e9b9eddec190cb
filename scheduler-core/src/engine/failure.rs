//! What happens to a pod that was not placed: PostFilter, message, event, condition, and its way back to the queue.
//! Upstream: `schedulingAlgorithm` and `handleSchedulingFailure` (v1.36.2 schedule_one.go).

use std::sync::Arc;

use super::algorithm::NoDecision;
use super::attempt::Outcome;
use super::scheduler::{Origin, Preemption, Scheduler, Victim};
use crate::framework::{
    Cycle, CycleState, EffectKind, EventType, FilterStates, Filters, FitError, NominatedNode, PodCondition,
    PostFilterStatus, QueuedEntity, Reasons, Rejected,
};
use crate::model::{Pod, Timestamp};

/// Longest note of an event, bytes. Upstream: apis/core/validation `NoteLengthLimit`.
const NOTE_LENGTH_LIMIT: usize = 1024;

/// Why an attempt failed.
pub(super) struct Failure {
    /// Whether plugins rejected the pod, and nothing broke.
    pub(super) is_rejection: bool,
    message: String,
    nominated: NominatedNode,
    unschedulable_plugins: Vec<&'static str>,
    pending_plugins: Vec<&'static str>,
    /// What a PostFilter plugin wants done, with its position in the profile.
    effects: Option<(usize, Vec<EffectKind>)>,
}

impl Failure {
    /// Something broke.
    pub(super) fn error(message: String) -> Self {
        Self {
            is_rejection: false,
            message,
            nominated: NominatedNode::Clear,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            effects: None,
        }
    }

    /// A plugin refused the one node that was chosen.
    pub(super) fn rejected_on_one_node(plugin: &'static str, reasons: &Reasons, pending: bool) -> Self {
        let mut text = FitError::new(1);
        text.node(reasons);
        let (unschedulable_plugins, pending_plugins) =
            if pending { (Vec::new(), vec![plugin]) } else { (vec![plugin], Vec::new()) };
        Self { is_rejection: true, unschedulable_plugins, pending_plugins, ..Self::error(text.to_string()) }
    }
}

impl Scheduler {
    /// Turns a decision's failure into what is done about it; runs PostFilter for a pod that fits nowhere.
    pub(super) fn no_decision(
        &mut self,
        profile: usize,
        entity: &QueuedEntity,
        no_decision: NoDecision,
        shared: &mut CycleState,
        states: &FilterStates,
        (now, seed): (Timestamp, u64),
    ) -> Failure {
        match no_decision {
            NoDecision::NoNodes => {
                Failure { is_rejection: true, ..Failure::error("no nodes available to schedule pods".to_owned()) }
            }
            NoDecision::Broken(error) => Failure::error(error.to_string()),
            NoDecision::Unfit(rejected) => {
                let has_post_filter = !self.profiles[profile].post_filter.is_empty();
                let PostFilterResult { message, nominated, effects } = if has_post_filter {
                    self.post_filter(profile, &entity.pod, shared, states, &rejected, (now, seed))
                } else {
                    PostFilterResult { nominated: NominatedNode::Clear, ..PostFilterResult::default() }
                };
                let mut text = fit_error(&rejected).to_string();
                if !message.is_empty() {
                    text.push(' ');
                    text.push_str(&message);
                }
                Failure {
                    is_rejection: true,
                    nominated,
                    unschedulable_plugins: rejected.unschedulable_plugins.iter().copied().collect(),
                    effects,
                    ..Failure::error(text)
                }
            }
        }
    }

    /// Upstream: `RunPostFilterPlugins` (v1.36.2 framework/runtime/framework.go).
    fn post_filter(
        &self,
        profile: usize,
        pod: &Pod,
        shared: &mut CycleState,
        states: &FilterStates,
        rejected: &Rejected,
        (now, seed): (Timestamp, u64),
    ) -> PostFilterResult {
        let profile = &self.profiles[profile];
        let cycle = Cycle { pod, snapshot: self.cache.snapshot(), objects: &self.objects, now, seed };
        let filters = Filters::new(profile, self.queue.nominator()).with_extenders(&self.extenders);
        let mut all_reasons: Reasons = Vec::new();
        let mut last_nominated = NominatedNode::Keep;
        for (position, plugin) in profile.post_filter.iter().enumerate() {
            match plugin.post_filter(cycle, shared, &filters, states, rejected) {
                Ok(PostFilterStatus::Success { nominated, effects }) => {
                    return PostFilterResult { message: String::new(), nominated, effects: Some((position, effects)) };
                }
                Ok(PostFilterStatus::UnschedulableAndUnresolvable { reasons, nominated }) => {
                    return PostFilterResult { message: reasons.join(", "), nominated, effects: None };
                }
                Ok(PostFilterStatus::Unschedulable { reasons, nominated }) => {
                    all_reasons.extend(reasons);
                    if nominated != NominatedNode::Keep {
                        last_nominated = nominated;
                    }
                }
                Err(error) => {
                    return PostFilterResult { message: error.to_string(), ..PostFilterResult::default() };
                }
            }
        }
        PostFilterResult { message: all_reasons.join(", "), nominated: last_nominated, effects: None }
    }

    /// Requeues the pod and tells the world. Upstream: `handleSchedulingFailure`.
    pub(super) fn fail(
        &mut self,
        profile: usize,
        mut entity: QueuedEntity,
        failure: Failure,
        now: Timestamp,
    ) -> Outcome {
        let Failure { is_rejection, message, nominated, unschedulable_plugins, pending_plugins, effects } = failure;
        entity.clear_rejector_plugins();
        entity.unschedulable_plugins = unschedulable_plugins;
        entity.pending_plugins = pending_plugins;
        if let Some((plugin, effects)) = effects {
            self.start_preemption(profile, plugin, &entity.pod, effects, now);
        }
        let outcome = if is_rejection {
            Outcome::Unschedulable { message: message.clone(), nominated: nominated.clone() }
        } else {
            Outcome::Error { message: message.clone() }
        };

        // The pod may have been deleted, bound or created anew under the same name while its cycle ran.
        let uid = Arc::clone(&entity.pod.uid);
        let Some(latest) = self.unassigned.get(&uid).cloned() else {
            self.queue.done(&uid);
            return outcome;
        };
        entity.pod = Arc::clone(&latest);
        let (queue, rules) = self.queue_and_rules(now);
        queue.add_unschedulable(entity, now, &rules);
        queue.nominate(&latest, &nominated);

        self.push_effect(
            profile,
            EffectKind::RecordEvent {
                regarding: latest.reference(),
                related: None,
                event_type: EventType::Warning,
                reason: "FailedScheduling",
                action: "Scheduling",
                note: truncated(&message),
            },
        );
        let condition = PodCondition {
            condition_type: "PodScheduled",
            status: false,
            reason: if is_rejection { "Unschedulable" } else { "SchedulerError" },
            message,
            observed_generation: Some(latest.generation),
        };
        self.patch_status(profile, &latest, Some(condition), nominated);
        outcome
    }

    /// Asks for a patch, unless the pod's status says all that already.
    pub(super) fn patch_status(
        &mut self,
        profile: usize,
        pod: &Pod,
        condition: Option<PodCondition>,
        nominated: NominatedNode,
    ) {
        let condition = condition.filter(|condition| {
            !pod.scheduled_condition.as_ref().is_some_and(|known| {
                known.status == condition.status
                    && *known.reason == *condition.reason
                    && *known.message == *condition.message
                    && known.observed_generation == condition.observed_generation
            })
        });
        let nominated = match nominated {
            NominatedNode::Clear if pod.nominated_node_name.is_none() => NominatedNode::Keep,
            NominatedNode::Set(node) if pod.nominated_node_name.as_ref() == Some(&node) => NominatedNode::Keep,
            other => other,
        };
        if condition.is_some() || nominated != NominatedNode::Keep {
            self.push_effect(profile, EffectKind::PatchPodStatus { pod: pod.reference(), condition, nominated });
        }
    }

    fn start_preemption(
        &mut self,
        profile: usize,
        plugin: usize,
        pod: &Arc<Pod>,
        effects: Vec<EffectKind>,
        now: Timestamp,
    ) {
        let name = self.profiles[profile].post_filter[plugin].name();
        let preemption = Preemption { pod: Arc::clone(pod), profile, plugin, n_outstanding: 0, failed: false };
        self.preemptions.insert(Arc::clone(&pod.uid), preemption);
        let mut n_outstanding = 0;
        for kind in effects {
            let victim = match &kind {
                EffectKind::DeleteVictim { victim, node, .. } => {
                    Some(Box::new(Victim { pod: victim.clone(), node: Arc::clone(node) }))
                }
                _ => None,
            };
            if let Some(victim) = victim.as_ref().filter(|victim| self.preempt_in_memory(&victim.pod.uid, name, now)) {
                self.record_preempted(&pod.uid, victim, " (in kube-scheduler memory).");
                continue;
            }
            let id = self.push_effect(profile, kind);
            self.origins.insert(id, Origin::PostFilter { preemptor: Arc::clone(&pod.uid), victim });
            n_outstanding += 1;
        }
        if n_outstanding == 0 {
            self.preemptions.remove(&pod.uid);
            self.profiles[profile].post_filter[plugin].effects_finished(pod);
        } else if let Some(preemption) = self.preemptions.get_mut(&pod.uid) {
            preemption.n_outstanding = n_outstanding;
        }
    }

    /// Tells the victim's owner for whom it went. Upstream: executor.go `PreemptPod`.
    pub(super) fn record_preempted(&mut self, preemptor: &str, victim: &Victim, how: &str) {
        let Some(preemption) = self.preemptions.get(preemptor) else { return };
        let (profile, related) = (preemption.profile, preemption.pod.reference());
        let note = format!("Preempted by pod {} on node {}{how}", related.uid, victim.node);
        self.push_effect(
            profile,
            EffectKind::RecordEvent {
                regarding: victim.pod.clone(),
                related: Some(related),
                event_type: EventType::Normal,
                reason: "Preempted",
                action: "Preempting",
                note,
            },
        );
    }

    /// A deletion was asked for, or could not be.
    pub(super) fn preemption_result(&mut self, preemptor: &str, failed: bool, now: Timestamp) {
        let Some(preemption) = self.preemptions.get_mut(preemptor) else { return };
        preemption.failed |= failed;
        preemption.n_outstanding = preemption.n_outstanding.saturating_sub(1);
        if preemption.n_outstanding > 0 {
            return;
        }
        let Some(done) = self.preemptions.remove(preemptor) else { return };
        self.profiles[done.profile].post_filter[done.plugin].effects_finished(&done.pod);
        if done.failed {
            // Nothing else may wake the pod.
            let (queue, rules) = self.queue_and_rules(now);
            queue.activate(&[done.pod], now, &rules);
        }
    }
}

#[derive(Default)]
struct PostFilterResult {
    message: String,
    nominated: NominatedNode,
    effects: Option<(usize, Vec<EffectKind>)>,
}

fn fit_error(rejected: &Rejected) -> FitError {
    let text = FitError::new(rejected.n_nodes);
    if let Some(message) = &rejected.pre_filter_message {
        return text.with_pre_filter_message(message.as_str());
    }
    let mut text = text.with_counted(rejected.nodes.len(), rejected.reasons.clone());
    if let Some((_, reasons)) = &rejected.absent {
        text.absent_nodes(reasons);
    }
    text
}

/// Cuts a message to what an event holds. Upstream: `truncateMessage`; a character is never cut in two.
fn truncated(message: &str) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= NOTE_LENGTH_LIMIT {
        return message.to_owned();
    }
    let mut end = NOTE_LENGTH_LIMIT - SUFFIX.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_character() {
        assert_eq!(truncated("short"), "short");
        assert_eq!(truncated(&"x".repeat(1024)).len(), 1024);
        let cut = truncated(&"x".repeat(1025));
        assert_eq!(cut.len(), 1024);
        assert!(cut.ends_with("x ..."));
        assert_eq!(truncated(&"ü".repeat(600)).len(), 1024);
        assert_eq!(truncated(&format!("x{}", "ü".repeat(600))).len(), 1023);
    }
}
