//! What every controller gets at the start: informers, clients, recorders, options. Holds no state of a controller.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::options::ControllerOptions;
use cluster_stub_base::story::Story;

use super::api::ApiClient;
use super::informers::Informers;
use super::recorder::EventRecorder;
use super::worker::{self, Reconcile};

/// Makes a client that acts as a user.
pub(crate) type ClientFactory = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

/// The surroundings of a controller; cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    /// What is in the cluster.
    pub(crate) informers: Arc<Informers>,
    /// Settings.
    pub(crate) options: Arc<ControllerOptions>,
    /// Who follows along.
    pub(crate) story: Story,
    /// Tasks that the end waits for.
    pub(crate) tasks: TaskTracker,
    /// When to stop.
    pub(crate) shutdown: CancellationToken,
    /// Where clients come from.
    pub(crate) clients: ClientFactory,
}

impl Context {
    /// A client with the identity of the controller whose service account is `name`.
    pub(crate) fn api(&self, name: &str) -> ApiClient {
        ApiClient::new((self.clients)(&format!("system:serviceaccount:kube-system:{name}")), name)
    }

    /// A recorder of events whose source is `component`, sent through `api`.
    pub(crate) fn recorder(&self, api: &ApiClient, component: &'static str) -> EventRecorder {
        let (recorder, work) = EventRecorder::new(api.clone(), component, self.shutdown.clone());
        self.tasks.spawn(work);
        recorder
    }

    /// Runs `controller` with `workers` tasks as soon as all informers know the cluster.
    pub(crate) fn run<C: Reconcile>(&self, controller: &Arc<C>, workers: usize) {
        let (context, controller) = (self.clone(), Arc::clone(controller));
        self.tasks.spawn(self.clone().start_when_synced(Box::new(move || {
            worker::spawn(&controller, workers, &context.story, &context.tasks, &context.shutdown);
        })));
    }

    async fn start_when_synced(self, start: Box<dyn FnOnce() + Send>) {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            () = self.informers.synced() => start(),
        }
    }
}
