//! `plimsoll`, the command: the only place where the engine meets the world.

use std::process::ExitCode;

use scheduler_core::plugins;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    scheduler_bin::main_with(plugins::registry())
}
