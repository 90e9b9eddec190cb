//! The life of one pod on its node as a pure state machine: what has happened goes in, together with the time; what to do
//! about it comes out. No I/O, no clock, no API client here; the driver performs the actions and reports their outcomes.
//!
//! ```text
//!            sandbox, init containers, containers          all stopped
//!   Active ───────────────────────────────────── Stopping ───────────── Done ── Delete, if it was deleted
//!     │  deleted, past its deadline, over, or declared over by the API  ▲
//!     └── rejected at admission ────────────────────────────────────────┘
//! ```

mod backoff;
mod container;
mod needs;
mod status;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};

pub(crate) use self::needs::Found;

use self::container::{End, Probes, Record, Run, State};
use self::needs::Mounts;
use self::status::{FAILED, SUCCEEDED};
use super::runtime::{ContainerExit, PulledImage, RuntimeError, Sandbox, StartedContainer, as_container};

/// What the lifecycle is told.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The API has a newer version of the pod.
    Pod(Arc<Pod>),
    /// The sandbox was made, or not.
    Sandbox(Result<Sandbox, RuntimeError>),
    /// What was found of the objects that the volumes need.
    Mounted(Found),
    /// What was found of the objects that the container's environment needs.
    Configured(Arc<str>, Found),
    /// Whether the image of the container's next run is on the node.
    Inspected(Arc<str>, Result<bool, RuntimeError>),
    /// The image was pulled, or not.
    Pulled(Arc<str>, Result<PulledImage, RuntimeError>),
    /// The container was started, or not.
    Started(Arc<str>, Result<StartedContainer, RuntimeError>),
    /// A container has ended.
    Exited(ContainerExit),
    /// The time that [`PodLifecycle::next_wakeup`] named has come.
    Wake,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Look for the objects that the volumes need.
    Mount,
    /// Look for the objects that the container's environment needs.
    Configure(Arc<str>),
    /// Make the sandbox.
    RunSandbox,
    /// Look whether the container's image is there.
    InspectImage(Arc<str>),
    /// Pull the container's image.
    PullImage(Arc<str>),
    /// Start the container's run of this number.
    StartContainer(Arc<str>, i32),
    /// Stop that run within so many seconds.
    StopContainer(Arc<str>, i32, i64),
    /// Remove the sandbox and what is left in it.
    RemoveSandbox,
    /// Record an event.
    Event(PodEvent),
    /// Delete the pod for good, after its status has been reported.
    Delete,
}

/// An event about a pod or one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    /// `Normal` or `Warning`.
    pub(crate) event_type: &'static str,
    /// One word.
    pub(crate) reason: String,
    /// For a person.
    pub(crate) message: String,
    /// The container, and the list of the spec that it stands in.
    pub(crate) container: Option<(Arc<str>, &'static str)>,
}

const NORMAL: &str = "Normal";
const WARNING: &str = "Warning";

#[derive(Clone, Debug, PartialEq, Eq)]
enum SandboxState {
    None,
    Pending,
    /// It could not be made; tried again at this time.
    Failed(Timestamp),
    Ready(Sandbox),
    /// It is gone; the address that the pod had.
    Removed(Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    /// Containers are stopped; sidecars last.
    Stopping,
    Done,
}

/// A phase that does not follow from the containers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    phase: &'static str,
    reason: Option<String>,
    message: Option<String>,
}

/// Why a pod was not admitted to its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// For example `OutOfcpu`.
    pub(crate) reason: String,
    /// For a person.
    pub(crate) message: String,
}

/// Whether a probe's command can succeed in the named container of the pod. A pure machine does not run it but asks.
pub(crate) type ProbeOracle = Arc<dyn Fn(&Arc<Pod>, &str, &[String]) -> bool + Send + Sync>;

/// One pod on its node. See the module.
pub(crate) struct PodLifecycle {
    pod: Arc<Pod>,
    spec: PodSpec,
    host_ip: String,
    start_time: Timestamp,
    stage: Stage,
    sandbox: SandboxState,
    mounts: Mounts,
    /// The spec's ephemeral containers.
    ephemeral: Vec<Container>,
    /// Init containers first, each group in the order of the spec.
    records: Vec<Record>,
    verdict: Option<Verdict>,
    rejection: Option<Rejection>,
    /// Value and last change of each condition that the kubelet owns.
    transitions: [Option<(bool, Timestamp)>; 5],
    reported: Option<PodStatus>,
    delete_sent: bool,
    probe_succeeds: ProbeOracle,
}

impl PodLifecycle {
    /// A pod that its kubelet sees for the first time in this process. What its status says already ran goes on; see
    /// [`PodLifecycle::running`].
    pub(crate) fn new(pod: Arc<Pod>, host_ip: String, now: Timestamp, probe_succeeds: ProbeOracle) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let init = spec.init_containers.iter().flatten().map(|container| Record::new(container, true));
        let records = init.chain(spec.containers.iter().map(|container| Record::new(container, false))).collect();
        let start_time = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0);
        let mut lifecycle = Self {
            pod,
            spec,
            host_ip,
            start_time,
            stage: Stage::Active,
            sandbox: SandboxState::None,
            mounts: Mounts::default(),
            ephemeral: Vec::new(),
            records,
            verdict: None,
            rejection: None,
            transitions: [None; 5],
            reported: None,
            delete_sent: false,
            probe_succeeds,
        };
        lifecycle.add_ephemeral();
        lifecycle.resume();
        if lifecycle.stage == Stage::Done {
            // What was reported before the restart is final.
            lifecycle.reported = Some(lifecycle.status(now));
        }
        lifecycle
    }

    /// A pod that is not admitted: it only gets a status, and the event that says why.
    pub(crate) fn rejected(pod: Arc<Pod>, rejection: Rejection, now: Timestamp) -> (Self, Vec<Action>) {
        let (reason, message) = (rejection.reason.clone(), rejection.message.clone());
        let event = PodEvent { event_type: WARNING, reason, message, container: None };
        let mut lifecycle = Self::new(pod, String::new(), now, Arc::new(|_, _, _| true));
        lifecycle.stage = Stage::Done;
        lifecycle.rejection = Some(rejection);
        let mut actions = vec![Action::Event(event)];
        lifecycle.finish(&mut actions);
        (lifecycle, actions)
    }

    /// The newest version of the pod.
    pub(crate) fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Whether nothing of it runs any more or will.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Takes in what happened and says what to do about it, in order.
    pub(crate) fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take(input, now, &mut actions);
        self.sync(now, &mut actions);
        actions
    }

    /// The status, if it is another one than was returned last.
    pub(crate) fn report(&mut self, now: Timestamp) -> Option<PodStatus> {
        let status = self.status(now);
        if self.reported.as_ref() == Some(&status) {
            return None;
        }
        self.reported = Some(status.clone());
        Some(status)
    }

    /// Forgets that the last status was reported: it did not arrive.
    pub(crate) fn report_again(&mut self) {
        self.reported = None;
    }

    /// Containers that run, with their runs' number and start.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Arc<str>, i32, Timestamp)> {
        self.records.iter().filter_map(|record| record.run().map(|run| (record.name.clone(), record.restarts, run.at)))
    }

    /// The address of the pod's sandbox, if it has one of its own.
    pub(crate) fn sandbox_ip(&self) -> Option<&str> {
        match &self.sandbox {
            SandboxState::Ready(sandbox) => sandbox.ip.as_deref(),
            _ => None,
        }
    }

    /// A run of a container for whoever wants its log: number, start, and end if it has ended. `previous`: the run before
    /// the last restart. `Err` is why it waits.
    pub(crate) fn run_of(
        &self,
        container: &str,
        previous: bool,
    ) -> Option<Result<Option<(i32, Timestamp, Option<Timestamp>)>, String>> {
        let record = self.records.iter().find(|record| *record.name == *container)?;
        let ended = |end: &End, attempt: i32| (attempt, end.started, Some(end.finished));
        if previous {
            // While it waits for its next start, its last run is the previous one.
            let waits = record.end().filter(|_| record.waiting.is_some());
            let run = match waits {
                Some(end) => Some(ended(end, record.restarts)),
                None => record.last.as_ref().map(|end| ended(end, record.restarts - 1)),
            };
            return Some(Ok(run));
        }
        Some(match &record.state {
            State::Running(run) => Ok(Some((record.restarts, run.at, None))),
            State::Terminated(end) => Ok(Some(ended(end, record.restarts))),
            State::Waiting => Err(match &record.waiting {
                Some((_, message)) if !message.is_empty() => message.clone(),
                Some((reason, _)) => reason.clone(),
                None if self.records.iter().any(|record| record.init) => "PodInitializing".to_owned(),
                None => "ContainerCreating".to_owned(),
            }),
        })
    }

    /// Takes in the ephemeral containers that were added.
    fn add_ephemeral(&mut self) {
        for container in self.spec.ephemeral_containers.iter().flatten() {
            if !self.ephemeral.iter().any(|known| known.name == container.name) {
                let container = as_container(container);
                self.records.push(Record::ephemeral(&container));
                self.ephemeral.push(container);
            }
        }
    }

    /// The container that `record` is about.
    fn container_spec(&self, record: &Record) -> Option<&Container> {
        let containers = match (record.init, record.ephemeral) {
            (true, _) => self.spec.init_containers.as_deref().unwrap_or_default(),
            (false, true) => &self.ephemeral,
            (false, false) => &self.spec.containers,
        };
        containers.iter().find(|container| container.name == *record.name)
    }

    fn spec(&self) -> &PodSpec {
        &self.spec
    }

    fn is_deleted(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Takes over what the status says that an earlier process did.
    fn resume(&mut self) {
        let Some(status) = self.pod.status.clone() else { return };
        if let Some("Succeeded" | "Failed") = status.phase.as_deref() {
            self.stage = Stage::Done
        }
        let known = |record: &Record| -> Option<ContainerStatus> {
            let statuses = match (record.init, record.ephemeral) {
                (true, _) => &status.init_container_statuses,
                (false, true) => &status.ephemeral_container_statuses,
                (false, false) => &status.container_statuses,
            };
            statuses.iter().flatten().find(|known| known.name == *record.name).cloned()
        };
        let mut anything_ran = false;
        for i in 0..self.records.len() {
            let Some(known) = known(&self.records[i]) else { continue };
            let container = self.container_spec(&self.records[i]).cloned();
            let state = known.state.unwrap_or_default();
            let id = known.container_id.unwrap_or_default();
            let run = state.running.and_then(|running| running.started_at).map(|at| at.0);
            let end = state.terminated.or_else(|| known.last_state.and_then(|last| last.terminated));
            let probes = run.map(|at| self.probes(container.as_ref(), at));
            let record = &mut self.records[i];
            record.restarts = known.restart_count;
            record.image_id = known.image_id;
            let end = end.map(|end| End {
                id: end.container_id.unwrap_or_default(),
                code: end.exit_code,
                started: end.started_at.map_or(self.start_time, |at| at.0),
                finished: end.finished_at.map_or(self.start_time, |at| at.0),
                restart: false,
            });
            match (run, end) {
                (Some(at), end) => {
                    let image = container.and_then(|container| container.image).unwrap_or_default();
                    let probes = probes.unwrap_or_default();
                    record.last = end;
                    record.state = State::Running(Run { id, at, image, probes, stopping: None, restart: false });
                }
                (None, Some(end)) => record.state = State::Terminated(end),
                (None, None) => continue,
            }
            anything_ran = true;
        }
        if anything_ran && self.stage == Stage::Active {
            let own = status.pod_ip.filter(|_| self.spec.host_network != Some(true));
            self.sandbox = SandboxState::Ready(Sandbox { ip: own });
        } else if self.stage == Stage::Done {
            self.sandbox = SandboxState::Removed(status.pod_ip);
            let phase = if status.phase.as_deref() == Some("Succeeded") { SUCCEEDED } else { FAILED };
            self.verdict = Some(Verdict { phase, reason: status.reason, message: status.message });
        }
    }

    fn probes(&self, container: Option<&Container>, started: Timestamp) -> Probes {
        let Some(container) = container else { return Probes::default() };
        Probes::of(container, started, |command| (self.probe_succeeds)(&self.pod, &container.name, command))
    }

    /// When the lifecycle wants [`Input::Wake`], if nothing else comes before.
    pub(crate) fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        if self.stage != Stage::Active {
            return None;
        }
        let mut times: Vec<Timestamp> = Vec::new();
        match self.sandbox {
            SandboxState::Failed(again) => times.push(again),
            SandboxState::None => times.extend(self.mounts.wakeup()),
            _ => {}
        }
        if let Some(seconds) = self.spec.active_deadline_seconds {
            times.push(self.start_time + SignedDuration::from_secs(seconds));
        }
        for record in &self.records {
            match &record.state {
                State::Running(run) => {
                    times.extend(run.probes.started_at.into_iter().chain(run.probes.ready_at).filter(|at| *at > now));
                    let failing = run.probes.failing.as_ref().filter(|_| run.stopping.is_none());
                    times.extend(failing.map(|failing| failing.next));
                }
                State::Terminated(end) if record.in_flight.is_none() => {
                    times.extend(record.crashes.waits_until(end.finished, now));
                }
                State::Waiting | State::Terminated(_) => {}
            }
            times.extend(record.missing.as_ref().filter(|_| record.in_flight.is_none()).map(|missing| missing.next));
            if let Some(failure) = record.pull_failure.as_ref().filter(|_| record.in_flight.is_none()) {
                times.push(steps::next_of(failure, record, now));
            }
        }
        times.into_iter().min()
    }
}
