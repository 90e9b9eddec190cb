//! What the engine is told and decides, kept as lines of JSON so that it can be decided again; see docs/simulation.md.
//! Written by the cycle thread in the order in which the engine hears of things.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use scheduler_core::engine::{Attempt, Outcome};
use scheduler_core::framework::{EffectError, EffectId};
use scheduler_core::model::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::extender::Answer;

/// `apiVersion` of the format.
pub(crate) const API_VERSION: &str = "plimsoll.io/v1alpha1";

/// `kind` of the first line.
pub(crate) const KIND: &str = "SchedulerRecording";

/// A file that is written.
pub(crate) struct Recording {
    path: PathBuf,
    out: BufWriter<File>,
    /// Nothing is written after the first error: a recording with a hole is none.
    failed: bool,
}

impl Recording {
    /// Creates the file and writes its first line: the seed, and the configuration as it was given.
    ///
    /// # Errors
    /// The file is there already, or cannot be written.
    pub(crate) fn create(
        path: &Path,
        seed: u64,
        config: Option<&str>,
        scheduler_name: Option<&str>,
    ) -> io::Result<Self> {
        let mut recording = Self { path: path.to_owned(), out: BufWriter::new(File::create_new(path)?), failed: false };
        let head = json!({
            "apiVersion": API_VERSION, "kind": KIND, "version": env!("CARGO_PKG_VERSION"), "seed": seed,
            "config": config, "schedulerName": scheduler_name,
        });
        writeln!(recording.out, "{head}")?;
        recording.out.flush()?;
        Ok(recording)
    }

    /// The engine hears of an object that exists.
    pub(crate) fn applied(&mut self, at: Timestamp, object: Option<&RawValue>) {
        if let Some(object) = object {
            self.write(format_args!(r#"{{"at":{},"applied":{}}}"#, at.as_micros(), object.get()));
        }
    }

    /// The engine hears of an object that is gone.
    pub(crate) fn deleted(&mut self, at: Timestamp, object: Option<&RawValue>) {
        if let Some(object) = object {
            self.write(format_args!(r#"{{"at":{},"deleted":{}}}"#, at.as_micros(), object.get()));
        }
    }

    /// The engine hears what came of an effect.
    pub(crate) fn result(&mut self, at: Timestamp, id: EffectId, result: &Result<(), EffectError>) {
        let error = match result {
            Ok(()) => Value::Null,
            Err(error) => json!({"message": error.message, "notFound": error.not_found}),
        };
        self.write(format_args!("{}", json!({"at": at.as_micros(), "result": id.0, "error": error})));
    }

    /// What an extender says in the turn that comes next.
    pub(crate) fn extender(&mut self, at: Timestamp, answer: &Answer) {
        self.write(format_args!("{}", json!({"at": at.as_micros(), "extender": answer.to_json()})));
    }

    /// Time goes on for the engine, and it may try a pod.
    pub(crate) fn turn(&mut self, at: Timestamp, tries: bool, attempt: Option<&Attempt>) {
        match attempt {
            None => self.write(format_args!(r#"{{"at":{},"turn":{tries}}}"#, at.as_micros())),
            Some(attempt) => {
                self.write(format_args!(
                    "{}",
                    json!({"at": at.as_micros(), "turn": tries, "attempt": attempt_line(attempt)})
                ));
            }
        }
    }

    /// Brings what was written to the disk.
    pub(crate) fn flush(&mut self) {
        if !self.failed
            && let Err(error) = self.out.flush()
        {
            self.fail(&error);
        }
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        if !self.failed
            && let Err(error) = writeln!(self.out, "{line}")
        {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = true;
        tracing::error!(
            "cannot write the recording {}: {error}; it ends here, scheduling goes on",
            self.path.display()
        );
    }
}

/// One attempt as a recording keeps it, and as a replay compares it.
pub(crate) fn attempt_line(attempt: &Attempt) -> Value {
    let (outcome, node, message) = match &attempt.outcome {
        Outcome::Scheduled { node, .. } => ("scheduled", Some(&**node), None),
        Outcome::Unschedulable { message, .. } => ("unschedulable", None, Some(message.as_str())),
        Outcome::Error { message } => ("error", None, Some(message.as_str())),
        Outcome::Skipped => ("skipped", None, None),
    };
    json!({
        "uid": &*attempt.pod.uid, "namespace": &*attempt.pod.namespace, "pod": &*attempt.pod.name,
        "outcome": outcome, "node": node, "message": message,
    })
}
