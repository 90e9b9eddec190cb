//! The driver of all kubelets: one task owns every pod and node and turns what the API and the runtime say into inputs of
//! the lifecycles, and their actions into work. It decides nothing about a pod's life itself.

mod heartbeat;
mod needs;
mod node;
mod pod;
mod requests;
mod sources;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::node::NodeEntry;
use self::pod::PodEntry;
use self::requests::Renewal;
use super::events::EventSender;
use super::lifecycle::{Input, ProbeOracle};
use super::logs::{LogError, LogRequest, LogStream};
use super::options::KubeletOptions;
use super::runtime::{ContainerRef, ContainerRuntime, ExitListener};
use cluster_stub_base::story::Story;

/// Requests to the API server that may be under way at once.
const REQUESTS: usize = 64;

/// What the fleet is told. All of it comes through one channel, so that the fleet needs no lock.
pub(super) enum Message {
    /// A list of pods begins or ends: what it does not name is gone.
    PodList(ListPart),
    /// A pod is new or changed.
    PodChanged(Box<Pod>),
    /// A pod is gone.
    PodDeleted(String),
    /// As for pods.
    NodeList(ListPart),
    /// A node is new or changed.
    NodeChanged(Box<Node>),
    /// A node is gone.
    NodeDeleted(String),
    /// Something happened to a pod of this UID.
    Input(Arc<str>, Input),
    /// Work that was done for a pod has this outcome.
    Worked(Arc<str>, Input),
    /// The status of a pod was sent, or has to be sent again.
    Reported(Arc<str>, Outcome),
    /// The final deletion of a pod was sent, or has to be sent again.
    Deleted(Arc<str>, Outcome),
    /// A node's status was sent, or has to be sent again.
    NodeReported(Arc<str>, Outcome),
    /// It is time to look which Leases and statuses are due.
    Heartbeat,
    /// Somebody wants a log.
    Logs(LogRequest, oneshot::Sender<Result<LogStream, LogError>>),
}

/// Beginning or end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListPart {
    Started,
    Ended,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was done.
    Done,
    /// The object is gone, or is another one by now.
    Gone,
    /// It was refused or lost; worth another try.
    Failed,
}

/// What every part of the fleet needs.
pub(super) struct Shared {
    pub(super) clients: Box<dyn Fn(&str) -> kube::Client + Send + Sync>,
    pub(super) runtime: Arc<dyn ContainerRuntime>,
    pub(super) options: KubeletOptions,
    pub(super) story: Story,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
    pub(super) messages: mpsc::UnboundedSender<Message>,
    pub(super) requests: Semaphore,
    /// Leases that are due, to the task that renews them.
    renewals: mpsc::UnboundedSender<(kube::Client, Renewal)>,
    /// Namespaces and names of the service accounts of all pods that came here.
    accounts: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
    makers: Mutex<needs::Makers>,
}

/// All pods and nodes. See the module.
struct Fleet {
    shared: Arc<Shared>,
    events: EventSender,
    nodes: HashMap<Arc<str>, NodeEntry>,
    pods: HashMap<Arc<str>, PodEntry>,
    /// UIDs by namespace and name, for logs.
    names: HashMap<(String, String), Arc<str>>,
    wakeups: BinaryHeap<Reverse<(Timestamp, Arc<str>)>>,
    /// Pods of nodes that are not known yet, by node.
    orphans: HashMap<String, HashMap<String, Arc<Pod>>>,
    exits: ExitListener,
    probe_succeeds: ProbeOracle,
    listed_pods: Option<HashSet<String>>,
    listed_nodes: Option<HashSet<String>>,
    next_address: u32,
    /// How many inputs are being taken in, one inside the other.
    depth: u32,
}

impl Shared {
    /// Runs `work` in the background, until shutdown at the latest.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(until(self.shutdown.clone(), Box::pin(work)));
    }
}

async fn until(shutdown: CancellationToken, work: BoxFuture<'static, ()>) {
    tokio::select! { () = shutdown.cancelled() => {}, () = work => {} }
}

/// Starts the fleet's tasks and returns the way to talk to it.
pub(super) fn start(
    clients: Box<dyn Fn(&str) -> kube::Client + Send + Sync>,
    options: KubeletOptions,
    story: Story,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Arc<Shared> {
    let (messages, inbox) = mpsc::unbounded_channel();
    let (renewals, due) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        clients,
        runtime: options.runtime.clone(),
        options,
        story,
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
        messages,
        requests: Semaphore::new(REQUESTS),
        renewals,
        accounts: Mutex::default(),
        makers: Mutex::default(),
    });
    let exits: ExitListener = {
        let messages = shared.messages.clone();
        Arc::new(move |exit| {
            // After shutdown nobody cares how a container ended.
            let _ = messages.send(Message::Input(Arc::from(exit.pod_uid.as_str()), Input::Exited(exit)));
        })
    };
    let probe_succeeds: ProbeOracle = {
        let runtime = shared.runtime.clone();
        Arc::new(move |pod: &Arc<Pod>, container: &str, command: &[String]| {
            let container = ContainerRef { pod: pod.clone(), name: Arc::from(container), attempt: 0 };
            runtime.exec_succeeds(&container, command)
        })
    };
    let fleet = Fleet {
        shared: shared.clone(),
        events: EventSender::start(tasks, shutdown),
        nodes: HashMap::new(),
        pods: HashMap::new(),
        names: HashMap::new(),
        wakeups: BinaryHeap::new(),
        orphans: HashMap::new(),
        exits,
        probe_succeeds,
        listed_pods: None,
        listed_nodes: None,
        next_address: 0,
        depth: 0,
    };
    tasks.spawn(fleet.run(inbox));
    sources::start(&shared);
    heartbeat::start(&shared, due);
    shared
}

impl Fleet {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        self.register_nodes();
        let shutdown = self.shared.shutdown.clone();
        loop {
            let wake = self.wakeups.peek().map(|Reverse((at, _))| *at);
            let message = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = sleep_until(wake) => None,
                message = inbox.recv() => match message {
                    Some(message) => Some(message),
                    None => return,
                },
            };
            match message {
                Some(message) => self.take(message),
                None => self.wake(Timestamp::now()),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::PodList(ListPart::Started) => self.listed_pods = Some(HashSet::new()),
            Message::PodList(ListPart::Ended) => self.pods_listed(),
            Message::PodChanged(pod) => self.pod_changed(Arc::new(*pod)),
            Message::PodDeleted(uid) => self.pod_deleted(&uid),
            Message::NodeList(ListPart::Started) => self.listed_nodes = Some(HashSet::new()),
            Message::NodeList(ListPart::Ended) => self.nodes_listed(),
            Message::NodeChanged(node) => self.node_changed(*node),
            Message::NodeDeleted(name) => self.node_deleted(&name),
            Message::Input(uid, input) => self.input(&uid, input),
            Message::Worked(uid, input) => self.worked(&uid, input),
            Message::Reported(uid, outcome) => self.reported(&uid, outcome),
            Message::Deleted(uid, outcome) => self.deletion_sent(&uid, outcome),
            Message::NodeReported(name, outcome) => self.node_reported(&name, outcome),
            Message::Heartbeat => self.heartbeat(),
            // Whoever asked may have gone away meanwhile.
            Message::Logs(request, answer) => drop(answer.send(self.logs(request))),
        }
    }
}

async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => {
            let wait = at.duration_since(Timestamp::now());
            tokio::time::sleep(std::time::Duration::try_from(wait).unwrap_or_default()).await;
        }
        None => std::future::pending().await,
    }
}
