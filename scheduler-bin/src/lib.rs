//! `plimsoll`: the scheduler against a live cluster, and the offline cluster to try it in.
//!
//! An out-of-tree plugin needs no fork of this crate: register it and call the same entry function as `plimsoll` itself.
//!
//! ```no_run
//! use scheduler_core::plugins;
//!
//! fn main() -> std::process::ExitCode {
//!     let mut registry = plugins::registry();
//!     // registry.register("MyPlugin", …) comes here.
//!     scheduler_bin::main_with(registry)
//! }
//! ```

mod bench;
mod choice;
mod cli;
mod columns;
mod counted;
#[cfg(feature = "offline-cluster")]
mod demo;
mod explain;
mod extender;
mod field_validation;
pub mod live;
pub mod manifest;
#[cfg(feature = "offline-cluster")]
mod offline;
mod output_file;
mod report;
mod simulate;
mod yaml;

use std::process::ExitCode;

use scheduler_core::framework::Registry;

/// Runs the `plimsoll` command line with the plugins of `registry`.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage or bad input.
pub fn main_with(registry: Registry) -> ExitCode {
    cli::main(registry)
}
