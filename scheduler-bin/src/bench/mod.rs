//! Measuring: the engine on clusters made from numbers, and kube-scheduler's own workloads. Decides nothing and changes
//! nothing outside this process.

mod cpu;
pub(crate) mod criterion;
pub(crate) mod memory;
pub(crate) mod plot;
mod progress;
pub(crate) mod report;
pub(crate) mod shapes;
pub(crate) mod workload;

pub(crate) use progress::{Progress, Stop};
