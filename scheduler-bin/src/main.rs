//! `plimsoll`, the command: the only place where the engine meets the world.

use std::process::ExitCode;

use scheduler_core::plugins;

#[cfg(not(feature = "count-allocations"))]
use allocator as _;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static GLOBAL: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    scheduler_bin::main_with(plugins::registry())
}
