//! A standalone Kubernetes scheduler framework: a plugin-based filter and score engine over columns.
//! No I/O, no clock, no async: events and `now` go in, decisions and effects come out.

pub mod config;
