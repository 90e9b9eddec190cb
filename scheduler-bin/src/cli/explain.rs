//! `plimsoll explain`: why a pod is where it is, or why it fits nowhere, node by node, and what would let it in. Reads only.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use scheduler_core::engine::{Change, Options, Scheduler};
use scheduler_core::framework::Registry;
use scheduler_core::model::{Object, Pod, Timestamp};
use serde_json::{Value, json};

use super::source::{self, Source};
use super::{EXIT_CODES, Failure, Output, run};
use crate::choice::Choice;
use crate::counted::counted;
use crate::explain::{Remedy, Verdicts, WhatIf};
use crate::simulate::measure::Measure;
use crate::simulate::run::{Manner, Run, Told};
use crate::simulate::script::{Happening, Script, Timed};
use crate::simulate::{Arriving, World, replay};

/// Nodes of the verdict table on a terminal.
const MAX_NODES: usize = 12;

#[derive(Args)]
#[command(
    long_about = "Place one pod by the engine, in the cluster as it is now, and show for every node which plugins let it in or keep it \
        out, and the scores. For a pod that fits nowhere: the smallest changes that would let it in, each tried on the engine. Nothing is \
        written to the cluster. A pod that has a node already is placed as if it had none. Pods of manifests are placed one after the \
        other first, in the order of the files.",
    after_help = format!("Examples:\n  plimsoll explain big\n  plimsoll explain web-5d9c-x2x7q -n shop --why-not node-b\n  kubectl get nodes,pods -A -o yaml > dump.yaml && plimsoll explain big --from dump.yaml\n  plimsoll explain web -f deployment.yaml --nodes 3x4cpu,16Gi\n  plimsoll explain big --record today.jsonl\n\n{EXIT_CODES}")
)]
pub(crate) struct Explain {
    /// Name of the pod, also as pod/NAME; the beginning of a name is enough where only one pod, or only replicas of
    /// one owner, begin so.
    #[arg(value_parser = |text: &str| name_of(text, &["pod", "pods", "po"]))]
    pod: String,

    /// Its namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,

    /// Say what keeps the pod off this node, or by how much it lost.
    #[arg(long, value_name = "NODE", value_parser = |text: &str| name_of(text, &["node", "nodes", "no"]))]
    why_not: Option<String>,

    /// Manifests that are applied first; may be repeated. Their pods are placed one after the other.
    #[arg(short, long, value_name = "FILE", help_heading = "Cluster")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    source: Source,

    /// A recording of `plimsoll run --record`: the pod's last attempt in it is told, with the cluster as it was then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filename", "from", "nodes", "cluster", "kubeconfig", "config"])]
    record: Option<PathBuf>,

    /// The KubeSchedulerConfiguration to place by. Default: kube-scheduler's plugins, every node scored.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The name in `NAME` or `KIND/NAME`, as kubectl writes it.
fn name_of(text: &str, kinds: &[&str]) -> Result<String, String> {
    match text.split_once('/') {
        None => Ok(text.to_owned()),
        Some((kind, name)) if kinds.contains(&kind) => Ok(name.to_owned()),
        Some((kind, _)) => Err(format!("expected a name or {}/NAME, not one of {kind:?}", kinds[0])),
    }
}

/// What is told.
struct Answer {
    /// The pod as it was asked for.
    pod: Arc<Pod>,
    choice: Choice,
    verdicts: Option<Verdicts>,
    remedies: Vec<Remedy>,
    /// Whether the node of `--why-not` exists.
    knows_node: bool,
}

impl Explain {
    /// Answers on standard output.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let answer = match &self.record {
            Some(path) => self.in_recording(path, &registry)?,
            None => self.in_world(
                &self.source.read(&self.filename, source::whole_objects(self.config.as_slice())?).await?,
                &registry,
            )?,
        };
        let why_not = match &self.why_not {
            None => None,
            Some(node) => Some(
                answer
                    .why_not(node)
                    .ok_or_else(|| Failure::bad_input(format_args!("no node {node} in this cluster")))?,
            ),
        };
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => writeln!(out, "{:#}", answer.to_json(why_not.as_deref()))?,
            Output::Text => answer.write(self.why_not.as_deref().zip(why_not.as_deref()), &mut out)?,
        }
        Ok(out.flush()?)
    }

    /// Replays a recording up to the pod's last attempt.
    fn in_recording(&self, path: &Path, registry: &Registry) -> Result<Answer, Failure> {
        let head = replay::head(path).map_err(Failure::bad_input)?;
        let is_asked = |namespace: &str, name: &str| namespace == self.namespace && name == self.pod;
        let line = replay::last_attempt(path, is_asked).map_err(Failure::bad_input)?.ok_or_else(|| {
            Failure::bad_input(format_args!(
                "{}: pod {} in namespace {} was never tried",
                path.display(),
                self.pod,
                self.namespace
            ))
        })?;
        let file = format!("the configuration in {}", path.display());
        let text = head.config.as_deref().map(|text| (file.as_str(), text));
        let configuration = run::configuration_of(text, head.scheduler_name.as_deref())?;
        let replayed =
            replay::replay(path, head.seed, &configuration, registry, Some(line)).map_err(Failure::bad_input)?;
        let (mut scheduler, now) = (replayed.scheduler, replayed.now);
        let attempt = replayed.attempt.ok_or_else(|| {
            Failure::failed(format_args!(
                "{}:{line}: the attempt came out otherwise: nothing was tried",
                path.display()
            ))
        })?;
        let choice = Choice::new(&attempt);
        let pod = Arc::clone(&attempt.pod);
        if choice.node().is_some() {
            let knows_node = self.knows_node(&scheduler);
            return Ok(Answer { pod, choice, verdicts: None, remedies: Vec::new(), knows_node });
        }
        scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(&pod))), now);
        let mut what_if = WhatIf::new(&mut scheduler, now);
        let verdicts = what_if.examine(&pod).map(|examination| Verdicts::new(&examination));
        let remedies = what_if.remedies(&pod);
        let knows_node = self.knows_node(&scheduler);
        Ok(Answer { pod, choice, verdicts, remedies, knows_node })
    }

    /// Plays what manifests bring, then looks at the pod.
    fn in_world(&self, world: &World, registry: &Registry) -> Result<Answer, Failure> {
        let found = self.find(world.bound.iter().chain(&world.waiting))?;
        let arriving = world.arriving.first().map(|arriving| Arc::clone(arriving.scheduler_name()));
        let name = found.as_ref().map(|pod| Arc::clone(&pod.scheduler_name)).or(arriving);
        let name = name.ok_or_else(|| self.nobody())?;
        let configuration = run::configuration(self.config.as_deref(), self.config.is_none().then_some(&*name))?;
        let extenders = world.extenders(&configuration).map_err(Failure::bad_input)?;
        let options = Options { record_decisions: true, extenders, ..Options::default() };
        let scheduler = Scheduler::new(&configuration, registry, options).map_err(Failure::bad_input)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .build()
            .map_err(|error| Failure::failed(format_args!("cannot start threads: {error}")))?;
        let asked = found.as_ref().map(|pod| Arc::clone(&pod.uid));
        let mut tried: Vec<(Arc<Pod>, Choice)> = Vec::new();
        let mut on_nodes: Vec<Arc<Pod>> = Vec::new();
        let mut listener = |_: Timestamp, told: Told<'_>| match told {
            Told::Tried(attempt) if self.names(&attempt.pod) => {
                tried.retain(|(pod, _)| pod.uid != attempt.pod.uid);
                tried.push((Arc::clone(&attempt.pod), Choice::new(attempt)));
            }
            Told::Bound { pod, .. } if self.names(pod) => on_nodes.push(Arc::new(pod.clone())),
            Told::Gone { pod, .. } => on_nodes.retain(|other| other.uid != pod.uid),
            _ => {}
        };
        let measure = Measure::new(Timestamp::ZERO, Vec::new());
        let manner = Manner { arrivals_only: true, until: None };
        let bound: Vec<Arc<Pod>> = world.bound.iter().filter(|pod| Some(&pod.uid) != asked.as_ref()).cloned().collect();
        let finished = Run::new(scheduler, &pool, measure, manner, &mut listener)
            .with_budgets(&world.budgets)
            .play(&world.objects, &bound, Vec::new(), script(&world.arriving))
            .map_err(Failure::bad_input)?;
        let (mut scheduler, now) = (finished.scheduler, finished.now);
        // Room that preemption has made for others is theirs.
        for pod in
            world.waiting.iter().filter(|pod| pod.nominated_node_name.is_some() && Some(&pod.uid) != asked.as_ref())
        {
            scheduler.handle(Change::Applied(Object::Pod(Arc::clone(pod))), now);
        }
        let Some(pod) = found else {
            // Those that wait come first: of several replicas the one that is asked about.
            let has_node = |pod: &Arc<Pod>| on_nodes.iter().any(|other| other.uid == pod.uid);
            let mut candidates: Vec<Arc<Pod>> = tried.iter().map(|(pod, _)| Arc::clone(pod)).collect();
            candidates.sort_by_key(has_node);
            let gated: Vec<Arc<Pod>> = world
                .arriving
                .iter()
                .filter_map(|arriving| if let Arriving::Pod(pod) = arriving { Some(Arc::clone(pod)) } else { None })
                .collect();
            let pod = self.find(candidates.iter().chain(&gated))?.ok_or_else(|| self.nobody())?;
            if let Some(there) = on_nodes.iter().find(|other| other.uid == pod.uid) {
                let (_, choice) =
                    tried.into_iter().find(|(other, _)| other.uid == pod.uid).ok_or_else(|| self.nobody())?;
                let knows_node = self.knows_node(&scheduler);
                let pod = Arc::clone(there);
                return Ok(Answer { pod, choice, verdicts: None, remedies: Vec::new(), knows_node });
            }
            return self.look(&pod, &mut scheduler, now, &pool);
        };
        self.look(&pod, &mut scheduler, now, &pool)
    }

    /// Examines a pod in the cluster that the engine knows.
    fn look(
        &self,
        pod: &Arc<Pod>,
        scheduler: &mut Scheduler,
        now: Timestamp,
        pool: &rayon::ThreadPool,
    ) -> Result<Answer, Failure> {
        scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(pod))), now);
        let mut free = Pod { node_name: None, nominated_node_name: None, deletion_timestamp: None, ..Pod::clone(pod) };
        free.scheduling_gates = Box::default();
        let free = Arc::new(free);
        let unserved = || {
            Failure::failed(format_args!(
                "the scheduler would not try pod {}: no profile serves schedulerName {:?}",
                pod.name, pod.scheduler_name
            ))
        };
        let mut what_if = WhatIf::new(scheduler, now);
        let examination = what_if.examine(&free).ok_or_else(unserved)?;
        let remedies = if examination.feasible.is_empty() || !pod.scheduling_gates.is_empty() {
            what_if.remedies(&Pod { template: Arc::clone(&pod.template), ..Pod::clone(&free) })
        } else {
            Vec::new()
        };
        scheduler.handle(Change::Applied(Object::Pod(Arc::clone(&free))), now);
        let knows_node = self.knows_node(scheduler);
        let attempt = scheduler.schedule_pod(&free.uid, now, pool).ok_or_else(unserved)?;
        let verdicts = Verdicts::new(&examination);
        let mut choice = Choice::new(&attempt);
        choice.add_verdicts(&verdicts);
        Ok(Answer { pod: Arc::clone(pod), choice, verdicts: Some(verdicts), remedies, knows_node })
    }

    fn names(&self, pod: &Pod) -> bool {
        *pod.namespace == *self.namespace && pod.name.starts_with(&self.pod)
    }

    fn knows_node(&self, scheduler: &Scheduler) -> bool {
        self.why_not.as_deref().is_none_or(|node| scheduler.cache().snapshot().find(node).is_some())
    }

    /// The pod of this name, or the only one whose name begins so.
    fn find<'a>(&self, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Result<Option<Arc<Pod>>, Failure> {
        let mut begins: Vec<&Arc<Pod>> = Vec::new();
        for pod in pods.filter(|pod| self.names(pod)) {
            if *pod.name == *self.pod {
                return Ok(Some(Arc::clone(pod)));
            }
            if begins.iter().all(|other| other.uid != pod.uid) {
                begins.push(pod);
            }
        }
        // Replicas of one owner differ in nothing but their names.
        let owner = |pod: &Arc<Pod>| pod.controller.as_ref().map(|owner| Arc::clone(&owner.uid));
        let are_replicas = begins.iter().all(|pod| owner(pod).is_some() && owner(pod) == owner(begins[0]));
        match begins[..] {
            [] => Ok(None),
            [first, ..] if are_replicas => Ok(Some(Arc::clone(first))),
            [only] => Ok(Some(Arc::clone(only))),
            [first, second, ..] => Err(Failure::bad_input(format_args!(
                "{} pods in namespace {} begin with {}, such as {} and {}: name one",
                begins.len(),
                self.namespace,
                self.pod,
                first.name,
                second.name
            ))),
        }
    }

    fn nobody(&self) -> Failure {
        Failure::bad_input(format_args!("no pod {} in namespace {}, or it has ended", self.pod, self.namespace))
    }
}

fn script(arriving: &[Arriving]) -> Script<'_> {
    Box::new(arriving.iter().map(|arriving| {
        let what = match arriving {
            Arriving::Pod(pod) => Happening::Pod(Arc::clone(pod), crate::simulate::script::Leaves::Never),
            Arriving::Workload(workload) => Happening::Workload(workload.clone()),
        };
        Ok(Timed { at: Timestamp::ZERO, what, line: 0 })
    }))
}

impl Answer {
    /// What keeps the pod off a node; `None` if there is no such node.
    fn why_not(&self, node: &str) -> Option<String> {
        let whole = self.verdicts.as_ref().and_then(|verdicts| verdicts.whole.as_ref());
        match whole.filter(|_| self.knows_node) {
            Some((plugin, reasons)) => Some(format!("it fits on no node: {} ({plugin})", reasons.join(", "))),
            None => self.choice.why_not(node),
        }
    }

    fn to_json(&self, why_not: Option<&str>) -> Value {
        let mut document = self.choice.to_json();
        document["apiVersion"] = json!(crate::report::API_VERSION);
        document["kind"] = json!("DecisionRecord");
        document["isOn"] = json!(self.pod.node_name.as_deref());
        document["gates"] = json!(self.pod.scheduling_gates.iter().map(ToString::to_string).collect::<Vec<_>>());
        document["whyNot"] = json!(why_not);
        document["verdicts"] = self.verdicts.as_ref().map_or(Value::Null, Verdicts::to_json);
        document["changes"] = self.remedies.iter().map(Remedy::to_json).collect();
        document
    }

    fn write(&self, why_not: Option<(&str, &str)>, out: &mut dyn io::Write) -> io::Result<()> {
        if let Some(node) = &self.pod.node_name {
            writeln!(out, "Pod {} is on {node}. Placed now, as if it had no node:", self.pod.name)?;
        }
        if !self.pod.scheduling_gates.is_empty() {
            let gates = self.pod.scheduling_gates.join(", ");
            writeln!(out, "Pod {} is held back by scheduling gates: {gates}. Without them:", self.pod.name)?;
        }
        write!(out, "{}", self.choice.text())?;
        if let Some(verdicts) = self.verdicts.as_ref().filter(|_| self.choice.node().is_none()) {
            write_verdicts(verdicts, out)?;
        }
        if !self.remedies.is_empty() {
            writeln!(out, "\n  what would let it in (each tried on the engine):")?;
            for remedy in &self.remedies {
                writeln!(out, "    - {}", remedy.text())?;
            }
        }
        if let Some((node, why)) = why_not {
            writeln!(out, "\n  why not {node}: {why}")?;
            let all = self.verdicts.as_ref().and_then(|verdicts| verdicts.nodes.get(node));
            for (plugin, reasons) in all.into_iter().flatten().filter(|_| all.is_some_and(|all| all.len() > 1)) {
                writeln!(out, "    {plugin}: {}", reasons.join(", "))?;
            }
        }
        Ok(())
    }
}

/// All that stands against each node, not only what the scheduler saw first.
fn write_verdicts(verdicts: &Verdicts, out: &mut dyn io::Write) -> io::Result<()> {
    if let Some((plugin, reasons)) = &verdicts.whole {
        return writeln!(out, "    on no node: {} ({plugin})", reasons.join(", "));
    }
    let several: Vec<_> = verdicts.nodes.iter().filter(|(_, plugins)| plugins.len() > 1).collect();
    if several.is_empty() {
        return Ok(());
    }
    writeln!(out, "    more than one thing stands against:")?;
    for (node, plugins) in several.iter().take(MAX_NODES) {
        let all: Vec<String> =
            plugins.iter().map(|(plugin, reasons)| format!("{} ({plugin})", reasons.join(", "))).collect();
        writeln!(out, "      {node}: {}", all.join("; "))?;
    }
    if several.len() > MAX_NODES {
        writeln!(out, "      and {}; -o json has them all", counted(several.len() - MAX_NODES, "more node"))?;
    }
    Ok(())
}
