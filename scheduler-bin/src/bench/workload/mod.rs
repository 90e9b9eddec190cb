//! kube-scheduler's performance workloads: what stands in a `performance-config.yaml` of scheduler_perf, read and run.
//! The definitions that come with the command are in `benches/workloads`. Format: upstream v1.36.2
//! test/integration/scheduler_perf.

#[cfg(feature = "offline-cluster")]
mod cluster;
mod config;
mod convert;
mod engine;
mod op;
#[cfg(feature = "offline-cluster")]
mod outside;
mod pods;
mod run;
mod template;
mod throughput;

#[cfg(feature = "offline-cluster")]
pub(crate) use cluster::{ClusterOptions, ClusterTarget};
pub(crate) use config::{Workload, load, names};
pub(crate) use engine::EngineTarget;
#[cfg(feature = "offline-cluster")]
pub(crate) use outside::SchedulerCommand;
pub(crate) use run::run;
pub(crate) use throughput::Measurement;
