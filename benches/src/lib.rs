//! Workload builders that benches and tests share. No measuring here.

pub mod workload;
