//! The command line: which commands there are, exit codes, logging. One file per command; what a command does lives elsewhere.

mod bench;
mod capacity;
#[cfg(feature = "offline-cluster")]
mod demo;
mod explain;
#[cfg(feature = "offline-cluster")]
mod nodes;
mod run;
mod simulate;
mod source;
#[cfg(feature = "offline-cluster")]
mod up;

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use scheduler_core::framework::Registry;
use tracing_subscriber::EnvFilter;

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed: the cluster, the network or the workload
  2  wrong usage or bad input: flags, files, configuration";

/// Exit code of a command whose output nobody reads any more: what a shell tells of one that SIGPIPE has ended.
const BROKEN_PIPE: u8 = 128 + 13;

/// A kube-scheduler in Rust, and a whole offline cluster to run it in.
#[derive(Parser)]
#[command(name = "plimsoll", version, after_help = EXIT_CODES, max_term_width = 120)]
struct Arguments {
    /// Say more on standard error; twice for debugging. The variable RUST_LOG is finer.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start an offline cluster, apply a manifest and tell what happens, step by step.
    #[cfg(feature = "offline-cluster")]
    Demo(demo::Demo),
    /// Keep an offline cluster up for kubectl and other tools.
    #[cfg(feature = "offline-cluster")]
    Up(up::Up),
    /// Schedule the pods of a live cluster, next to its own scheduler.
    Run(run::Run),
    /// Say why a pod is where it is, or why it fits nowhere.
    Explain(explain::Explain),
    /// Count how many more of a pod fit, and say what limits them.
    Capacity(capacity::Capacity),
    /// Place workloads or a trace on nodes that need not exist.
    Simulate(simulate::Simulate),
    /// Measure how fast the engine decides.
    Bench(bench::Bench),
}

/// How a command writes its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
}

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Flags, files or configuration are wrong: exit code 2.
    pub(crate) fn bad_input(problem: impl fmt::Display) -> Self {
        Self { code: 2, message: problem.to_string() }
    }

    /// What was asked not to be is so: exit code 3.
    pub(crate) fn condition(problem: impl fmt::Display) -> Self {
        Self { code: 3, message: problem.to_string() }
    }

    /// The cluster, the network or the workload failed: exit code 1.
    pub(crate) fn failed(problem: impl fmt::Display) -> Self {
        Self { code: 1, message: problem.to_string() }
    }
}

/// An error's text with what caused it; a cause that the text tells already is not told again.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<io::Error> for Failure {
    /// For the command's own output. A reader that has gone, such as `head`, has seen what it wanted.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self { code: BROKEN_PIPE, message: String::new() },
            _ => Self::failed(format_args!("cannot write to standard output: {error}")),
        }
    }
}

/// Parses the command line and runs the command.
pub(crate) fn main(registry: Registry) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Nobody is left to tell when standard error is closed.
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            return ExitCode::from(2);
        }
        Err(help) => return end(help.print().and_then(|()| io::stdout().flush()).map_err(Failure::from)),
    };
    start_logging(arguments.verbose);
    end(execute(arguments.command, registry))
}

/// The exit code; a failure is told on standard error.
fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                let _ = writeln!(io::stderr(), "plimsoll: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn start_logging(verbose: u8) {
    let default = match verbose {
        0 => "warn,kube_client=off,kube_runtime=off",
        1 => "info,kube_client=off,kube_runtime=off",
        _ => "debug,hyper=info,rustls=info,h2=info,tower=info",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

fn execute(command: Command, registry: Registry) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format_args!("cannot start the threads: {error}")))?;
    let result = runtime.block_on(async {
        match command {
            #[cfg(feature = "offline-cluster")]
            Command::Demo(demo) => demo.execute(registry).await,
            #[cfg(feature = "offline-cluster")]
            Command::Up(up) => up.execute(registry).await,
            Command::Run(run) => run.execute(registry).await,
            Command::Explain(explain) => explain.execute(registry).await,
            Command::Capacity(capacity) => capacity.execute(registry).await,
            Command::Bench(bench) => bench.execute(registry).await,
            Command::Simulate(simulate) => simulate.execute(&registry).await,
        }
    });
    // Blocking tasks that nobody waits for any more must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// Resolves when the user, the terminal or the system asks the process to end (SIGINT, SIGHUP, SIGTERM).
///
/// # Errors
/// The signal handlers cannot be installed.
fn termination() -> io::Result<impl Future<Output = ()> + Send> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let mut terminate = signal(SignalKind::terminate())?;
        let hung_up = async move {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = hung_up => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        // Without a handler the process just ends, which is as good.
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Whether whoever started the process wants it to outlive its terminal, as nohup does.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    // There is no safe call that asks; elsewhere than on Linux nobody is asked.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is number 1, the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Outer {
            text: &'static str,
            source: io::Error,
        }
        let outer = |text| with_causes(&Outer { text, source: io::Error::other("disk full") });
        assert_eq!(outer("cannot write a"), "cannot write a: disk full");
        assert_eq!(outer("cannot write a: disk full"), "cannot write a: disk full");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_its_exit_codes() {
        for command in Arguments::command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            for part in ["Example", "Exit codes"] {
                assert!(help.contains(part), "`plimsoll {} --help` has no {part}", command.get_name());
            }
        }
    }
}
