//! A workload on the engine alone: what the API server would do is done at once, in this thread. A binding succeeds, a
//! patch is seen, a victim is gone; nothing is encoded, sent or stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{Effect, EffectKind, NominatedNode, PodCondition, Registry};
use scheduler_core::model::{Object, ObjectRef, Pod, ScheduledCondition, Timestamp};
use serde_json::Value;

use super::convert::convert;
use super::pods::complete;
use super::run::{Happening, Target, Turn};

/// Attempts after which the workload has its turn.
const ATTEMPTS_PER_TURN: usize = 256;
/// Longest pause while nothing happens.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The engine, and what the API server would know.
pub(crate) struct EngineTarget {
    scheduler: Scheduler,
    pool: ThreadPool,
    started: Instant,
    pods: HashMap<Arc<str>, Arc<Pod>>,
    next_version: u64,
    happened: Vec<Happening>,
    last_message: Option<String>,
}

impl EngineTarget {
    /// An engine that knows nothing.
    ///
    /// # Errors
    /// The configuration cannot be built, or the threads cannot be started.
    pub(crate) fn new(
        configuration: &KubeSchedulerConfiguration,
        registry: &Registry,
        seed: u64,
        n_threads: usize,
    ) -> Result<Self, String> {
        let options = Options { seed, ..Options::default() };
        Ok(Self {
            scheduler: Scheduler::new(configuration, registry, options).map_err(|error| error.to_string())?,
            pool: ThreadPoolBuilder::new()
                .num_threads(n_threads)
                .build()
                .map_err(|error| format!("cannot start {n_threads} threads: {error}"))?,
            started: Instant::now(),
            pods: HashMap::new(),
            next_version: 1,
            happened: Vec::new(),
            last_message: None,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    /// The pod with a new version, as the watch would show it.
    fn change_pod(&mut self, uid: &str, change: impl FnOnce(&mut Pod)) {
        let Some(known) = self.pods.get_mut(uid) else { return };
        let mut pod = Pod::clone(known);
        change(&mut pod);
        pod.resource_version = self.next_version.to_string().into();
        self.next_version += 1;
        let pod = Arc::new(pod);
        *known = Arc::clone(&pod);
        let now = self.now();
        self.scheduler.handle(Change::Applied(Object::Pod(pod)), now);
    }

    fn delete_pod(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            let now = self.now();
            self.scheduler.handle(Change::Deleted(Object::Pod(pod)), now);
        }
    }

    fn perform(&mut self, effect: Effect) {
        let now = self.now();
        self.scheduler.handle_result(effect.id, Ok(()), now);
        match effect.kind {
            EffectKind::Bind { pod, node } => {
                self.happened.push(Happening::Scheduled { namespace: pod.namespace, at: Instant::now() });
                self.change_pod(&pod.uid, |pod| pod.node_name = Some(node));
            }
            EffectKind::PatchPodStatus { pod, condition, nominated } => self.patch(&pod, condition, nominated),
            EffectKind::DeleteVictim { victim, .. } => self.delete_pod(&victim.uid),
            EffectKind::RecordEvent { .. }
            | EffectKind::BindVolume { .. }
            | EffectKind::BindByExtender { .. }
            | EffectKind::Custom(_) => {}
        }
    }

    fn patch(&mut self, pod: &ObjectRef, condition: Option<PodCondition>, nominated: NominatedNode) {
        self.change_pod(&pod.uid, |pod| {
            match nominated {
                NominatedNode::Keep => {}
                NominatedNode::Clear => pod.nominated_node_name = None,
                NominatedNode::Set(node) => pod.nominated_node_name = Some(node),
            }
            if let Some(condition) = condition.filter(|condition| condition.condition_type == "PodScheduled") {
                pod.scheduled_condition = Some(Box::new(ScheduledCondition {
                    status: condition.status,
                    reason: condition.reason.into(),
                    message: condition.message.into(),
                    observed_generation: condition.observed_generation,
                }));
            }
        });
    }

    /// One cycle; `false` when no pod waits for its turn.
    fn step(&mut self) -> bool {
        let now = self.now();
        self.scheduler.tick(now);
        let attempt = self.scheduler.schedule_one(now, &self.pool);
        for effect in self.scheduler.drain_effects() {
            self.perform(effect);
        }
        let Some(attempt) = attempt else { return false };
        if attempt.attempts == 1 {
            self.happened.push(Happening::FirstAttempt { namespace: Arc::clone(&attempt.pod.namespace) });
        }
        if let Outcome::Unschedulable { message, .. } | Outcome::Error { message } = attempt.outcome {
            self.last_message = Some(format!("{}/{}: {message}", attempt.pod.namespace, attempt.pod.name));
        }
        true
    }
}

impl Target for EngineTarget {
    type Prepared = Vec<Object>;

    fn prepare(&mut self, objects: Vec<Value>) -> Result<Vec<Object>, String> {
        let mut prepared = Vec::with_capacity(objects.len());
        for mut object in objects {
            complete(&mut object);
            object["metadata"]["uid"] = uid(&object).into();
            prepared.extend(convert(object)?);
        }
        Ok(prepared)
    }

    async fn submit(&mut self, objects: Vec<Object>) -> Result<(), String> {
        for object in objects {
            if let Object::Pod(pod) = &object {
                self.pods.insert(Arc::clone(&pod.uid), Arc::clone(pod));
            }
            let now = self.now();
            self.scheduler.handle(Change::Applied(object), now);
        }
        Ok(())
    }

    async fn delete(&mut self, object: &Value) -> Result<(), String> {
        if object["kind"] == "Pod" {
            self.delete_pod(&uid(object));
            return Ok(());
        }
        for object in self.prepare(vec![object.clone()])? {
            let now = self.now();
            self.scheduler.handle(Change::Deleted(object), now);
        }
        Ok(())
    }

    async fn turn(&mut self, until: Option<Instant>) -> Result<Turn, String> {
        let mut idle = false;
        for _ in 0..ATTEMPTS_PER_TURN {
            if !self.step() {
                idle = true;
                break;
            }
        }
        let happened = std::mem::take(&mut self.happened);
        // Others on this thread wait for signals.
        tokio::task::yield_now().await;
        if !idle || !happened.is_empty() {
            return Ok(Turn { happened, is_stuck: false });
        }
        // Pods that fit nowhere are tried again after minutes; nothing else will happen to them by itself.
        let lengths = self.scheduler.queue().lengths();
        let is_stuck = lengths.active + lengths.backoff == 0;
        let wakeup = self.scheduler.next_wakeup().map(|at| Instant::now() + at.since(self.now()));
        let soon = Instant::now() + LONGEST_SLEEP;
        let end = [wakeup, until, Some(soon)].into_iter().flatten().min().unwrap_or(soon);
        tokio::time::sleep_until(end.into()).await;
        Ok(Turn { happened, is_stuck })
    }

    fn last_message(&self) -> Option<String> {
        self.last_message.clone()
    }
}

/// Namespace and name: nothing is made twice under one name here.
fn uid(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
