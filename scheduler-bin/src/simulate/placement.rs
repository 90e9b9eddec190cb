//! One engine over a world that does not change by itself: places pods one after the other, as the scheduler would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{EffectKind, Registry};
use scheduler_core::model::{Node, Object, Pod, Timestamp};

use super::World;
use super::volumes;
use crate::explain::WhatIf;

/// The engine and its virtual clock.
pub(crate) struct Placement {
    scheduler: Scheduler,
    pool: rayon::ThreadPool,
    now: Timestamp,
}

/// Where the pods of a node that is drained go.
#[derive(Debug)]
pub(crate) struct Drained {
    /// Pods with their new nodes.
    pub(crate) moved: Vec<(Arc<Pod>, Arc<str>)>,
    /// Pods of DaemonSets, and those that the kubelet runs by itself: they go with the node.
    pub(crate) stayed: usize,
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
    ) -> Result<Self, String> {
        let extenders = world.extenders(configuration).map_err(|error| error.to_string())?;
        let options = Options { seed, extenders, ..Options::default() };
        let scheduler = Scheduler::new(configuration, registry, options).map_err(|error| error.to_string())?;
        let pool = rayon::ThreadPoolBuilder::new().build().map_err(|error| error.to_string())?;
        let mut placement = Self { scheduler, pool, now: Timestamp::from_secs(1) };
        for object in &world.objects {
            placement.apply(object.clone());
        }
        for pod in &world.bound {
            placement.apply(Object::Pod(Arc::clone(pod)));
        }
        for budget in world.counted_budgets() {
            placement.apply(budget);
        }
        Ok(placement)
    }

    fn apply(&mut self, object: Object) {
        self.scheduler.handle(Change::Applied(object), self.now);
    }

    /// Tries `pod` once; if a node is found, the pod is on it from now on. `None` if no profile serves it, or it is gated.
    pub(crate) fn place(&mut self, pod: &Arc<Pod>) -> Option<Attempt> {
        self.now = self.now.after(Duration::from_secs(1));
        self.apply(Object::Pod(Arc::clone(pod)));
        let attempt = self.scheduler.schedule_pod(&pod.uid, self.now, &self.pool);
        loop {
            let effects = self.scheduler.drain_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.scheduler.handle_result(effect.id, Ok(()), self.now);
                match effect.kind {
                    EffectKind::Bind { pod: bound, node } | EffectKind::BindByExtender { pod: bound, node, .. }
                        if bound.uid == pod.uid =>
                    {
                        self.apply(Pod { node_name: Some(node), ..Pod::clone(pod) }.into());
                    }
                    EffectKind::BindVolume { claim, volume, node } => {
                        for object in volumes::bind(&self.scheduler, &claim, volume.as_ref(), &node) {
                            self.apply(object);
                        }
                    }
                    _ => {}
                }
            }
        }
        if !matches!(attempt.as_ref().map(|attempt| &attempt.outcome), Some(Outcome::Scheduled { .. })) {
            self.remove(pod);
        }
        attempt
    }

    /// Takes a pod away.
    pub(crate) fn remove(&mut self, pod: &Arc<Pod>) {
        self.scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(pod))), self.now);
    }

    /// Questions about the cluster as it is now.
    pub(crate) fn what_if(&mut self) -> WhatIf<'_> {
        WhatIf::new(&mut self.scheduler, self.now)
    }

    /// What stands against a pod: reasons, and against how many nodes.
    pub(crate) fn reasons(&mut self, pod: &Pod) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        let Some(examination) = self.what_if().examine(pod) else { return reasons };
        for rejection in examination.filter.values().flatten().chain(&examination.pre_filter.rejection) {
            for reason in &rejection.reasons {
                *reasons.entry(reason.to_string()).or_default() += 1;
            }
        }
        reasons
    }

    /// Nodes from the emptiest to the fullest, by the larger of their cpu and memory shares.
    pub(crate) fn nodes_by_use(&self) -> Vec<Arc<Node>> {
        let snapshot = self.scheduler.cache().snapshot();
        let mut nodes: Vec<(f64, Arc<Node>)> = snapshot
            .iter()
            .map(|idx| {
                let node = snapshot.node(idx);
                let used =
                    |of: fn(&Pod) -> i64| snapshot.pods(idx).iter().map(|pod| of(pod)).fold(0_i64, i64::saturating_add);
                let share = |used: i64, whole: i64| if whole > 0 { used as f64 / whole as f64 } else { 0.0 };
                let cpu = share(used(|pod| pod.resources.used().milli_cpu), node.allocatable.milli_cpu);
                let memory = share(used(|pod| pod.resources.used().memory), node.allocatable.memory);
                (cpu.max(memory), Arc::new(node.clone()))
            })
            .collect();
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
        nodes.into_iter().map(|(_, node)| node).collect()
    }

    /// Takes a node away and places its pods elsewhere. If one fits nowhere, everything is as before and its message is given.
    ///
    /// # Errors
    /// The first pod that fits nowhere, with the scheduler's message.
    pub(crate) fn drain(&mut self, node: &Arc<Node>) -> Result<Drained, (Arc<Pod>, String)> {
        let snapshot = self.scheduler.cache().snapshot();
        let pods: Vec<Arc<Pod>> = snapshot.find(&node.name).map(|idx| snapshot.pods(idx).to_vec()).unwrap_or_default();
        let stays =
            |pod: &Pod| pod.controller.as_ref().is_some_and(|owner| matches!(&*owner.kind, "DaemonSet" | "Node"));
        for pod in &pods {
            self.remove(pod);
        }
        self.scheduler.handle(Change::Deleted(Object::Node(Arc::clone(node))), self.now);
        let mut moved: Vec<(Arc<Pod>, Arc<str>)> = Vec::new();
        let mut failed = None;
        // The largest first: small ones find a place in what is left.
        let mut moving: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !stays(pod)).collect();
        moving.sort_by(|a, b| {
            let size = |pod: &Pod| (pod.priority, pod.resources.used().milli_cpu, pod.resources.used().memory);
            size(b).cmp(&size(a)).then_with(|| a.uid.cmp(&b.uid))
        });
        for pod in moving {
            let free = Arc::new(Pod { node_name: None, ..Pod::clone(pod) });
            match self.place(&free).map(|attempt| attempt.outcome) {
                Some(Outcome::Scheduled { node, .. }) => moved.push((free, node)),
                Some(Outcome::Unschedulable { message, .. } | Outcome::Error { message }) => {
                    failed = Some((Arc::clone(pod), message));
                    break;
                }
                Some(Outcome::Skipped) | None => {
                    failed =
                        Some((Arc::clone(pod), format!("no profile serves schedulerName {:?}", pod.scheduler_name)));
                    break;
                }
            }
        }
        let Some(failed) = failed else {
            return Ok(Drained { stayed: pods.len() - moved.len(), moved });
        };
        for (pod, _) in &moved {
            self.remove(pod);
        }
        self.apply(Object::Node(Arc::clone(node)));
        for pod in pods {
            self.apply(Object::Pod(pod));
        }
        Err(failed)
    }
}
