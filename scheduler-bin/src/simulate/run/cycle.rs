//! Controllers plan, the engine decides, effects are carried out at once. Only calls of the engine are timed.

use std::sync::Arc;
use std::time::Instant;

use scheduler_core::engine::{Change, Outcome, Scheduler};
use scheduler_core::framework::{Effect, EffectKind};
use scheduler_core::model::Node;

use super::{Run, Told};
use crate::simulate::script::{InputError, Leaves};
use crate::simulate::volumes;
use crate::simulate::workload::{Action, Rules};

/// Attempts at one point of time after which the run is stopped: something there never settles.
const MAX_ATTEMPTS_AT_ONCE: u64 = 50_000_000;

impl Run<'_> {
    pub(super) fn engine<T>(&mut self, call: impl FnOnce(&mut Scheduler) -> T) -> T {
        let clock = Instant::now();
        let answer = call(&mut self.scheduler);
        self.engine_time += clock.elapsed();
        answer
    }

    pub(super) fn handle(&mut self, change: Change) {
        let now = self.now;
        self.last_change = now;
        self.engine(|scheduler| scheduler.handle(change, now));
    }

    pub(super) fn control(&mut self) {
        while let Some(at) = self.dirty.pop() {
            let nodes: Vec<Arc<Node>> = if self.controllers[at].workload.rules == Rules::Daemon {
                let snapshot = self.scheduler.cache().snapshot();
                snapshot.iter().map(|idx| Arc::new(snapshot.node(idx).clone())).collect()
            } else {
                Vec::new()
            };
            loop {
                let actions = self.controllers[at].plan(self.now, &nodes);
                if actions.is_empty() {
                    break;
                }
                for action in actions {
                    match action {
                        Action::Create(pod, leaves) => {
                            let leaves = if self.manner.arrivals_only { Leaves::Never } else { leaves };
                            self.pod_arrives(pod, leaves, Some(at));
                        }
                        Action::Delete(uid) => self.pod_goes(&uid, "deleted"),
                    }
                }
            }
        }
    }

    /// Runs cycles until nobody can be tried now; whether there was one.
    pub(super) fn schedule(&mut self) -> Result<bool, InputError> {
        let now = self.now;
        self.engine(|scheduler| scheduler.tick(now));
        self.perform();
        let mut any = false;
        loop {
            let pool = self.pool;
            let Some(attempt) = self.engine(|scheduler| scheduler.schedule_one(now, pool)) else { return Ok(any) };
            any = true;
            self.measure.counts.attempts += 1;
            self.n_attempts_at_once += 1;
            if self.n_attempts_at_once > MAX_ATTEMPTS_AT_ONCE {
                let problem = format!(
                    "{MAX_ATTEMPTS_AT_ONCE} attempts without time going on; pod {} was tried last",
                    attempt.pod.name
                );
                return Err(InputError { place: format!("virtual time {}", self.now), problem });
            }
            (self.listener)(now, Told::Tried(&attempt));
            if let Outcome::Unschedulable { message, .. } | Outcome::Error { message } = attempt.outcome
                && let Some(life) = self.pods.get_mut(&attempt.pod.uid)
                && *life.message != *message
            {
                life.message = message.into();
            }
            self.perform();
            if !self.dirty.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Carries out what the engine wants, at once.
    pub(super) fn perform(&mut self) {
        loop {
            let effects = self.scheduler.drain_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.effect(effect);
            }
        }
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        let now = self.now;
        self.engine(|scheduler| scheduler.handle_result(effect.id, Ok(()), now));
        match effect.kind {
            // Nobody is asked to bind: these pods are in no cluster, or not to be bound in it.
            EffectKind::Bind { pod, node } | EffectKind::BindByExtender { pod, node, .. } => self.bind(&pod.uid, &node),
            EffectKind::DeleteVictim { victim, .. } => self.pod_goes(&victim.uid, "preempted"),
            EffectKind::BindVolume { claim, volume, node } => {
                for object in volumes::bind(&self.scheduler, &claim, volume.as_ref(), &node) {
                    self.handle(Change::Applied(object));
                }
            }
            EffectKind::PatchPodStatus { .. } | EffectKind::RecordEvent { .. } | EffectKind::Custom(_) => {}
        }
    }
}
