//! The engine against a live cluster: watches in, API calls out. Every decision is the engine's; nothing here chooses a node.
//!
//! ```text
//! watches ─ Observation ─▶ ┌──────────────┐ ─ Effect ─▶ lanes ─▶ perform ─▶ API server
//! lease   ─ Lead ────────▶ │ cycle thread │ ◀─ Report ──────────────┘
//!                          └──────────────┘
//! ```
//! The cycle thread owns the engine and never waits for the network; bindings of many pods are in flight at once.

mod conditions;
pub mod connect;
mod cycle;
mod endpoints;
pub(crate) mod failure;
mod informers;
mod lanes;
mod leader;
mod metrics;
mod perform;
mod recorder;
pub(crate) mod recording;
mod reflector;
mod request;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use rustc_hash::FxHashMap;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Attempt, Options as EngineOptions, Scheduler};
use scheduler_core::framework::{Effect, EffectError, Registry};
use scheduler_transport::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use leader::LeaderElection;

use crate::extender::{ConfiguredExtender, Extenders};
use cycle::{Cycle, Input};
use endpoints::Health;
use informers::Kept;
use leader::Elector;
use metrics::Metrics;
use perform::Performer;
use recorder::Recorder;
use recording::Recording;

/// How long bindings in flight may take when the scheduler ends.
const GRACE: Duration = Duration::from_secs(10);

/// Something to watch the scheduler by.
#[derive(Debug)]
pub enum Happened<'a> {
    /// A pod had its turn.
    Attempt(&'a Attempt),
    /// An effect was carried out, or was not.
    Performed(&'a Effect, &'a Result<(), EffectError>),
}

/// Hears of every attempt and effect, on the thread that made it; it must not block.
pub type Observer = Arc<dyn Fn(Happened<'_>) + Send + Sync>;

/// How the API server is reached.
#[derive(Clone)]
pub struct Way {
    client: Client,
    /// For bindings and events.
    sender: Sender,
}

impl From<Client> for Way {
    fn from(client: Client) -> Self {
        Self { sender: client.clone().into(), client }
    }
}

impl From<connect::Connection> for Way {
    fn from(connection: connect::Connection) -> Self {
        Self { client: connection.client, sender: connection.sender }
    }
}

/// What a live scheduler needs besides a client.
pub struct Options {
    /// Profiles and plugins.
    pub configuration: KubeSchedulerConfiguration,
    /// Seed of the draws among equal nodes.
    pub seed: u64,
    /// The Lease to hold while scheduling; `None` schedules at once.
    pub leader_election: Option<LeaderElection>,
    /// Where probes and metrics are served, if anywhere.
    pub metrics_address: Option<SocketAddr>,
    /// Where everything is kept that the engine hears and decides, so that it can be replayed.
    pub record: Option<Record>,
    /// Who hears of attempts.
    pub observer: Option<Observer>,
    /// Whether each attempt carries its decision record; it costs a second look at every node.
    pub record_decisions: bool,
}

/// A recording to be written.
#[derive(Clone, Debug)]
pub struct Record {
    /// The file; one that exists is replaced.
    pub path: PathBuf,
    /// Text of the configuration file, if there was one.
    pub config: Option<String>,
    /// The name that the only profile was given, if it was.
    pub scheduler_name: Option<String>,
}

/// Why a live scheduler did not start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The configuration names plugins or arguments that cannot be built.
    #[error("invalid scheduler configuration: {0}")]
    Configuration(String),
    /// The address for probes and metrics is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The recording cannot be written.
    #[error("cannot write the recording {path}: {source}")]
    Record {
        /// Its path.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start the scheduler's threads: {0}")]
    Threads(String),
    /// Another process holds the Lease now.
    #[error("lost the lease {namespace}/{name}: it could not be renewed in time")]
    LostLease {
        /// Namespace of the Lease.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The engine's thread ended by itself.
    #[error("the scheduling thread ended unexpectedly")]
    Ended,
}

/// A scheduler at work. Dropping it ends it without waiting; [`LiveScheduler::shutdown`] waits for bindings in flight.
pub struct LiveScheduler {
    stop: CancellationToken,
    task: JoinHandle<Result<(), LiveError>>,
    metrics_address: Option<SocketAddr>,
}

impl Drop for LiveScheduler {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl LiveScheduler {
    /// Builds the engine and starts watching. It schedules as soon as the first lists are there and the Lease, if any, is held.
    ///
    /// # Errors
    /// The configuration cannot be built, or the address for metrics cannot be bound.
    pub async fn start(way: impl Into<Way>, registry: &Registry, options: Options) -> Result<Self, LiveError> {
        let Way { client, sender } = way.into();
        let stop = CancellationToken::new();
        let extenders = Extenders::over_http(&options.configuration, options.record.is_some(), &stop)
            .map_err(|error| LiveError::Configuration(error.to_string()))?;
        let scheduler = Scheduler::new(
            &options.configuration,
            registry,
            EngineOptions {
                seed: options.seed,
                record_decisions: options.record_decisions,
                extenders: extenders.seam(),
            },
        )
        .map_err(|error| LiveError::Configuration(error.to_string()))?;
        let n_threads = usize::try_from(options.configuration.parallelism)
            .unwrap_or(1)
            .min(std::thread::available_parallelism().map_or(1, usize::from));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|index| format!("filter-{index}"))
            .build()
            .map_err(|error| LiveError::Threads(error.to_string()))?;

        let recording = match &options.record {
            None => None,
            Some(Record { path, config, scheduler_name }) => {
                let created = Recording::create(path, options.seed, config.as_deref(), scheduler_name.as_deref());
                Some(created.map_err(|source| LiveError::Record { path: path.clone(), source })?)
            }
        };
        let recorded = recording.is_some();

        let (health, metrics) = (Health::default(), Metrics::default());
        let metrics_address = match options.metrics_address {
            Some(address) => {
                let bound = endpoints::serve(address, health.clone(), metrics.clone(), stop.clone()).await;
                Some(bound.map_err(|source| LiveError::Listen { address, source })?)
            }
            None => None,
        };

        let (inputs, receiver) = std::sync::mpsc::channel();
        let (effects, effect_receiver) = mpsc::unbounded_channel();
        let (ended, has_ended) = oneshot::channel();
        let cycle = Cycle {
            scheduler,
            pool,
            effects,
            observer: options.observer.clone(),
            recording,
            whole_objects: (!extenders.is_empty()).then(|| Arc::clone(&extenders.objects)),
            answers: extenders.answers.clone(),
            stop: stop.clone(),
            metrics,
            attempts: FxHashMap::default(),
            health: health.clone(),
        };
        std::thread::Builder::new()
            .name("cycle".to_owned())
            .spawn(move || {
                cycle.run(&receiver);
                // Nobody waits for it when the scheduler was dropped.
                let _ = ended.send(());
            })
            .map_err(|error| LiveError::Threads(error.to_string()))?;

        let run = Run {
            client,
            sender,
            inputs,
            effect_receiver,
            has_ended,
            observer: options.observer,
            kept: Kept { recorded, by_extenders: extenders.wanted() },
            extenders: extenders.all().into(),
            health,
            stop: stop.clone(),
        };
        let task = tokio::spawn(run.supervise(options.leader_election));
        Ok(Self { stop, task, metrics_address })
    }

    /// Where probes and metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Waits until the scheduler ends by itself.
    ///
    /// # Errors
    /// Always, with the reason; `Ok` only after [`LiveScheduler::shutdown`].
    pub async fn ended(&mut self) -> Result<(), LiveError> {
        (&mut self.task).await.unwrap_or(Err(LiveError::Ended))
    }

    /// Stops scheduling, lets bindings in flight finish, gives the Lease up.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // Its reason was asked for by `ended`, if anybody cares.
        let _ = tokio::time::timeout(GRACE * 2, &mut self.task).await;
    }
}

struct Run {
    client: Client,
    sender: Sender,
    inputs: std::sync::mpsc::Sender<Input>,
    effect_receiver: mpsc::UnboundedReceiver<Effect>,
    has_ended: oneshot::Receiver<()>,
    observer: Option<Observer>,
    kept: Kept,
    extenders: Arc<[Arc<ConfiguredExtender>]>,
    health: Health,
    stop: CancellationToken,
}

impl Run {
    async fn supervise(self, election: Option<LeaderElection>) -> Result<(), LiveError> {
        let host = host_name();
        let (recorder, mut writer) = Recorder::start(self.sender.clone(), &host);
        let conditions = conditions::KnownConditions::default();
        let mut watches = informers::start(&self.client, &self.inputs, &conditions, self.kept, &self.stop);
        let performer = Performer {
            client: self.client.clone(),
            sender: self.sender,
            recorder,
            conditions,
            extenders: self.extenders,
        };
        let (reports, observer) = (self.inputs.clone(), self.observer);
        let work = move |effect: Arc<Effect>| {
            let (performer, observer) = (performer.clone(), observer.clone());
            async move {
                let result = performer.perform(&effect).await;
                if let Some(observer) = &observer {
                    observer(Happened::Performed(&effect, &result));
                }
                result
            }
            .boxed()
        };
        let mut lanes = tokio::spawn(lanes::run(self.effect_receiver, Box::new(work), move |report| {
            // The cycle thread is gone only when the scheduler ends.
            let _ = reports.send(Input::Report(report));
        }));

        let mut has_ended = self.has_ended;
        let result = {
            let lead = lead(self.client, election, &host, &self.inputs, &self.stop);
            tokio::select! {
                result = lead => result,
                _ = &mut has_ended => Err(LiveError::Ended),
            }
        };
        if result.is_err() {
            self.health.set_failed();
        }
        self.stop.cancel();
        let _ = self.inputs.send(Input::Stop);
        drop(self.inputs);
        // The cycle thread closes the effects, the lanes end and drop the last recorder, the writer ends.
        let finish = async {
            let _ = (&mut lanes).await;
            let _ = (&mut writer).await;
            while watches.join_next().await.is_some() {}
        };
        if tokio::time::timeout(GRACE, finish).await.is_err() {
            lanes.abort();
            writer.abort();
        }
        result
    }
}

/// Leads until `stop`, or until the Lease is lost.
async fn lead(
    client: Client,
    election: Option<LeaderElection>,
    host: &str,
    inputs: &std::sync::mpsc::Sender<Input>,
    stop: &CancellationToken,
) -> Result<(), LiveError> {
    let start = || {
        // The cycle thread's end is noticed by the supervisor.
        let _ = inputs.send(Input::Lead);
    };
    let Some(election) = election else {
        start();
        stop.cancelled().await;
        return Ok(());
    };
    let (namespace, name) = (election.namespace.clone(), election.name.clone());
    let mut elector = Elector::new(client, election, host);
    if !elector.acquire(stop).await {
        return Ok(());
    }
    start();
    elector.hold(stop).await;
    if stop.is_cancelled() { Ok(()) } else { Err(LiveError::LostLease { namespace, name }) }
}

/// The machine's name, as it appears in events and Leases.
fn host_name() -> String {
    let from_system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    from_system
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_lowercase())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}
