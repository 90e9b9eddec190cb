//! One engine over a world that does not change by itself: places pods one after the other, as the scheduler would.

use std::sync::Arc;
use std::time::Duration;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{EffectKind, Registry};
use scheduler_core::model::{Object, Pod, Timestamp};

use super::World;

/// The engine and its virtual clock.
pub(crate) struct Placement {
    scheduler: Scheduler,
    pool: rayon::ThreadPool,
    now: Timestamp,
}

impl Placement {
    /// An engine that knows `world`, without the pods that wait.
    ///
    /// # Errors
    /// The configuration cannot be built, or no threads can be started.
    pub(crate) fn new(
        world: &World,
        configuration: &KubeSchedulerConfiguration,
        registry: &Registry,
        seed: u64,
        record_decisions: bool,
    ) -> Result<Self, String> {
        let scheduler =
            Scheduler::new(configuration, registry, Options { seed, record_decisions, ..Options::default() })
                .map_err(|error| error.to_string())?;
        let pool = rayon::ThreadPoolBuilder::new().build().map_err(|error| error.to_string())?;
        let mut placement = Self { scheduler, pool, now: Timestamp::from_secs(1) };
        for object in &world.objects {
            placement.scheduler.handle(Change::Applied(object.clone()), placement.now);
        }
        for pod in &world.bound {
            placement.scheduler.handle(Change::Applied(Object::Pod(Arc::clone(pod))), placement.now);
        }
        Ok(placement)
    }

    /// Tries `pod` once; if a node is found, the pod is on it from now on.
    pub(crate) fn place(&mut self, pod: &Arc<Pod>) -> Option<Attempt> {
        self.now = self.now.after(Duration::from_secs(1));
        self.scheduler.handle(Change::Applied(Object::Pod(Arc::clone(pod))), self.now);
        let attempt = loop {
            let attempt = self.scheduler.schedule_one(self.now, &self.pool)?;
            if attempt.pod.uid == pod.uid {
                break attempt;
            }
        };
        for effect in self.scheduler.drain_effects() {
            self.scheduler.handle_result(effect.id, Ok(()), self.now);
            if let EffectKind::Bind { pod: bound, node } = effect.kind
                && bound.uid == pod.uid
            {
                let on_node = Pod { node_name: Some(node), ..Pod::clone(pod) };
                self.scheduler.handle(Change::Applied(on_node.into()), self.now);
            }
        }
        if !matches!(attempt.outcome, Outcome::Scheduled { .. }) {
            self.remove(pod);
        }
        Some(attempt)
    }

    /// Takes a pod away.
    pub(crate) fn remove(&mut self, pod: &Arc<Pod>) {
        self.scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(pod))), self.now);
    }
}
