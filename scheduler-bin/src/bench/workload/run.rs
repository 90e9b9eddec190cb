//! Runs the operations of a workload, one after the other, on whatever schedules. Knows what must be waited for and what is
//! measured; upstream: v1.36.2 test/integration/scheduler_perf `runWorkload`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::op::{Churn, ChurnMode, CreatePods, Op, Stage, Workload};
use super::pods::{Names, is_gated, namespace};
use super::throughput::Measurement;
use crate::bench::cpu::Moment;
use crate::bench::{Progress, Stop};
use crate::counted::counted;

/// How long one operation may wait for its pods. Upstream has the same.
const PATIENCE: Duration = Duration::from_secs(600);

/// What schedules: an engine, or a cluster with a scheduler.
pub(crate) trait Target {
    /// Objects in the form in which they are handed over; making it is not measured.
    type Prepared;

    /// Makes objects ready.
    ///
    /// # Errors
    /// An object is malformed.
    fn prepare(&mut self, objects: Vec<Value>) -> Result<Self::Prepared, String>;

    /// Creates the objects.
    ///
    /// # Errors
    /// One is refused.
    fn submit(&mut self, objects: Self::Prepared) -> impl Future<Output = Result<(), String>> + Send;

    /// Creates pods whose scheduling is measured, and says when the measurement began.
    ///
    /// # Errors
    /// One is refused.
    fn submit_measured(&mut self, pods: Self::Prepared) -> impl Future<Output = Result<Moment, String>> + Send
    where
        Self: Send,
        Self::Prepared: Send,
    {
        async move {
            let start = Moment::now();
            self.submit(pods).await?;
            Ok(start)
        }
    }

    /// Deletes an object; one that is gone already is no failure.
    ///
    /// # Errors
    /// The deletion is refused.
    fn delete(&mut self, object: &Value) -> impl Future<Output = Result<(), String>> + Send;

    /// Lets the scheduler work for a moment, at most until `until`.
    ///
    /// # Errors
    /// The scheduler ended.
    fn turn(&mut self, until: Option<Instant>) -> impl Future<Output = Result<Turn, String>> + Send;

    /// Why the last pod was not scheduled.
    fn last_message(&self) -> Option<String>;
}

/// What came of a moment.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What happened, in order.
    pub(crate) happened: Vec<Happening>,
    /// Whether nothing more can happen by itself.
    pub(crate) is_stuck: bool,
}

/// Something that happened to a pod.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Its binding is done.
    Scheduled {
        /// Its namespace.
        namespace: Arc<str>,
        /// When.
        at: Instant,
    },
    /// It was tried for the first time.
    FirstAttempt {
        /// Its namespace.
        namespace: Arc<str>,
    },
}

/// Runs `workload` on `target`; `None` when it was stopped.
///
/// # Errors
/// An object is malformed or refused, or pods are not scheduled in time; the operation is named.
pub(crate) async fn run<T>(
    workload: &Workload,
    target: &mut T,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Vec<Measurement>>, String>
where
    T: Target + Send,
    T::Prepared: Send,
{
    let mut runner = Runner {
        workload,
        target,
        stop,
        progress,
        names: Names::default(),
        namespaces: BTreeSet::new(),
        counts: BTreeMap::new(),
        pods: BTreeMap::new(),
        background: Vec::new(),
        collecting: None,
        measurements: Vec::new(),
    };
    for (position, op) in workload.ops.iter().enumerate() {
        runner
            .op(position, op)
            .await
            .map_err(|problem| format!("{}: operation {position}: {problem}", workload.name))?;
        if stop.is_set() {
            return Ok(None);
        }
    }
    Ok(Some(runner.measurements))
}

/// Pods of a namespace.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    created: usize,
    gated: usize,
    attempted: usize,
    scheduled: usize,
}

struct Runner<'a, T: Target> {
    workload: &'a Workload,
    target: &'a mut T,
    stop: &'a Stop,
    progress: &'a mut Progress,
    names: Names,
    namespaces: BTreeSet<String>,
    counts: BTreeMap<Arc<str>, Counts>,
    /// Pods of each namespace that can be deleted: names only.
    pods: BTreeMap<String, Vec<Value>>,
    background: Vec<Background>,
    collecting: Option<Collecting>,
    measurements: Vec<Measurement>,
}

/// Throughput that is being measured.
struct Collecting {
    name: String,
    namespaces: Vec<String>,
    start: Moment,
    scheduled: Vec<Instant>,
}

/// Work that is due again and again.
struct Background {
    due: Instant,
    interval: Duration,
    work: Work,
}

enum Work {
    Churn { churn: Churn, namespace: String, n_rounds: usize, alive: Vec<Vec<Value>> },
    Delete { pods: Vec<Value> },
}

impl<T> Runner<'_, T>
where
    T: Target + Send,
    T::Prepared: Send,
{
    async fn op(&mut self, position: usize, op: &Op) -> Result<(), String> {
        match op {
            Op::CreateNodes { count, template, label, unique_label } => {
                self.say(&counted(*count, "node"));
                let nodes = self.names.nodes(*count, template.as_ref(), label.as_ref(), unique_label.as_deref())?;
                self.create(nodes).await
            }
            Op::CreateNamespaces { prefix, count, template } => {
                for index in 0..*count {
                    let name = format!("{prefix}-{index}");
                    if self.namespaces.insert(name.clone()) {
                        self.create(vec![namespace(&name, template.as_ref())?]).await?;
                    }
                }
                Ok(())
            }
            Op::CreatePods(pods) => {
                let namespace = pods.namespace.clone().unwrap_or_else(|| format!("namespace-{position}"));
                self.create_pods(pods, namespace).await
            }
            Op::CreatePodSets { count, namespace_prefix, pods } => {
                for index in 0..*count {
                    self.create_pods(pods, format!("{namespace_prefix}-{index}")).await?;
                }
                Ok(())
            }
            Op::CreateAny { namespace, count, template } => {
                if let Some(namespace) = namespace {
                    self.ensure_namespace(namespace).await?;
                }
                for index in 0..*count {
                    let mut object = template.object(index, *count)?;
                    self.names.place(&mut object, namespace.as_deref());
                    self.create(vec![object]).await?;
                }
                Ok(())
            }
            Op::Churn(churn) => {
                let namespace = churn.namespace.clone().unwrap_or_else(|| format!("namespace-{position}"));
                self.ensure_namespace(&namespace).await?;
                let due = Instant::now() + churn.interval;
                let alive = vec![Vec::new(); churn.templates.len()];
                let work = Work::Churn { churn: churn.clone(), namespace, n_rounds: 0, alive };
                self.background.push(Background { due, interval: churn.interval, work });
                Ok(())
            }
            Op::DeletePods { namespace, per_second, wait } => self.delete_pods(namespace, *per_second, *wait).await,
            Op::Barrier { namespaces, stage } => {
                let namespaces: Vec<String> = if namespaces.is_empty() {
                    self.counts.keys().map(ToString::to_string).collect()
                } else {
                    namespaces.clone()
                };
                self.wait(&namespaces, *stage).await
            }
            Op::Sleep(duration) => {
                self.say("sleeping");
                let end = Instant::now() + *duration;
                while Instant::now() < end && !self.stop.is_set() {
                    self.turn(Some(end)).await?;
                }
                Ok(())
            }
            Op::StartCollecting { name, namespaces } => {
                self.start_collecting(name.clone(), namespaces.clone(), Moment::now())
            }
            Op::StopCollecting => self.stop_collecting(),
        }
    }

    async fn create(&mut self, objects: Vec<Value>) -> Result<(), String> {
        let prepared = self.target.prepare(objects)?;
        self.target.submit(prepared).await
    }

    async fn ensure_namespace(&mut self, name: &str) -> Result<(), String> {
        if self.namespaces.insert(name.to_owned()) {
            self.create(vec![namespace(name, None)?]).await?;
        }
        Ok(())
    }

    async fn create_pods(&mut self, pods: &CreatePods, namespace: String) -> Result<(), String> {
        self.ensure_namespace(&namespace).await?;
        self.say(&format!("{} in {namespace}", counted(pods.count, "pod")));
        let mut objects = Vec::with_capacity(pods.count);
        let mut n_gated = 0;
        for index in 0..pods.count {
            let mut pod = pods.template.object(index, pods.count)?;
            self.names.place(&mut pod, Some(&namespace));
            n_gated += usize::from(is_gated(&pod));
            objects.push(pod);
        }
        let created: Vec<Value> = objects.iter().map(identity).collect();
        let prepared = self.target.prepare(objects)?;
        let counts = self.counts.entry(namespace.as_str().into()).or_default();
        counts.created += pods.count;
        counts.gated += n_gated;
        if pods.collect_metrics {
            let start = self.target.submit_measured(prepared).await?;
            self.start_collecting(namespace.clone(), vec![namespace.clone()], start)?;
        } else {
            self.target.submit(prepared).await?;
        }
        self.pods.entry(namespace.clone()).or_default().extend(created);
        if pods.wait {
            self.wait(std::slice::from_ref(&namespace), Stage::Scheduled).await?;
        }
        if pods.collect_metrics { self.stop_collecting() } else { Ok(()) }
    }

    fn start_collecting(&mut self, name: String, namespaces: Vec<String>, start: Moment) -> Result<(), String> {
        if self.collecting.is_some() {
            return Err("a measurement is going on already".to_owned());
        }
        self.collecting = Some(Collecting { name, namespaces, start, scheduled: Vec::new() });
        Ok(())
    }

    fn stop_collecting(&mut self) -> Result<(), String> {
        let collecting = self.collecting.take().ok_or("no measurement is going on")?;
        let name = format!("{}/{}", self.workload.name, collecting.name);
        let measurement = Measurement::new(name, collecting.start, &collecting.scheduled, self.workload.threshold);
        self.measurements.push(measurement);
        Ok(())
    }

    async fn delete_pods(&mut self, namespace: &str, per_second: Option<u32>, wait: bool) -> Result<(), String> {
        let mut pods = self.pods.remove(namespace).unwrap_or_default();
        let Some(per_second) = per_second else {
            for pod in pods {
                self.target.delete(&pod).await?;
            }
            return Ok(());
        };
        pods.reverse();
        let interval = Duration::from_secs(1) / per_second;
        self.background.push(Background { due: Instant::now() + interval, interval, work: Work::Delete { pods } });
        let is_busy = |background: &Background| matches!(&background.work, Work::Delete { pods } if !pods.is_empty());
        while wait && self.background.iter().any(is_busy) && !self.stop.is_set() {
            self.turn(None).await?;
        }
        Ok(())
    }

    /// Waits until the pods of the namespaces have come so far.
    async fn wait(&mut self, namespaces: &[String], stage: Stage) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counts = namespaces.iter().filter_map(|namespace| self.counts.get(namespace.as_str()));
            let (n_done, n_wanted) = counts.fold((0, 0), |(done, wanted), counts| match stage {
                Stage::Scheduled => (done + counts.scheduled, wanted + counts.created - counts.gated),
                Stage::Attempted => (done + counts.attempted + counts.gated, wanted + counts.created),
            });
            if n_done >= n_wanted || self.stop.is_set() {
                return Ok(());
            }
            self.progress.say(&format!(": {n_done} of {n_wanted} pods {stage:?}").to_lowercase());
            let is_stuck = self.turn(Some(deadline)).await?;
            if is_stuck || Instant::now() > deadline {
                let last = self.target.last_message();
                let why = last
                    .map_or_else(String::new, |message| format!("; the last one that was not scheduled: {message}"));
                return Err(format!("{n_done} of {n_wanted} pods are {}{why}", format!("{stage:?}").to_lowercase()));
            }
        }
    }

    /// One moment of the scheduler and of what goes on in the background; whether nothing more can happen.
    async fn turn(&mut self, until: Option<Instant>) -> Result<bool, String> {
        self.work_in_background().await?;
        let next = self.background.iter().map(|background| background.due).min();
        let has_background = next.is_some();
        let turn = self.target.turn([until, next].into_iter().flatten().min()).await?;
        for happening in turn.happened {
            match happening {
                Happening::FirstAttempt { namespace } => self.counts.entry(namespace).or_default().attempted += 1,
                Happening::Scheduled { namespace, at } => {
                    if let Some(collecting) = &mut self.collecting
                        && collecting.namespaces.iter().any(|name| **name == *namespace)
                    {
                        collecting.scheduled.push(at);
                    }
                    self.counts.entry(namespace).or_default().scheduled += 1;
                }
            }
        }
        Ok(turn.is_stuck && !has_background)
    }

    async fn work_in_background(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let mut background = std::mem::take(&mut self.background);
        for task in background.iter_mut().filter(|task| task.due <= now) {
            task.due += task.interval;
            match &mut task.work {
                Work::Delete { pods } => {
                    if let Some(pod) = pods.pop() {
                        self.target.delete(&pod).await?;
                    }
                }
                Work::Churn { churn, namespace, n_rounds, alive } => {
                    self.churn(churn, namespace, *n_rounds, alive).await?;
                    *n_rounds += 1;
                }
            }
        }
        background.retain(|task| match &task.work {
            Work::Delete { pods } => !pods.is_empty(),
            Work::Churn { churn, n_rounds, .. } => {
                churn.mode == ChurnMode::Recreate || churn.number == 0 || *n_rounds < churn.number
            }
        });
        self.background = background;
        Ok(())
    }

    /// Round `n_round`: `number` rounds of creation, then as many of deletion, where objects do not stay.
    async fn churn(
        &mut self,
        churn: &Churn,
        namespace: &str,
        n_round: usize,
        alive: &mut [Vec<Value>],
    ) -> Result<(), String> {
        let deletes = churn.mode == ChurnMode::Recreate && (n_round / churn.number) % 2 == 1;
        for (template, alive) in churn.templates.iter().zip(alive) {
            if deletes {
                if let Some(object) = alive.pop() {
                    self.target.delete(&object).await?;
                }
                continue;
            }
            let mut object = template.object(n_round, churn.number)?;
            let is_namespaced = object["kind"] != "Node" && object["kind"] != "Namespace";
            self.names.place(&mut object, is_namespaced.then_some(namespace));
            if object["kind"] == "Node" {
                object["metadata"]["labels"]["kubernetes.io/hostname"] = object["metadata"]["name"].clone();
            }
            if churn.mode == ChurnMode::Recreate {
                alive.push(identity(&object));
            }
            self.create(vec![object]).await?;
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        self.progress.begin(format!("{}: {text}", self.workload.name));
    }
}

/// Enough of an object to delete it.
fn identity(object: &Value) -> Value {
    serde_json::json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": { "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"] },
    })
}

#[cfg(test)]
mod tests;
