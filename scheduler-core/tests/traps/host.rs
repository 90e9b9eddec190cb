//! A host for tests of more than one cycle: time passes when the test says so, effects are collected.

use k8s_openapi::api::{core::v1 as core, storage::v1 as storage};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Change, Options, Scheduler};
use scheduler_core::framework::{Effect, EffectError, EffectId, EffectKind, NominatedNode, Registry};
use scheduler_core::model::{self, Object, Pod, Timestamp};
use scheduler_core::testing::{Cluster, pool};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) struct Host {
    pub(crate) scheduler: Scheduler,
    now: Timestamp,
    /// What the scheduler asked for and was not taken by the test.
    pub(crate) effects: Vec<Effect>,
}

impl Host {
    /// The default profile in a cluster.
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self::with(
            &scheduler_core::plugins::registry(),
            &KubeSchedulerConfiguration::default(),
            Options::default(),
            cluster,
        )
    }

    pub(crate) fn with(
        registry: &Registry,
        config: &KubeSchedulerConfiguration,
        options: Options,
        cluster: &Cluster,
    ) -> Self {
        let mut scheduler = Scheduler::new(config, registry, options).expect("the configuration is valid");
        cluster.apply_to(&mut scheduler);
        Self { scheduler, now: Timestamp::ZERO, effects: Vec::new() }
    }

    pub(crate) fn apply(&mut self, object: impl Into<Object>) {
        self.scheduler.handle(Change::Applied(object.into()), self.now);
    }

    pub(crate) fn delete(&mut self, object: impl Into<Object>) {
        self.scheduler.handle(Change::Deleted(object.into()), self.now);
    }

    /// It is so many milliseconds after the start.
    pub(crate) fn at_millis(&mut self, millis: i64) {
        self.now = Timestamp::from_millis(millis);
        self.scheduler.tick(self.now);
    }

    pub(crate) fn at(&mut self, seconds: i64) {
        self.at_millis(seconds * 1_000);
    }

    /// Tries every pod whose turn it is.
    pub(crate) fn run(&mut self) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        while let Some(attempt) = self.scheduler.schedule_one(self.now, pool()) {
            attempts.push(attempt);
            assert!(attempts.len() < 1_000, "pods are tried in a loop");
        }
        self.effects.extend(self.scheduler.drain_effects());
        attempts
    }

    /// How often the pod of this name is tried now.
    pub(crate) fn n_attempts(&mut self, name: &str) -> usize {
        self.run().iter().filter(|attempt| &*attempt.pod.name == name).count()
    }

    /// Reports every effect done.
    pub(crate) fn perform(&mut self) -> Vec<Effect> {
        self.effects.extend(self.scheduler.drain_effects());
        let effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            self.scheduler.handle_result(effect.id, Ok(()), self.now);
        }
        self.effects.extend(self.scheduler.drain_effects());
        effects
    }

    /// Reports what came of one effect.
    pub(crate) fn report(&mut self, id: EffectId, result: Result<(), EffectError>) {
        self.scheduler.handle_result(id, result, self.now);
        self.effects.extend(self.scheduler.drain_effects());
    }

    /// Events so far: reason, pod and text.
    pub(crate) fn events(&self) -> Vec<(&'static str, String, String)> {
        let event = |effect: &Effect| match &effect.kind {
            EffectKind::RecordEvent { reason, regarding, note, .. } => {
                Some((*reason, regarding.name.to_string(), note.clone()))
            }
            _ => None,
        };
        self.effects.iter().filter_map(event).collect()
    }

    /// Patches of a pod's status so far: whether a condition was set, and what happened to the nomination.
    pub(crate) fn patches(&self, name: &str) -> Vec<(bool, NominatedNode)> {
        let patch = |effect: &Effect| match &effect.kind {
            EffectKind::PatchPodStatus { pod, condition, nominated } if &*pod.name == name => {
                Some((condition.is_some(), nominated.clone()))
            }
            _ => None,
        };
        self.effects.iter().filter_map(patch).collect()
    }
}

/// The pod as the API server holds it once it is bound.
pub(crate) fn bound(pod: &Pod, node: &str) -> Pod {
    Pod { node_name: Some(node.into()), ..pod.clone() }
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

pub(crate) fn claim(value: &Value) -> model::PersistentVolumeClaim {
    (&read::<core::PersistentVolumeClaim>(value)).try_into().expect("a valid claim")
}

pub(crate) fn volume(value: &Value) -> model::PersistentVolume {
    (&read::<core::PersistentVolume>(value)).try_into().expect("a valid volume")
}

pub(crate) fn storage_class(value: &Value) -> model::StorageClass {
    (&read::<storage::StorageClass>(value)).into()
}
