//! `plimsoll simulate`: workloads or a trace on nodes that need not exist, on a virtual clock. Reads only.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Change, Options, Scheduler};
use scheduler_core::framework::Registry;
use scheduler_core::model::{Node, Object, Timestamp};
use serde_json::{Value, json};

use super::{EXIT_CODES, Failure, Output, run};
use crate::simulate::{Arrival, Run, SimulationResult, World, node_shape, openb};

#[derive(Args)]
#[command(
    long_about = "Place pods on nodes by the engine, on a virtual clock: the pods of manifests and dumps, or a trace. Nothing is contacted. \
        The same input and seed give the same output.",
    after_help = format!("Examples:\n  plimsoll simulate --nodes 100x32cpu,128Gi -f deployment.yaml\n  plimsoll simulate --from dump.yaml -o json\n  plimsoll simulate --trace openb --nodes openb_node_list_all_node.csv --pods openb_pod_list_default.csv --arrivals-only\n\n{EXIT_CODES}")
)]
pub(crate) struct Simulate {
    /// Nodes: a shape such as 5000x32cpu,128Gi, or a file of Node objects (of the trace's nodes, with --trace).
    #[arg(long, value_name = "SHAPE|FILE")]
    nodes: Option<String>,

    /// Manifests whose pods are placed; workloads become their pods.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Files or directories of a cluster's objects: pods with a node stay on it, the others are placed.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    from: Vec<PathBuf>,

    /// Format of the trace in --nodes and --pods.
    #[arg(long, value_enum, requires = "pods", requires = "nodes")]
    trace: Option<Trace>,

    /// The trace's pods.
    #[arg(long, value_name = "FILE", requires = "trace")]
    pods: Option<PathBuf>,

    /// Nobody leaves: the pods of the trace come in order and stay.
    #[arg(long)]
    arrivals_only: bool,

    /// The KubeSchedulerConfiguration to place by. Default: kube-scheduler's plugins, every node scored.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Seed of the draws among equally good nodes.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Trace {
    /// The Alibaba GPU cluster trace of 2023, as CSV.
    Openb,
}

impl Simulate {
    /// Runs and writes the result to standard output.
    pub(crate) fn execute(self, registry: &Registry) -> Result<(), Failure> {
        let (world, arrivals) = self.input()?;
        let nodes: Vec<Arc<Node>> = world
            .objects
            .iter()
            .filter_map(|object| if let Object::Node(node) = object { Some(Arc::clone(node)) } else { None })
            .collect();
        if nodes.is_empty() {
            return Err(Failure::bad_input("no nodes: expected --nodes, or Node objects in --from or --filename"));
        }
        let name = arrivals
            .first()
            .map_or_else(|| "default-scheduler".to_owned(), |arrival| arrival.pod.scheduler_name.to_string());
        let configuration = run::configuration(self.config.as_deref(), self.config.is_none().then_some(name.as_str()))?;
        let pool = rayon::ThreadPoolBuilder::new()
            .build()
            .map_err(|error| Failure::failed(format_args!("cannot start threads: {error}")))?;
        let scheduler = self.scheduler(&world, &configuration, registry)?;
        let n_pods = arrivals.len();
        let result = Run::new(scheduler, &pool).play(arrivals, !self.arrivals_only);
        Ok(self.write(&nodes, &world, n_pods, &result)?)
    }

    fn input(&self) -> Result<(World, Vec<Arrival>), Failure> {
        let mut world = World::from_files(&self.from).map_err(Failure::bad_input)?;
        let templates = World::from_files(&self.filename).map_err(Failure::bad_input)?;
        world.objects.extend(templates.objects);
        world.bound.extend(templates.bound);
        world.waiting.extend(templates.waiting);
        if let (Some(Trace::Openb), Some(nodes), Some(pods)) = (self.trace, &self.nodes, &self.pods) {
            let nodes = openb::nodes(nodes.as_ref()).map_err(Failure::bad_input)?;
            world.objects.extend(nodes.into_iter().map(Object::from));
            return Ok((world, openb::pods(pods).map_err(Failure::bad_input)?));
        }
        match &self.nodes {
            None => {}
            Some(path) if std::path::Path::new(path).exists() => {
                let nodes = World::from_files(&[PathBuf::from(path)]).map_err(Failure::bad_input)?;
                world.objects.extend(nodes.objects);
            }
            Some(shape) => world
                .objects
                .extend(node_shape::nodes(shape).map_err(Failure::bad_input)?.into_iter().map(Object::from)),
        }
        let arrivals = std::mem::take(&mut world.waiting)
            .into_iter()
            .map(|pod| Arrival { at_seconds: 0, pod, leaves_at_seconds: None })
            .collect();
        Ok((world, arrivals))
    }

    fn scheduler(
        &self,
        world: &World,
        configuration: &KubeSchedulerConfiguration,
        registry: &Registry,
    ) -> Result<Scheduler, Failure> {
        let options = Options { seed: self.seed, ..Options::default() };
        let mut scheduler = Scheduler::new(configuration, registry, options).map_err(Failure::bad_input)?;
        for object in &world.objects {
            scheduler.handle(Change::Applied(object.clone()), Timestamp::ZERO);
        }
        for pod in &world.bound {
            scheduler.handle(Change::Applied(Object::Pod(Arc::clone(pod))), Timestamp::ZERO);
        }
        Ok(scheduler)
    }

    fn write(&self, nodes: &[Arc<Node>], world: &World, n_pods: usize, result: &SimulationResult) -> io::Result<()> {
        let report = report(self.seed, nodes, world, n_pods, result);
        let mut out = io::stdout().lock();
        if self.output == Output::Json {
            writeln!(out, "{report:#}")?;
            return out.flush();
        }
        let summary = &report["summary"];
        writeln!(
            out,
            "{n_pods} pods on {} nodes: {} placed, {} not.",
            nodes.len(),
            summary["podsScheduled"],
            summary["podsUnschedulable"]
        )?;
        for (resource, use_of) in summary["utilisation"].as_object().into_iter().flatten() {
            writeln!(out, "  {resource:<8} {:>5.1}% requested", use_of.as_f64().unwrap_or_default() * 100.0)?;
        }
        writeln!(out, "  {} attempts in {} ms", summary["attempts"], summary["engineMillis"])?;
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, message) in &result.unschedulable {
            *reasons.entry(message).or_default() += 1;
        }
        for (message, n_pods) in reasons {
            writeln!(out, "  {n_pods} pods: {message}")?;
        }
        out.flush()
    }
}

fn report(seed: u64, nodes: &[Arc<Node>], world: &World, n_pods: usize, result: &SimulationResult) -> Value {
    let mut waits: Vec<f64> = result.bound.iter().map(|(_, _, seconds)| *seconds).collect();
    waits.sort_by(f64::total_cmp);
    let quantile = |q: usize| waits.get((waits.len() * q / 100).min(waits.len().saturating_sub(1))).copied();
    let sum = |amounts: &mut dyn Iterator<Item = i64>| amounts.fold(0_i64, i64::saturating_add);
    let on_nodes = || world.bound.iter().chain(result.bound.iter().map(|(pod, _, _)| pod));
    let share = |used: i64, whole: i64| if whole > 0 { used as f64 / whole as f64 } else { 0.0 };
    let cpu = share(
        sum(&mut on_nodes().map(|pod| pod.resources.requests.milli_cpu)),
        sum(&mut nodes.iter().map(|node| node.allocatable.milli_cpu)),
    );
    let memory = share(
        sum(&mut on_nodes().map(|pod| pod.resources.requests.memory)),
        sum(&mut nodes.iter().map(|node| node.allocatable.memory)),
    );
    json!({
        "apiVersion": "plimsoll.io/v1alpha1",
        "kind": "SimulationReport",
        "seed": seed,
        "summary": {
            "nodes": nodes.len(),
            "pods": n_pods,
            "podsScheduled": result.bound.len(),
            "podsUnschedulable": result.unschedulable.len(),
            "attempts": result.n_attempts,
            "engineMillis": u64::try_from(result.engine_time.as_millis()).unwrap_or(u64::MAX),
            "simulatedSeconds": result.seconds,
            "utilisation": { "cpu": cpu, "memory": memory },
            "waitSeconds": { "median": quantile(50), "p99": quantile(99), "max": waits.last() },
        },
        "bindings": result.bound.iter().map(|(pod, node, seconds)| json!({
            "namespace": &*pod.namespace, "pod": &*pod.name, "node": &**node, "waitSeconds": seconds,
        })).collect::<Vec<_>>(),
        "unschedulable": result.unschedulable.iter().map(|(pod, message)| json!({
            "namespace": &*pod.namespace, "pod": &*pod.name, "message": message,
        })).collect::<Vec<_>>(),
    })
}
