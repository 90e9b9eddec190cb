//! The controllers of the cluster, one file or folder each. They see the cluster through the API only.

mod certificate_signing;
mod cluster_role_aggregation;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoints;
mod ephemeral_volume;
mod garbage_collector;
mod horizontal;
mod job;
mod namespace;
mod node_lifecycle;
mod options;
mod pod_gc;
mod replica_set;
mod resource_quota;
pub(crate) mod runtime;
mod service_account;
mod stateful_set;
mod ttl_after_finished;
mod volume;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cluster_stub_base::story::Story;

pub use options::{ControllerOptions, SigningCa};

use runtime::context::Context;
use runtime::informers::Informers;

/// The identity that the shared informers list and watch with.
const INFORMER_IDENTITY: &str = "system:kube-controller-manager";

/// The running controllers. Dropping it stops them without waiting; [`Controllers::shutdown`] waits.
#[derive(Debug)]
pub struct Controllers {
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Starts all controllers on the running tokio runtime.
///
/// `client_factory` makes an API client that acts as the user it is given: `system:kube-controller-manager` for what all
/// controllers watch, and `system:serviceaccount:kube-system:<controller>` for what each of them writes (the groups that
/// belong to such a user are the caller's to add). Returns at once; work begins when the informers have seen the cluster.
/// An API server that is not there yet, or goes away, is waited for. Upstream: cmd/kube-controller-manager v1.36.2.
pub fn start(
    client_factory: impl Fn(&str) -> kube::Client + Send + Sync + 'static,
    options: ControllerOptions,
    story: Story,
) -> Controllers {
    let context = Context {
        informers: Informers::new(),
        options: Arc::new(options),
        story,
        tasks: TaskTracker::new(),
        shutdown: CancellationToken::new(),
        clients: Arc::new(client_factory),
    };
    certificate_signing::start(&context);
    cluster_role_aggregation::start(&context);
    cron_job::start(&context);
    daemon_set::start(&context);
    deployment::start(&context);
    disruption::start(&context);
    endpoints::start(&context);
    ephemeral_volume::start(&context);
    garbage_collector::start(&context);
    horizontal::start(&context);
    job::start(&context);
    namespace::start(&context);
    node_lifecycle::start(&context);
    pod_gc::start(&context);
    replica_set::start(&context);
    resource_quota::start(&context);
    service_account::start(&context);
    stateful_set::start(&context);
    ttl_after_finished::start(&context);
    volume::start(&context);
    // Handlers first, then the watches, so that no controller misses an object.
    let client = (context.clients)(INFORMER_IDENTITY);
    context.informers.start(&client, &context.tasks, &context.shutdown);
    Controllers { tasks: context.tasks, shutdown: context.shutdown }
}

impl Controllers {
    /// Stops all controllers and waits until the last reconcile has ended.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
