//! HTTP extenders: services outside the process that filter, score, preempt or bind beside the plugins, called as
//! kube-scheduler calls them. What their answers mean for a decision is the engine's affair.
//!
//! ```text
//! engine ─ Extender ─▶ ConfiguredExtender ─ messages ─▶ Client ─▶ HTTP
//!                              │    ▲
//!                     AnswerLog┘    └ WholeObjects ◀─ who tells the engine of pods and nodes
//! ```
//! A call blocks the thread that decides, and no other: requests run on a thread of their own. Upstream v1.36.2:
//! pkg/scheduler/extender.go.

mod answers;
mod client;
mod configured;
mod go_json;
mod messages;
mod objects;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::framework::Extender;
use tokio_util::sync::CancellationToken;

pub(crate) use answers::{Answer, AnswerLog};
pub(crate) use configured::ConfiguredExtender;
pub(crate) use objects::{Wanted, WholeObjects};

use answers::Recorded;
use client::Client;
use configured::Http;

/// Why an extender cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't build extenders: extender {url_prefix:?}: {problem}")]
pub(crate) struct ExtenderError {
    /// Its URL.
    url_prefix: String,
    /// What is wrong.
    problem: String,
}

/// The extenders of a configuration, in the order in which they are called.
#[derive(Default)]
pub(crate) struct Extenders {
    all: Vec<Arc<ConfiguredExtender>>,
    /// Whole pods and nodes; to be told of changes before the engine is.
    pub(crate) objects: Arc<WholeObjects>,
    wanted: Wanted,
    /// What they answered in cycles since it was last taken, if that is kept.
    pub(crate) answers: Option<AnswerLog>,
}

impl Extenders {
    /// Extenders that are called over HTTP, until `stop`. With `recorded`, their answers are kept for a recording.
    ///
    /// # Errors
    /// Certificates or keys cannot be read, or the thread for requests cannot be started.
    pub(crate) fn over_http(
        configuration: &KubeSchedulerConfiguration,
        recorded: bool,
        stop: &CancellationToken,
    ) -> Result<Self, ExtenderError> {
        let wanted = wanted(configuration);
        let objects = Arc::new(WholeObjects::new(wanted));
        let mut extenders = Self { wanted, answers: recorded.then(AnswerLog::default), ..Self::default() };
        extenders.call(configuration, &objects, stop)?;
        extenders.objects = objects;
        Ok(extenders)
    }

    /// Extenders that are called over HTTP by a simulation or a question, for which `objects` holds what was given. Who
    /// carries effects out there asks none to bind: pods are in no cluster, or not to be bound in it.
    ///
    /// # Errors
    /// As [`Extenders::over_http`].
    pub(crate) fn of_simulation(
        configuration: &KubeSchedulerConfiguration,
        objects: &Arc<WholeObjects>,
    ) -> Result<Self, ExtenderError> {
        let mut extenders = Self { objects: Arc::clone(objects), ..Self::default() };
        extenders.call(configuration, objects, &CancellationToken::new())?;
        Ok(extenders)
    }

    /// Adds the extenders of the configuration.
    fn call(
        &mut self,
        configuration: &KubeSchedulerConfiguration,
        objects: &Arc<WholeObjects>,
        stop: &CancellationToken,
    ) -> Result<(), ExtenderError> {
        let Some(first) = configuration.extenders.first() else { return Ok(()) };
        let requests = configured::requests_thread().map_err(|error| ExtenderError {
            url_prefix: first.url_prefix.clone(),
            problem: format!("cannot start the thread for requests: {error}"),
        })?;
        for (at, settings) in in_order(configuration).enumerate() {
            let http = Http {
                client: Client::new(settings)?,
                requests: Arc::clone(&requests),
                objects: Arc::clone(objects),
                answers: self.answers.clone().map(|log| (at, log)),
                stop: stop.clone(),
            };
            self.all.push(Arc::new(ConfiguredExtender::over_http(settings.clone(), http)));
        }
        Ok(())
    }

    /// Extenders that answer what [`Extenders::replayed`] is told, and call nobody.
    pub(crate) fn of_recording(configuration: &KubeSchedulerConfiguration) -> Self {
        let all = in_order(configuration)
            .map(|settings| Arc::new(ConfiguredExtender::of_recording(settings.clone(), Recorded::default())));
        Self { all: all.collect(), ..Self::default() }
    }

    /// The next answer of the extenders of a recording.
    pub(crate) fn replayed(&self, answer: Answer) {
        if let Some(extender) = self.all.get(answer.extender) {
            extender.replayed(answer);
        }
    }

    /// For the engine.
    pub(crate) fn seam(&self) -> Vec<Arc<dyn Extender>> {
        self.all.iter().map(|extender| Arc::clone(extender) as Arc<dyn Extender>).collect()
    }

    /// For who performs bindings, in the same order.
    pub(crate) fn all(&self) -> &[Arc<ConfiguredExtender>] {
        &self.all
    }

    /// Which whole objects they want to see.
    pub(crate) fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Those that may be ignored come last. Upstream v1.36.2: scheduler.go buildExtenders.
fn in_order(
    configuration: &KubeSchedulerConfiguration,
) -> impl Iterator<Item = &scheduler_core::config::extender::Extender> {
    let (ignorable, strict): (Vec<_>, Vec<_>) = configuration.extenders.iter().partition(|extender| extender.ignorable);
    strict.into_iter().chain(ignorable)
}

fn wanted(configuration: &KubeSchedulerConfiguration) -> Wanted {
    let mut wanted = Wanted::default();
    for extender in &configuration.extenders {
        let asks_of_nodes = !extender.filter_verb.is_empty() || !extender.prioritize_verb.is_empty();
        let preempts = !extender.preempt_verb.is_empty();
        wanted.pods |= asks_of_nodes || preempts;
        wanted.nodes |= asks_of_nodes && !extender.node_cache_capable;
        wanted.bound_pods |= preempts && !extender.node_cache_capable;
    }
    wanted
}
