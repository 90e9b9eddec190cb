//! An extender as the engine sees it: what its configuration says, and answers that come over HTTP or out of a recording.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scheduler_core::config::extender::Extender as Settings;
use scheduler_core::framework::{Extender, ExtenderFilterResult, MetaVictims, PluginError, Result, Victims};
use scheduler_core::model::{ObjectRef, Pod};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::answers::{self, Answer, AnswerLog, Recorded};
use super::client::Client;
use super::messages;
use super::objects::WholeObjects;

/// How long a binding in flight may take when the scheduler ends, whatever the extender's limit.
const BINDING_GRACE: Duration = Duration::from_secs(1);

/// An extender of the configuration.
pub(crate) struct ConfiguredExtender {
    settings: Settings,
    way: Way,
}

enum Way {
    Http(Box<Http>),
    Recorded(Recorded),
}

/// What calls need.
pub(super) struct Http {
    pub(super) client: Client,
    pub(super) requests: Arc<Requests>,
    pub(super) objects: Arc<WholeObjects>,
    /// The extender's position, and where its answers are kept.
    pub(super) answers: Option<(usize, AnswerLog)>,
    /// Ends calls: those that a decision waits for at once, bindings a little later.
    pub(super) stop: CancellationToken,
}

/// The thread on which requests run, whoever waits for them. It ends with the last extender.
pub(super) struct Requests {
    runtime: Handle,
    _ends: oneshot::Sender<()>,
}

/// Starts the thread.
///
/// # Errors
/// The system has no room for it.
pub(super) fn requests_thread() -> io::Result<Arc<Requests>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (ends, has_ended) = oneshot::channel::<()>();
    std::thread::Builder::new().name("extenders".to_owned()).spawn(move || {
        // The sender is dropped, not used.
        let _ = runtime.block_on(has_ended);
    })?;
    Ok(Arc::new(Requests { runtime: handle, _ends: ends }))
}

impl Http {
    /// Asks, and waits for the answer; for the thread that decides.
    fn ask<T>(
        &self,
        verb: &str,
        args: Bytes,
        read: impl FnOnce(&Value) -> std::result::Result<T, String>,
    ) -> std::result::Result<T, String> {
        let (client, stop, verb) = (self.client.clone(), self.stop.clone(), verb.to_owned());
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.requests.runtime.spawn(async move {
            let result = tokio::select! {
                result = client.send(&verb, args) => result,
                () = stop.cancelled() => Err("context canceled".to_owned()),
            };
            // Nobody waits if the thread that asked is gone.
            let _ = answer.send(result);
        });
        let result = answered.recv().unwrap_or_else(|_| Err("context canceled".to_owned()));
        result.and_then(|answer| read(&answer))
    }

    /// Notes an answer for the recording.
    fn note<T>(&self, verb: &'static str, result: &std::result::Result<T, String>, to_json: impl FnOnce(&T) -> Value) {
        if let Some((extender, log)) = &self.answers {
            let result = result.as_ref().map(to_json).map_err(Clone::clone);
            log.push(Answer { extender: *extender, verb: verb.to_owned(), result });
        }
    }
}

impl ConfiguredExtender {
    pub(super) fn over_http(settings: Settings, http: Http) -> Self {
        Self { settings, way: Way::Http(Box::new(http)) }
    }

    pub(super) fn of_recording(settings: Settings, recorded: Recorded) -> Self {
        Self { settings, way: Way::Recorded(recorded) }
    }

    pub(super) fn replayed(&self, answer: Answer) {
        if let Way::Recorded(recorded) = &self.way {
            recorded.push(answer);
        }
    }

    /// Binds the pod without blocking.
    ///
    /// # Errors
    /// The extender fails.
    pub(crate) async fn bind_pod(&self, pod: &ObjectRef, node: &str) -> std::result::Result<(), String> {
        let Way::Http(http) = &self.way else {
            return Err("an extender of a recording binds nothing".to_owned());
        };
        let (client, stop, verb) = (http.client.clone(), http.stop.clone(), self.settings.bind_verb.clone());
        let args = messages::binding_args(pod, node);
        let call = http.requests.runtime.spawn(async move {
            let ends = async {
                stop.cancelled().await;
                tokio::time::sleep(BINDING_GRACE).await;
            };
            tokio::select! {
                result = client.send(&verb, args) => result,
                () = ends => Err("context canceled".to_owned()),
            }
        });
        let result = call.await.unwrap_or_else(|error| Err(error.to_string()));
        let result = result.and_then(|answer| messages::binding_result(&answer));
        if let Err(error) = &result {
            self.warn_if_ignored(error);
        }
        result
    }

    /// Asks over HTTP, or takes the next answer of the recording.
    fn answer<T>(
        &self,
        (verb, path): (&'static str, &str),
        args: impl FnOnce(&WholeObjects) -> Bytes,
        read: impl FnOnce(&Value) -> std::result::Result<T, String>,
        (to_json, from_json): (fn(&T) -> Value, fn(&Value) -> T),
    ) -> Result<T> {
        let result = match &self.way {
            Way::Http(http) => {
                let result = http.ask(path, args(&http.objects), read);
                http.note(verb, &result, to_json);
                result
            }
            Way::Recorded(recorded) => recorded.next(verb, self.name()).map(|answer| from_json(&answer)),
        };
        result.map_err(|error| {
            match verb {
                "prioritize" => tracing::debug!(
                    "failed to run extender's priority function, no score given by this extender: {}: {error}",
                    self.name()
                ),
                _ => self.warn_if_ignored(&error),
            }
            PluginError::new(error)
        })
    }

    fn warn_if_ignored(&self, error: &str) {
        if self.settings.ignorable {
            let name = self.name();
            tracing::warn!("skipping extender {name} as it returned error and has ignorable flag set: {error}");
        }
    }
}

impl Extender for ConfiguredExtender {
    fn name(&self) -> &str {
        &self.settings.url_prefix
    }

    fn is_ignorable(&self) -> bool {
        self.settings.ignorable
    }

    /// Requests of a pod name whatever its limits name: the API server sees to it.
    fn is_interested(&self, pod: &Pod) -> bool {
        let managed = &self.settings.managed_resources;
        let requests = &pod.resources.requests.scalars;
        managed.is_empty() || managed.iter().any(|managed| requests.iter().any(|(name, _)| **name == *managed.name))
    }

    fn is_filter(&self) -> bool {
        !self.settings.filter_verb.is_empty()
    }

    fn filter(&self, pod: &Pod, nodes: &[Arc<str>]) -> Result<ExtenderFilterResult> {
        let names_only = self.settings.node_cache_capable;
        self.answer(
            ("filter", &self.settings.filter_verb),
            |objects| messages::extender_args(objects, pod, nodes, names_only),
            |answer| messages::filter_result(answer, self.name(), nodes, names_only),
            (answers::filter_to_json, answers::filter_from_json),
        )
    }

    fn weight(&self) -> i64 {
        if self.settings.prioritize_verb.is_empty() { 0 } else { self.settings.weight }
    }

    fn prioritize(&self, pod: &Pod, nodes: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>> {
        let names_only = self.settings.node_cache_capable;
        self.answer(
            ("prioritize", &self.settings.prioritize_verb),
            |objects| messages::extender_args(objects, pod, nodes, names_only),
            messages::host_priorities,
            (|scores| answers::scores_to_json(scores), answers::scores_from_json),
        )
    }

    fn supports_preemption(&self) -> bool {
        !self.settings.preempt_verb.is_empty()
    }

    fn process_preemption(
        &self,
        pod: &Pod,
        victims: &BTreeMap<Arc<str>, Victims>,
    ) -> Result<BTreeMap<Arc<str>, MetaVictims>> {
        let uids_only = self.settings.node_cache_capable;
        self.answer(
            ("preempt", &self.settings.preempt_verb),
            |objects| messages::preemption_args(objects, pod, victims, uids_only),
            messages::preemption_result,
            (answers::victims_to_json, answers::victims_from_json),
        )
    }

    fn is_binder(&self) -> bool {
        !self.settings.bind_verb.is_empty()
    }
}
