//! Workload builders that benches, tests and `plimsoll bench` share, and the loop that they are compared with.

pub mod bare_loop;
pub mod one_plugin;
pub mod workload;
pub mod workloads;
