//! The engine's state and its face to the host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Options;
use super::batch::Batches;
use super::bindings::Bindings;
use super::scratch::Scratch;
use super::templates::Templates;
use crate::cache::{Cache, Objects};
use crate::config::KubeSchedulerConfiguration;
use crate::config::error::ConfigError;
use crate::framework::{ClusterView, Effect, EffectId, EffectKind, Extender, Profile, Registry, WaitingPods};
use crate::model::{NodeTemplate, ObjectRef, Pod, PodTemplate, Timestamp};
use crate::queue::{EventMap, ProfileRules, QueueOptions, SchedulingQueue};

/// A kube-scheduler without a clock and without a network.
///
/// The host feeds it what watches say ([`handle`](Self::handle)), lets it decide ([`schedule_one`](Self::schedule_one)),
/// performs the effects ([`drain_effects`](Self::drain_effects)) and reports their results
/// ([`handle_result`](Self::handle_result)); when the time of [`next_wakeup`](Self::next_wakeup) comes it calls
/// [`tick`](Self::tick). The same calls with the same times and seed give the same decisions and effects.
///
/// ```
/// use scheduler_core::config::KubeSchedulerConfiguration;
/// use scheduler_core::engine::{Change, Options, Outcome, Scheduler};
/// use scheduler_core::framework::EffectKind;
/// use scheduler_core::model::{Node, NodeTemplate, Pod, PodTemplate, Resources, Timestamp};
///
/// let config = KubeSchedulerConfiguration::default();
/// let registry = scheduler_core::plugins::registry();
/// let mut scheduler = Scheduler::new(&config, &registry, Options::default()).unwrap();
/// let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
/// let now = Timestamp::ZERO;
///
/// let allocatable = Resources { milli_cpu: 4_000, memory: 8 << 30, pods: 110, ..Resources::default() };
/// let template = NodeTemplate { allocatable, ..NodeTemplate::default() };
/// let node = Node { name: "n1".into(), ..template.into() };
/// let (namespace, scheduler_name) = ("default".into(), "default-scheduler".into());
/// let template = PodTemplate { namespace, scheduler_name, ..PodTemplate::default() };
/// let pod = Pod { name: "p".into(), uid: "1".into(), ..template.into() };
/// scheduler.handle(Change::Applied(node.into()), now);
/// scheduler.handle(Change::Applied(pod.into()), now);
///
/// let attempt = scheduler.schedule_one(now, &pool).expect("a pod waits");
/// assert!(matches!(attempt.outcome, Outcome::Scheduled { ref node, .. } if &**node == "n1"));
/// let effects = scheduler.drain_effects();
/// assert!(matches!(&effects[0].kind, EffectKind::Bind { node, .. } if &**node == "n1"));
/// ```
pub struct Scheduler {
    pub(super) profiles: Vec<Profile>,
    pub(super) event_map: EventMap,
    pub(super) extenders: Vec<Arc<dyn Extender>>,
    pub(super) cache: Cache,
    pub(super) objects: Objects,
    pub(super) queue: SchedulingQueue,
    /// Pods without a node, of whatever scheduler we serve, as last seen.
    pub(super) unassigned: FxHashMap<Arc<str>, Arc<Pod>>,
    pub(super) waiting: WaitingPods,
    pub(super) bindings: Bindings,
    pub(super) effects: Vec<Effect>,
    pub(super) origins: FxHashMap<EffectId, Origin>,
    /// Effects of PostFilter plugins that are still out, by preemptor.
    pub(super) preemptions: BTreeMap<Arc<str>, Preemption>,
    pub(super) next_effect: u64,
    /// The last pod whose indexes were asked for, as long as its replicas need no others: until another object changes, a
    /// node comes, or a pod comes to a node from elsewhere.
    pub(super) last_required: Option<Arc<Pod>>,
    pub(super) scratch: Scratch,
    pub(super) batches: Batches,
    pub(super) pod_templates: Templates<PodTemplate>,
    pub(super) node_templates: Templates<NodeTemplate>,
    pub(super) start_index: usize,
    pub(super) n_cycles: u64,
    pub(super) seed: u64,
    pub(super) records_decisions: bool,
}

/// Whose effect it is, as far as the engine waits for the result.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A step of the pod's binding cycle.
    Binding { uid: Arc<str> },
    /// Part of what a PostFilter plugin asked for; with the victim if it is an eviction. Boxed: most effects are bindings.
    PostFilter { preemptor: Arc<str>, victim: Option<Box<Victim>> },
}

/// A pod that goes for the sake of another.
#[derive(Debug, Clone)]
pub(super) struct Victim {
    pub(super) pod: ObjectRef,
    pub(super) node: Arc<str>,
}

/// What a PostFilter plugin asked for and is not done yet.
#[derive(Debug)]
pub(super) struct Preemption {
    pub(super) pod: Arc<Pod>,
    pub(super) profile: usize,
    pub(super) plugin: usize,
    pub(super) n_outstanding: usize,
    pub(super) failed: bool,
}

impl Scheduler {
    /// Builds the profiles of a configuration.
    ///
    /// # Errors
    /// When the configuration names unknown plugins, or a plugin refuses its arguments.
    pub fn new(
        config: &KubeSchedulerConfiguration,
        registry: &Registry,
        options: Options,
    ) -> Result<Self, ConfigError> {
        let effective = config.effective_plugins(registry)?;
        let profiles = config
            .profiles_beside_extenders()?
            .iter()
            .zip(&effective)
            .map(|(profile, effective)| {
                let percentage = profile.percentage_of_nodes_to_score.unwrap_or(config.percentage_of_nodes_to_score);
                Profile::build(profile, effective, percentage, registry).map_err(|(plugin, error)| {
                    ConfigError::Plugin { profile: profile.scheduler_name.clone(), plugin, detail: error.to_string() }
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Self {
            event_map: EventMap::new(&profiles, !options.extenders.is_empty()),
            profiles,
            extenders: options.extenders,
            cache: Cache::new(),
            objects: Objects::default(),
            queue: SchedulingQueue::new(QueueOptions {
                initial_backoff: seconds(config.pod_initial_backoff_seconds),
                max_backoff: seconds(config.pod_max_backoff_seconds),
                ..QueueOptions::default()
            }),
            unassigned: FxHashMap::default(),
            waiting: WaitingPods::default(),
            bindings: Bindings::default(),
            effects: Vec::new(),
            origins: FxHashMap::default(),
            preemptions: BTreeMap::new(),
            next_effect: 0,
            last_required: None,
            scratch: Scratch::default(),
            batches: Batches::default(),
            pod_templates: Templates::default(),
            node_templates: Templates::default(),
            start_index: 0,
            n_cycles: 0,
            seed: options.seed,
            records_decisions: options.record_decisions,
        })
    }

    /// Takes what the engine wants done since the last call, in order.
    pub fn drain_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Lets time pass: back-off ends, Permit plugins' patience runs out, pods that waited for minutes are tried again.
    pub fn tick(&mut self, now: Timestamp) {
        let (queue, rules) = self.queue_and_rules(now);
        queue.tick(now, &rules);
        self.advance_waiting(now);
        self.advance_timed_bindings(now);
    }

    /// When [`tick`](Self::tick) should be called if nothing else happens; `None` when only an event can change anything.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        [self.queue.next_wakeup(), self.waiting.next_deadline(), self.bindings.next_wakeup()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether [`schedule_one`](Self::schedule_one) would find a pod to try now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.queue.is_ready()
    }

    /// Whether attempts keep a [`super::DecisionRecord`]. It costs a second look at every node, so it is off at first.
    pub fn record_decisions(&mut self, on: bool) {
        self.records_decisions = on;
    }

    /// Whether pods that are alike share what was computed for one of them. Decisions are the same either way; it is on
    /// at first.
    pub fn share_among_alike_pods(&mut self, on: bool) {
        self.batches = Batches::default();
        self.batches.enabled = on;
    }

    /// Nodes and the pods on them.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// All other objects.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Pods that wait for their turn.
    #[must_use]
    pub fn queue(&self) -> &SchedulingQueue {
        &self.queue
    }

    /// The profiles, in the order of the configuration.
    #[must_use]
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Pods that Permit plugins told to wait. After allowing or rejecting some, call [`tick`](Self::tick).
    pub fn waiting_pods(&mut self) -> &mut WaitingPods {
        &mut self.waiting
    }

    pub(super) fn profile_position(&self, scheduler_name: &str) -> Option<usize> {
        self.profiles.iter().position(|profile| &*profile.scheduler_name == scheduler_name)
    }

    pub(super) fn queue_and_rules(&mut self, now: Timestamp) -> (&mut SchedulingQueue, ProfileRules<'_>) {
        let world = ClusterView { snapshot: self.cache.snapshot(), objects: &self.objects, now };
        (&mut self.queue, ProfileRules { profiles: &self.profiles, events: &self.event_map, world })
    }

    pub(super) fn push_effect(&mut self, profile: usize, kind: EffectKind) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        let scheduler_name = Arc::clone(&self.profiles[profile].scheduler_name);
        if self.effects.capacity() == 0 {
            // Most often there are few: that a pod was bound, and that the next one is to be. Effects are large.
            self.effects.reserve_exact(2);
        }
        self.effects.push(Effect { id, scheduler_name, kind });
        id
    }

    /// The reference by which the host finds the pod: with the newest resource version that is known.
    pub(super) fn reference(&self, pod: &Pod) -> ObjectRef {
        self.unassigned.get(&pod.uid).map_or_else(|| pod.reference(), |latest| latest.reference())
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("profiles", &self.profiles)
            .field("n_nodes", &self.cache.snapshot().n_nodes())
            .field("n_pods", &self.cache.n_pods())
            .field("n_bindings", &self.bindings.len())
            .finish_non_exhaustive()
    }
}
