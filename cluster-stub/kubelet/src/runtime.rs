//! What the kubelet wants of a container runtime, as a trait: images, sandboxes, containers, logs. No pod lifecycle here;
//! the runtime does what it is told and reports when a container ends.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

use super::logs::LogOptions;

/// Why the runtime did not do something, in words that belong into an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeError(pub String);

/// One container of one pod, and the how-manieth incarnation of it.
#[derive(Clone, Debug)]
pub struct ContainerRef {
    /// The pod. The runtime may read its spec and its owners, not its status.
    pub pod: Arc<Pod>,
    /// The container's name.
    pub name: Arc<str>,
    /// Counts restarts, from 0.
    pub attempt: i32,
}

impl ContainerRef {
    /// The container's part of the spec and whether it is an init container; `None` if the pod has no such container.
    pub fn spec(&self) -> Option<(Cow<'_, Container>, bool)> {
        let spec = self.pod.spec.as_ref()?;
        let init = spec.init_containers.iter().flatten().map(|container| (container, true));
        let main = spec.containers.iter().map(|container| (container, false));
        let own = init.chain(main).find(|(container, _)| container.name == *self.name);
        own.map(|(container, init)| (Cow::Borrowed(container), init)).or_else(|| {
            let mut debuggers = spec.ephemeral_containers.iter().flatten();
            let debugger = debuggers.find(|container| container.name == *self.name)?;
            Some((Cow::Owned(as_container(debugger)), false))
        })
    }

    /// UID of the pod.
    pub fn pod_uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// An ephemeral container as the container that it is, but for the one that it looks into.
pub(crate) fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let of = ephemeral.clone();
    Container {
        name: of.name,
        image: of.image,
        image_pull_policy: of.image_pull_policy,
        command: of.command,
        args: of.args,
        env: of.env,
        env_from: of.env_from,
        resources: of.resources,
        volume_mounts: of.volume_mounts,
        working_dir: of.working_dir,
        ..Container::default()
    }
}

/// What a pull brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// How long it took.
    pub took: Duration,
    /// Bytes.
    pub size: u64,
}

/// A pod's sandbox: its network and whatever else its containers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The pod's address; `None` for a pod in the host's network.
    pub ip: Option<String>,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedContainer {
    /// Its id, with the runtime's scheme: `containerd://…`.
    pub id: String,
    /// Reference of the image that it runs.
    pub image_id: String,
    /// When it started.
    pub at: Timestamp,
}

/// A container that has ended, by itself or because it was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the container.
    pub container: Arc<str>,
    /// Which incarnation of it.
    pub attempt: i32,
    /// Exit code; 0 is success.
    pub code: i32,
    /// When it ended.
    pub at: Timestamp,
}

/// Called by the runtime when a container has ended; must not block.
pub type ExitListener = Arc<dyn Fn(ContainerExit) + Send + Sync>;

/// A container runtime of all nodes that the kubelets here stand for. Every method may be called from any task.
pub trait ContainerRuntime: Send + Sync + 'static {
    /// Name and version as the node's status shows it, for example `containerd://2.0.0`.
    fn version(&self) -> String;

    /// Whether the image is on the node already.
    fn image_present<'a>(&'a self, node: &'a str, image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>>;

    /// Brings the image onto the node.
    fn pull_image<'a>(&'a self, node: &'a str, image: &'a str) -> BoxFuture<'a, Result<PulledImage, RuntimeError>>;

    /// Makes the pod's sandbox, on the node that the pod is bound to.
    fn run_sandbox(&self, pod: Arc<Pod>) -> BoxFuture<'_, Result<Sandbox, RuntimeError>>;

    /// Removes the pod's sandbox and everything in it. One that does not exist is no error.
    fn remove_sandbox(&self, pod: Arc<Pod>) -> BoxFuture<'_, ()>;

    /// Creates and starts a container; `exits` hears of its end exactly once.
    fn start_container(
        &self,
        container: ContainerRef,
        exits: ExitListener,
    ) -> BoxFuture<'_, Result<StartedContainer, RuntimeError>>;

    /// Takes a container over that was started by an earlier process at `started`; `exits` hears of its end.
    fn adopt_container(&self, container: ContainerRef, started: Timestamp, exits: ExitListener);

    /// Takes the sandbox of a pod over that an earlier process made.
    fn adopt_sandbox(&self, pod: &Pod, ip: &str);

    /// Asks a container to end, and ends it after `grace` at the latest. Its exit comes through its listener. A container
    /// that does not run is no error; a second call with a shorter grace hastens the end.
    fn stop_container(&self, container: ContainerRef, grace: Duration) -> BoxFuture<'_, ()>;

    /// Whether a probe's command succeeds in the container.
    fn exec_succeeds<'a>(&'a self, container: &'a ContainerRef, command: &'a [String]) -> bool;

    /// What the container wrote, from `started` to `ended` (`None`: it still runs).
    fn logs(
        &self,
        container: ContainerRef,
        started: Timestamp,
        ended: Option<Timestamp>,
        options: LogOptions,
    ) -> BoxStream<'static, Result<Bytes, RuntimeError>>;
}
