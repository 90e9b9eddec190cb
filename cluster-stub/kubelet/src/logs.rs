//! Reading what containers wrote, for whoever serves `pods/NAME/log`. Which pod and container is meant has been checked
//! there; what they wrote is the runtime's.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;

use super::runtime::RuntimeError;

/// Which part of a log is wanted, and how. The fields are those of PodLogOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with what is written from now on, until the container ends.
    pub follow: bool,
    /// Only lines written at or after this time.
    pub since: Option<Timestamp>,
    /// Only the last so many lines of what is there; 0 means none of them.
    pub tail_lines: Option<usize>,
    /// Put the time of writing in front of each line.
    pub timestamps: bool,
    /// Stop after so many bytes.
    pub limit_bytes: Option<u64>,
}

/// A log that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of one of its containers.
    pub container: String,
    /// The log of the incarnation before the last restart.
    pub previous: bool,
    /// Which part, and how.
    pub options: LogOptions,
}

/// Why there is no log. The texts are upstream's, for a 400 answer. Upstream: pkg/kubelet v1.36.2 kubelet_pods.go
/// `validateContainerLogStatus`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No kubelet here runs such a pod.
    #[error("pod \"{pod}\" in namespace \"{namespace}\" not found")]
    PodNotFound {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        pod: String,
    },
    /// The container has not started yet.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")]
    Waiting {
        /// Name of the container.
        container: String,
        /// Name of the pod.
        pod: String,
        /// Why it waits: a reason like `ContainerCreating`, or the runtime's words.
        reason: String,
    },
    /// It was never restarted.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious {
        /// Name of the container.
        container: String,
        /// Name of the pod.
        pod: String,
    },
    /// The pod has no such container.
    #[error("container {container} is not valid for pod {pod}")]
    NoContainer {
        /// Name of the container.
        container: String,
        /// Name of the pod.
        pod: String,
    },
}

/// The bytes of a log, in pieces as they come.
pub type LogStream = BoxStream<'static, Result<Bytes, RuntimeError>>;

/// Whoever can read logs. Handed to the API server at wiring, as it has no kubelet port to call.
pub trait LogSource: Send + Sync + 'static {
    /// Opens a log.
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>>;
}

/// A log source as the API server holds it.
pub type SharedLogSource = Arc<dyn LogSource>;
