//! The flags that say what is simulated, and what they name, read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use scheduler_core::model::{Object, Pod, Timestamp};

use crate::cli::{Failure, source};
use crate::extender::WholeObjects;
use crate::simulate::script::{Happening, InputError, Leaves, Script, Timed};
use crate::simulate::source::{Format, detect, open, openb};
use crate::simulate::{Arriving, Origin, World};

/// Which cluster, which pods.
#[derive(Args)]
pub(super) struct InputFlags {
    /// Nodes: a shape such as 5000x32cpu,128Gi, or a file of Node objects (of the trace's nodes, with --trace openb); may be
    /// repeated.
    #[arg(long, value_name = "SHAPE|FILE", help_heading = "Input")]
    nodes: Vec<String>,

    /// Manifests whose pods are placed; workloads keep their number of pods.
    #[arg(short, long, value_name = "FILE", help_heading = "Input")]
    filename: Vec<PathBuf>,

    /// Files or directories of a cluster's objects: kubectl's output, must-gather, cluster-info dump, a simulator's export. Pods
    /// with a node stay on it, the others are placed.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Input")]
    from: Vec<PathBuf>,

    /// Read the objects of a live cluster once, page by page; nothing is written to it.
    #[arg(long, conflicts_with = "from", help_heading = "Input")]
    cluster: bool,

    /// Kubeconfig of that cluster. Default: the variable KUBECONFIG, the pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "cluster", help_heading = "Input")]
    kubeconfig: Option<PathBuf>,

    /// A trace: a file whose format is told by its beginning, or the name of a format whose file is given by --pods: openb,
    /// events, simkube, kwok, kube-scheduler-simulator.
    #[arg(long, value_name = "FORMAT|FILE", help_heading = "Input")]
    trace: Option<String>,

    /// The trace's pods or events.
    #[arg(long, value_name = "FILE", requires = "trace", help_heading = "Input")]
    pods: Option<PathBuf>,

    /// Decide a recording of `plimsoll run --record` again and compare; exit code 1 if a decision comes out otherwise.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "filename", "from", "cluster", "trace"], help_heading = "Input")]
    pub(super) replay: Option<PathBuf>,

    /// The clock stands still: pods come one after the other in the order of the input, and nobody leaves.
    #[arg(long, help_heading = "Input")]
    arrivals_only: bool,

    /// Go on without what is malformed; each object that is left out is a warning.
    #[arg(long, help_heading = "Input")]
    partial: bool,
}

/// Names of trace formats.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    Openb,
    Events,
    Simkube,
    Kwok,
    KubeSchedulerSimulator,
}

/// What was read.
pub(super) struct Input {
    /// Objects at the start.
    pub(super) world: World,
    /// In a few words.
    pub(super) description: String,
    /// The schedulerNames to serve when there is no configuration.
    pub(super) scheduler_names: BTreeSet<Arc<str>>,
    /// Whether the clock stands still.
    pub(super) arrivals_only: bool,
    trace: Option<(Trace, PathBuf)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trace {
    Openb,
    Other(Format),
}

impl InputFlags {
    /// Reads everything but the trace, of which only the beginning is looked at. Pods and nodes are kept in `whole_objects`,
    /// too, as they were given.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, the cluster does not answer, or there are no nodes.
    pub(super) async fn read(&self, whole_objects: Option<Arc<WholeObjects>>) -> Result<Input, Failure> {
        let trace = self.trace()?;
        let mut world = if self.cluster {
            source::live(self.kubeconfig.as_deref(), whole_objects).await?
        } else {
            World::keeping(whole_objects)
        };
        let mut words = Vec::new();
        if self.cluster {
            words.push("a live cluster".to_owned());
        }
        let mut inputs: Vec<_> = self.from.iter().map(|path| (path.clone(), Origin::Dump)).collect();
        inputs.extend(self.filename.iter().map(|path| (path.clone(), Origin::Manifest)));
        for nodes in &self.nodes {
            let path = Path::new(nodes);
            if path.exists() && matches!(trace, Some((Trace::Openb, _))) {
                let rows = openb::nodes(path).map_err(Failure::bad_input)?;
                world.objects.extend(rows.into_iter().map(Object::from));
                words.push(file_name(path));
            } else {
                if !path.exists() {
                    words.push(nodes.clone());
                }
                source::add_nodes(&mut world, std::slice::from_ref(nodes), &mut inputs)?;
            }
        }
        words.extend(inputs.iter().map(|(path, _)| file_name(path)));
        words.extend(trace.as_ref().map(|(_, path)| file_name(path)));
        world.add_files(&inputs, self.partial).map_err(Failure::bad_input)?;
        world.finish();
        let brings_nodes = matches!(trace, Some((Trace::Other(_), _)));
        if world.nodes().next().is_none() && !brings_nodes {
            return Err(Failure::bad_input("no nodes: expected --nodes, or Node objects in --from or --filename"));
        }
        if world.waiting.is_empty() && world.arriving.is_empty() && trace.is_none() {
            world.warnings.push("no pod and no workload in the input waits for a node: nothing is placed".to_owned());
        }
        let waiting = world.waiting.iter().map(|pod| Arc::clone(&pod.scheduler_name));
        let arriving = world.arriving.iter().map(|arriving| Arc::clone(arriving.scheduler_name()));
        let mut scheduler_names: BTreeSet<Arc<str>> = waiting.chain(arriving).collect();
        if scheduler_names.is_empty() || trace.is_some() {
            scheduler_names.insert("default-scheduler".into());
        }
        Ok(Input { description: words.join(", "), scheduler_names, arrivals_only: self.arrivals_only, world, trace })
    }

    fn trace(&self) -> Result<Option<(Trace, PathBuf)>, Failure> {
        let Some(word) = &self.trace else { return Ok(None) };
        if let Ok(format) = FormatName::from_str(word, false) {
            let path = self
                .pods
                .clone()
                .ok_or_else(|| Failure::bad_input(format_args!("--trace {word} needs --pods FILE")))?;
            let trace = match format {
                FormatName::Openb if self.nodes.is_empty() => {
                    return Err(Failure::bad_input("--trace openb needs --nodes FILE"));
                }
                FormatName::Openb => Trace::Openb,
                FormatName::Events => Trace::Other(Format::EventLines),
                FormatName::Simkube => Trace::Other(Format::Simkube),
                FormatName::Kwok => Trace::Other(Format::Kwok),
                FormatName::KubeSchedulerSimulator => Trace::Other(Format::Records),
            };
            return Ok(Some((trace, path)));
        }
        let path = PathBuf::from(word);
        if !path.exists() {
            let known: Vec<_> = FormatName::value_variants()
                .iter()
                .filter_map(|format| format.to_possible_value().map(|value| value.get_name().to_owned()))
                .collect();
            return Err(Failure::bad_input(format_args!(
                "--trace {word}: no such file, and no format of {}",
                known.join(", ")
            )));
        }
        match detect(&path).map_err(Failure::bad_input)? {
            Some(format) => Ok(Some((Trace::Other(format), path))),
            None => Err(Failure::bad_input(format_args!(
                "{word}: not a trace of a known format; expected a first line {{\"apiVersion\":\"plimsoll.io/v1alpha1\",\"kind\":\"EventTrace\"}}, \
                 or name the format with --trace FORMAT --pods {word}"
            ))),
        }
    }
}

impl Input {
    /// Everything that happens: what manifests bring, then the trace.
    ///
    /// # Errors
    /// The trace cannot be opened.
    pub(super) fn script(&self) -> Result<Script<'_>, InputError> {
        let trace: Option<Script<'static>> = match &self.trace {
            None => None,
            Some((Trace::Openb, path)) => Some(openb::pods(path)?),
            Some((Trace::Other(format), path)) => Some(open(path, *format, self.world.admission.clone())?),
        };
        let mut trace = trace.map(Iterator::peekable);
        let start = match trace.as_mut().and_then(|trace| trace.peek()) {
            Some(Ok(timed)) => timed.at,
            _ => Timestamp::ZERO,
        };
        let at_start = move |what| Ok(Timed { at: start, what, line: 0 });
        let arriving = self.world.arriving.iter().map(move |arriving| {
            at_start(match arriving {
                Arriving::Pod(pod) => Happening::Pod(Arc::clone(pod), self.world.leaves(pod)),
                Arriving::Workload(workload) => Happening::Workload(workload.clone()),
            })
        });
        Ok(Box::new(arriving.chain(trace.into_iter().flatten())))
    }

    /// The pods of a cluster that wait together.
    pub(super) fn waiting(&self) -> Vec<(Arc<Pod>, Leaves)> {
        self.world.waiting.iter().map(|pod| (Arc::clone(pod), self.world.leaves(pod))).collect()
    }

    /// The error with the trace's name before the line.
    pub(super) fn in_trace(&self, error: &InputError) -> String {
        match (&self.trace, error.place.strip_prefix("line ")) {
            (Some((_, path)), Some(line)) => format!("{}:{line}: {}", path.display(), error.problem),
            _ => error.to_string(),
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
