//! The flags that say where results go, and what is written while a run goes on: decisions as lines, progress on a terminal.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use scheduler_core::model::Timestamp;
use serde_json::json;

use super::Form;
use crate::cli::Failure;
use crate::counted::counted;
use crate::output_file::OutputFile;
use crate::report::{self, Binding, SimulationReport, Unplaced};
use crate::simulate::replay::Replayed;
use crate::simulate::run::Told;

/// Time between two updates of the progress line.
const REFRESH: Duration = Duration::from_millis(100);

/// Where results go.
#[derive(Args)]
pub(super) struct OutputFlags {
    /// How the result is written to standard output.
    #[arg(short, long, value_enum, default_value_t = Form::Text, help_heading = "Output")]
    output: Form,

    /// Write the report as one HTML file that needs no network.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    report: Option<PathBuf>,

    /// Write every decision as one JSON object a line; the file is in its place when the run is over.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    decisions: Option<PathBuf>,

    /// Most pods in each of the lists `bindings` and `unschedulable` of -o json; --decisions has no limit.
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Output")]
    pub(super) list_limit: usize,

    /// End with exit code 3 if this holds, such as 'pending>0 || fragmentation.cpu>5%'; the report defines the names.
    #[arg(long, value_name = "CONDITION", help_heading = "Output")]
    pub(super) fail_if: Option<String>,

    /// Leave out what the machine's speed decides, so that the same input and seed give the same bytes.
    #[arg(long, help_heading = "Output")]
    pub(super) reproducible: bool,
}

impl OutputFlags {
    /// Opens the file of decisions, if one is wanted.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn decisions(&self) -> Result<Decisions, Failure> {
        let file = match &self.decisions {
            None => None,
            Some(path) => Some((create(path)?, path.clone())),
        };
        let draws = io::stderr().is_terminal();
        Ok(Decisions { file, run: String::new(), failed: None, draws, drawn: None, scheduled: 0, arrived: 0 })
    }

    /// Writes what a replay has shown.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn write_replay(&self, replayed: &Replayed) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let (n, n_different) = (replayed.n_decisions, replayed.n_different);
        if self.output == Form::Json {
            let different: Vec<_> = replayed
                .different
                .iter()
                .map(|of| json!({"line": of.line, "recorded": of.recorded, "replayed": of.replayed}))
                .collect();
            let document = json!({
                "apiVersion": report::API_VERSION, "kind": "ReplayReport",
                "decisions": n, "same": n - n_different, "different": different,
            });
            writeln!(out, "{document:#}")?;
        } else {
            writeln!(out, "{}, {} as recorded, {n_different} otherwise.", counted(n, "decision"), n - n_different)?;
            for of in &replayed.different {
                writeln!(
                    out,
                    "  line {}: recorded {}\n  {}  replayed {}",
                    of.line,
                    of.recorded,
                    " ".repeat(of.line.to_string().len() + 5),
                    of.replayed
                )?;
            }
        }
        Ok(out.flush()?)
    }

    /// Writes the report.
    ///
    /// # Errors
    /// A file or standard output cannot be written.
    pub(super) fn write(&self, report: &SimulationReport, input: &str) -> Result<(), Failure> {
        if let Some(path) = &self.report {
            let mut file = create(path)?;
            let written = report::html::write(report, input, &mut file).and_then(|()| file.finish());
            written.map_err(|error| unwritten(path, &error))?;
        }
        let mut out = BufWriter::new(io::stdout().lock());
        match self.output {
            Form::Text => report::text::write(report, &mut out)?,
            Form::Csv => report::csv::write(report, &mut out)?,
            Form::Json => {
                serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
                writeln!(out)?;
            }
        }
        Ok(out.flush()?)
    }
}

fn create(path: &Path) -> Result<OutputFile, Failure> {
    OutputFile::create(path).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", path.display()))
}

/// Decisions as they are made: to a file, and as a line of progress on a terminal.
pub(super) struct Decisions {
    file: Option<(OutputFile, PathBuf)>,
    run: String,
    failed: Option<io::Error>,
    draws: bool,
    drawn: Option<Instant>,
    scheduled: u64,
    arrived: u64,
}

impl Decisions {
    /// Another run begins.
    pub(super) fn begin(&mut self, run: &str) {
        run.clone_into(&mut self.run);
        (self.scheduled, self.arrived) = (0, 0);
    }

    /// Notes what a run tells.
    pub(super) fn tell(&mut self, at: Timestamp, told: &Told<'_>) {
        self.draw(told);
        let Some((file, _)) = &mut self.file else { return };
        let seconds = at.as_micros() as f64 / 1e6;
        let line = match told {
            Told::Bound { pod, node, waited } => json!({
                "run": self.run, "at": seconds, "decision": "bound", "namespace": &*pod.namespace, "pod": &*pod.name, "node": node,
                "waitSeconds": waited.as_secs_f64(),
            }),
            Told::Gone { pod, node, why, .. } => json!({
                "run": self.run, "at": seconds, "decision": why, "namespace": &*pod.namespace, "pod": &*pod.name, "node": node,
            }),
            Told::Unschedulable { pod, message } => json!({
                "run": self.run, "at": seconds, "decision": "unschedulable", "namespace": &*pod.namespace, "pod": &*pod.name,
                "message": message,
            }),
            Told::Tried(_) | Told::Progress { .. } => return,
        };
        if self.failed.is_none()
            && let Err(error) = writeln!(file, "{line}")
        {
            self.failed = Some(error);
        }
    }

    fn draw(&mut self, told: &Told<'_>) {
        if !self.draws {
            return;
        }
        match told {
            Told::Progress { arrived, scheduled } => (self.arrived, self.scheduled) = (*arrived, *scheduled),
            Told::Bound { .. } => self.scheduled += 1,
            _ => return,
        }
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REFRESH) {
            self.drawn = Some(Instant::now());
            let (scheduled, arrived) = (self.scheduled, self.arrived.max(self.scheduled));
            let filled = (scheduled * 24).checked_div(arrived).unwrap_or(0) as usize;
            let bar = format!("{}{}", "█".repeat(filled.min(24)), "░".repeat(24 - filled.min(24)));
            // A terminal that is gone needs no progress.
            let _ =
                write!(io::stderr(), "\r\x1b[2K{bar} {scheduled} of {} placed ({})", counted(arrived, "pod"), self.run);
        }
    }

    /// Takes the line of progress away.
    pub(super) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    /// The file is whole and goes to its place.
    ///
    /// # Errors
    /// The file could not be written.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Some((file, path)) = self.file else { return Ok(()) };
        match self.failed {
            Some(error) => Err(unwritten(&path, &error)),
            None => file.finish().map_err(|error| unwritten(&path, &error)),
        }
    }
}

/// The lists of a run, as long as the limit allows.
pub(super) struct Lists {
    limit: usize,
    bindings: Vec<Binding>,
    unschedulable: Vec<Unplaced>,
    whole: bool,
    /// The last message: most are the same.
    message: Arc<str>,
}

impl Lists {
    /// Empty lists of at most `limit` pods each.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bindings: Vec::new(), unschedulable: Vec::new(), whole: true, message: Arc::default() }
    }

    /// Takes what belongs into the lists.
    pub(super) fn take(&mut self, told: &Told<'_>) {
        match told {
            Told::Bound { pod, node, waited } => {
                if self.bindings.len() >= self.limit {
                    self.whole = false;
                    return;
                }
                self.bindings.push(Binding {
                    namespace: Arc::clone(&pod.namespace),
                    pod: Arc::clone(&pod.name),
                    node: (*node).into(),
                    wait_seconds: waited.as_secs_f64(),
                });
            }
            Told::Unschedulable { pod, message } | Told::Gone { pod, node: None, message, .. } => {
                if self.unschedulable.len() >= self.limit {
                    self.whole = false;
                    return;
                }
                if *self.message != **message {
                    self.message = (*message).into();
                }
                self.unschedulable.push(Unplaced {
                    namespace: Arc::clone(&pod.namespace),
                    pod: Arc::clone(&pod.name),
                    message: Arc::clone(&self.message),
                });
            }
            Told::Gone { .. } | Told::Tried(_) | Told::Progress { .. } => {}
        }
    }

    /// The lists, and whether they are whole.
    pub(super) fn into_parts(self) -> (Vec<Binding>, Vec<Unplaced>, bool) {
        (self.bindings, self.unschedulable, self.whole)
    }
}
