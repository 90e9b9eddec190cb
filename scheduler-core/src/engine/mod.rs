//! The scheduler itself: events in, decisions and effects out. Synchronous; no I/O, no clock.
//!
//! Start reading at [`Scheduler::schedule_one`], then `algorithm`, which it calls.

mod algorithm;
mod attempt;
mod batch;
mod binding_cycle;
mod bindings;
mod blocks;
mod diagnose;
mod events;
mod examine;
mod extenders;
mod failure;
mod find_nodes;
mod options;
mod record;
mod rng;
mod schedule_one;
mod scheduler;
mod score_nodes;
mod score_tiles;
mod scratch;
mod templates;
mod tiles;

pub use attempt::{Attempt, Outcome};
pub use examine::{Examination, Examined, NodeRejection, PostFilterOutcome, PreFilterOutcome};
pub use options::{Change, Options};
pub use record::{DecisionRecord, NodeVerdict, PluginScores};
pub use scheduler::Scheduler;
