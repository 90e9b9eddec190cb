//! `plimsoll` with three more plugins: every command, `demo`, `run`, `simulate` and the rest, knows them.
fn main() -> std::process::ExitCode {
    scheduler_bin::main_with(custom_scheduler::registry().expect("the names are free"))
}
