//! The simulated container runtime: nothing runs, but everything takes its time and ends as its command says. Knows
//! nothing of the API; the kubelet drives it as it would drive a real one.

mod addresses;
mod script;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use self::addresses::Addresses;
use self::script::{Script, Then, fails_for_certain};
use super::logs::LogOptions;
use super::runtime::{
    ContainerExit, ContainerRef, ContainerRuntime, ExitListener, PulledImage, RuntimeError, Sandbox, StartedContainer,
};

/// An image with this in its name cannot be pulled.
const MISSING_IMAGE: &str = "does-not-exist";
/// How long an init container runs whose command does not say.
const INIT_RUN: Duration = Duration::from_millis(500);
/// How long a Job's container runs whose command does not say.
const JOB_RUN: Duration = Duration::from_secs(1);

/// The exit code of a container that is killed: 128 and the signal's number.
const SIGKILL: i32 = 137;
/// The exit code of a container that a SIGTERM ends.
const SIGTERM: i32 = 143;

/// How long the simulated steps take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationTimes {
    /// Making a sandbox and its network.
    pub sandbox: Duration,
    /// Pulling an image (`imagePullPolicy: Always`; otherwise every image is there already).
    pub pull: Duration,
    /// Creating and starting a container.
    pub start: Duration,
    /// Stopping a container that heeds SIGTERM, unless its grace period is shorter.
    pub stop: Duration,
}

impl Default for SimulationTimes {
    fn default() -> Self {
        Self {
            sandbox: Duration::from_millis(50),
            pull: Duration::from_millis(100),
            start: Duration::ZERO,
            stop: Duration::from_millis(800),
        }
    }
}

/// A runtime without containers. See the module.
pub struct SimulatedRuntime {
    times: SimulationTimes,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    running: Mutex<HashMap<Key, Running>>,
    addresses: Mutex<Addresses>,
}

/// UID of the pod, name of the container.
type Key = (String, Arc<str>);

struct Running {
    attempt: i32,
    exits: ExitListener,
    /// Cancels the timer that waits for the end.
    timer: CancellationToken,
    ends_at: Option<tokio::time::Instant>,
}

impl fmt::Debug for SimulatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRuntime").field("times", &self.times).finish_non_exhaustive()
    }
}

impl Default for SimulatedRuntime {
    fn default() -> Self {
        Self::new(SimulationTimes::default())
    }
}

impl SimulatedRuntime {
    /// A runtime whose steps take `times`.
    pub fn new(times: SimulationTimes) -> Self {
        Self { times, shared: Arc::default() }
    }

    /// How long the container runs and how it ends, if it ends by itself.
    fn end(container: &ContainerRef) -> Option<(Duration, i32)> {
        let (spec, init) = container.spec()?;
        let script = read(container);
        if let Some(end) = script.end() {
            return Some(end);
        }
        let of_job = of_job(&container.pod);
        let sidecar = is_sidecar(&spec, init);
        match script.then {
            Then::Unknown if sidecar => None,
            Then::Unknown if init => Some((INIT_RUN, 0)),
            Then::Unknown if of_job => Some((JOB_RUN, 0)),
            _ => None,
        }
    }

    /// How long the container takes to stop and the code it ends with. A server that is asked and has the time ends well;
    /// what is killed does not, nor does what had work to finish: a Job must not count a pod that was deleted as done.
    fn stop(&self, container: &ContainerRef, grace: Duration) -> (Duration, i32) {
        if grace < self.times.stop {
            return (grace, SIGKILL);
        }
        let sidecar = container.spec().is_some_and(|(spec, init)| is_sidecar(&spec, init));
        let unfinished = !sidecar && of_job(&container.pod) || Self::end(container).is_some();
        (self.times.stop, if unfinished { SIGTERM } else { 0 })
    }
}

fn is_sidecar(spec: &Container, init: bool) -> bool {
    init && spec.restart_policy.as_deref() == Some("Always")
}

fn of_job(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job")
}

fn read(container: &ContainerRef) -> Script {
    let Some((spec, _)) = container.spec() else { return Script::read(&[], &[]) };
    Script::read(spec.command.as_deref().unwrap_or_default(), spec.args.as_deref().unwrap_or_default())
}

impl Shared {
    fn insert(self: &Arc<Self>, container: &ContainerRef, exits: ExitListener, end: Option<(Duration, i32)>) {
        let key = (container.pod_uid().to_owned(), container.name.clone());
        let running = Running { attempt: container.attempt, exits, timer: CancellationToken::new(), ends_at: None };
        self.running().insert(key.clone(), running);
        if let Some((after, code)) = end {
            self.end_after(&key, after, code);
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a running container end with `code`, unless it ends sooner anyway.
    fn end_after(self: &Arc<Self>, key: &Key, after: Duration, code: i32) {
        let at = tokio::time::Instant::now() + after;
        let (timer, attempt) = {
            let mut running = self.running();
            let Some(entry) = running.get_mut(key).filter(|entry| entry.ends_at.is_none_or(|ends| at < ends)) else {
                return;
            };
            entry.timer.cancel();
            entry.timer = CancellationToken::new();
            entry.ends_at = Some(at);
            (entry.timer.clone(), entry.attempt)
        };
        let (shared, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = timer.cancelled() => {}
                () = tokio::time::sleep_until(at) => shared.ended(&key, attempt, code),
            }
        });
    }

    fn ended(&self, key: &Key, attempt: i32, code: i32) {
        let entry = {
            let mut running = self.running();
            match running.get(key) {
                Some(entry) if entry.attempt == attempt => running.remove(key),
                _ => None,
            }
        };
        if let Some(entry) = entry {
            let (pod_uid, container) = (key.0.clone(), key.1.clone());
            (entry.exits)(ContainerExit { pod_uid, container, attempt, code, at: Timestamp::now() });
        }
    }
}

/// Stands for the id that a runtime would make; the same container has the same id after a restart of the process.
fn container_id(container: &ContainerRef) -> String {
    let digest = Sha256::digest(format!("{}/{}/{}", container.pod_uid(), container.name, container.attempt));
    format!("containerd://{}", hex(&digest))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ContainerRuntime for SimulatedRuntime {
    fn version(&self) -> String {
        "containerd://2.0.0".to_owned()
    }

    fn image_present<'a>(&'a self, _node: &'a str, image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        async move { Ok(!image.contains(MISSING_IMAGE)) }.boxed()
    }

    fn pull_image<'a>(&'a self, _node: &'a str, image: &'a str) -> BoxFuture<'a, Result<PulledImage, RuntimeError>> {
        async move {
            if image.contains(MISSING_IMAGE) {
                let text = "rpc error: code = NotFound desc = failed to pull and unpack image";
                return Err(RuntimeError(format!("{text} \"{image}\": not found")));
            }
            tokio::time::sleep(self.times.pull).await;
            Ok(PulledImage { took: self.times.pull, size: 1000 })
        }
        .boxed()
    }

    fn run_sandbox(&self, pod: Arc<Pod>) -> BoxFuture<'_, Result<Sandbox, RuntimeError>> {
        async move {
            if !self.times.sandbox.is_zero() {
                tokio::time::sleep(self.times.sandbox).await;
            }
            let spec = pod.spec.as_ref();
            if spec.and_then(|spec| spec.host_network) == Some(true) {
                return Ok(Sandbox { ip: None });
            }
            let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            Ok(Sandbox { ip: Some(self.shared.addresses().assign(node, uid)) })
        }
        .boxed()
    }

    fn remove_sandbox(&self, pod: Arc<Pod>) -> BoxFuture<'_, ()> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        {
            let mut running = self.shared.running();
            for container in containers(&pod) {
                if let Some(entry) = running.remove(&(uid.clone(), Arc::from(container))) {
                    entry.timer.cancel();
                }
            }
        }
        self.shared.addresses().release(&uid);
        futures::future::ready(()).boxed()
    }

    fn start_container(
        &self,
        container: ContainerRef,
        exits: ExitListener,
    ) -> BoxFuture<'_, Result<StartedContainer, RuntimeError>> {
        async move {
            if !self.times.start.is_zero() {
                tokio::time::sleep(self.times.start).await;
            }
            let image = container.spec().map(|(spec, _)| spec.image.clone().unwrap_or_default()).unwrap_or_default();
            self.shared.insert(&container, exits, Self::end(&container));
            // No image was pulled, and the identity says so.
            let image_id = format!("fake://{image}");
            Ok(StartedContainer { id: container_id(&container), image_id, at: Timestamp::now() })
        }
        .boxed()
    }

    fn adopt_container(&self, container: ContainerRef, started: Timestamp, exits: ExitListener) {
        let ran = Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default();
        let end = Self::end(&container).map(|(after, code)| (after.saturating_sub(ran), code));
        self.shared.insert(&container, exits, end);
    }

    fn adopt_sandbox(&self, pod: &Pod, ip: &str) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        self.shared.addresses().claim(node, pod.metadata.uid.as_deref().unwrap_or_default(), ip);
    }

    fn stop_container(&self, container: ContainerRef, grace: Duration) -> BoxFuture<'_, ()> {
        let key = (container.pod_uid().to_owned(), container.name.clone());
        let (after, code) = self.stop(&container, grace);
        self.shared.end_after(&key, after, code);
        futures::future::ready(()).boxed()
    }

    fn exec_succeeds<'a>(&'a self, _container: &'a ContainerRef, command: &'a [String]) -> bool {
        !fails_for_certain(command)
    }

    fn logs(
        &self,
        container: ContainerRef,
        started: Timestamp,
        ended: Option<Timestamp>,
        options: LogOptions,
    ) -> BoxStream<'static, Result<Bytes, RuntimeError>> {
        let key = (container.pod_uid().to_owned(), container.name.clone());
        let now = ended.unwrap_or_else(Timestamp::now);
        let script = read(&container);
        let written = Tail { script, started, options, key, attempt: container.attempt, shared: self.shared.clone() };
        let (first, until) = written.present(now);
        let follows = written.options.follow && ended.is_none();
        let present = stream::iter((!first.is_empty()).then_some(Ok(first)));
        if !follows {
            return present.boxed();
        }
        let rest = stream::unfold((written, until), |(tail, until)| async move {
            let (line, at) = tail.next(until).await?;
            Some((Ok(line), (tail, at)))
        });
        present.chain(rest).boxed()
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
    let names = init.iter().chain(main).map(|container| container.name.as_str());
    names.chain(ephemeral.iter().map(|container| container.name.as_str()))
}

/// The log of one simulated container.
struct Tail {
    script: Script,
    started: Timestamp,
    options: LogOptions,
    key: Key,
    attempt: i32,
    shared: Arc<Shared>,
}

impl Tail {
    /// What is there at `now`, as the options want it, and how much of the container's life that covers.
    fn present(&self, now: Timestamp) -> (Bytes, Duration) {
        let elapsed = Duration::try_from(now.duration_since(self.started)).unwrap_or_default();
        let mut lines = self.script.lines(elapsed);
        if let Some(since) = self.options.since {
            lines.retain(|(at, _)| self.started + *at >= since);
        }
        if let Some(n) = self.options.tail_lines {
            lines.drain(..lines.len().saturating_sub(n));
        }
        let mut text: String = lines.into_iter().map(|(at, line)| self.line(at, line)).collect();
        if let Some(limit) = self.options.limit_bytes {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(text.len());
            text.truncate(text.floor_char_boundary(limit));
        }
        (Bytes::from(text), elapsed)
    }

    /// The next lines after `until`; `None` when the container has ended.
    async fn next(&self, until: Duration) -> Option<(Bytes, Duration)> {
        // Looked at twice a second at least, so that the end of the container ends the log.
        let step = Duration::from_millis(500);
        let mut until = until;
        loop {
            let running = self.shared.running().get(&self.key).is_some_and(|entry| entry.attempt == self.attempt);
            if !running {
                return None;
            }
            let wake = self.script.next_line_after(until).map_or(until + step, |at| at.min(until + step));
            let elapsed = Duration::try_from(Timestamp::now().duration_since(self.started)).unwrap_or_default();
            tokio::time::sleep(wake.saturating_sub(elapsed).max(Duration::from_millis(1))).await;
            let new = self.script.lines(wake).into_iter().filter(|(at, _)| *at > until);
            let text: String = new.map(|(at, line)| self.line(at, line)).collect();
            until = wake;
            if !text.is_empty() {
                return Some((Bytes::from(text), until));
            }
        }
    }

    fn line(&self, at: Duration, line: &str) -> String {
        if self.options.timestamps { format!("{:.9} {line}\n", self.started + at) } else { format!("{line}\n") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_server_that_is_given_the_time_ends_well_when_it_is_stopped() {
        let runtime = SimulatedRuntime::default();
        let (long, stop) = (Duration::from_secs(30), runtime.times.stop);
        for (name, owner, command, grace, want) in [
            ("a server", "ReplicaSet", json!(null), long, (stop, 0)),
            ("a server without grace", "ReplicaSet", json!(null), Duration::ZERO, (Duration::ZERO, 137)),
            ("a server that waits for ever", "ReplicaSet", json!(["sleep", "infinity"]), long, (stop, 0)),
            ("a task", "Pod", json!(["sleep", "1000"]), long, (stop, 143)),
            ("a Job's task", "Job", json!(["sleep", "1000"]), long, (stop, 143)),
            ("a Job's task that waits for ever", "Job", json!(["sleep", "infinity"]), long, (stop, 143)),
            ("a Job's task that does not say", "Job", json!(null), long, (stop, 143)),
        ] {
            let pod = json!({
                "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "u"}]},
                "spec": {
                    "containers": [{"name": "main", "command": command}],
                    "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
                },
            });
            let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
            let container = |name: &str| ContainerRef { pod: pod.clone(), name: Arc::from(name), attempt: 0 };
            assert_eq!(runtime.stop(&container("main"), grace), want, "{name}");
            assert_eq!(runtime.stop(&container("sidecar"), long), (stop, 0), "the sidecar of {name}");
        }
    }
}
