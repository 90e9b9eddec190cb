//! The steps of a pod's life: what each input changes, and what has to happen next.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::container::{End, InFlight, PullFailure, Record, Run, State, should_restart};
use super::status::{FAILED, SUCCEEDED};
use super::{Action, Input, NORMAL, PodEvent, PodLifecycle, SandboxState, Stage, Verdict, WARNING};
use crate::runtime::{ContainerExit, PulledImage, RuntimeError, StartedContainer};

/// From a failed pull to the word that it is backed off: the next turn of a pod worker.
const ANNOUNCE_BACKOFF_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// Between two tries to make a sandbox.
const SANDBOX_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Shortest grace of a container. Upstream: pkg/kubelet v1.36.2 `minimumGracePeriodInSeconds`.
const MINIMUM_GRACE_SECONDS: i64 = 2;

impl PodLifecycle {
    pub(super) fn take(&mut self, input: Input, now: Timestamp, out: &mut Vec<Action>) {
        match input {
            Input::Pod(pod) => self.take_pod(pod, out),
            Input::Sandbox(Ok(sandbox)) => self.sandbox = SandboxState::Ready(sandbox),
            Input::Sandbox(Err(error)) => {
                self.sandbox = SandboxState::Failed(now + SANDBOX_RETRY);
                let message = format!("Failed to create pod sandbox: {error}");
                out.push(event(WARNING, "FailedCreatePodSandBox", message, None));
            }
            Input::Mounted(found) => self.mounts_found(found, now, out),
            Input::Configured(name, found) => self.configured(&name, found, now, out),
            Input::Inspected(name, outcome) => self.inspected(&name, outcome, now, out),
            Input::Pulled(name, outcome) => self.pulled(&name, outcome, now, out),
            Input::Started(name, outcome) => self.container_started(&name, outcome, now, out),
            Input::Exited(exit) => self.exited(&exit),
            Input::Wake => self.probe(now, out),
        }
    }

    /// What has to happen next, given everything known.
    pub(super) fn sync(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.check_end(now, out);
        }
        match self.stage {
            Stage::Active => {
                self.restart_changed(out);
                self.advance(now, out);
            }
            Stage::Stopping | Stage::Done => {}
        }
        if self.stage == Stage::Stopping {
            self.stop(out);
        }
        if self.stage == Stage::Done {
            self.finish(out);
        }
    }

    fn take_pod(&mut self, pod: Arc<Pod>, out: &mut Vec<Action>) {
        let old_grace = grace_of_deletion(&self.pod);
        self.pod = pod;
        self.spec = self.pod.spec.clone().unwrap_or_default();
        self.add_ephemeral();
        if let (Stage::Stopping, Some(grace)) = (self.stage, grace_of_deletion(&self.pod))
            && old_grace.is_none_or(|old| grace < old)
        {
            self.ask_to_stop(grace, out);
        }
    }

    /// Whether the pod's life ends for a reason outside its containers.
    fn check_end(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if let Some("Succeeded" | "Failed") = phase {
            // Somebody declared it over; a terminal phase is never left again.
            let phase = if phase == Some(SUCCEEDED) { SUCCEEDED } else { FAILED };
            let status = self.pod.status.as_ref();
            let (reason, message) =
                (status.and_then(|status| status.reason.clone()), status.and_then(|status| status.message.clone()));
            self.verdict = Some(Verdict { phase, reason, message });
            self.begin_stopping(self.termination_grace(), out);
        } else if self.is_deleted() {
            self.begin_stopping(grace_of_deletion(&self.pod).unwrap_or_else(|| self.termination_grace()), out);
        } else if let Some(seconds) = self.spec.active_deadline_seconds
            && self.start_time + SignedDuration::from_secs(seconds) <= now
        {
            // Upstream: pkg/kubelet v1.36.2 active_deadline.go.
            let message = "Pod was active on the node longer than the specified deadline";
            out.push(event(NORMAL, "DeadlineExceeded", message.to_owned(), None));
            let (reason, message) = (Some("DeadlineExceeded".to_owned()), Some(message.to_owned()));
            self.verdict = Some(Verdict { phase: FAILED, reason, message });
            self.begin_stopping(self.termination_grace(), out);
        }
    }

    fn termination_grace(&self) -> i64 {
        self.spec.termination_grace_period_seconds.unwrap_or(30)
    }

    /// Upstream: pkg/kubelet/kuberuntime v1.36.2 `SyncPod`: volumes, sandbox, ephemeral containers, init containers one after
    /// the other, containers.
    fn advance(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        match &self.sandbox {
            SandboxState::None => {
                if !self.mounted(now, out) {
                    return;
                }
                self.sandbox = SandboxState::Pending;
                out.push(Action::RunSandbox);
                return;
            }
            SandboxState::Failed(again) if *again <= now => {
                self.sandbox = SandboxState::Pending;
                out.push(Action::RunSandbox);
                return;
            }
            SandboxState::Pending | SandboxState::Failed(_) | SandboxState::Removed(_) => return,
            SandboxState::Ready(_) => {}
        }
        for i in 0..self.records.len() {
            if self.records[i].ephemeral && self.records[i].state == State::Waiting {
                self.start(i, now, out);
            }
        }
        let main_has_run = self.records.iter().any(|record| record.is_main() && record.state != State::Waiting);
        for i in 0..self.records.len() {
            let record = &self.records[i];
            if record.ephemeral {
                continue;
            }
            if !record.init {
                if record.run().is_none() && self.starts_again(record) {
                    self.start(i, now, out);
                }
            } else if record.sidecar {
                if record.run().is_none() {
                    self.start(i, now, out);
                }
                if !self.records[i].started(now) && !main_has_run {
                    return;
                }
            } else if !main_has_run && !record.ready(now) {
                if record.run().is_some() {
                    return;
                }
                if self.starts_again(record) {
                    self.start(i, now, out);
                } else {
                    // It failed for good, and the pod with it.
                    self.begin_stopping(self.termination_grace(), out);
                }
                return;
            }
        }
        let mut main = self.records.iter().filter(|record| record.is_main());
        if main.all(|record| record.end().is_some() && !self.starts_again(record)) {
            self.begin_stopping(self.termination_grace(), out);
        }
    }

    /// Whether a container that does not run is to be started, now or after its back-off.
    fn starts_again(&self, record: &Record) -> bool {
        match &record.state {
            State::Waiting => true,
            State::Terminated(_) if record.ephemeral => false,
            State::Running(_) => false,
            State::Terminated(end) => {
                end.restart
                    || self
                        .container_spec(record)
                        .is_some_and(|container| should_restart(container, &self.spec, end.code))
            }
        }
    }

    /// Takes the next step towards a run of container `i`: wait, image, start.
    fn start(&mut self, i: usize, now: Timestamp, out: &mut Vec<Action>) {
        let pod_text = format!(
            "{}_{}({})",
            self.pod.metadata.name.as_deref().unwrap_or_default(),
            self.pod.metadata.namespace.as_deref().unwrap_or_default(),
            self.pod.metadata.uid.as_deref().unwrap_or_default()
        );
        let image = self.image(i);
        let policy = self.container_spec(&self.records[i]).and_then(|c| c.image_pull_policy.as_deref());
        let pulls_always = policy == Some("Always");
        let record = &mut self.records[i];
        if record.in_flight.is_some() || record.missing.as_ref().is_some_and(|missing| missing.next > now) {
            return;
        }
        if record.missing.is_some() {
            self.configure(i, out);
            return;
        }
        if let Some(end) = record.end()
            && !record.image_ready
            && record.pull_failure.is_none()
        {
            if record.crashes.waits_until(end.finished, now).is_some() {
                if record.waiting.is_none() {
                    let (name, wait) = (record.name.clone(), record.crashes.wait_text());
                    let text = format!("Back-off restarting failed container {name} in pod {pod_text}");
                    out.push(event(WARNING, "BackOff", text, Some(record)));
                    let message = format!("back-off {wait} restarting failed container={name} pod={pod_text}");
                    record.waiting = Some(("CrashLoopBackOff".to_owned(), message));
                }
                return;
            }
            record.crashes.tried(now);
        }
        if let Some(failure) = &mut record.pull_failure {
            let waits = record.pulls.waits_until(failure.at, now).is_some();
            if waits && !failure.announced && failure.at + ANNOUNCE_BACKOFF_AFTER <= now {
                failure.announced = true;
                let text = format!("Back-off pulling image \"{image}\"");
                let message = format!("{text}: {}: {}", failure.reason, failure.message);
                out.push(event(NORMAL, "BackOff", text, Some(record)));
                out.push(event(WARNING, "Failed", "Error: ImagePullBackOff".to_owned(), Some(record)));
                record.waiting = Some(("ImagePullBackOff".to_owned(), message));
            }
            if waits {
                return;
            }
        }
        if pulls_always {
            self.pull(i, out);
        } else {
            record.in_flight = Some(InFlight::Inspect);
            out.push(Action::InspectImage(record.name.clone()));
        }
    }

    pub(super) fn image(&self, i: usize) -> String {
        self.container_spec(&self.records[i]).and_then(|container| container.image.clone()).unwrap_or_default()
    }

    fn pull(&mut self, i: usize, out: &mut Vec<Action>) {
        let text = format!("Pulling image \"{}\"", self.image(i));
        let record = &mut self.records[i];
        out.push(event(NORMAL, "Pulling", text, Some(record)));
        record.in_flight = Some(InFlight::Pull);
        out.push(Action::PullImage(record.name.clone()));
    }

    pub(super) fn find(&self, name: &str, expected: InFlight) -> Option<usize> {
        self.records.iter().position(|record| *record.name == *name && record.in_flight == Some(expected))
    }

    /// Upstream: pkg/kubelet/images v1.36.2 `EnsureImageExists`.
    fn inspected(&mut self, name: &str, outcome: Result<bool, RuntimeError>, now: Timestamp, out: &mut Vec<Action>) {
        let Some(i) = self.find(name, InFlight::Inspect) else { return };
        let image = self.image(i);
        let never = self.container_spec(&self.records[i]).and_then(|c| c.image_pull_policy.as_deref()) == Some("Never");
        self.records[i].in_flight = None;
        if self.stage != Stage::Active {
            return;
        }
        match outcome {
            Ok(true) => {
                let text = format!("Container image \"{image}\" already present on machine");
                out.push(event(NORMAL, "Pulled", text, Some(&self.records[i])));
                self.start_run(i, out);
            }
            Ok(false) if never => {
                let text = format!("Container image \"{image}\" is not present with pull policy of Never");
                self.image_failed(i, "ErrImageNeverPull", text.clone(), ("ErrImageNeverPull", text), now, out);
            }
            Ok(false) => self.pull(i, out),
            Err(error) => {
                let text = format!("Failed to inspect image \"{image}\": {error}");
                self.image_failed(i, "ImageInspectError", text.clone(), ("InspectFailed", text), now, out);
            }
        }
    }

    fn pulled(
        &mut self,
        name: &str,
        outcome: Result<PulledImage, RuntimeError>,
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        let Some(i) = self.find(name, InFlight::Pull) else { return };
        let image = self.image(i);
        self.records[i].in_flight = None;
        if self.stage != Stage::Active {
            return;
        }
        match outcome {
            Ok(PulledImage { took, size }) => {
                let took = duration_text(took);
                let text = format!(
                    "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {size} bytes."
                );
                out.push(event(NORMAL, "Pulled", text, Some(&self.records[i])));
                self.start_run(i, out);
            }
            Err(error) => {
                let text = format!("Failed to pull image \"{image}\": {error}");
                self.image_failed(i, "ErrImagePull", error.0, ("Failed", text), now, out);
            }
        }
    }

    fn image_failed(
        &mut self,
        i: usize,
        reason: &'static str,
        message: String,
        (event_reason, text): (&str, String),
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        let record = &mut self.records[i];
        out.push(event(WARNING, event_reason, text, Some(record)));
        out.push(event(WARNING, "Failed", format!("Error: {reason}"), Some(record)));
        record.waiting = Some((reason.to_owned(), message.clone()));
        record.pulls.tried(now);
        // Only a pull is backed off in words; the other failures stay what they are.
        let announced = reason != "ErrImagePull";
        record.pull_failure = Some(PullFailure { at: now, reason, message, announced });
    }

    fn start_run(&mut self, i: usize, out: &mut Vec<Action>) {
        let record = &mut self.records[i];
        record.pull_failure = None;
        record.image_ready = true;
        if !self.configure(i, out) {
            self.start_configured(i, out);
        }
    }

    pub(super) fn start_configured(&mut self, i: usize, out: &mut Vec<Action>) {
        let record = &mut self.records[i];
        record.in_flight = Some(InFlight::Start);
        out.push(Action::StartContainer(record.name.clone(), record.attempt()));
    }

    fn container_started(
        &mut self,
        name: &str,
        outcome: Result<StartedContainer, RuntimeError>,
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        let Some(i) = self.find(name, InFlight::Start) else { return };
        let image = self.image(i);
        let container = self.container_spec(&self.records[i]).cloned();
        let probes = outcome.as_ref().ok().map(|started| self.probes(container.as_ref(), started.at));
        let record = &mut self.records[i];
        record.in_flight = None;
        record.image_ready = false;
        match outcome {
            Ok(StartedContainer { id, image_id, at }) => {
                out.push(event(NORMAL, "Created", "Container created".to_owned(), Some(record)));
                out.push(event(NORMAL, "Started", "Container started".to_owned(), Some(record)));
                let probes = probes.unwrap_or_default();
                let run = State::Running(Run { id, at, image, probes, stopping: None, restart: false });
                if let State::Terminated(end) = std::mem::replace(&mut record.state, run) {
                    record.last = Some(end);
                    record.restarts += 1;
                }
                record.image_id = image_id;
                record.waiting = None;
            }
            Err(error) => {
                let text = format!("Error: {error}");
                out.push(event(WARNING, "Failed", text, Some(record)));
                record.waiting = Some(("RunContainerError".to_owned(), error.0.clone()));
                record.pulls.tried(now);
                record.pull_failure =
                    Some(PullFailure { at: now, reason: "RunContainerError", message: error.0, announced: true });
            }
        }
    }

    fn exited(&mut self, exit: &ContainerExit) {
        let record = self.records.iter_mut().find(|record| record.name == exit.container);
        let Some(record) = record.filter(|record| record.restarts == exit.attempt) else { return };
        if let State::Running(run) = &record.state {
            record.state = State::Terminated(End {
                id: run.id.clone(),
                code: exit.code,
                started: run.at,
                finished: exit.at,
                restart: run.restart,
            });
        }
    }

    /// Failing probes whose time has come, and containers whose definition has changed.
    fn probe(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let grace = self.termination_grace();
        for i in 0..self.records.len() {
            let record = &mut self.records[i];
            let State::Running(run) = &mut record.state else { continue };
            let Some(failing) = run.probes.failing.as_mut().filter(|failing| failing.next <= now) else { continue };
            if run.stopping.is_some() {
                continue;
            }
            let kind = failing.kind;
            failing.next = now + failing.period;
            let is_last = failing.left.is_some_and(|left| left <= 0);
            failing.left = failing.left.map(|left| left - 1);
            out.push(event(WARNING, "Unhealthy", format!("{kind} probe failed: "), Some(record)));
            if is_last {
                let why = format!("failed {} probe", kind.to_lowercase());
                self.stop_for_restart(i, &why, grace, out);
            }
        }
    }

    /// Stops a run so that a new one takes its place. Upstream: pkg/kubelet/kuberuntime v1.36.2 `computePodActions`.
    fn stop_for_restart(&mut self, i: usize, why: &str, grace: i64, out: &mut Vec<Action>) {
        let never = self.spec.restart_policy.as_deref() == Some("Never");
        let record = &mut self.records[i];
        let changed = why == "definition changed";
        let restarts = changed || !never;
        let kind = if record.init && !record.sidecar { "Init container" } else { "Container" };
        let tail = if restarts { ", will be restarted" } else { "" };
        let text = format!("{kind} {} {why}{tail}", record.name);
        out.push(event(NORMAL, "Killing", text, Some(record)));
        let (name, attempt) = (record.name.clone(), record.restarts);
        if let State::Running(run) = &mut record.state {
            run.restart = restarts;
            run.stopping = Some(grace);
            run.probes.failing = None;
            out.push(Action::StopContainer(name, attempt, grace.max(MINIMUM_GRACE_SECONDS)));
        }
    }

    /// Restarts containers whose image was changed in the spec.
    fn restart_changed(&mut self, out: &mut Vec<Action>) {
        let grace = self.termination_grace();
        for i in 0..self.records.len() {
            let image = self.image(i);
            let changed = self.records[i].run().is_some_and(|run| run.stopping.is_none() && run.image != image);
            if changed {
                self.stop_for_restart(i, "definition changed", grace, out);
            }
        }
    }

    fn begin_stopping(&mut self, grace: i64, out: &mut Vec<Action>) {
        self.stage = Stage::Stopping;
        for record in self.records.iter().filter(|record| record.run().is_some_and(|run| run.stopping.is_none())) {
            out.push(event(NORMAL, "Killing", format!("Stopping container {}", record.name), Some(record)));
        }
        self.ask_to_stop(grace, out);
    }

    /// Asks what runs to stop: the containers, and the sidecars once no container runs.
    fn ask_to_stop(&mut self, grace: i64, out: &mut Vec<Action>) {
        let main_runs = self.records.iter().any(|record| !record.sidecar && record.is_active());
        for record in self.records.iter_mut().filter(|record| !(record.sidecar && main_runs)) {
            let (name, attempt) = (record.name.clone(), record.restarts);
            if let State::Running(run) = &mut record.state
                && run.stopping.is_none_or(|asked| grace < asked)
            {
                run.stopping = Some(grace);
                run.restart = false;
                out.push(Action::StopContainer(name, attempt, grace.max(MINIMUM_GRACE_SECONDS)));
            }
        }
    }

    /// Goes on stopping; when nothing runs any more, the pod is done.
    fn stop(&mut self, out: &mut Vec<Action>) {
        let grace = grace_of_deletion(&self.pod).unwrap_or_else(|| self.termination_grace());
        self.ask_to_stop(grace, out);
        if self.records.iter().any(Record::is_active) || self.sandbox == SandboxState::Pending {
            return;
        }
        let ip = match std::mem::replace(&mut self.sandbox, SandboxState::Removed(None)) {
            SandboxState::Ready(sandbox) => {
                out.push(Action::RemoveSandbox);
                Some(sandbox.ip.unwrap_or_else(|| self.host_ip.clone()))
            }
            SandboxState::Removed(ip) => ip,
            SandboxState::None | SandboxState::Pending | SandboxState::Failed(_) => None,
        };
        self.sandbox = SandboxState::Removed(ip);
        self.stage = Stage::Done;
    }

    /// Deletes a pod that is done and was deleted. As long as somebody holds it with a finalizer nothing is sent: the
    /// deletion would only move its deletionTimestamp. Upstream sends it at once (pkg/kubelet/status v1.36.2 `syncPod`).
    pub(super) fn finish(&mut self, out: &mut Vec<Action>) {
        let held = self.pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if self.is_deleted() && !held && !self.delete_sent {
            self.delete_sent = true;
            out.push(Action::Delete);
        }
    }
}

fn grace_of_deletion(pod: &Pod) -> Option<i64> {
    pod.metadata.deletion_timestamp.as_ref().and(pod.metadata.deletion_grace_period_seconds)
}

/// When a container that waits for its image has something to do next.
pub(super) fn next_of(failure: &PullFailure, record: &Record, now: Timestamp) -> Timestamp {
    let announce = failure.at + ANNOUNCE_BACKOFF_AFTER;
    match record.pulls.waits_until(failure.at, now) {
        Some(until) if failure.announced => until,
        Some(until) => announce.min(until),
        None => now,
    }
}

pub(super) fn event(event_type: &'static str, reason: &str, message: String, record: Option<&Record>) -> Action {
    let container = record.map(|record| (record.name.clone(), record.list()));
    Action::Event(PodEvent { event_type, reason: reason.to_owned(), message, container })
}

/// A duration as Go prints it, down to milliseconds: `100ms`, `1.5s`.
fn duration_text(duration: std::time::Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 { format!("{millis}ms") } else { format!("{}s", duration.as_secs_f64()) }
}
