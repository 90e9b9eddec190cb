//! A run over virtual time: pods arrive and leave, the engine places them; nothing waits for a real clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use scheduler_core::engine::{Change, Outcome, Scheduler};
use scheduler_core::framework::EffectKind;
use scheduler_core::model::{Object, Pod, Timestamp};

/// A pod that will be created.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// When, in seconds of virtual time.
    pub(crate) at_seconds: i64,
    /// The pod, without a node.
    pub(crate) pod: Arc<Pod>,
    /// When it is deleted, if ever.
    pub(crate) leaves_at_seconds: Option<i64>,
}

/// What became of the pods.
#[derive(Debug, Default)]
pub(crate) struct Result {
    /// Pods that got a node, in the order of their binding: pod, node, seconds waited.
    pub(crate) bound: Vec<(Arc<Pod>, Arc<str>, f64)>,
    /// Pods that never got one, with the last message.
    pub(crate) unschedulable: Vec<(Arc<Pod>, String)>,
    /// Attempts in all.
    pub(crate) n_attempts: u64,
    /// Real time spent in the engine.
    pub(crate) engine_time: Duration,
    /// Virtual seconds from the first to the last event.
    pub(crate) seconds: f64,
}

#[derive(Debug)]
struct Waiting {
    pod: Arc<Pod>,
    since: Timestamp,
    message: String,
}

/// An engine, its virtual clock, and what will happen.
pub(crate) struct Run<'a> {
    scheduler: Scheduler,
    pool: &'a rayon::ThreadPool,
    now: Timestamp,
    waiting: FxHashMap<Arc<str>, Waiting>,
    placed: FxHashMap<Arc<str>, Arc<Pod>>,
    /// Deletions by time, then in the order in which they were planned.
    departures: BinaryHeap<Reverse<(Timestamp, u64, Arc<str>)>>,
    result: Result,
}

impl<'a> Run<'a> {
    /// A run that begins with the objects that `scheduler` has been told of.
    pub(crate) fn new(scheduler: Scheduler, pool: &'a rayon::ThreadPool) -> Self {
        Self {
            scheduler,
            pool,
            now: Timestamp::ZERO,
            waiting: FxHashMap::default(),
            placed: FxHashMap::default(),
            departures: BinaryHeap::new(),
            result: Result::default(),
        }
    }

    /// Lets `arrivals` happen in the order of their times (those of one time in the given order), and with `departures` lets pods leave.
    pub(crate) fn play(mut self, mut arrivals: Vec<Arrival>, departures: bool) -> Result {
        arrivals.sort_by_key(|arrival| arrival.at_seconds);
        let start = arrivals.first().map_or(Timestamp::ZERO, |arrival| Timestamp::from_secs(arrival.at_seconds));
        for (arrival, order) in arrivals.into_iter().zip(0_u64..) {
            let at = Timestamp::from_secs(arrival.at_seconds);
            self.depart_until(at);
            self.now = self.now.max(at);
            let clock = Instant::now();
            self.scheduler.handle(Change::Applied(Object::Pod(Arc::clone(&arrival.pod))), self.now);
            let uid = Arc::clone(&arrival.pod.uid);
            self.waiting
                .insert(Arc::clone(&uid), Waiting { pod: arrival.pod, since: self.now, message: String::new() });
            if let Some(leaves) = arrival.leaves_at_seconds.filter(|_| departures) {
                self.departures.push(Reverse((Timestamp::from_secs(leaves), order, uid)));
            }
            self.schedule();
            self.result.engine_time += clock.elapsed();
        }
        self.depart_until(Timestamp(i64::MAX));
        self.result.seconds = self.now.since(start).as_secs_f64();
        let mut rest: Vec<_> = self.waiting.into_values().collect();
        rest.sort_by(|a, b| (a.since, &a.pod.uid).cmp(&(b.since, &b.pod.uid)));
        self.result.unschedulable.extend(rest.into_iter().map(|waiting| (waiting.pod, waiting.message)));
        self.result
    }

    fn depart_until(&mut self, limit: Timestamp) {
        while let Some(Reverse((at, _, _))) = self.departures.peek()
            && *at <= limit
        {
            let Some(Reverse((at, _, uid))) = self.departures.pop() else { return };
            self.now = self.now.max(at);
            let clock = Instant::now();
            if let Some(pod) = self.placed.remove(&uid) {
                self.scheduler.handle(Change::Deleted(Object::Pod(pod)), self.now);
            } else if let Some(waiting) = self.waiting.remove(&uid) {
                self.scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(&waiting.pod))), self.now);
                self.result.unschedulable.push((waiting.pod, waiting.message));
            }
            self.schedule();
            self.result.engine_time += clock.elapsed();
        }
    }

    /// Runs cycles until nobody can be tried now.
    fn schedule(&mut self) {
        self.scheduler.tick(self.now);
        while let Some(attempt) = self.scheduler.schedule_one(self.now, self.pool) {
            self.result.n_attempts += 1;
            if let Outcome::Unschedulable { message, .. } | Outcome::Error { message } = attempt.outcome
                && let Some(waiting) = self.waiting.get_mut(&attempt.pod.uid)
            {
                waiting.message = message;
            }
            self.perform();
        }
    }

    /// Carries out what the engine wants, at once.
    fn perform(&mut self) {
        for effect in self.scheduler.drain_effects() {
            self.scheduler.handle_result(effect.id, Ok(()), self.now);
            match effect.kind {
                EffectKind::Bind { pod, node } => {
                    let Some(waiting) = self.waiting.remove(&pod.uid) else { continue };
                    let on_node = Arc::new(Pod { node_name: Some(Arc::clone(&node)), ..Pod::clone(&waiting.pod) });
                    self.scheduler.handle(Change::Applied(Object::Pod(Arc::clone(&on_node))), self.now);
                    self.result.bound.push((waiting.pod, node, self.now.since(waiting.since).as_secs_f64()));
                    self.placed.insert(Arc::clone(&pod.uid), on_node);
                }
                EffectKind::DeleteVictim { victim, .. } => {
                    if let Some(pod) = self.placed.remove(&victim.uid) {
                        self.scheduler.handle(Change::Deleted(Object::Pod(pod)), self.now);
                    }
                }
                _ => {}
            }
        }
    }
}
