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
//!
//! ## Writing a plugin
//!
//! A plugin implements [`framework::Plugin`] and one trait for each extension point, or for each pair of coupled points:
//! [`framework::FilterPlugin`] is PreFilter and Filter, [`framework::ScorePlugin`] is PreScore, Score and NormalizeScore.
//! What the first point of a pair computes is the trait's `State`. Only the method for one node is required; it is the
//! specification. A plugin registers under a name, with its points, in the host's own `main`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use scheduler_core::cache::{NodeIdx, NodeView};
//! use scheduler_core::config::KubeSchedulerConfiguration;
//! use scheduler_core::config::args::PluginArgs;
//! use scheduler_core::config::plugins::ExtensionPoint;
//! use scheduler_core::engine::{Change, Options, Outcome, Scheduler};
//! use scheduler_core::framework::{
//!     BuildError, Cycle, CycleState, Extensions, Plugin, PreScoreStatus, Result, ScorePlugin,
//! };
//! use scheduler_core::model::{Node, Pod, Resources, Timestamp};
//!
//! /// Prefers nodes whose label has the value that the pod's label of the same key has.
//! struct SameRack {
//!     key: String,
//! }
//!
//! impl Plugin for SameRack {
//!     fn name(&self) -> &'static str {
//!         "SameRack"
//!     }
//! }
//!
//! impl ScorePlugin for SameRack {
//!     type State = Arc<str>; // the pod's rack
//!
//!     fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<Arc<str>>> {
//!         Ok(match cycle.pod.labels.get(&self.key) {
//!             Some(rack) => PreScoreStatus::Success(Arc::clone(rack)),
//!             None => PreScoreStatus::Skip,
//!         })
//!     }
//!
//!     fn score(&self, rack: Option<&Arc<str>>, _: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
//!         let same = rack.is_some() && node.labels().get(&self.key) == rack;
//!         Ok(if same { 100 } else { 0 })
//!     }
//! }
//!
//! fn build(args: Option<&PluginArgs>) -> std::result::Result<Extensions, BuildError> {
//!     let key = match args {
//!         Some(PluginArgs::Raw(value)) => value["key"].as_str().map(str::to_owned),
//!         _ => None,
//!     };
//!     let key = key.ok_or_else(|| BuildError("key: required value: the label to compare".to_owned()))?;
//!     let plugin = Arc::new(SameRack { key });
//!     Ok(Extensions::new().pre_score(&plugin).score(&plugin))
//! }
//!
//! let mut registry = scheduler_core::plugins::registry();
//! registry.register("SameRack", &[ExtensionPoint::PreScore, ExtensionPoint::Score], build).unwrap();
//!
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
//! let mut scheduler = Scheduler::new(&config, &registry, Options::default()).unwrap();
//!
//! let now = Timestamp::ZERO;
//! for rack in ["r1", "r2", "r3"] {
//!     let allocatable = Resources { milli_cpu: 4_000, memory: 8 << 30, pods: 110, ..Resources::default() };
//!     let labels = [("rack", rack)].into_iter().collect();
//!     let node = Node { name: format!("node-{rack}").into(), labels, allocatable, ..Node::default() };
//!     scheduler.handle(Change::Applied(node.into()), now);
//! }
//! let pod = Pod {
//!     name: "p".into(),
//!     namespace: "default".into(),
//!     uid: "1".into(),
//!     scheduler_name: "default-scheduler".into(),
//!     labels: [("rack", "r2")].into_iter().collect(),
//!     ..Pod::default()
//! };
//! scheduler.handle(Change::Applied(pod.into()), now);
//!
//! let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
//! let attempt = scheduler.schedule_one(now, &pool).unwrap();
//! assert!(matches!(attempt.outcome, Outcome::Scheduled { ref node, .. } if &**node == "node-r2"));
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
