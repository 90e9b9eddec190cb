//! `plimsoll explain`: why a pod is where it is, or why it fits nowhere, node by node. Reads only.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use scheduler_core::framework::Registry;
use scheduler_core::model::Pod;
use serde_json::json;

use super::source::Source;
use super::{EXIT_CODES, Failure, Output, run};
use crate::choice::Choice;
use crate::simulate::Placement;

#[derive(Args)]
#[command(
    long_about = "Place one pod by the engine, in the cluster as it is now, and show for every node which plugin lets it in or keeps it \
        out, and the scores. Nothing is written to the cluster. A pod that has a node already is placed as if it had none.",
    after_help = format!("Examples:\n  plimsoll explain big\n  plimsoll explain web-5d9c-x2x7q -n shop --why-not node-b\n  kubectl get nodes,pods -A -o yaml > dump.yaml && plimsoll explain big --from dump.yaml\n\n{EXIT_CODES}")
)]
pub(crate) struct Explain {
    /// Name of the pod.
    pod: String,

    /// Its namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,

    /// Say what keeps the pod off this node, or by how much it lost.
    #[arg(long, value_name = "NODE")]
    why_not: Option<String>,

    #[command(flatten)]
    source: Source,

    /// The KubeSchedulerConfiguration to place by. Default: kube-scheduler's plugins, every node scored.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Explain {
    /// Answers on standard output.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let mut world = self.source.read().await?;
        let is_asked = |pod: &Arc<Pod>| *pod.name == *self.pod && *pod.namespace == *self.namespace;
        let bound = world.bound.iter().position(is_asked).map(|index| world.bound.remove(index));
        let Some(pod) = bound.or_else(|| world.waiting.iter().find(|pod| is_asked(pod)).cloned()) else {
            return Err(Failure::bad_input(format_args!(
                "no pod {} in namespace {}, or it has ended",
                self.pod, self.namespace
            )));
        };
        let name = self.config.is_none().then_some(&*pod.scheduler_name);
        let configuration = run::configuration(self.config.as_deref(), name)?;
        let mut placement = Placement::new(&world, &configuration, &registry, 0, true).map_err(Failure::bad_input)?;
        let free = Arc::new(Pod { node_name: None, scheduling_gates: Box::default(), ..Pod::clone(&pod) });
        let Some(attempt) = placement.place(&free) else {
            return Err(Failure::failed(format_args!(
                "the scheduler would not try pod {}: no profile serves schedulerName {:?}",
                self.pod, pod.scheduler_name
            )));
        };
        let choice = Choice::new(&attempt);
        let why_not = match &self.why_not {
            None => None,
            Some(node) => Some(
                choice
                    .why_not(node)
                    .ok_or_else(|| Failure::bad_input(format_args!("no node {node} in this cluster")))?,
            ),
        };
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => {
                let mut document = choice.to_json();
                document["isOn"] = json!(pod.node_name.as_deref());
                document["gates"] = json!(pod.scheduling_gates.iter().map(ToString::to_string).collect::<Vec<_>>());
                document["whyNot"] = json!(why_not);
                writeln!(out, "{document:#}")?;
            }
            Output::Text => {
                if let Some(node) = &pod.node_name {
                    writeln!(out, "Pod {} is on {node}. Placed now, as if it had no node:", self.pod)?;
                }
                if !pod.scheduling_gates.is_empty() {
                    writeln!(
                        out,
                        "Pod {} is held back by scheduling gates: {}. Without them:",
                        self.pod,
                        pod.scheduling_gates.join(", ")
                    )?;
                }
                write!(out, "{}", choice.text())?;
                if let Some(why_not) = why_not {
                    writeln!(out, "\n  why not {}: {why_not}", self.why_not.as_deref().unwrap_or_default())?;
                }
            }
        }
        Ok(out.flush()?)
    }
}
