//! The thread that owns the engine: takes observations and reports, runs one cycle after the other, hands effects out. No I/O.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use scheduler_core::engine::{Attempt, Change, Outcome, Scheduler};
use scheduler_core::framework::{Effect, EffectKind};
use scheduler_core::model::Timestamp;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::endpoints::Health;
use super::informers::{N_KINDS, Observation};
use super::lanes::Report;
use super::metrics::{AttemptMetrics, Metrics};
use super::recording::Recording;
use super::{Happened, Observer};
use crate::extender::{AnswerLog, WholeObjects};

/// Effects in flight above which no new cycle starts: the API server is slower than the engine.
const MAX_IN_FLIGHT: usize = 4096;
/// How long the thread sleeps at most when nothing is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// A watch saw something.
    Observed(Observation),
    /// An effect is done.
    Report(Report),
    /// From now on pods are scheduled.
    Lead,
    /// End.
    Stop,
}

/// Everything that the thread owns.
pub(crate) struct Cycle {
    /// The engine.
    pub(crate) scheduler: Scheduler,
    /// Threads for filtering and scoring.
    pub(crate) pool: rayon::ThreadPool,
    /// Where effects go.
    pub(crate) effects: UnboundedSender<Effect>,
    /// Who hears of attempts.
    pub(crate) observer: Option<Observer>,
    /// Where everything is kept that the engine hears and decides.
    pub(crate) recording: Option<Recording>,
    /// Whole objects, if extenders want to see them.
    pub(crate) whole_objects: Option<Arc<WholeObjects>>,
    /// What extenders answer, if it is recorded.
    pub(crate) answers: Option<AnswerLog>,
    /// Set when the scheduler ends; then extenders are not waited for.
    pub(crate) stop: CancellationToken,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Its part for each result and profile seen so far.
    pub(crate) attempts: FxHashMap<(&'static str, Arc<str>), AttemptMetrics>,
    /// What the probes ask about.
    pub(crate) health: Health,
}

/// What stands between the engine and its first cycle, and between two cycles.
#[derive(Debug)]
struct State {
    kinds_to_list: usize,
    leading: bool,
    in_flight: usize,
    stopped: bool,
}

impl Cycle {
    /// Runs until [`Input::Stop`] or until every sender of `inputs` is gone.
    pub(crate) fn run(mut self, inputs: &Receiver<Input>) {
        self.cycles(inputs);
        if let Some(recording) = &mut self.recording {
            recording.flush();
        }
    }

    fn cycles(&mut self, inputs: &Receiver<Input>) {
        let mut state = State { kinds_to_list: N_KINDS, leading: false, in_flight: 0, stopped: false };
        while !state.stopped {
            loop {
                match inputs.try_recv() {
                    Ok(input) => self.take(input, &mut state),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if state.stopped {
                return;
            }
            let worked = state.leading && state.kinds_to_list == 0 && self.work(&mut state);
            if worked {
                continue;
            }
            if let Some(recording) = &mut self.recording {
                recording.flush();
            }
            match inputs.recv_timeout(self.idle_time(&state)) {
                Ok(input) => self.take(input, &mut state),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, input: Input, state: &mut State) {
        match input {
            Input::Observed(Observation::Applied(object, raw)) => {
                let now = now();
                if let Some(recording) = &mut self.recording {
                    recording.applied(now, raw.as_deref());
                }
                if let Some(objects) = &self.whole_objects {
                    objects.applied(&object, raw.as_deref());
                }
                self.scheduler.handle(Change::Applied(object), now);
            }
            Input::Observed(Observation::Deleted(object, raw)) => {
                let now = now();
                if let Some(recording) = &mut self.recording {
                    recording.deleted(now, raw.as_deref());
                }
                if let Some(objects) = &self.whole_objects {
                    objects.deleted(&object);
                }
                self.scheduler.handle(Change::Deleted(object), now);
            }
            Input::Observed(Observation::Listed(kind)) => {
                state.kinds_to_list = state.kinds_to_list.saturating_sub(1);
                tracing::debug!("listed {kind}");
                if state.kinds_to_list == 0 {
                    tracing::info!("all kinds listed");
                    self.health.set_synced();
                }
            }
            Input::Report((id, result)) => {
                state.in_flight = state.in_flight.saturating_sub(1);
                if let Err(error) = &result {
                    // An object that went meanwhile is nobody's fault.
                    if error.not_found {
                        tracing::debug!("effect came too late: {error}");
                    } else {
                        tracing::warn!("effect failed: {error}");
                    }
                }
                let now = now();
                if let Some(recording) = &mut self.recording {
                    recording.result(now, id, &result);
                }
                self.scheduler.handle_result(id, result, now);
            }
            Input::Lead => state.leading = true,
            Input::Stop => state.stopped = true,
        }
    }

    /// One cycle; `false` if there was nothing to do.
    fn work(&mut self, state: &mut State) -> bool {
        let now = now();
        self.scheduler.tick(now);
        let started = Instant::now();
        let tries = state.in_flight < MAX_IN_FLIGHT;
        let attempt = if tries { self.scheduler.schedule_one(now, &self.pool) } else { None };
        if self.stop.is_cancelled()
            && attempt.as_ref().is_some_and(|attempt| matches!(attempt.outcome, Outcome::Error { .. }))
        {
            // An extender was asked, and the answer is not waited for any more: the next scheduler decides about the pod.
            state.stopped = true;
            return false;
        }
        if let Some(recording) = &mut self.recording {
            for answer in self.answers.iter().flat_map(AnswerLog::take) {
                recording.extender(now, &answer);
            }
            recording.turn(now, tries, attempt.as_ref());
        }
        if let Some(attempt) = &attempt {
            self.count(attempt, started.elapsed());
            if let Some(observer) = &self.observer {
                observer(Happened::Attempt(attempt));
            }
        }
        let effects = self.scheduler.drain_effects();
        let n_victims = effects.iter().filter(|effect| matches!(effect.kind, EffectKind::DeleteVictim { .. })).count();
        if n_victims > 0 {
            self.metrics.preemption_victims.observe(u32::try_from(n_victims).unwrap_or(u32::MAX).into());
        }
        for effect in effects {
            state.in_flight += 1;
            if self.effects.send(effect).is_err() {
                state.stopped = true;
            }
        }
        attempt.is_some()
    }

    fn count(&mut self, attempt: &Attempt, duration: Duration) {
        let result = match attempt.outcome {
            Outcome::Scheduled { .. } => {
                self.metrics.pod_attempts.observe(attempt.attempts.into());
                "scheduled"
            }
            Outcome::Unschedulable { .. } => {
                // Every pod that fits nowhere goes through PostFilter, where preemption is tried.
                self.metrics.preemption_attempts.inc();
                "unschedulable"
            }
            Outcome::Error { .. } => "error",
            Outcome::Skipped => return,
        };
        let attempts = self
            .attempts
            .entry((result, Arc::clone(&attempt.scheduler_name)))
            .or_insert_with(|| self.metrics.attempts(result, &attempt.scheduler_name));
        attempts.count.inc();
        attempts.duration.observe(duration.as_secs_f64());
        let waiting = self.scheduler.queue().lengths();
        let pending = &self.metrics.pending_pods;
        for (gauge, n_pods) in [
            (&pending.active, waiting.active),
            (&pending.backoff, waiting.backoff),
            (&pending.unschedulable, waiting.unschedulable),
            (&pending.gated, waiting.gated),
        ] {
            gauge.set(i64::try_from(n_pods).unwrap_or(i64::MAX));
        }
    }

    fn idle_time(&self, state: &State) -> Duration {
        if !state.leading || state.kinds_to_list > 0 {
            return LONGEST_SLEEP;
        }
        self.scheduler.next_wakeup().map_or(LONGEST_SLEEP, |at| at.since(now()).min(LONGEST_SLEEP))
    }
}

/// The wall clock, which the engine itself never reads.
fn now() -> Timestamp {
    Timestamp::from_micros(jiff::Timestamp::now().as_microsecond())
}
