//! `plimsoll capacity`: how many more of a pod fit and what limits them, how many nodes are missing, which are not needed. Reads only.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::Outcome;
use scheduler_core::framework::Registry;
use scheduler_core::model::{Node, Object, Pod};
use serde_json::{Value, json};

use super::source::{self, Source};
use super::{EXIT_CODES, Failure, Output, run};
use crate::columns::align;
use crate::counted::counted;
use crate::explain::{Remedy, Step};
use crate::simulate::{Origin, Placement, World, node_shape};

/// Nodes that are listed on a terminal.
const MAX_NODES: usize = 40;
/// Ways to make room that are told.
const MAX_REMEDIES: usize = 3;

#[derive(Args)]
#[command(
    long_about = "Answers three questions in the cluster as it is now, by the engine; nothing is written to the cluster.\n\n\
        How many more: copies of a pod are placed until no more fit. A file with several pods or workloads is placed as a mix, one round \
        after the other.\n\
        How many nodes are missing: with --add-nodes SHAPE, the least number of such nodes so that every pod of the file, replicas \
        included, has a place.\n\
        Which nodes are not needed: with --drain, nodes are taken away one after the other, the emptiest first, as long as their pods \
        find a place elsewhere. Disruption budgets are not waited for.",
    after_help = format!("Examples:\n  plimsoll capacity -f pod.yaml\n  plimsoll capacity -f deployment.yaml --from dump.yaml -o json\n  plimsoll capacity -f deployment.yaml --add-nodes 8cpu,32Gi\n  plimsoll capacity --drain\n\n{EXIT_CODES}")
)]
pub(crate) struct Capacity {
    /// The pod, or a workload with a pod template; may be repeated.
    #[arg(short, long, value_name = "FILE", required_unless_present = "drain")]
    filename: Vec<PathBuf>,

    /// Say how many nodes of this shape must be added for the pods of the file, such as 8cpu,32Gi.
    #[arg(long, value_name = "SHAPE", conflicts_with = "drain")]
    add_nodes: Option<String>,

    /// A label of the nodes that are added; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", requires = "add_nodes")]
    node_label: Vec<String>,

    /// Say which nodes can be drained away.
    #[arg(long, conflicts_with = "filename")]
    drain: bool,

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

/// An answer in both forms.
struct Answer {
    document: Value,
    text: String,
}

impl Capacity {
    /// Answers on standard output.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let whole_objects = source::whole_objects(self.config.as_slice())?;
        let mut world = self.source.read(&[], whole_objects.clone()).await?;
        let mut templates = World::keeping(whole_objects);
        templates.admission = world.admission.clone();
        let inputs: Vec<_> = self.filename.iter().map(|path| (path.clone(), Origin::Manifest)).collect();
        templates.add_files(&inputs, false).map_err(Failure::bad_input)?;
        templates.expand();
        if templates.waiting.is_empty() && !self.drain {
            let files: Vec<_> = self.filename.iter().map(|path| path.display().to_string()).collect();
            return Err(Failure::bad_input(format_args!(
                "{}: no pod and no workload with a pod template",
                files.join(", ")
            )));
        }
        world.objects.append(&mut templates.objects);
        if world.nodes().next().is_none() && self.add_nodes.is_none() {
            return Err(Failure::failed(
                "no nodes: expected Node objects in the cluster or in --from, or a shape such as --nodes 3x8cpu,32Gi",
            ));
        }
        let name = templates.waiting.first().or_else(|| world.bound.first()).map(|pod| Arc::clone(&pod.scheduler_name));
        let name = name.unwrap_or_else(|| "default-scheduler".into());
        let configuration = run::configuration(self.config.as_deref(), self.config.is_none().then_some(&*name))?;
        let asked = Asked { world: &world, configuration: &configuration, registry: &registry };
        let answer = if self.drain {
            asked.drain()?
        } else if let Some(shape) = &self.add_nodes {
            asked.add_nodes(&templates.waiting, &self.shape(shape)?, shape)?
        } else {
            asked.count(&templates.waiting, self.limit)?
        };
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => writeln!(out, "{:#}", answer.document)?,
            Output::Text => write!(out, "{}", answer.text)?,
        }
        Ok(out.flush()?)
    }

    /// One node of the shape, with the labels.
    fn shape(&self, shape: &str) -> Result<Node, Failure> {
        let wrong = || {
            Failure::bad_input(format_args!("--add-nodes {shape}: expected the shape of one node, such as 8cpu,32Gi"))
        };
        let mut nodes = node_shape::nodes(&format!("1x{shape}"), 0).map_err(|_| wrong())?;
        let mut node = nodes.pop().ok_or_else(wrong)?;
        for label in &self.node_label {
            let (key, value) = label
                .split_once('=')
                .ok_or_else(|| Failure::bad_input(format_args!("--node-label {label}: expected KEY=VALUE")))?;
            let labels = node.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
            node.labels = labels.chain([(key.into(), value.into())]).collect();
        }
        Ok(node)
    }
}

/// The cluster that is asked about.
struct Asked<'a> {
    world: &'a World,
    configuration: &'a KubeSchedulerConfiguration,
    registry: &'a Registry,
}

impl Asked<'_> {
    fn placement(&self, world: &World) -> Result<Placement, Failure> {
        Placement::new(world, self.configuration, self.registry, 0).map_err(Failure::bad_input)
    }

    fn count(&self, templates: &[Arc<Pod>], limit: usize) -> Result<Answer, Failure> {
        let mut placement = self.placement(self.world)?;
        let mut per_node: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut per_template: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut stopped = None;
        let mut n_placed = 0;
        'rounds: for round in 0.. {
            for template in templates {
                if n_placed >= limit {
                    break 'rounds;
                }
                let pod = Arc::new(Pod {
                    name: format!("{}-{round}", template.name).into(),
                    uid: format!("{}-{round}", template.uid).into(),
                    ..Pod::clone(template)
                });
                if let Some(objects) = &self.world.whole_objects {
                    objects.copied(&pod, template);
                }
                match placement.place(&pod).map(|attempt| attempt.outcome) {
                    Some(Outcome::Scheduled { node, .. }) => {
                        *per_node.entry(node).or_default() += 1;
                        *per_template.entry(Arc::clone(&template.name)).or_default() += 1;
                        n_placed += 1;
                    }
                    Some(Outcome::Unschedulable { message, .. } | Outcome::Error { message }) => {
                        stopped = Some((pod, Arc::clone(&template.name), message));
                        break 'rounds;
                    }
                    Some(Outcome::Skipped) | None => return Err(untried(template)),
                }
            }
        }
        let limited = stopped.map(|(pod, name, message)| {
            let mut remedies = placement.what_if().remedies(&pod);
            remedies.retain(|remedy| self.makes_room(remedy));
            remedies.truncate(MAX_REMEDIES);
            (name, message, placement.reasons(&pod), remedies)
        });
        let nodes: serde_json::Map<_, _> =
            per_node.iter().map(|(node, n_pods)| (node.to_string(), json!(n_pods))).collect();
        let document = json!({
            "apiVersion": crate::report::API_VERSION, "kind": "CapacityReport", "pods": n_placed, "nodes": nodes,
            "templates": per_template.iter().map(|(name, n)| (name.to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
            "limitedBy": limited.as_ref().map(|(name, message, reasons, remedies)| json!({
                "pod": &**name, "message": message, "reasons": reasons,
                "changes": remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            })),
        });
        let fit = if n_placed == 1 { "fits" } else { "fit" };
        let mut text = format!("{} {fit}.\n", counted(n_placed, "more pod"));
        text.push_str(&node_table(&per_node));
        match &limited {
            Some((name, message, _, remedies)) => {
                text.push_str(&format!("The next one ({name}) does not: {message}\n"));
                if !remedies.is_empty() {
                    text.push_str("What would let it in (each tried on the engine):\n");
                }
                for remedy in remedies {
                    text.push_str(&format!("  - {}\n", remedy.text()));
                }
            }
            None => text.push_str(&format!("Not all were tried: --limit is {limit}.\n")),
        }
        Ok(Answer { document, text })
    }

    /// The least number of nodes so that all pods have a place; found by halving, each number tried on the engine.
    fn add_nodes(&self, pods: &[Arc<Pod>], shape: &Node, words: &str) -> Result<Answer, Failure> {
        let (without, first) = self.unplaced(pods, shape, 0)?;
        let mut enough = 0;
        if without > 0 {
            let (mut low, mut high) = (0, 1);
            loop {
                let (left, message) = self.unplaced(pods, shape, high)?;
                if left == 0 {
                    break;
                }
                // A node for each pod, and still one has no place: more of them do not help.
                if high >= pods.len() {
                    let problem = message.unwrap_or_default();
                    let document = json!({
                        "apiVersion": crate::report::API_VERSION, "kind": "CapacityReport", "pods": pods.len(), "shape": words,
                        "nodesToAdd": null, "unplacedWithout": without, "limitedBy": {"message": problem},
                    });
                    let text = format!(
                        "{left} of {} {} no place however many nodes of {words} are added: {problem}\n",
                        counted(pods.len(), "pod"),
                        have(left)
                    );
                    return Ok(Answer { document, text });
                }
                low = high;
                high = (high * 2).min(pods.len());
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.unplaced(pods, shape, middle)?.0 == 0 { high = middle } else { low = middle }
            }
            enough = high;
        }
        let document = json!({
            "apiVersion": crate::report::API_VERSION, "kind": "CapacityReport", "pods": pods.len(), "shape": words,
            "nodesToAdd": enough, "unplacedWithout": without, "limitedBy": first.as_ref().map(|message| json!({"message": message})),
        });
        let text = match enough {
            0 if pods.len() == 1 => "The pod has a place; no node must be added.\n".to_owned(),
            0 => format!("All {} pods have a place; no node must be added.\n", pods.len()),
            _ => format!(
                "{} of {words} must be added for {}; without {} {without} {} no place: {}\n",
                counted(enough, "node"),
                counted(pods.len(), "pod"),
                if enough == 1 { "it" } else { "them" },
                have(without),
                first.unwrap_or_default()
            ),
        };
        Ok(Answer { document, text })
    }

    /// How many pods have no place with `n` more nodes, and the message of the first.
    fn unplaced(&self, pods: &[Arc<Pod>], shape: &Node, n: usize) -> Result<(usize, Option<String>), Failure> {
        let mut world = self.world.clone();
        for index in 0..n {
            let name: Arc<str> = format!("added-{index}").into();
            let labels = shape.labels.iter().map(|(key, value)| {
                let value = if &**key == "kubernetes.io/hostname" { Arc::clone(&name) } else { Arc::clone(value) };
                (Arc::clone(key), value)
            });
            let labels = labels.collect();
            world.objects.push(Object::from(Node { uid: Arc::clone(&name), name, labels, ..shape.clone() }));
        }
        let mut placement = self.placement(&world)?;
        let (mut left, mut first) = (0, None);
        for pod in pods {
            match placement.place(pod).map(|attempt| attempt.outcome) {
                Some(Outcome::Scheduled { .. }) => {}
                Some(Outcome::Unschedulable { message, .. } | Outcome::Error { message }) => {
                    left += 1;
                    first = first.or(Some(message));
                }
                Some(Outcome::Skipped) | None => return Err(untried(pod)),
            }
        }
        Ok((left, first))
    }

    /// Whether the change leaves the copies that were just placed where they are: to take one away for the next is no room.
    fn makes_room(&self, remedy: &Remedy) -> bool {
        let is_there = |pod: &Arc<Pod>| self.world.bound.iter().any(|bound| bound.uid == pod.uid);
        remedy.steps.iter().all(|step| match step {
            Step::Evict(pods, _) => pods.iter().all(is_there),
            Step::Priority(priority) => self.world.bound.iter().any(|bound| bound.priority < *priority),
            _ => true,
        })
    }

    fn drain(&self) -> Result<Answer, Failure> {
        let mut placement = self.placement(self.world)?;
        let (mut drained, mut kept) = (Vec::new(), Vec::new());
        for node in placement.nodes_by_use() {
            match placement.drain(&node) {
                Ok(result) => drained.push((node, result)),
                Err((pod, message)) => kept.push((node, pod, message)),
            }
        }
        let moves = |moved: &[(Arc<Pod>, Arc<str>)]| -> Vec<Value> {
            moved
                .iter()
                .map(|(pod, to)| json!({"namespace": &*pod.namespace, "pod": &*pod.name, "to": &**to}))
                .collect()
        };
        let document = json!({
            "apiVersion": crate::report::API_VERSION, "kind": "CapacityReport",
            "pending": self.world.waiting.len() + self.world.arriving.len(),
            "drainable": drained.iter().map(|(node, result)| json!({
                "node": &*node.name, "pods": result.moved.len() + result.stayed, "moves": moves(&result.moved),
            })).collect::<Vec<_>>(),
            "needed": kept.iter().map(|(node, pod, message)| json!({
                "node": &*node.name, "namespace": &*pod.namespace, "pod": &*pod.name, "message": message,
            })).collect::<Vec<_>>(),
        });
        let nodes = counted(drained.len() + kept.len(), "node");
        let mut text = match drained.len() {
            0 => format!("0 of {nodes} can be drained away.\n"),
            1 => format!("1 of {nodes} can be drained away:\n"),
            n => format!("{n} of {nodes} can be drained away, in this order:\n"),
        };
        let rows: Vec<Vec<String>> = drained
            .iter()
            .take(MAX_NODES)
            .map(|(node, result)| vec![format!("  {}", node.name), moves_text(result.moved.len())])
            .collect();
        text.push_str(&align(&rows));
        if drained.len() > MAX_NODES {
            text.push_str(&format!("  and {} more; -o json has them all\n", drained.len() - MAX_NODES));
        }
        if let Some((node, pod, message)) = kept.first() {
            text.push_str(&format!(
                "{} needed; {} for {}/{}: {message}\n",
                if kept.len() == 1 { "1 is".to_owned() } else { format!("{} are", kept.len()) },
                node.name,
                pod.namespace,
                pod.name
            ));
        }
        match self.world.waiting.len() + self.world.arriving.len() {
            0 => {}
            1 => text.push_str("1 pod or workload has no node yet; the room that it needs is not kept free.\n"),
            n => text.push_str(&format!(
                "{n} pods or workloads have no node yet; the room that they need is not kept free.\n"
            )),
        }
        Ok(Answer { document, text })
    }
}

fn have(n_pods: usize) -> &'static str {
    if n_pods == 1 { "has" } else { "have" }
}

fn moves_text(n_pods: usize) -> String {
    format!("{} {}", counted(n_pods, "pod"), if n_pods == 1 { "moves" } else { "move" })
}

fn node_table(per_node: &BTreeMap<Arc<str>, usize>) -> String {
    let rows: Vec<Vec<String>> =
        per_node.iter().take(MAX_NODES).map(|(node, n_pods)| vec![format!("  {node}"), n_pods.to_string()]).collect();
    let mut text = align(&rows);
    if per_node.len() > MAX_NODES {
        text.push_str(&format!("  and {}; -o json has them all\n", counted(per_node.len() - MAX_NODES, "more node")));
    }
    text
}

fn untried(pod: &Pod) -> Failure {
    Failure::failed(format_args!(
        "the scheduler would not try {}: it is gated, or no profile serves schedulerName {:?}",
        pod.name, pod.scheduler_name
    ))
}
