//! A run over virtual time: what happens outside, what the controllers make of it, and what the engine decides.
//! No real clock is waited for; the only one that is read measures the time spent in the engine.

mod cycle;
mod happen;
mod pods;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use scheduler_core::engine::{Attempt, Scheduler};
use scheduler_core::model::{Object, Pod, Timestamp};

use super::agenda::Agenda;
use super::budgets::Budget;
use super::measure::{Measure, NodeUse};
use super::script::{Happening, InputError, Leaves, Name, Script, Timed};
use super::workload::Controller;

/// Longest back-off of a pod, and a little more. Upstream: `podMaxBackoffSeconds` (10 s).
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);

/// After this time every unschedulable pod is tried again. Upstream: queue, 5 minutes, looked at every 30 seconds.
const LONGEST_UNSCHEDULABLE: Duration = Duration::from_secs(330);

/// Something that a run tells while it goes on.
#[derive(Debug)]
pub(crate) enum Told<'a> {
    /// A pod got a node.
    Bound {
        /// The pod.
        pod: &'a Pod,
        /// Its node.
        node: &'a str,
        /// How long it waited.
        waited: Duration,
    },
    /// A pod ended, was deleted or evicted: why.
    Gone {
        /// The pod.
        pod: &'a Pod,
        /// Its node, if it had one.
        node: Option<&'a str>,
        /// In one word.
        why: &'static str,
        /// The last message of a pod that never got a node.
        message: &'a str,
    },
    /// The run is over and the pod has no node.
    Unschedulable {
        /// The pod.
        pod: &'a Pod,
        /// The scheduler's last message.
        message: &'a str,
    },
    /// A pod was tried.
    Tried(&'a Attempt),
    /// The run goes on: pods so far.
    Progress {
        /// Pods that came.
        arrived: u64,
        /// Pods that got a node.
        scheduled: u64,
    },
}

/// Who hears of it; the time is the virtual one.
pub(crate) type Listener<'a> = dyn FnMut(Timestamp, Told<'_>) + 'a;

/// How a run is played.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// The clock stands still: things happen one after the other, and nobody leaves.
    pub(crate) arrivals_only: bool,
    /// Nothing happens after this much virtual time.
    pub(crate) until: Option<Duration>,
}

struct Life {
    pod: Arc<Pod>,
    node: Option<Arc<str>>,
    since: Timestamp,
    leaves: Leaves,
    workload: Option<usize>,
    message: Arc<str>,
    /// Whether a profile here serves its schedulerName, or it had a node when it came.
    is_ours: bool,
}

impl Life {
    /// Whether it waits for a node that somebody here looks for.
    fn waits(&self) -> bool {
        self.node.is_none() && self.is_ours
    }
}

/// What is left when a run is over.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The engine, with the cluster as it is at the end.
    pub(crate) scheduler: Scheduler,
    /// The time of the end.
    pub(crate) now: Timestamp,
    /// What was measured.
    pub(crate) measure: Measure,
    /// What each node holds.
    pub(crate) nodes: Vec<NodeUse>,
    /// Pods that wait at the end.
    pub(crate) n_pending: usize,
    /// Their messages, and for how many pods each stands.
    pub(crate) messages: BTreeMap<Arc<str>, u64>,
    /// schedulerNames that no profile serves, and how many pods without a node named each.
    pub(crate) other_schedulers: BTreeMap<Arc<str>, u64>,
    /// Real time in the engine.
    pub(crate) engine_time: Duration,
}

/// An engine, its virtual clock, and what will happen.
pub(crate) struct Run<'a> {
    scheduler: Scheduler,
    pool: &'a rayon::ThreadPool,
    listener: &'a mut Listener<'a>,
    manner: Manner,
    now: Timestamp,
    pods: FxHashMap<Arc<str>, Life>,
    /// UIDs by namespace and name.
    uids: FxHashMap<(Arc<str>, Arc<str>), Arc<str>>,
    controllers: Vec<Controller>,
    by_name: FxHashMap<Name, usize>,
    /// Controllers to look at, in order.
    dirty: Vec<usize>,
    agenda: Agenda,
    budgets: Vec<Budget>,
    measure: Measure,
    /// Nodes came, changed or went since they were measured.
    nodes_changed: bool,
    /// When the cluster changed last.
    last_change: Timestamp,
    n_pending: usize,
    other_schedulers: BTreeMap<Arc<str>, u64>,
    n_attempts_at_once: u64,
    engine_time: Duration,
}

impl<'a> Run<'a> {
    /// A run that knows no objects yet.
    pub(crate) fn new(
        scheduler: Scheduler,
        pool: &'a rayon::ThreadPool,
        measure: Measure,
        manner: Manner,
        listener: &'a mut Listener<'a>,
    ) -> Self {
        Self {
            scheduler,
            pool,
            listener,
            manner,
            now: Timestamp::ZERO,
            pods: FxHashMap::default(),
            uids: FxHashMap::default(),
            controllers: Vec::new(),
            by_name: FxHashMap::default(),
            dirty: Vec::new(),
            agenda: Agenda::default(),
            budgets: Vec::new(),
            measure,
            nodes_changed: true,
            last_change: Timestamp::ZERO,
            n_pending: 0,
            other_schedulers: BTreeMap::new(),
            n_attempts_at_once: 0,
            engine_time: Duration::ZERO,
        }
    }

    /// Counts for these budgets what they allow.
    pub(crate) fn with_budgets(mut self, budgets: &[Budget]) -> Self {
        self.budgets = budgets.to_vec();
        self
    }

    /// Plays `script` on top of `objects`, the pods that have a node, and those that wait for one together.
    ///
    /// # Errors
    /// The script is malformed, or names what is not there.
    pub(crate) fn play(
        mut self,
        objects: &[Object],
        bound: &[Arc<Pod>],
        waiting: Vec<(Arc<Pod>, Leaves)>,
        script: Script<'_>,
    ) -> Result<Finished, InputError> {
        let mut script = script.peekable();
        let first = match script.peek() {
            Some(Ok(timed)) if !self.manner.arrivals_only => timed.at,
            _ => Timestamp::ZERO,
        };
        self.now = first;
        for object in objects {
            self.apply(object.clone());
        }
        for pod in bound {
            self.pod_arrives(Arc::clone(pod), Leaves::Never, None);
        }
        self.measure_nodes();
        self.measure.begin(first);
        if !waiting.is_empty() {
            for (pod, leaves) in waiting {
                self.one(Happening::Pod(pod, leaves))
                    .map_err(|problem| InputError { place: "input".to_owned(), problem })?;
            }
            self.settle()?;
        }
        let end = self.manner.until.map_or(Timestamp::MAX, |until| first.after(until));
        // A CronJob has no end of its own: it runs as long as anything else is to come, or until `end`.
        loop {
            let next = match script.peek() {
                Some(Ok(timed)) => Some(if self.manner.arrivals_only { self.now } else { timed.at }),
                Some(Err(_)) => Some(self.now),
                None => None,
            };
            let due = self.agenda.next(next.is_some() || self.manner.until.is_some());
            let wake = self.wakeup().filter(|wake| next.is_none_or(|next| *wake < next));
            let at = [next, due, wake].into_iter().flatten().min();
            let Some(at) = at.filter(|at| *at <= end) else { break };
            self.clock(at);
            while let Some(due) = self.agenda.pop(at) {
                self.due(due);
            }
            if next.is_some_and(|next| next <= at) {
                self.happen(&mut script)?;
            }
            self.settle()?;
        }
        self.flush()?;
        Ok(self.finish())
    }

    /// Lets the next thing happen; each is settled before the next, so that pods are tried in the order in which they come.
    fn happen(&mut self, script: &mut std::iter::Peekable<Script<'_>>) -> Result<(), InputError> {
        match script.next() {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(Timed { what, line, .. })) => {
                self.one(what).map_err(|problem| InputError { place: format!("line {line}"), problem })
            }
        }
    }

    fn clock(&mut self, at: Timestamp) {
        if at > self.now {
            self.n_attempts_at_once = 0;
            self.measure_nodes();
            self.measure.advance(at);
            self.now = at;
        }
    }

    /// When the engine wants to be called again: back-offs end soon after the last change; later it would only try again what
    /// has failed in the same cluster.
    fn wakeup(&mut self) -> Option<Timestamp> {
        let waits = !self.scheduler.waiting_pods().is_empty();
        let patience = self.last_change.after(LONGEST_BACKOFF);
        self.scheduler.next_wakeup().filter(|at| waits || *at <= patience)
    }

    /// Tries once more what waits: some changes wake nobody, and the scheduler comes back to such pods after five minutes.
    /// No time goes by for what is measured.
    fn flush(&mut self) -> Result<(), InputError> {
        if self.n_pending > 0 && !self.manner.arrivals_only {
            self.now = self.now.after(LONGEST_UNSCHEDULABLE);
            self.settle()?;
        }
        Ok(())
    }

    /// Controllers and engine, until neither has anything to do at this time.
    fn settle(&mut self) -> Result<(), InputError> {
        loop {
            self.control();
            let any = self.schedule()?;
            if !any && self.dirty.is_empty() {
                break;
            }
        }
        if self.measure.step() {
            self.sample();
        }
        if self.measure.counts.attempts.is_multiple_of(256) {
            let told =
                Told::Progress { arrived: self.measure.counts.arrived, scheduled: self.measure.counts.scheduled };
            (self.listener)(self.now, told);
        }
        Ok(())
    }

    /// Measures the nodes if they changed: once, however many changed at this time.
    fn measure_nodes(&mut self) {
        if std::mem::take(&mut self.nodes_changed) {
            self.measure.nodes_changed(self.scheduler.cache().snapshot());
        }
    }

    fn sample(&mut self) {
        self.measure_nodes();
        // Most often nobody waits, and then nobody is looked for.
        let waiting = self.pods.values().filter(|life| life.waits()).take(self.n_pending);
        let pending: Vec<_> = waiting.map(|life| &life.pod.resources.requests).collect();
        self.measure.sample(self.now, self.scheduler.cache().snapshot(), pending.into_iter());
    }

    fn finish(mut self) -> Finished {
        self.sample();
        let mut rest: Vec<&Life> = self.pods.values().filter(|life| life.waits()).collect();
        rest.sort_by(|a, b| {
            (a.since, &a.pod.namespace, &a.pod.name, &a.pod.uid).cmp(&(
                b.since,
                &b.pod.namespace,
                &b.pod.name,
                &b.pod.uid,
            ))
        });
        let mut messages: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for life in &rest {
            let message = if life.message.is_empty() { held_back(&life.pod) } else { Arc::clone(&life.message) };
            (self.listener)(self.now, Told::Unschedulable { pod: &life.pod, message: &message });
            *messages.entry(message).or_default() += 1;
        }
        Finished {
            now: self.now,
            nodes: self.measure.node_uses(self.scheduler.cache().snapshot()),
            n_pending: rest.len(),
            messages,
            other_schedulers: self.other_schedulers,
            engine_time: self.engine_time,
            measure: self.measure,
            scheduler: self.scheduler,
        }
    }
}

/// Why a pod that was never tried was not.
fn held_back(pod: &Pod) -> Arc<str> {
    if !pod.scheduling_gates.is_empty() {
        return format!("held back by scheduling gates: {}", pod.scheduling_gates.join(", ")).into();
    }
    "not tried".into()
}
