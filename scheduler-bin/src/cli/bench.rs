//! `plimsoll bench`: how fast the engine decides, on clusters made from numbers. Contacts nothing.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use benches::workload::{Shape, default_bound};
use clap::Args;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::framework::Registry;

use super::{EXIT_CODES, Failure, Output, termination};
use crate::bench::criterion::Wanted;
use crate::bench::memory::Footprint;
use crate::bench::plot::Series;
use crate::bench::shapes::{Case, Row, measure, scheduler};
#[cfg(feature = "offline-cluster")]
use crate::bench::workload::{ClusterOptions, ClusterTarget, SchedulerCommand};
use crate::bench::workload::{EngineTarget, Measurement, Workload, load, names, run as run_workload};
use crate::bench::{Progress, Stop, criterion, plot, report};
use crate::counted::counted;
use crate::output_file::OutputFile;

const SHAPES: [&str; Shape::ALL.len()] =
    ["basic", "selector", "spread", "anti-affinity", "mixed", "default-spread", "affinity"];

/// The word for every shape.
const ALL_SHAPES: &str = "all";

const WORKLOADS: &str = "\
With --workload, test cases of kube-scheduler's own benchmark, scheduler_perf: names such as SchedulingBasic (all sizes) or
SchedulingBasic/5000Nodes_10000Pods (list names them all), or a file in its performance-config.yaml format, of which
CASE/WORKLOAD can be chosen after a colon. Average, P50, P90, P95 and P99 are pods per second, the percentiles over windows of
a second at most; the time runs from the creation of the measured pods to the last binding. THRESHOLD is what Kubernetes' own
CI expects of kube-scheduler. CPU/POD is processor time of the whole process, which other work on the machine moves least.
-o json is scheduler_perf's result format (dataItems), with one item more for that (ProcessCPUPerPod).
Without --end-to-end there is the engine alone: bindings, patches and evictions are done at once, and objects are converted
beforehand. With it, an offline API server in this process and a scheduler talk over HTTPS, events on. With --scheduler that
is another program, seen by a watch of the pods; CPU/POD does not count it. Feature gates of a file
mean nothing here. Every node is scored unless --sample says otherwise; kube-scheduler's default is --sample 0.";

const HELP: &str = "\
Shapes of the pods (requests of 100m to 500m CPU and 256Mi to 1Gi, labels app-0 to app-9):
  basic           nothing more
  selector        a node selector that half of the nodes have, a toleration, a preferred zone
  spread          topology spread: over zones DoNotSchedule, over nodes ScheduleAnyway
  anti-affinity   required anti-affinity over nodes, in groups of min(nodes/2, 1000) pods
  mixed           basic, selector and spread in turn
  default-spread  basic, with Services that turn on the system's default spreading
  affinity        required affinity over zones to pods of the same app; every zone has some
The nodes have 32 CPUs, 128Gi, room for 110 pods, ten zones, and a taint on one in twenty.

Columns, and the names in JSON (kind BenchReport, a list `rows`):
  DECISIONS/S  decisionsPerSecond: decisions over the sum of their times
  P50 P99 MAX  p50Micros, p90Micros, p99Micros, maxMicros: one decision, from taking the pod out of the queue to handing
               the binding out: PreFilter to select host, assume, Reserve, Permit
  NS/NODE      nanosPerNode: the median over all nodes
  BARE LOOP    bareLoopMicros: a loop over four columns that does no more than fit CPU and memory and score what is free
               (two 64-bit divisions a node), on as many nodes and threads, measured in the same run
  RATIO        ratioToBareLoop: P50 over BARE LOOP
  PODS/S       podsPerSecond: the whole loop in one process: queueing, deciding, hearing of the binding and of the pod
  ALLOCS       allocationsPerDecision; counted only with `--features count-allocations`, which is slower
  memory       bytesPerNode, bytesPerBoundPod: growth of a fresh process that loads the cluster, without its files and what its
               allocator holds free or rounds up (memorySource); null below 4 MiB of growth
Also: nodesEvaluated and nodesFeasible (means over placed pods), podsUnschedulable, and `placements`, a hash over the chosen
nodes in order: two runs that decide alike have the same.";

#[derive(Args)]
#[command(
    long_about = "Measure how fast the engine decides, on clusters made from numbers. Nothing is contacted. Several values in an option give a row each.",
    after_help = format!("{HELP}\n\n{WORKLOADS}\n\nExamples:\n  plimsoll bench --nodes 5000\n  plimsoll bench --shape basic,spread --nodes 1000,5000,100000 --threads 1,2 -o json\n  plimsoll bench --distinct 0 --replicas 10000 --pods 10000    the replicas of one Deployment\n  plimsoll bench --shape basic,selector,spread,affinity --nodes 1000,5000,20000,100000 --plot cost.svg\n  plimsoll bench --criterion target/criterion --shape basic,spread --threads 1 --plot cost.svg\n  plimsoll bench --workload SchedulingBasic/5000Nodes_10000Pods,TopologySpreading/5000Nodes_5000Pods\n  plimsoll bench --workload SchedulingBasic/5000Nodes_10000Pods --end-to-end --create-first -o json\n  plimsoll bench --workload SchedulingBasic/5000Nodes_10000Pods --end-to-end --create-first \\\n    --scheduler 'kube-scheduler --kubeconfig={{kubeconfig}} --leader-elect=false --secure-port=0 --authentication-skip-lookup\n    --kube-api-content-type=application/json --kube-api-qps=5000 --kube-api-burst=5000'\n\n{EXIT_CODES}")
)]
pub(crate) struct Bench {
    /// What the pods ask for; all is every shape.
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', default_value = "basic", value_parser = shape_names())]
    shape: Vec<String>,

    /// Nodes.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000,5000", value_parser = number(1, 5_000_000))]
    nodes: Vec<u32>,

    /// Pods on the nodes at the start. Default: 20 a node, at most 20000.
    #[arg(long, value_name = "N", value_parser = number(0, 10_000_000))]
    existing: Option<u32>,

    /// Pods to schedule; a tenth more come before them and are not counted. Default: 100 to 2000, fewer on more nodes.
    #[arg(long, value_name = "N", value_parser = number(1, 10_000_000))]
    pods: Option<u32>,

    /// Threads for filtering and scoring. Default: all.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = number(1, 1024))]
    threads: Vec<u32>,

    /// Share of the pods, 0 to 1, that differ from every other pod, so that nothing can be shared with them.
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "1", value_parser = share)]
    distinct: Vec<f64>,

    /// Pods that follow each other with the same shape, as the replicas of a Deployment do.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number(1, 10_000_000))]
    replicas: u32,

    /// percentageOfNodesToScore; 0 is kube-scheduler's adaptive value.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "100", value_parser = number(0, 100))]
    sample: Vec<u32>,

    /// Seed of the draws among equally good nodes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Run workloads of kube-scheduler's own benchmark instead of a shape; list names them.
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',', conflicts_with_all = ["shape", "nodes", "existing", "pods", "distinct", "replicas"])]
    workload: Vec<String>,

    /// Run the workloads on the engine alone. The default.
    #[arg(long, requires = "workload", conflicts_with = "end_to_end")]
    engine: bool,

    /// Run the workloads against the offline cluster's API server, over HTTPS.
    #[arg(long, requires = "workload")]
    end_to_end: bool,

    /// Create measured pods before the scheduler starts, and measure from its start.
    #[arg(long, requires = "end_to_end")]
    create_first: bool,

    /// Let another program schedule, such as the real kube-scheduler, against the same API server. Words are split at blanks;
    /// {kubeconfig} is replaced. What it writes is shown only if it ends.
    #[cfg(feature = "offline-cluster")]
    #[arg(long, value_name = "COMMAND", requires = "end_to_end", conflicts_with_all = ["threads", "sample", "seed"], value_parser = SchedulerCommand::parse)]
    scheduler: Option<SchedulerCommand>,

    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    /// Also draw the median times against the number of nodes, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    plot: Option<PathBuf>,

    /// Draw what Criterion measured instead of measuring: the medians of `cargo bench -p benches --bench cycle`, which are in
    /// target/criterion. --shape and --threads choose; --distinct 1 draws pods that all differ, 0 replicas, 1,0 both.
    #[arg(long, value_name = "DIR", requires = "plot", conflicts_with_all = ["nodes", "existing", "pods", "replicas", "sample", "seed"])]
    criterion: Option<PathBuf>,

    /// Load the first cluster, write its footprint and end; the command starts itself so.
    #[arg(long, hide = true)]
    footprint: bool,
}

fn shape_names() -> Vec<&'static str> {
    SHAPES.into_iter().chain([ALL_SHAPES]).collect()
}

fn number(least: i64, most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=most)
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("expected a number from 0 to 1".to_owned()) }
}

impl Bench {
    /// Measures case after case and writes the rows.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        if !self.workload.is_empty() {
            return self.execute_workloads(registry.into()).await;
        }
        if let (Some(directory), Some(path)) = (&self.criterion, &self.plot) {
            let series = criterion::read(directory, &self.wanted()).map_err(Failure::bad_input)?;
            return draw(path, series, "Criterion");
        }
        let cases = self.cases()?;
        if self.footprint {
            return footprint(&cases[0], &registry);
        }
        let terminated =
            termination().map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
        let stop = Stop::default();
        let mut work = {
            let stop = stop.clone();
            let cases = cases.clone();
            tokio::task::spawn_blocking(move || run(&cases, &registry, &stop))
        };
        let result = tokio::select! {
            result = &mut work => result,
            () = terminated => {
                stop.set();
                work.await
            }
        };
        let rows = result.map_err(|error| Failure::failed(format_args!("the measurement broke: {error}")))??;
        self.write(&rows)?;
        if let Some(path) = &self.plot {
            draw(path, plot::of_rows(&rows), "plimsoll bench")?;
        }
        if rows.len() < cases.len() {
            return Err(Failure::failed(format_args!(
                "interrupted after {} of {}",
                rows.len(),
                counted(cases.len(), "row")
            )));
        }
        Ok(())
    }

    /// Runs workload after workload and writes what was measured.
    async fn execute_workloads(&self, registry: Arc<Registry>) -> Result<(), Failure> {
        if self.workload.iter().any(|spec| spec == "list") {
            let mut out = io::stdout().lock();
            for name in names().map_err(Failure::failed)? {
                writeln!(out, "{name}")?;
            }
            return Ok(out.flush()?);
        }
        let mut workloads = Vec::new();
        for spec in &self.workload {
            workloads.extend(load(spec).map_err(Failure::bad_input)?);
        }
        let terminated =
            termination().map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
        let stop = Stop::default();
        let mut measurements = Vec::new();
        let result = {
            let work = self.run_all(&workloads, &registry, &stop, &mut measurements);
            let mut work = std::pin::pin!(work);
            tokio::select! {
                result = &mut work => result,
                () = terminated => {
                    stop.set();
                    work.await
                }
            }
        };
        let mut out = io::stdout().lock();
        match self.output {
            Output::Text => write!(out, "{}", report::workload_table(&measurements))?,
            Output::Json => writeln!(out, "{:#}", report::workload_json(&measurements))?,
        }
        out.flush()?;
        result?;
        if stop.is_set() {
            return Err(Failure::failed("interrupted before all workloads were measured"));
        }
        Ok(())
    }

    async fn run_all(
        &self,
        workloads: &[Workload],
        registry: &Arc<Registry>,
        stop: &Stop,
        measurements: &mut Vec<Measurement>,
    ) -> Result<(), Failure> {
        let mut progress = Progress::new();
        for workload in workloads {
            if !workload.feature_gates.is_empty() {
                tracing::info!(
                    "{}: feature gates are passed over: {}",
                    workload.name,
                    workload.feature_gates.join(", ")
                );
            }
            let found = self.run_one(workload, registry, stop, &mut progress).await.map_err(Failure::failed)?;
            let Some(found) = found else { return Ok(()) };
            measurements.extend(found);
        }
        Ok(())
    }

    async fn run_one(
        &self,
        workload: &Workload,
        registry: &Arc<Registry>,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Option<Vec<Measurement>>, String> {
        let percentage_of_nodes_to_score =
            self.sample.first().map_or(100, |&sample| i32::try_from(sample).unwrap_or(100));
        let configuration = workload.configuration.clone().unwrap_or_else(|| KubeSchedulerConfiguration {
            percentage_of_nodes_to_score,
            ..KubeSchedulerConfiguration::default()
        });
        #[cfg(not(feature = "offline-cluster"))]
        if self.end_to_end && !self.engine {
            return Err("--end-to-end needs the offline cluster, which this build leaves out".to_owned());
        }
        #[cfg(feature = "offline-cluster")]
        if self.end_to_end && !self.engine {
            let (seed, create_first, command) = (self.seed, self.create_first, self.scheduler.clone());
            let options = ClusterOptions { configuration, seed, create_first, command };
            let mut target = ClusterTarget::start(Arc::clone(registry), options).await?;
            let result = run_workload(workload, &mut target, stop, progress).await;
            target.shutdown().await;
            return result;
        }
        let n_threads = self.threads.first().map_or_else(all_threads, |&n| n as usize);
        let mut target = EngineTarget::new(&configuration, registry, self.seed, n_threads)?;
        run_workload(workload, &mut target, stop, progress).await
    }

    /// The names of the shapes that are asked for.
    fn shapes(&self) -> Vec<&str> {
        let is_all = self.shape.iter().any(|name| name == ALL_SHAPES);
        if is_all { SHAPES.to_vec() } else { self.shape.iter().map(String::as_str).collect() }
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            shapes: self.shapes().into_iter().map(str::to_owned).collect(),
            threads: self.threads.iter().map(|&n| n as usize).collect(),
            distinct: self.distinct.iter().any(|&share| share > 0.0),
            replicas: self.distinct.contains(&0.0),
        }
    }

    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let threads: Vec<usize> = if self.threads.is_empty() {
            vec![all_threads()]
        } else {
            self.threads.iter().map(|&n| n as usize).collect()
        };
        let mut cases = Vec::new();
        for shape in self.shapes() {
            let shape = Shape::ALL.into_iter().find(|known| known.name() == shape);
            let shape = shape.ok_or_else(|| Failure::bad_input("--shape: no such shape"))?;
            for &n_nodes in &self.nodes {
                let n_nodes = n_nodes as usize;
                let n_existing = self.existing.map_or_else(|| default_bound(n_nodes), |n| n as usize);
                if n_existing > 110 * n_nodes {
                    return Err(Failure::bad_input(format_args!(
                        "--existing {n_existing}: {} for 110 pods each, {} in all",
                        counted(n_nodes, "node"),
                        110 * n_nodes
                    )));
                }
                let n_pods = self.pods.map_or_else(|| default_pods(n_nodes), |n| n as usize);
                for &n_threads in &threads {
                    for &distinct in &self.distinct {
                        for &sample in &self.sample {
                            let sample = i32::try_from(sample).unwrap_or(100);
                            let (n_replicas, seed) = (self.replicas as usize, self.seed);
                            cases.push(Case {
                                shape,
                                n_nodes,
                                n_existing,
                                n_pods,
                                n_threads,
                                distinct,
                                n_replicas,
                                sample,
                                seed,
                            });
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    fn write(&self, rows: &[Row]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.output {
            Output::Text => write!(out, "{}", report::table(rows))?,
            Output::Json => writeln!(out, "{:#}", report::json(rows))?,
        }
        out.flush()
    }
}

/// Writes the picture of `series`, whole or not at all; `by` is what measured them.
fn draw(path: &Path, series: Vec<Series>, by: &str) -> Result<(), Failure> {
    let svg = plot::svg(series, &format!("{by}, {}", report::machine()));
    OutputFile::create(path)
        .and_then(|mut file| {
            file.write_all(svg.as_bytes())?;
            file.finish()
        })
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))
}

fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Enough decisions for a p99 where that takes seconds, fewer on clusters where a decision takes milliseconds.
fn default_pods(n_nodes: usize) -> usize {
    let n_pods = match n_nodes {
        0..=1_000 => 2_000,
        1_001..=10_000 => 1_000,
        10_001..=100_000 => 300,
        _ => 100,
    };
    n_pods.min(20 * n_nodes)
}

fn run(cases: &[Case], registry: &Registry, stop: &Stop) -> Result<Vec<Row>, Failure> {
    let mut progress = Progress::new();
    let mut rows: Vec<Row> = Vec::new();
    for (position, case) in cases.iter().enumerate() {
        progress.begin(format!(
            "[{}/{}] {}, {}, {}",
            position + 1,
            cases.len(),
            case.shape.name(),
            counted(case.n_nodes, "node"),
            counted(case.n_threads, "thread")
        ));
        let same_size = |row: &&Row| (row.case.n_nodes, row.case.n_existing) == (case.n_nodes, case.n_existing);
        let footprint = match rows.iter().find(same_size) {
            Some(row) => row.footprint,
            None => Footprint::in_fresh_process(case),
        };
        let Some(row) = measure(*case, registry, stop, &mut progress).map_err(Failure::failed)? else { break };
        rows.push(Row { footprint, ..row });
    }
    Ok(rows)
}

fn footprint(case: &Case, registry: &Registry) -> Result<(), Failure> {
    let mut scheduler = scheduler(case, registry).map_err(Failure::failed)?;
    let footprint = Footprint::measure(&mut scheduler, case.n_nodes, case.n_existing);
    let text = serde_json::to_string(&footprint).map_err(Failure::failed)?;
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn cases(arguments: &[&str]) -> Result<Vec<Case>, String> {
        let line = Line::try_parse_from([&["bench"], arguments].concat()).map_err(|error| error.to_string())?;
        line.bench.cases().map_err(|failure| failure.to_string())
    }

    #[test]
    fn several_values_give_a_row_each() {
        let cases =
            cases(&["--shape", "basic,spread", "--nodes", "10,1000,100000", "--threads", "1,2"]).expect("valid");
        assert_eq!(cases.len(), 12);
        assert_eq!((cases[0].n_existing, cases[4].n_existing), (200, 20_000));
        assert_eq!((cases[0].n_pods, cases[2].n_pods, cases[4].n_pods), (200, 2_000, 300));
    }

    #[test]
    fn all_is_every_shape() {
        let of = |word: &str| cases(&["--shape", word, "--nodes", "10", "--threads", "1"]).expect("valid");
        let names: Vec<_> = of("all").iter().map(|case| case.shape.name()).collect();
        assert_eq!(names, SHAPES);
        assert_eq!(of("basic,all").len(), SHAPES.len(), "no shape twice");
    }

    #[test]
    fn nonsense_is_named() {
        for (arguments, want) in [
            (&["--shape", "round"][..], "possible values: basic"),
            (&["--nodes", "0"], "0 is not in 1..=5000000"),
            (&["--nodes", "many"], "invalid digit"),
            (&["--distinct", "2"], "expected a number from 0 to 1"),
            (&["--distinct", "NaN"], "expected a number from 0 to 1"),
            (&["--sample", "101"], "101 is not in 0..=100"),
            (&["--threads", "0"], "0 is not in 1..=1024"),
            (&["--nodes", "2", "--existing", "221"], "2 nodes for 110 pods each, 220 in all"),
        ] {
            let error = cases(arguments).expect_err("nonsense");
            assert!(error.contains(want), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn the_shapes_are_those_of_the_workload() {
        assert_eq!(SHAPES, Shape::ALL.map(Shape::name));
    }
}
