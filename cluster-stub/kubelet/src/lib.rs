//! The kubelets of the offline cluster: one set of tasks stands for all nodes. They register nodes, keep their Leases and
//! conditions fresh, and run the pods that are bound to them over a container runtime. They see the cluster through the
//! API only.

mod admission;
mod events;
mod fleet;
mod lifecycle;
pub mod logs;
pub mod nodes;
mod options;
mod references;
pub mod runtime;
pub mod simulated;

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::logs::{LogError, LogRequest, LogSource, LogStream, SharedLogSource};
use cluster_stub_base::story::Story;

pub use options::KubeletOptions;

/// The identity that lists and watches nodes and pods for all kubelets at once, which no single node may. It must be
/// allowed to `list` and `watch` both: give it the group `system:masters`.
pub const FLEET_IDENTITY: &str = "plimsoll:kubelets";

/// The running kubelets. Dropping it stops them without waiting; [`Kubelets::shutdown`] waits.
pub struct Kubelets {
    shared: Arc<fleet::Shared>,
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
    let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
    let shared = fleet::start(Box::new(client_factory), options, story, &tasks, &shutdown);
    Kubelets { shared, tasks, shutdown }
}

impl Kubelets {
    /// Reads the logs of the pods that run here, for the API server's `pods/NAME/log`.
    pub fn log_source(&self) -> SharedLogSource {
        Arc::new(Logs(self.shared.messages.clone()))
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

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

struct Logs(mpsc::UnboundedSender<fleet::Message>);

impl LogSource for Logs {
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        async move {
            let not_found = LogError::PodNotFound { namespace: request.namespace.clone(), pod: request.pod.clone() };
            let (answer, wanted) = oneshot::channel();
            if self.0.send(fleet::Message::Logs(request, answer)).is_err() {
                return Err(not_found);
            }
            // Kubelets that have been shut down know no pods.
            wanted.await.unwrap_or(Err(not_found))
        }
        .boxed()
    }
}
