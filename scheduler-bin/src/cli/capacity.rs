//! `plimsoll capacity`: how many more of a pod fit, where they go, and what limits them. Reads only.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use scheduler_core::engine::Outcome;
use scheduler_core::framework::Registry;
use scheduler_core::model::Pod;
use serde_json::json;

use super::source::Source;
use super::{EXIT_CODES, Failure, Output, run};
use crate::manifest;
use crate::simulate::{Placement, World};

#[derive(Args)]
#[command(
    long_about = "Place copies of a pod by the engine, in the cluster as it is now, until no more fit. Nothing is written to the cluster. \
        A file with several pods or workloads is placed as a mix, one round after the other.",
    after_help = format!("Examples:\n  plimsoll capacity -f pod.yaml\n  plimsoll capacity -f deployment.yaml --from dump.yaml -o json\n\n{EXIT_CODES}")
)]
pub(crate) struct Capacity {
    /// The pod, or a workload with a pod template.
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,

    /// Stop after so many pods.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    limit: usize,

    #[command(flatten)]
    source: Source,

    /// The KubeSchedulerConfiguration to place by. Default: kube-scheduler's plugins, every node scored.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Capacity {
    /// Answers on standard output.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let mut templates = World::default();
        for document in manifest::read(&self.filename).map_err(Failure::bad_input)? {
            templates.take(&document).map_err(Failure::bad_input)?;
        }
        let Some(first) = templates.waiting.first() else {
            return Err(Failure::bad_input(format_args!(
                "{}: no pod and no workload with a pod template",
                self.filename.display()
            )));
        };
        let name = self.config.is_none().then_some(&*first.scheduler_name);
        let configuration = run::configuration(self.config.as_deref(), name)?;
        let world = self.source.read().await?;
        let mut placement = Placement::new(&world, &configuration, &registry, 0, false).map_err(Failure::bad_input)?;

        let mut per_node: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut limit = None;
        let mut n_placed = 0;
        'rounds: for round in 0.. {
            for template in &templates.waiting {
                if n_placed >= self.limit {
                    break 'rounds;
                }
                let pod = Arc::new(Pod {
                    name: format!("{}-{round}", template.name).into(),
                    uid: format!("{}-{round}", template.uid).into(),
                    ..Pod::clone(template)
                });
                match placement.place(&pod).map(|attempt| attempt.outcome) {
                    Some(Outcome::Scheduled { node, .. }) => {
                        *per_node.entry(node).or_default() += 1;
                        n_placed += 1;
                    }
                    Some(Outcome::Unschedulable { message, .. } | Outcome::Error { message }) => {
                        limit = Some((template.name.to_string(), message));
                        break 'rounds;
                    }
                    Some(Outcome::Skipped) | None => {
                        return Err(Failure::failed(format_args!(
                            "the scheduler would not try {}: it is gated, or no profile serves schedulerName {:?}",
                            template.name, template.scheduler_name
                        )));
                    }
                }
            }
        }
        Ok(self.write(n_placed, &per_node, limit.as_ref())?)
    }

    fn write(
        &self,
        n_placed: usize,
        per_node: &BTreeMap<Arc<str>, usize>,
        limit: Option<&(String, String)>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => {
                let nodes: serde_json::Map<_, _> =
                    per_node.iter().map(|(node, n_pods)| (node.to_string(), json!(n_pods))).collect();
                let document = json!({
                    "apiVersion": "plimsoll.io/v1alpha1", "kind": "CapacityReport", "pods": n_placed, "nodes": nodes,
                    "limitedBy": limit.map(|(pod, message)| json!({"pod": pod, "message": message})),
                });
                writeln!(out, "{document:#}")?;
            }
            Output::Text => {
                writeln!(out, "{n_placed} more pods fit.")?;
                for (node, n_pods) in per_node {
                    writeln!(out, "  {node}: {n_pods}")?;
                }
                match limit {
                    Some((pod, message)) => writeln!(out, "The next one ({pod}) does not: {message}")?,
                    None => writeln!(out, "Not all were tried: --limit is {}.", self.limit)?,
                }
            }
        }
        out.flush()
    }
}
