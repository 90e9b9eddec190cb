//! Decides a recording again: the engine is told the same things at the same times, and its decisions are compared.

use std::path::Path;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Change, Options, Scheduler};
use scheduler_core::framework::{EffectError, EffectId, Registry};
use scheduler_core::model::{Object, Timestamp};
use serde_json::Value;

use super::admission::Admission;
use super::object::{self, Parsed};
use super::script::InputError;
use super::source::lines::Lines;
use crate::extender::{Answer, Extenders};
use crate::live::recording::{API_VERSION, KIND, attempt_line};

/// The first line of a recording.
pub(crate) struct Head {
    /// Seed of the draws.
    pub(crate) seed: u64,
    /// Text of the configuration file, if there was one.
    pub(crate) config: Option<String>,
    /// The name that was served.
    pub(crate) scheduler_name: Option<String>,
}

/// A decision that came out otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Line of the recording.
    pub(crate) line: u64,
    /// What was recorded.
    pub(crate) recorded: Value,
    /// What came out.
    pub(crate) replayed: Value,
}

/// What a replay has shown.
pub(crate) struct Replayed {
    /// The engine at the end.
    pub(crate) scheduler: Scheduler,
    /// The time of the end.
    pub(crate) now: Timestamp,
    /// Decisions that were made.
    pub(crate) n_decisions: u64,
    /// How many were otherwise.
    pub(crate) n_different: u64,
    /// The first of these.
    pub(crate) different: Vec<Difference>,
    /// The attempt of the line that was asked for, with its decision record.
    pub(crate) attempt: Option<Attempt>,
}

/// Differences that are kept.
const MAX_DIFFERENCES: usize = 20;

/// Reads the first line.
///
/// # Errors
/// The file cannot be read, or is no recording of this version.
pub(crate) fn head(path: &Path) -> Result<Head, InputError> {
    let mut lines = Lines::open(path)?;
    let file = std::sync::Arc::clone(lines.file());
    let text = lines.next().unwrap_or_else(|| Err(InputError::at(&file, 1, "the file is empty")))?.1;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| InputError::at(&file, 1, format_args!("malformed JSON: {error}")))?;
    if value["kind"] != KIND || value["apiVersion"] != API_VERSION {
        let found = format!("{} {}", value["apiVersion"], value["kind"]);
        return Err(InputError::at(
            &file,
            1,
            format_args!("found {found}, expected \"{API_VERSION}\" \"{KIND}\" as `plimsoll run --record` writes it"),
        ));
    }
    let seed = value["seed"].as_u64().ok_or_else(|| InputError::at(&file, 1, "seed is missing"))?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Ok(Head { seed, config: text("config"), scheduler_name: text("schedulerName") })
}

/// The line of the last attempt for a pod that `wanted` accepts by namespace and name.
///
/// # Errors
/// The file cannot be read, or a line is malformed.
pub(crate) fn last_attempt(path: &Path, wanted: impl Fn(&str, &str) -> bool) -> Result<Option<u64>, InputError> {
    let mut last = None;
    for line in Lines::open(path)?.skip(1) {
        let (number, text) = line?;
        if !text.contains("\"attempt\"") {
            continue;
        }
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            InputError::at(&path.display().to_string(), number, format_args!("malformed JSON: {error}"))
        })?;
        let text = |key: &str| value["attempt"][key].as_str().unwrap_or_default();
        if wanted(text("namespace"), text("pod")) && text("outcome") != "skipped" {
            last = Some(number);
        }
    }
    Ok(last)
}

/// Decides everything again, or everything up to the attempt in line `until`.
///
/// # Errors
/// The file is malformed, or the configuration cannot be built.
pub(crate) fn replay(
    path: &Path,
    seed: u64,
    configuration: &KubeSchedulerConfiguration,
    registry: &Registry,
    until: Option<u64>,
) -> Result<Replayed, InputError> {
    let file = path.display().to_string();
    let extenders = Extenders::of_recording(configuration);
    let options = Options { seed, extenders: extenders.seam(), ..Options::default() };
    let scheduler = Scheduler::new(configuration, registry, options).map_err(|error| InputError::of(&file, error))?;
    let pool = rayon::ThreadPoolBuilder::new().build().map_err(|error| InputError::of(&file, error))?;
    let mut replayed = Replayed {
        scheduler,
        now: Timestamp::ZERO,
        n_decisions: 0,
        n_different: 0,
        different: Vec::new(),
        attempt: None,
    };
    for line in Lines::open(path)?.skip(1) {
        let (number, text) = line?;
        replayed
            .line(number, &text, &pool, &extenders, until)
            .map_err(|problem| InputError::at(&file, number, problem))?;
        if until == Some(number) {
            break;
        }
    }
    Ok(replayed)
}

impl Replayed {
    fn line(
        &mut self,
        number: u64,
        text: &str,
        pool: &rayon::ThreadPool,
        extenders: &Extenders,
        until: Option<u64>,
    ) -> Result<(), String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| format!("malformed JSON: {error}"))?;
        let at = value["at"].as_i64().ok_or_else(|| format!("at is {}, expected microseconds", value["at"]))?;
        self.now = Timestamp::from_micros(at);
        if !value["applied"].is_null() {
            self.scheduler.handle(Change::Applied(object_of(value["applied"].take())?), self.now);
        } else if !value["deleted"].is_null() {
            self.scheduler.handle(Change::Deleted(object_of(value["deleted"].take())?), self.now);
        } else if let Some(id) = value["result"].as_u64() {
            let error = &value["error"];
            let result = if error.is_null() {
                Ok(())
            } else {
                let message = error["message"].as_str().unwrap_or_default().to_owned();
                Err(EffectError { message, not_found: error["notFound"] == true })
            };
            self.scheduler.handle_result(EffectId(id), result, self.now);
        } else if let Some(answer) = value.get("extender") {
            extenders.replayed(Answer::from_json(answer).ok_or("the answer of an extender is malformed")?);
        } else if let Some(tries) = value["turn"].as_bool() {
            self.scheduler.record_decisions(until == Some(number));
            self.scheduler.tick(self.now);
            let attempt = if tries { self.scheduler.schedule_one(self.now, pool) } else { None };
            self.compare(number, &value["attempt"], attempt.as_ref());
            if until == Some(number) {
                self.attempt = attempt;
            }
        } else {
            return Err("expected applied, deleted, result, extender or turn".to_owned());
        }
        // Who performs them is in the recording: their results come as lines of their own.
        self.scheduler.drain_effects();
        Ok(())
    }

    fn compare(&mut self, line: u64, recorded: &Value, attempt: Option<&Attempt>) {
        let replayed = attempt.map_or(Value::Null, attempt_line);
        if recorded.is_null() && replayed.is_null() {
            return;
        }
        self.n_decisions += 1;
        if *recorded != replayed {
            self.n_different += 1;
            if self.different.len() < MAX_DIFFERENCES {
                self.different.push(Difference { line, recorded: recorded.clone(), replayed });
            }
        }
    }
}

fn object_of(object: Value) -> Result<Object, String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    // The API server has filled everything in; nothing may be added here.
    match object::parse(object, &Admission::default(), &mut Vec::new())
        .map_err(|problem| format!("{kind}: {problem}"))?
    {
        Parsed::Pod(pod, _) => Ok(pod.into()),
        Parsed::Object(object) => Ok(object),
        Parsed::Workload(_) | Parsed::Other => Err(format!("no decision depends on a {kind:?}")),
    }
}
