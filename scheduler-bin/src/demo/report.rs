//! What the demo writes, as text for people or as one JSON document for scripts.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use cluster_stub::story::Step;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::apply::Applied;
use super::narration::{self, Cast};
use super::table::Table;
use crate::choice::Choice;
use crate::cli::Failure;
use crate::counted::counted;
use crate::manifest::Document;

/// Everything that is known at the end.
pub(crate) struct Report {
    /// The objects of the manifest.
    pub(crate) applied: Vec<Applied>,
    /// The steps that were told.
    pub(crate) steps: Vec<Step>,
    /// The pods.
    pub(crate) pods: Table,
    /// The scheduler's attempts.
    pub(crate) choices: Vec<Choice>,
    /// The events, sorted.
    pub(crate) events: Table,
    /// When applying began.
    pub(crate) start: Instant,
    /// How long it took until everything ran, if it does.
    pub(crate) running_after: Option<Duration>,
}

/// Writes to standard output.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    json: bool,
}

impl Writer {
    /// A writer of text or JSON.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// What is about to happen.
    pub(crate) fn opening(self, server: &str, nodes: &[Node], documents: &[Document]) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let objects: Vec<_> =
            documents.iter().map(|document| format!("{} {}", document.kind(), document.name())).collect();
        writeln!(
            out,
            "Offline cluster at {server} with {}; applying {}.\n",
            counted(nodes.len(), "node"),
            objects.join(", ")
        )?;
        writeln!(out, "{}", narration::head())
    }

    /// A step, as it happens.
    pub(crate) fn step(self, step: &Step, start: Instant) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{}", narration::line(step, start))?;
        out.flush()
    }

    /// Pods, choices, events, and how it ended.
    pub(crate) fn closing(self, report: &Report, cast: &Cast, failure: Option<&Failure>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{:#}", report.to_json(cast, failure))?;
            return out.flush();
        }
        let many = cast.namespaces().len() > 1;
        writeln!(out, "\nPods\n{}", report.pods.text(true, many))?;
        writeln!(out, "Why there")?;
        for choice in report.told_choices(cast) {
            writeln!(out, "{}", choice.text())?;
        }
        writeln!(
            out,
            "Events, as kubectl get events --sort-by=.metadata.creationTimestamp\n{}",
            report.events.text(false, many)
        )?;
        if let Some(after) = report.running_after {
            let n_pods = report.pods.objects().count();
            let run = match n_pods {
                1 => "The pod runs".to_owned(),
                n => format!("All {n} pods run"),
            };
            writeln!(out, "{run}, {} ms after apply.", after.as_millis())?;
        }
        out.flush()
    }
}

impl Report {
    /// The last attempt of each of the learner's pods.
    fn told_choices<'a>(&'a self, cast: &'a Cast) -> impl Iterator<Item = &'a Choice> {
        let is_last =
            |index: usize, choice: &Choice| !self.choices[index + 1..].iter().any(|later| later.is_same_pod(choice));
        self.choices
            .iter()
            .enumerate()
            .filter(move |(index, choice)| cast.contains(&choice.namespace, &choice.pod) && is_last(*index, choice))
            .map(|(_, choice)| choice)
    }

    fn to_json(&self, cast: &Cast, failure: Option<&Failure>) -> Value {
        let applied: Vec<_> = self
            .applied
            .iter()
            .map(|applied| json!({ "object": applied.display, "outcome": applied.outcome.to_string(), "uid": applied.object["metadata"]["uid"] }))
            .collect();
        json!({
            "apiVersion": "plimsoll.io/v1alpha1",
            "kind": "DemoReport",
            "applied": applied,
            "steps": self.steps.iter().map(|step| narration::to_json(step, self.start)).collect::<Vec<_>>(),
            "pods": self.pods.objects().collect::<Vec<_>>(),
            "decisions": self.told_choices(cast).map(Choice::to_json).collect::<Vec<_>>(),
            "events": self.events.objects().collect::<Vec<_>>(),
            "running": self.running_after.is_some(),
            "runningAfterMilliseconds": self.running_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            "failure": failure.map(ToString::to_string),
        })
    }
}
