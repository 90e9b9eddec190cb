//! The PodStatus that a lifecycle amounts to: phase, conditions, container statuses. Computed anew each time; nothing is
//! decided here.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::container::{End, Record, State, should_restart};
use super::{PodLifecycle, SandboxState, Stage};

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// Conditions of a pod that its kubelet owns, in the order in which it writes them.
const OWN_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

impl PodLifecycle {
    /// The status as of `now`. The times of conditions that did not change are kept.
    pub(crate) fn status(&mut self, now: Timestamp) -> PodStatus {
        if let Some(rejection) = &self.rejection {
            // Upstream: pkg/kubelet v1.36.2 `rejectPod` reports nothing else.
            return PodStatus {
                phase: Some(FAILED.to_owned()),
                reason: Some(rejection.reason.clone()),
                message: Some(format!("Pod was rejected: {}", rejection.message)),
                observed_generation: self.pod.metadata.generation,
                start_time: Some(Time(self.start_time)),
                ..PodStatus::default()
            };
        }
        let phase = self.phase(now);
        let conditions = self.conditions(phase, now);
        let of = |list: &str| -> Vec<ContainerStatus> {
            self.records
                .iter()
                .filter(|record| record.list() == list)
                .map(|record| self.container(record, now))
                .collect()
        };
        let (init, ephemeral) = (of("initContainers"), of("ephemeralContainers"));
        let pod_ip = self.pod_ip();
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(conditions),
            host_ip: Some(self.host_ip.clone()),
            host_ips: Some(vec![HostIP { ip: self.host_ip.clone() }]),
            pod_ips: pod_ip.clone().map(|ip| vec![PodIP { ip }]),
            pod_ip,
            start_time: Some(Time(self.start_time)),
            init_container_statuses: (!init.is_empty()).then_some(init),
            container_statuses: Some(of("containers")),
            ephemeral_container_statuses: (!ephemeral.is_empty()).then_some(ephemeral),
            observed_generation: self.pod.metadata.generation,
            reason: self.verdict.as_ref().and_then(|verdict| verdict.reason.clone()),
            message: self.verdict.as_ref().and_then(|verdict| verdict.message.clone()),
            ..PodStatus::default()
        }
    }

    fn pod_ip(&self) -> Option<String> {
        match &self.sandbox {
            SandboxState::Ready(sandbox) => Some(sandbox.ip.clone().unwrap_or_else(|| self.host_ip.clone())),
            // A pod in the host's network has its address before there is a sandbox.
            _ if self.spec().host_network == Some(true) => Some(self.host_ip.clone()),
            SandboxState::Removed(ip) => ip.clone(),
            SandboxState::None | SandboxState::Pending | SandboxState::Failed(_) => None,
        }
    }

    /// Upstream: pkg/kubelet v1.36.2 kubelet_pods.go `getPhase`, with the container restart rules.
    fn phase(&self, now: Timestamp) -> &'static str {
        if let Some(verdict) = &self.verdict {
            return verdict.phase;
        }
        let spec = self.spec();
        let mut pending_init = 0;
        let mut failed_for_good = 0;
        let mut pending_sidecars = 0;
        let (mut running, mut waiting, mut stopped, mut stopped_for_good, mut succeeded) = (0, 0, 0, 0, 0);
        let mut main_started = false;
        for record in self.records.iter().filter(|record| !record.ephemeral) {
            let container = self.container_spec(record);
            let restartable = |end: &End| end.restart || container.is_some_and(|c| should_restart(c, spec, end.code));
            let ended = record.end().or_else(|| record.last.as_ref().filter(|_| record.state == State::Waiting));
            if record.init && !record.sidecar {
                match (&record.state, ended) {
                    (State::Running(_), _) | (State::Waiting, None) => pending_init += 1,
                    (_, Some(end)) if end.code != 0 && !restartable(end) => failed_for_good += 1,
                    (_, Some(_)) | (State::Terminated(_), None) => {}
                }
            } else if record.sidecar {
                match (&record.state, ended) {
                    (State::Running(_), _) => {
                        running += 1;
                        pending_sidecars += usize::from(!record.started(now));
                    }
                    (_, Some(_)) | (State::Terminated(_), None) => {}
                    (State::Waiting, None) => {
                        pending_sidecars += 1;
                        waiting += 1;
                    }
                }
            } else {
                main_started |= record.run().is_some();
                match (&record.state, ended) {
                    (State::Running(_), _) => running += 1,
                    (_, Some(end)) => {
                        stopped += 1;
                        stopped_for_good += usize::from(!restartable(end));
                        succeeded += usize::from(end.code == 0);
                    }
                    (State::Waiting, None) | (State::Terminated(_), None) => waiting += 1,
                }
            }
        }
        if failed_for_good > 0 {
            return FAILED;
        }
        if self.is_over() && stopped > 0 {
            return if stopped == succeeded && waiting == 0 { SUCCEEDED } else { FAILED };
        }
        if self.is_over() && self.pod.metadata.deletion_timestamp.is_some() {
            // Nothing of it ever ran.
            return FAILED;
        }
        if pending_init > 0 || (pending_sidecars > 0 && !main_started) || waiting > 0 {
            return PENDING;
        }
        if running > 0 {
            return RUNNING;
        }
        match (stopped, stopped_for_good) {
            (0, _) => PENDING,
            (all, for_good) if all != for_good => RUNNING,
            (all, _) if all == succeeded => SUCCEEDED,
            _ => FAILED,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    fn conditions(&mut self, phase: &str, now: Timestamp) -> Vec<PodCondition> {
        let sandbox_ready = matches!(self.sandbox, SandboxState::Ready(_)) && !self.is_over();
        let containers_ready = self.containers_ready(phase, now);
        let ready = match containers_ready.status {
            true => self.gates(),
            false => containers_ready.clone(),
        };
        let verdicts =
            [Verdict::of(sandbox_ready), self.initialized(phase, now), ready, containers_ready, Verdict::of(true)];
        let generation = self.pod.metadata.generation;
        let known = self.pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let mut conditions = Vec::with_capacity(OWN_CONDITIONS.len());
        for (i, (type_, verdict)) in OWN_CONDITIONS.into_iter().zip(verdicts).enumerate() {
            let status = if verdict.status { "True" } else { "False" };
            let since = match self.transitions[i] {
                Some((was, since)) if was == verdict.status => since,
                Some(_) => now,
                None => known
                    .iter()
                    .find(|condition| condition.type_ == type_ && condition.status == status)
                    .and_then(|condition| condition.last_transition_time.as_ref())
                    .map_or(now, |time| time.0),
            };
            self.transitions[i] = Some((verdict.status, since));
            conditions.push(PodCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: verdict.reason.map(str::to_owned),
                message: verdict.message,
                last_probe_time: None,
                last_transition_time: Some(Time(since)),
                // Whoever bound the pod said this one; it carries no generation.
                observed_generation: generation.filter(|_| type_ != "PodScheduled"),
            });
        }
        conditions
    }

    /// Upstream: pkg/kubelet/status v1.36.2 `GenerateContainersReadyCondition`.
    fn containers_ready(&self, phase: &str, now: Timestamp) -> Verdict {
        if let Some(reason) = terminal_reason(phase) {
            return Verdict { status: false, reason: Some(reason), message: None };
        }
        let counted = self.records.iter().filter(|record| record.is_main() || record.sidecar);
        let unready = names(counted.filter(|record| !record.ready(now)));
        if unready.is_empty() {
            return Verdict::of(true);
        }
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        Verdict { status: false, reason: Some("ContainersNotReady"), message: Some(message) }
    }

    /// Upstream: pkg/kubelet/status v1.36.2 `GeneratePodReadyCondition`, once all containers are ready.
    fn gates(&self) -> Verdict {
        let known = self.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let mut unready = Vec::new();
        for gate in self.spec().readiness_gates.iter().flatten() {
            let type_ = &gate.condition_type;
            match known.iter().find(|condition| condition.type_ == *type_) {
                None => {
                    unready.push(format!("corresponding condition of pod readiness gate {type_:?} does not exist."))
                }
                Some(condition) if condition.status != "True" => {
                    let status = &condition.status;
                    unready.push(format!("the status of pod readiness gate {type_:?} is not \"True\", but {status}"));
                }
                Some(_) => {}
            }
        }
        if unready.is_empty() {
            return Verdict::of(true);
        }
        Verdict { status: false, reason: Some("ReadinessGatesNotReady"), message: Some(unready.join(", ")) }
    }

    /// Upstream: pkg/kubelet/status v1.36.2 `GeneratePodInitializedCondition`.
    fn initialized(&self, phase: &str, now: Timestamp) -> Verdict {
        if phase == SUCCEEDED {
            return Verdict { status: true, reason: Some("PodCompleted"), message: None };
        }
        let main_has_run = self.records.iter().any(|record| {
            record.is_main() && (record.run().is_some() || record.end().is_some() || record.last.is_some())
        });
        let incomplete =
            names(self.records.iter().filter(|record| {
                record.init && if record.sidecar { !record.started(now) } else { !record.ready(now) }
            }));
        if main_has_run || incomplete.is_empty() {
            return Verdict::of(true);
        }
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        Verdict { status: false, reason: Some("ContainersNotInitialized"), message: Some(message) }
    }

    /// Upstream: pkg/kubelet v1.36.2 `convertToAPIContainerStatuses`.
    fn container(&self, record: &Record, now: Timestamp) -> ContainerStatus {
        let container = self.container_spec(record);
        let has_init = self.records.iter().any(|record| record.init);
        let mut last = record.last.as_ref();
        let state = match &record.state {
            State::Running(run) => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(run.at)) }),
                ..ContainerState::default()
            },
            State::Terminated(end) if record.waiting.is_none() => {
                ContainerState { terminated: Some(terminated(end)), ..ContainerState::default() }
            }
            State::Waiting | State::Terminated(_) => {
                last = record.end().or(last);
                let (reason, message) = match &record.waiting {
                    Some((reason, message)) => (reason.as_str(), Some(message.clone()).filter(|text| !text.is_empty())),
                    None if has_init => ("PodInitializing", None),
                    None => ("ContainerCreating", None),
                };
                let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
                ContainerState { waiting: Some(waiting), ..ContainerState::default() }
            }
        };
        let id = record.run().map(|run| &run.id).or_else(|| record.end().map(|end| &end.id));
        let resources = container
            .and_then(|container| container.resources.clone())
            .filter(|resources| record.run().is_some() && (resources.limits.is_some() || resources.requests.is_some()));
        ContainerStatus {
            name: record.name.to_string(),
            image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
            image_id: record.image_id.clone(),
            container_id: id.filter(|id| !id.is_empty()).cloned(),
            ready: record.ready(now),
            started: (!record.ephemeral).then(|| record.started(now)),
            restart_count: record.restarts,
            state: Some(state),
            last_state: Some(ContainerState { terminated: last.map(terminated), ..ContainerState::default() }),
            allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
            resources,
            ..ContainerStatus::default()
        }
    }
}

/// What one condition says.
#[derive(Clone, Debug)]
struct Verdict {
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn of(status: bool) -> Self {
        Self { status, reason: None, message: None }
    }
}

fn terminal_reason(phase: &str) -> Option<&'static str> {
    match phase {
        SUCCEEDED => Some("PodCompleted"),
        FAILED => Some("PodFailed"),
        _ => None,
    }
}

fn names<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<&'a str> {
    records.map(|record| &*record.name).collect()
}

fn terminated(end: &End) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(end.id.clone()).filter(|id| !id.is_empty()),
        exit_code: end.code,
        finished_at: Some(Time(end.finished)),
        reason: Some(if end.code == 0 { "Completed" } else { "Error" }.to_owned()),
        started_at: Some(Time(end.started)),
        ..ContainerStateTerminated::default()
    }
}
