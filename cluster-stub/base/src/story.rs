//! What happened in the cluster, step by step, for whoever wants to follow it. Nothing here decides anything.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// The part of the cluster that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// The API server: request, authentication, authorization, admission.
    ApiServer,
    /// The store behind the API server.
    Store,
    /// A controller, by its upstream name.
    Controller(&'static str),
    /// The scheduler.
    Scheduler,
    /// A kubelet.
    Kubelet,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Component::ApiServer => "apiserver",
            Component::Store => "store",
            Component::Controller(name) => name,
            Component::Scheduler => "scheduler",
            Component::Kubelet => "kubelet",
        })
    }
}

/// One step on the way of an object.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it happened.
    pub at: Instant,
    /// Who did it.
    pub component: Component,
    /// The stage in one word: `request`, `authentication`, `authorization`, `admission`, `storage`, `reconcile`, `image`, ….
    pub stage: &'static str,
    /// What was done, one short sentence without the object.
    pub what: String,
    /// Kind of the object, for example `Deployment`.
    pub kind: String,
    /// Namespace of the object, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The object's resourceVersion after the step, if the step wrote it.
    pub resource_version: Option<String>,
    /// The user on whose behalf the step was done, where there was one.
    pub user: Option<Arc<str>>,
}

type Sink = dyn Fn(Step) + Send + Sync;

/// A handle to whoever listens to the story; cheap to clone, and free when nobody does.
///
/// ```
/// use cluster_stub_base::story::Story;
/// Story::silent().tell(|| unreachable!("nobody listens, so the step is never built"));
/// ```
#[derive(Clone, Default)]
pub struct Story {
    sink: Option<Arc<Sink>>,
}

impl Story {
    /// A story that nobody listens to.
    pub fn silent() -> Self {
        Self::default()
    }

    /// A story whose steps go to `listener`, on the thread that tells them; it must not block.
    pub fn new(listener: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self { sink: Some(Arc::new(listener)) }
    }

    /// Tells a step. `step` runs only if somebody listens.
    pub fn tell(&self, step: impl FnOnce() -> Step) {
        if let Some(sink) = &self.sink {
            sink(step());
        }
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Story").field("listening", &self.sink.is_some()).finish()
    }
}
