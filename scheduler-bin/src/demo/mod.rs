//! The story of one manifest: starts a cluster, applies, listens, and shows where the pods went and why.

mod apply;
mod narration;
mod readiness;
mod report;
mod table;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster_stub::apiserver::authn::UserInfo;
use cluster_stub::story::{Component, Step, Story};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use scheduler_core::config::{DEFAULT_SCHEDULER_NAME, KubeSchedulerConfiguration};
use scheduler_core::framework::{EffectKind, Registry};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::choice::Choice;
use crate::cli::Failure;
use crate::counted::counted;
use crate::live::{Happened, Observer};
use crate::manifest::Document;
use crate::offline::{Offline, OfflineOptions};

use apply::{Applied, Applier, ApplyError};
use narration::Cast;
use report::{Report, Writer};
use table::Table;

/// The user of an offline cluster's kubeconfig.
const LEARNER: &str = "kubernetes-admin";
/// How long the nodes may take to become Ready.
const NODES_DEADLINE: Duration = Duration::from_secs(15);
/// A pod that fits nowhere for so long, in a cluster where nothing changes, will never run.
const HOPELESS_AFTER: Duration = Duration::from_secs(3);
/// Pause between two looks at the pods.
const LOOK: Duration = Duration::from_millis(25);
/// How long the last events may take to be written.
const SETTLE: Duration = Duration::from_secs(2);

/// What to tell.
pub(crate) struct Options {
    /// The objects to apply.
    pub(crate) documents: Vec<Document>,
    /// The cluster's nodes.
    pub(crate) nodes: Vec<Node>,
    /// How long the pods may take to run.
    pub(crate) timeout: Duration,
    /// As data instead of text.
    pub(crate) json: bool,
}

/// Tells the whole story on standard output.
///
/// # Errors
/// The cluster cannot start, an object is refused, or the pods do not run in time.
pub(crate) async fn tell(registry: &Registry, options: Options) -> Result<(), Failure> {
    let (steps, heard) = mpsc::unbounded_channel();
    let story = Story::new(move |step| {
        // After the end of the story nobody listens.
        let _ = steps.send(step);
    });
    let choices = Arc::new(Mutex::new(Vec::new()));
    let offline = Offline::start(
        registry,
        OfflineOptions {
            nodes: options.nodes.clone(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            data_dir: None,
            token_auth_file: None,
            scheduler: Some(scheduler_configuration()),
            seed: 0,
            story: story.clone(),
            observer: Some(observe(story, Arc::clone(&choices))),
        },
    )
    .await
    .map_err(Failure::failed)?;
    let result = act(&offline, options, heard, &choices).await;
    offline.shutdown().await;
    result
}

fn scheduler_configuration() -> KubeSchedulerConfiguration {
    let mut configuration = KubeSchedulerConfiguration::default();
    if let [profile] = configuration.profiles.as_mut_slice() {
        profile.scheduler_name = DEFAULT_SCHEDULER_NAME.to_owned();
    }
    configuration
}

async fn act(
    offline: &Offline,
    options: Options,
    heard: mpsc::UnboundedReceiver<Step>,
    choices: &Mutex<Vec<Choice>>,
) -> Result<(), Failure> {
    let watcher = offline.cluster.client(UserInfo::admin("demo"));
    wait_for_nodes(&watcher, options.nodes.len()).await?;
    let client = learner(&offline.cluster.kubeconfig()).await?;
    let applier = Applier::discover(client.clone()).await.map_err(Failure::failed)?;

    let start = Instant::now();
    let writer = Writer::new(options.json);
    writer.opening(offline.cluster.server_url(), &options.nodes, &options.documents)?;
    let (finish, finished) = oneshot::channel();
    let cast = Arc::new(Cast::new(&options.documents, LEARNER));
    let narrator = tokio::spawn(narrate(writer, Arc::clone(&cast), start, heard, finished));

    let applied = apply_all(&applier, &options.documents).await;
    let outcome = match &applied {
        Ok(applied) => wait_until_running(&watcher, applied, &cast, options.timeout).await,
        Err(error) => Err(Failure::from(error)),
    };
    if outcome.is_ok() {
        settle(&client, &cast).await;
    }
    // The narrator may have ended because its output was closed.
    let _ = finish.send(());
    let steps = narrator.await.map_err(|error| Failure::failed(format_args!("the narrator failed: {error}")))??;
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) => return Err(Failure::from(&error)),
    };

    let namespaces = cast.namespaces();
    let fetch = |resource| {
        let (client, namespaces) = (&client, &namespaces);
        async move {
            Table::fetch(client, resource, namespaces)
                .await
                .map_err(|error| Failure::failed(crate::live::failure::describe(&error)))
        }
    };
    let (mut pods, mut events) = (fetch("pods").await?, fetch("events").await?);
    pods.retain(|pod| cast.contains_object(pod));
    events.retain(|event| cast.contains_reference(&event["involvedObject"]));
    events.sort_by_creation();
    let choices = std::mem::take(&mut *choices.lock().unwrap_or_else(PoisonError::into_inner));
    let report = Report { applied, steps, pods, choices, events, start, running_after: outcome.as_ref().ok().copied() };
    writer.closing(&report, &cast, outcome.as_ref().err())?;
    outcome.map(drop)
}

impl From<&ApplyError> for Failure {
    fn from(error: &ApplyError) -> Self {
        if error.is_bad_input() { Self::bad_input(error) } else { Self::failed(error) }
    }
}

/// What the scheduler does, as steps of the story; each attempt is kept for the explanation at the end.
fn observe(story: Story, choices: Arc<Mutex<Vec<Choice>>>) -> Observer {
    Arc::new(move |happened| match happened {
        Happened::Attempt(attempt) => {
            let choice = Choice::new(attempt);
            for (stage, what) in choice.steps() {
                story.tell(|| scheduler_step(stage, what, &choice.namespace, &choice.pod, None));
            }
            choices.lock().unwrap_or_else(PoisonError::into_inner).push(choice);
        }
        Happened::Performed(effect, result) => {
            if let EffectKind::Bind { pod, node } = &effect.kind {
                let what = match result {
                    Ok(()) => format!("bound to {node}"),
                    Err(error) => format!("binding to {node} failed: {error}"),
                };
                story.tell(|| scheduler_step("bind", what, &pod.namespace, &pod.name, None));
            }
        }
    })
}

fn scheduler_step(
    stage: &'static str,
    what: String,
    namespace: &str,
    pod: &str,
    resource_version: Option<String>,
) -> Step {
    Step {
        at: Instant::now(),
        component: Component::Scheduler,
        stage,
        what,
        kind: "Pod".to_owned(),
        namespace: namespace.to_owned(),
        name: pod.to_owned(),
        resource_version,
        user: None,
    }
}

async fn learner(kubeconfig: &str) -> Result<Client, Failure> {
    let wrong = |error: kube::config::KubeconfigError| {
        Failure::failed(format_args!("the cluster's own kubeconfig is wrong: {error}"))
    };
    let file = Kubeconfig::from_yaml(kubeconfig).map_err(wrong)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)?;
    Client::try_from(config).map_err(|error| Failure::failed(crate::live::failure::describe(&error)))
}

async fn wait_for_nodes(client: &Client, n_nodes: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + NODES_DEADLINE;
    loop {
        let nodes = readiness::refresh(client, "/api/v1/nodes").await;
        let n_ready = nodes
            .iter()
            .flat_map(|list| list["items"].as_array())
            .flatten()
            .filter(|node| readiness::is_ready_node(node))
            .count();
        if n_ready >= n_nodes {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::failed(format_args!(
                "{n_ready} of {} became Ready within {} s",
                counted(n_nodes, "node"),
                NODES_DEADLINE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Writes the told steps as they come, until told to stop; returns them.
async fn narrate(
    writer: Writer,
    cast: Arc<Cast>,
    start: Instant,
    mut heard: mpsc::UnboundedReceiver<Step>,
    mut finished: oneshot::Receiver<()>,
) -> std::io::Result<Vec<Step>> {
    let mut told = Vec::new();
    loop {
        let step = tokio::select! {
            biased;
            step = heard.recv() => step,
            _ = &mut finished => None,
        };
        let Some(step) = step else { return Ok(told) };
        if step.at >= start && cast.tells(&step) {
            writer.step(&step, start)?;
            told.push(step);
        }
    }
}

async fn apply_all(applier: &Applier, documents: &[Document]) -> Result<Vec<Applied>, ApplyError> {
    let mut applied = Vec::with_capacity(documents.len());
    for document in documents {
        applied.push(applier.apply(document).await?);
    }
    Ok(applied)
}

/// Waits until everything that was applied runs; returns how long that took.
async fn wait_until_running(
    client: &Client,
    applied: &[Applied],
    cast: &Cast,
    timeout: Duration,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut hopeless_since: Option<Instant> = None;
    loop {
        let mut waiting = Vec::new();
        for object in applied {
            // An object that cannot be read just now is looked at again.
            let state = readiness::refresh(client, &object.path).await.unwrap_or(Value::Null);
            let problem =
                if state.is_null() { Some("cannot be read".to_owned()) } else { readiness::waits_for(&state) };
            if let Some(problem) = problem {
                waiting.push((object.display.clone(), readiness::replica_failure(&state).unwrap_or(problem)));
            }
        }
        if waiting.is_empty() {
            return Ok(start.elapsed());
        }
        let pods = pods_of(client, cast).await;
        let not_running: Vec<_> = pods.iter().filter(|pod| readiness::waits_for(pod).is_some()).collect();
        let hopeless = !not_running.is_empty() && not_running.iter().all(|pod| readiness::is_unschedulable(pod));
        hopeless_since = hopeless.then(|| hopeless_since.unwrap_or_else(Instant::now));
        let given_up = hopeless_since.is_some_and(|since| since.elapsed() > HOPELESS_AFTER);
        if given_up || start.elapsed() > timeout {
            return Err(not_running_failure(&waiting, &not_running, start.elapsed(), given_up));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn not_running_failure(waiting: &[(String, String)], pods: &[&Value], after: Duration, given_up: bool) -> Failure {
    let mut text = String::new();
    for (object, problem) in waiting {
        text.push_str(&format!("{object} does not run after {:.1} s: {problem}\n", after.as_secs_f64()));
    }
    for pod in pods {
        if let Some(problem) = readiness::pod_problem(pod) {
            text.push_str(&format!("  pod {}: {problem}\n", pod["metadata"]["name"].as_str().unwrap_or_default()));
        }
    }
    if given_up {
        text.push_str("nothing changes in this cluster any more, so it was not waited for longer");
    }
    Failure::failed(text.trim_end())
}

async fn pods_of(client: &Client, cast: &Cast) -> Vec<Value> {
    let mut pods = Vec::new();
    for namespace in cast.namespaces() {
        let list = readiness::refresh(client, &format!("/api/v1/namespaces/{namespace}/pods")).await;
        let items = list.ok().and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default();
        // Items of a list do not repeat their kind.
        pods.extend(items.into_iter().filter(|pod| cast.contains_object(pod)).map(|mut pod| {
            pod["kind"] = Value::from("Pod");
            pod
        }));
    }
    pods
}

/// Waits a little for the last events: every pod that runs was reported as started.
async fn settle(client: &Client, cast: &Cast) {
    let deadline = Instant::now() + SETTLE;
    while Instant::now() < deadline {
        let pods = pods_of(client, cast).await;
        let Ok(events) = Table::fetch(client, "events", &cast.namespaces()).await else { return };
        let started = |pod: &Value| {
            events
                .objects()
                .any(|event| event["reason"] == "Started" && event["involvedObject"]["uid"] == pod["metadata"]["uid"])
        };
        if pods.iter().all(started) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}
