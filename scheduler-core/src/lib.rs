//! A standalone Kubernetes scheduler framework: a plugin-based filter and score engine over columns.
//! No I/O, no clock, no async: events and `now` go in, decisions and effects come out.
//!
//! # In ten minutes
//!
//! The engine is [`engine::Scheduler`]. A host feeds it what the API server's watches say, lets it decide, performs the
//! effects it asks for and reports their results. The live scheduler, the simulator and the benches are such hosts; they
//! differ only in what `now` is.
//!
//! | module | what is there |
//! |---|---|
//! | [`model`] | pods, nodes, selectors, quantities: plain data, parsed once |
//! | [`convert`] | from `k8s_openapi` objects to the model |
//! | [`config`] | `KubeSchedulerConfiguration` v1 |
//! | [`framework`] | the traits that plugins implement, and the registry |
//! | [`plugins`] | the in-tree plugins of kube-scheduler 1.36.2 |
//! | [`cache`] | nodes and pods as columns; what plugins read |
//! | [`queue`] | active, back-off and unschedulable pods |
//! | [`engine`] | the scheduling cycle and the binding cycle |
//! | [`testing`] | builders and runs for the tests of your plugins |
//!
//! ## Writing a plugin
//!
//! A plugin implements [`framework::Plugin`] and one trait for each extension point, or for each pair of coupled points:
//! [`framework::FilterPlugin`] is PreFilter and Filter, [`framework::ScorePlugin`] is PreScore, Score and NormalizeScore.
//! What the first point of a pair computes is the trait's `State`. Only the method for one node is required; it is the
//! specification. This one prefers nodes in the rack that the pod asks for:
//!
//! ```
//! use std::sync::Arc;
//!
//! use scheduler_core::cache::{NodeIdx, NodeView};
//! use scheduler_core::config::KubeSchedulerConfiguration;
//! use scheduler_core::config::plugins::ExtensionPoint;
//! use scheduler_core::framework::{
//!     Args, Built, Cycle, CycleState, Extensions, Plugin, PreScoreStatus, Result, ScorePlugin, decode_args,
//! };
//! use scheduler_core::testing::{Cluster, node, pod, run_cycle, run_plugin};
//!
//! /// Prefers nodes whose label has the value that the pod's label of the same key has.
//! #[derive(serde::Deserialize)]
//! struct SameRack {
//!     key: String, // the plugin's argument
//! }
//!
//! impl Plugin for SameRack {}
//!
//! impl ScorePlugin for SameRack {
//!     type State = Arc<str>; // the pod's rack
//!
//!     fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<Arc<str>>> {
//!         let rack = cycle.pod.labels.get(&self.key);
//!         Ok(rack.map_or(PreScoreStatus::Skip, |rack| PreScoreStatus::Success(Arc::clone(rack))))
//!     }
//!
//!     fn score(&self, rack: Option<&Arc<str>>, _: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
//!         let same = rack.is_some() && node.labels().get(&self.key) == rack;
//!         Ok(if same { 100 } else { 0 })
//!     }
//! }
//!
//! // How it is built from what the configuration says, and the extension points that it has.
//! fn build(args: Args<'_>) -> Built {
//!     let plugin: Arc<SameRack> = Arc::new(decode_args(args)?);
//!     Ok(Extensions::new().pre_score(&plugin).score(&plugin))
//! }
//!
//! // Alone: what does it say of each node?
//! let cluster = Cluster::new().nodes(["r1", "r2", "r3"].map(|rack| node(rack).label("rack", rack)));
//! let plugin = Arc::new(SameRack { key: "rack".to_owned() });
//! let run = run_plugin(&Extensions::new().pre_score(&plugin).score(&plugin), pod("p").label("rack", "r2"), &cluster);
//! assert_eq!(run.unwrap().scores(), [("r1", 0), ("r2", 100), ("r3", 0)]);
//!
//! // In a scheduler: registered in the host's own `main`, enabled by a configuration.
//! let mut registry = scheduler_core::plugins::registry();
//! registry.register("SameRack", &[ExtensionPoint::PreScore, ExtensionPoint::Score], build).unwrap();
//! let config = KubeSchedulerConfiguration::from_text(
//!     "
//! apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - plugins:
//!     multiPoint:
//!       enabled: [{name: SameRack, weight: 50}]
//!   pluginConfig:
//!   - name: SameRack
//!     args: {key: rack}
//! ",
//! )
//! .unwrap();
//! let decision = run_cycle(&registry, &config, pod("p").label("rack", "r2"), &cluster).unwrap();
//! assert_eq!(decision.node(), Some("r2"));
//! ```
//!
//! The folder `examples/custom-scheduler` of the repository is such a plugin's crate, with its `main`; [`testing`] is the
//! test kit. Forgetting a trait is a compile error at the line that names the point, see [`framework::Extensions`].
//!
//! ## Driving the engine
//!
//! A host is a loop: what watches say goes in, decisions come out as effects, the effects' results go in again. Time is
//! an argument of every call, see [`engine::Scheduler`].
//!
//! ```
//! use scheduler_core::config::KubeSchedulerConfiguration;
//! use scheduler_core::engine::{Change, Options, Scheduler};
//! use scheduler_core::framework::EffectKind;
//! use scheduler_core::model::Timestamp;
//! use scheduler_core::testing::{node, pod, pool};
//!
//! let registry = scheduler_core::plugins::registry();
//! let mut scheduler =
//!     Scheduler::new(&KubeSchedulerConfiguration::default(), &registry, Options::default()).unwrap();
//! let now = Timestamp::ZERO;
//! for object in [node("n1").cpu("4").into(), pod("a").cpu("3").into(), pod("b").cpu("3").into()] {
//!     scheduler.handle(Change::Applied(object), now);
//! }
//! while scheduler.schedule_one(now, pool()).is_some() {}
//! for effect in scheduler.drain_effects() {
//!     if let EffectKind::Bind { pod, node } = &effect.kind {
//!         assert_eq!((&*pod.name, &**node), ("a", "n1")); // POST pods/a/binding
//!     }
//!     scheduler.handle_result(effect.id, Ok(()), now);
//! }
//! // The other pod waits for an event that could make it fit.
//! assert!(scheduler.next_wakeup().is_some());
//! ```
//!
//! ## What holds everywhere
//!
//! - **Pure.** Filter and Score depend on state, cycle and node alone; the engine calls them again to explain.
//! - **Lazy.** Reasons are asked for only when a pod fits nowhere, or when somebody keeps records.
//! - **No waiting.** The binding cycle is a state machine; its plugins return steps, see [`framework::Step`].
//! - **Reproducible.** Same events, times and seed, same decisions and effects.

pub mod cache;
pub mod config;
pub mod convert;
pub mod engine;
pub mod framework;
pub mod model;
pub mod plugins;
pub mod queue;
pub mod testing;
