//! A standalone Kubernetes scheduler framework: a plugin-based filter and score engine over columns.
//! No I/O, no clock, no async: events and `now` go in, decisions and effects come out.

pub mod cache;
pub mod config;
pub mod convert;
pub mod engine;
pub mod framework;
pub mod model;
pub mod plugins;
pub mod queue;
