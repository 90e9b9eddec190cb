//! Runs a controller: takes keys from its queue, reconciles them, retries what failed. Knows no kind.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cluster_stub_base::story::Story;

use super::api::SyncError;
use super::key::ObjectKey;
use super::story_log;
use super::workqueue::WorkQueue;

/// A controller's part: one reconcile of one object.
pub(crate) trait Reconcile: Send + Sync + 'static {
    /// Upstream's name of the controller, for example `deployment-controller`.
    fn name(&self) -> &'static str;
    /// Kind of the objects whose keys it gets.
    fn kind(&self) -> &'static str;
    /// The queue that its keys come from.
    fn queue(&self) -> &WorkQueue<ObjectKey>;
    /// Brings the object at `key` closer to what it should be. An error is retried with the key's back-off.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<(), SyncError>> + Send;
}

/// Starts `workers` tasks that reconcile for `controller` until `shutdown`.
pub(crate) fn spawn<C: Reconcile>(
    controller: &Arc<C>,
    workers: usize,
    story: &Story,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    for _ in 0..workers {
        tasks.spawn(work(Arc::clone(controller) as Arc<dyn DynReconcile>, story.clone(), shutdown.clone()));
    }
}

/// [`Reconcile`] behind a pointer, so that the loop below is compiled once and not for every controller.
trait DynReconcile: Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> &'static str;
    fn queue(&self) -> &WorkQueue<ObjectKey>;
    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), SyncError>>;
}

impl<C: Reconcile> DynReconcile for C {
    fn name(&self) -> &'static str {
        Reconcile::name(self)
    }

    fn kind(&self) -> &'static str {
        Reconcile::kind(self)
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        Reconcile::queue(self)
    }

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(Reconcile::reconcile(self, key))
    }
}

async fn work(controller: Arc<dyn DynReconcile>, story: Story, shutdown: CancellationToken) {
    let queue = controller.queue().clone();
    loop {
        let key = tokio::select! {
            () = shutdown.cancelled() => return,
            key = queue.next() => match key {
                Some(key) => key,
                None => return,
            },
        };
        let reconcile = story_log::follow(
            &story,
            controller.name(),
            controller.kind(),
            &key,
            AssertUnwindSafe(controller.reconcile(&key)).catch_unwind(),
        );
        match reconcile.await {
            Ok(Ok(())) => queue.forget(&key),
            Ok(Err(error)) => {
                tracing::debug!(
                    controller = controller.name(),
                    %key,
                    error = &error as &dyn std::error::Error,
                    "reconcile failed, will retry"
                );
                queue.add_rate_limited(key.clone());
            }
            Err(_) => {
                // The panic hook has told what and where; one broken object must not stop the others.
                tracing::error!(controller = controller.name(), %key, "reconcile panicked, will retry");
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
    }
}
