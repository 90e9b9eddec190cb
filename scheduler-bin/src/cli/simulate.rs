//! `plimsoll simulate`: workloads or a trace on nodes that need not exist, on a virtual clock. Reads only.

mod input;
mod output;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Scheduler};
use scheduler_core::framework::Registry;
use scheduler_core::model::Timestamp;

use super::{EXIT_CODES, Failure, run, source, termination};
use crate::counted::counted;
use crate::output_file;
use crate::report::condition::Condition;
use crate::report::{RunReport, SimulationReport};
use crate::simulate::measure::{Measure, Price};
use crate::simulate::run::{Manner, Run};
use crate::simulate::{replay, span};
use input::Input;

#[derive(Args)]
#[command(
    long_about = "Place pods on nodes by the engine, on a virtual clock: the pods of manifests and dumps, or a trace. Nothing is written \
        to a cluster. The same input and seed give the same decisions. docs/simulation.md describes inputs and outputs.",
    after_help = format!("Examples:\n  plimsoll simulate --nodes 100x32cpu,128Gi -f deployment.yaml\n  plimsoll simulate --from dump.yaml -o json\n  plimsoll simulate --from must-gather/ --config today.yaml --config tomorrow.yaml --report diff.html\n  plimsoll simulate --nodes 3x8cpu,32Gi --trace trace.sktrace --fail-if 'pending>0 || fragmentation.cpu>5%'\n  plimsoll simulate --replay recording.jsonl\n  plimsoll simulate --trace openb --nodes openb_node_list_all_node.csv --pods openb_pod_list_default.csv --arrivals-only\n\n{EXIT_CODES}\n  3  the condition of --fail-if holds")
)]
pub(crate) struct Simulate {
    #[command(flatten)]
    input: input::InputFlags,

    /// The KubeSchedulerConfiguration to place by; several are compared on the same input. Default: kube-scheduler's
    /// plugins, every node scored.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// Seed of the draws among equally good nodes.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Stop after this much virtual time, such as 7d.
    #[arg(long, value_name = "DURATION", value_parser = span::duration)]
    until: Option<Duration>,

    /// What a node costs an hour: an amount for every node, or LABEL=VALUE:AMOUNT for some; may be repeated.
    #[arg(long, value_name = "[LABEL=VALUE:]AMOUNT", value_parser = Price::parse)]
    price: Vec<Price>,

    #[command(flatten)]
    output: output::OutputFlags,
}

/// How the result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
    /// The course of the run, for tables.
    Csv,
}

/// A run waits for nothing, so that a signal is answered beside it: no file stays that is not whole.
fn end_clean_when_interrupted() -> Result<(), Failure> {
    let terminated =
        termination().map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    tokio::spawn(async move {
        terminated.await;
        output_file::remove_unfinished();
        // The message is for a terminal that may be gone.
        let _ = writeln!(io::stderr(), "\nplimsoll: interrupted before the run was over; no file was written");
        std::process::exit(1);
    });
    Ok(())
}

impl Simulate {
    /// Runs and writes the result.
    pub(crate) async fn execute(self, registry: &Registry) -> Result<(), Failure> {
        end_clean_when_interrupted()?;
        if let Some(path) = &self.input.replay {
            return self.replay(path, registry);
        }
        let condition = self.output.fail_if.as_deref().map(Condition::parse).transpose().map_err(Failure::bad_input)?;
        let input = self.input.read(source::whole_objects(&self.config)?).await?;
        source::tell(&input.world);
        let configurations = self.configurations(&input)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .build()
            .map_err(|error| Failure::failed(format_args!("cannot start threads: {error}")))?;
        let mut decisions = self.output.decisions()?;
        let (mut runs, mut warnings) = (Vec::new(), input.world.warnings.clone());
        for (name, configuration) in &configurations {
            let (run, unserved) = self.run(name, configuration, &input, registry, &pool, &mut decisions)?;
            runs.push(run);
            if let Some(unserved) = unserved {
                tracing::warn!("{unserved}");
                warnings.push(unserved);
            }
        }
        decisions.finish()?;
        let report = SimulationReport::new(self.seed, runs, warnings);
        self.output.write(&report, &input.description)?;
        if let Some(condition) = condition {
            for run in &report.runs {
                if condition.holds(&run.summary).map_err(Failure::bad_input)? {
                    let text = self.output.fail_if.as_deref().unwrap_or_default();
                    let which = if report.runs.len() > 1 { format!(" for {}", run.name) } else { String::new() };
                    return Err(Failure::condition(format_args!("the condition {text:?} holds{which}")));
                }
            }
        }
        Ok(())
    }

    /// Decides a recording again.
    fn replay(&self, path: &Path, registry: &Registry) -> Result<(), Failure> {
        if !self.config.is_empty() {
            return Err(Failure::bad_input(
                "--replay decides by the configuration of the recording, so --config cannot be given",
            ));
        }
        let head = replay::head(path).map_err(Failure::bad_input)?;
        let file = format!("the configuration in {}", path.display());
        let text = head.config.as_deref().map(|text| (file.as_str(), text));
        let configuration = run::configuration_of(text, head.scheduler_name.as_deref())?;
        let replayed = replay::replay(path, head.seed, &configuration, registry, None).map_err(Failure::bad_input)?;
        self.output.write_replay(&replayed)?;
        if replayed.n_different > 0 {
            return Err(Failure::failed(format_args!(
                "{} of {} came out otherwise than recorded",
                replayed.n_different,
                counted(replayed.n_decisions, "decision")
            )));
        }
        Ok(())
    }

    /// Names and configurations, in the order of the flags.
    fn configurations(&self, input: &Input) -> Result<Vec<(String, KubeSchedulerConfiguration)>, Failure> {
        if self.config.is_empty() {
            let mut configuration = run::configuration(None, None)?;
            // Whoever the pods ask for is served, all by the same plugins.
            if let [profile] = &configuration.profiles[..] {
                let served = input.scheduler_names.iter().map(|name| {
                    let mut profile = profile.clone();
                    profile.scheduler_name = name.to_string();
                    profile
                });
                configuration.profiles = served.collect();
            }
            return Ok(vec![("default".to_owned(), configuration)]);
        }
        let name =
            |path: &PathBuf| path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let stems: Vec<String> = self.config.iter().map(name).collect();
        self.config
            .iter()
            .zip(&stems)
            .map(|(path, stem)| {
                let is_clear = stems.iter().filter(|other| *other == stem).count() == 1;
                let name = if is_clear { stem.clone() } else { path.display().to_string() };
                Ok((name, run::configuration(Some(path), None)?))
            })
            .collect()
    }

    fn run(
        &self,
        name: &str,
        configuration: &KubeSchedulerConfiguration,
        input: &Input,
        registry: &Registry,
        pool: &rayon::ThreadPool,
        decisions: &mut output::Decisions,
    ) -> Result<(RunReport, Option<String>), Failure> {
        let extenders = input.world.extenders(configuration).map_err(Failure::bad_input)?;
        let options = Options { seed: self.seed, extenders, ..Options::default() };
        let scheduler = Scheduler::new(configuration, registry, options).map_err(Failure::bad_input)?;
        let measure = Measure::new(Timestamp::ZERO, self.price.clone());
        let manner = Manner { arrivals_only: input.arrivals_only, until: self.until };
        let script = input.script().map_err(Failure::bad_input)?;
        let mut lists = output::Lists::new(self.output.list_limit);
        decisions.begin(name);
        let mut listener = |at: Timestamp, told: crate::simulate::run::Told<'_>| {
            decisions.tell(at, &told);
            lists.take(&told);
        };
        let finished = Run::new(scheduler, pool, measure, manner, &mut listener)
            .with_budgets(&input.world.budgets)
            .play(&input.world.objects, &input.world.bound, input.waiting(), script)
            .map_err(|error| Failure::bad_input(input.in_trace(&error)))?;
        decisions.clear();
        let unserved = unserved(name, configuration, &finished.other_schedulers);
        let mut run = RunReport::new(name.to_owned(), finished, !self.output.reproducible);
        (run.bindings, run.unschedulable, run.listed_all) = lists.into_parts();
        Ok((run, unserved))
    }
}

/// What there is to say about pods that name other schedulers than the profiles of this configuration.
fn unserved(
    name: &str,
    configuration: &KubeSchedulerConfiguration,
    others: &BTreeMap<Arc<str>, u64>,
) -> Option<String> {
    let pods = others.iter().map(|(name, n)| format!("{} of {name}", counted(*n, "pod"))).collect::<Vec<_>>();
    let served: Vec<&str> = configuration.profiles.iter().map(|profile| profile.scheduler_name.as_str()).collect();
    let which = if name == "default" { String::new() } else { format!(" of {name}") };
    (!pods.is_empty()).then(|| {
        format!(
            "{} left out: their spec.schedulerName is served by no profile{which}, whose {} {}",
            pods.join(", "),
            if served.len() == 1 { "schedulerName is" } else { "schedulerNames are" },
            served.join(", ")
        )
    })
}
