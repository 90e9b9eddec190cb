//! One container of a pod's lifecycle: what state it is in, whether it starts again, how its probes see it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ExecAction, PodSpec, Probe};

use super::backoff::Backoff;
use super::needs::Missing;

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing yet.
    Waiting,
    /// It runs.
    Running(Run),
    /// It ran.
    Terminated(End),
}

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) at: Timestamp,
    /// The image that was asked for when it started.
    pub(crate) image: String,
    pub(crate) probes: Probes,
    /// The grace in seconds with which it was asked to stop.
    pub(crate) stopping: Option<i64>,
    /// Starts again after its end whatever the policy says, as its definition or a probe wants it.
    pub(crate) restart: bool,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) id: String,
    pub(crate) code: i32,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// It starts again whatever the policy says.
    pub(crate) restart: bool,
}

/// What was asked of the runtime and not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    Inspect,
    Pull,
    /// Looking for what its environment needs.
    Configure,
    Start,
}

/// An image that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullFailure {
    pub(crate) at: Timestamp,
    /// The reason and message of the failure itself: `ErrImagePull` and the runtime's words.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether the back-off has been announced.
    pub(crate) announced: bool,
}

/// A container as its kubelet remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: Arc<str>,
    /// An init container; with `sidecar` one that goes on running beside the others.
    pub(crate) init: bool,
    pub(crate) sidecar: bool,
    /// One that was added to look into a running pod: it counts for nothing and never starts again.
    pub(crate) ephemeral: bool,
    pub(crate) state: State,
    /// The run before the present state.
    pub(crate) last: Option<End>,
    pub(crate) restarts: i32,
    pub(crate) image_id: String,
    /// Why it waits, if not for the usual reason.
    pub(crate) waiting: Option<(String, String)>,
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) crashes: Backoff,
    pub(crate) pulls: Backoff,
    pub(crate) pull_failure: Option<PullFailure>,
    /// When the image became available for the run that is being started.
    pub(crate) image_ready: bool,
    /// What its environment needs was not there.
    pub(crate) missing: Option<Missing>,
}

impl Record {
    /// A container that has not run.
    pub(crate) fn new(container: &Container, init: bool) -> Self {
        Self {
            name: Arc::from(container.name.as_str()),
            init,
            sidecar: init && container.restart_policy.as_deref() == Some("Always"),
            ephemeral: false,
            state: State::Waiting,
            last: None,
            restarts: 0,
            image_id: String::new(),
            waiting: None,
            in_flight: None,
            crashes: Backoff::default(),
            pulls: Backoff::default(),
            pull_failure: None,
            image_ready: false,
            missing: None,
        }
    }

    /// An ephemeral container that has not run.
    pub(crate) fn ephemeral(container: &Container) -> Self {
        Self { ephemeral: true, ..Self::new(container, false) }
    }

    /// Whether it is one of the pod's `containers`.
    pub(crate) fn is_main(&self) -> bool {
        !self.init && !self.ephemeral
    }

    /// The list of the spec that it stands in.
    pub(crate) fn list(&self) -> &'static str {
        match (self.init, self.ephemeral) {
            (true, _) => "initContainers",
            (false, true) => "ephemeralContainers",
            (false, false) => "containers",
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            State::Waiting | State::Terminated(_) => None,
        }
    }

    pub(crate) fn end(&self) -> Option<&End> {
        match &self.state {
            State::Terminated(end) => Some(end),
            State::Waiting | State::Running(_) => None,
        }
    }

    /// Whether it runs or may be about to.
    pub(crate) fn is_active(&self) -> bool {
        self.run().is_some() || self.in_flight == Some(InFlight::Start)
    }

    /// Number of the run that is going on or comes next.
    pub(crate) fn attempt(&self) -> i32 {
        match self.state {
            State::Terminated(_) => self.restarts + 1,
            State::Waiting | State::Running(_) => self.restarts,
        }
    }

    /// Whether its startup probe, if any, has succeeded.
    pub(crate) fn started(&self, now: Timestamp) -> bool {
        self.run().is_some_and(|run| run.probes.started_at.is_some_and(|at| at <= now))
    }

    /// Whether it counts as ready: init containers when they have succeeded, others when they run and their probes say so.
    pub(crate) fn ready(&self, now: Timestamp) -> bool {
        if self.ephemeral {
            return false;
        }
        if self.init && !self.sidecar {
            return self.end().is_some_and(|end| end.code == 0);
        }
        self.run().is_some_and(|run| run.probes.ready_at.is_some_and(|at| at <= now))
    }
}

/// When the probes of a run say what. Simulated probes succeed at the first try, unless the runtime says that their
/// command cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probes {
    /// When the container counts as started; `None`: never.
    pub(crate) started_at: Option<Timestamp>,
    /// When it counts as ready; `None`: never.
    pub(crate) ready_at: Option<Timestamp>,
    /// A probe that fails, if one does.
    pub(crate) failing: Option<FailingProbe>,
}

/// A probe whose command cannot succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailingProbe {
    /// `Startup`, `Readiness` or `Liveness`, as events name it.
    pub(crate) kind: &'static str,
    /// When it is tried next.
    pub(crate) next: Timestamp,
    pub(crate) period: SignedDuration,
    /// How many more failures the container survives; `None`: any number, as of a readiness probe.
    pub(crate) left: Option<i32>,
}

impl Probes {
    /// The probes of a container that started at `started`; `succeeds` says whether a command can succeed.
    pub(crate) fn of(container: &Container, started: Timestamp, succeeds: impl Fn(&[String]) -> bool) -> Self {
        let fails = |probe: &Option<Probe>| {
            probe
                .as_ref()
                .and_then(|probe| probe.exec.as_ref())
                .is_some_and(|ExecAction { command }| !succeeds(command.as_deref().unwrap_or_default()))
        };
        let failing = |kind, probe: &Option<Probe>, from: Timestamp, lethal: bool| FailingProbe {
            kind,
            next: from + delay(probe.as_ref()),
            period: seconds(probe.as_ref().and_then(|probe| probe.period_seconds).unwrap_or(10).max(1)),
            left: lethal.then(|| probe.as_ref().and_then(|probe| probe.failure_threshold).unwrap_or(3) - 1),
        };
        if fails(&container.startup_probe) {
            let failing = failing("Startup", &container.startup_probe, started, true);
            return Self { started_at: None, ready_at: None, failing: Some(failing) };
        }
        let started_at = started + delay(container.startup_probe.as_ref());
        let ready_at = started_at + delay(container.readiness_probe.as_ref());
        let liveness = fails(&container.liveness_probe);
        let readiness = fails(&container.readiness_probe);
        let failing = match (liveness, readiness) {
            (true, _) => Some(failing("Liveness", &container.liveness_probe, started_at, true)),
            (false, true) => Some(failing("Readiness", &container.readiness_probe, started_at, false)),
            (false, false) => None,
        };
        Self { started_at: Some(started_at), ready_at: (!readiness).then_some(ready_at), failing }
    }
}

fn delay(probe: Option<&Probe>) -> SignedDuration {
    seconds(probe.and_then(|probe| probe.initial_delay_seconds).unwrap_or(0).max(0))
}

fn seconds(n: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(n))
}

/// Whether a container that ended with `code` is started again. Upstream: pkg/api/v1/pod v1.36.2
/// `ContainerShouldRestart`: the container's own rules, then its own policy, then the pod's.
pub(crate) fn should_restart(container: &Container, spec: &PodSpec, code: i32) -> bool {
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(exit_codes) = &rule.exit_codes else { continue };
        let listed = exit_codes.values.iter().flatten().any(|value| *value == code);
        let matches = match exit_codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if matches && rule.action == "Restart" {
            return true;
        }
    }
    match container.restart_policy.as_deref().or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}
