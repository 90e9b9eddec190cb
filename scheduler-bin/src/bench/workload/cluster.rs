//! A workload end to end: the offline cluster's API server in this process, and the live scheduler, or another program,
//! against it, over HTTPS. Neither controllers nor kubelets run, as in upstream's benchmark. Events are written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cluster_stub::cluster::{Cluster, ClusterOptions as StubOptions};
use futures::future::Either;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::Outcome;
use scheduler_core::framework::{EffectKind, Registry};
use scheduler_transport::Sender;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::outside::{OutsideScheduler, SchedulerCommand};
use super::pods::complete;
use super::run::{Happening, Target, Turn};
use crate::bench::cpu::Moment;
use crate::live::{Happened, LiveScheduler, Observer, Options, connect, failure};

/// Requests for creation in flight at once.
const N_WRITERS: usize = 64;

/// How a workload is run end to end.
pub(crate) struct ClusterOptions {
    /// The scheduler's configuration.
    pub(crate) configuration: KubeSchedulerConfiguration,
    /// Seed of its draws.
    pub(crate) seed: u64,
    /// Whether measured pods are there before the scheduler starts.
    pub(crate) create_first: bool,
    /// The scheduler, if it is another program.
    pub(crate) command: Option<SchedulerCommand>,
}

/// What schedules.
enum RunningScheduler {
    /// The live scheduler of this process, while it runs.
    Own(Option<LiveScheduler>),
    /// Another program.
    Outside(OutsideScheduler),
}

/// The cluster, its scheduler, and a sender of the workload's objects.
pub(crate) struct ClusterTarget {
    cluster: Cluster,
    sender: Sender,
    registry: Arc<Registry>,
    options: ClusterOptions,
    scheduler: RunningScheduler,
    observer: Observer,
    happened: mpsc::UnboundedReceiver<News>,
    last_message: Option<String>,
}

/// What the observer tells.
pub(super) enum News {
    /// To a pod.
    Happened(Happening),
    /// Why a pod was not scheduled.
    Unscheduled(String),
}

/// A request that creates an object.
pub(crate) struct Creation {
    path: String,
    body: Bytes,
    /// The taints that a node is to have; admission adds that it is not ready.
    taints: Option<Value>,
}

impl ClusterTarget {
    /// Starts the cluster and the scheduler.
    ///
    /// # Errors
    /// One of them does not start.
    pub(crate) async fn start(registry: Arc<Registry>, options: ClusterOptions) -> Result<Self, String> {
        let cluster = Cluster::start(StubOptions {
            nodes: Vec::new(),
            controllers: false,
            kubelet: false,
            ..StubOptions::default()
        })
        .await
        .map_err(|error| error.to_string())?;
        let connect::Connection { sender, client, .. } =
            connect::from_text(&cluster.kubeconfig()).await.map_err(|error| error.to_string())?;
        let (news, happened) = mpsc::unbounded_channel();
        let scheduler = match &options.command {
            None => RunningScheduler::Own(None),
            Some(command) => {
                let news = news.clone();
                let tell = move |what| {
                    // Nobody listens only when the workload has ended.
                    let _ = news.send(what);
                };
                let outside = OutsideScheduler::new(command.clone(), &cluster.kubeconfig(), client, tell);
                RunningScheduler::Outside(outside?)
            }
        };
        let observer: Observer = Arc::new(move |what| {
            tell(&what, |what| {
                // Nobody listens only when the workload has ended.
                let _ = news.send(what);
            });
        });
        let mut target = Self { cluster, sender, registry, options, scheduler, observer, happened, last_message: None };
        target.start_scheduler().await?;
        Ok(target)
    }

    /// Ends the scheduler, then the cluster.
    pub(crate) async fn shutdown(mut self) {
        self.stop_scheduler().await;
        self.cluster.shutdown().await;
    }

    async fn start_scheduler(&mut self) -> Result<(), String> {
        let own = match &mut self.scheduler {
            RunningScheduler::Own(own) => own,
            RunningScheduler::Outside(outside) => return outside.start(),
        };
        let kubeconfig = self.cluster.kubeconfig();
        let connection = connect::from_text(&kubeconfig).await.map_err(|error| error.to_string())?;
        let options = Options {
            configuration: self.options.configuration.clone(),
            seed: self.options.seed,
            leader_election: None,
            metrics_address: None,
            record: None,
            observer: Some(Arc::clone(&self.observer)),
            record_decisions: false,
        };
        let scheduler = LiveScheduler::start(connection, &self.registry, options).await;
        *own = Some(scheduler.map_err(|error| error.to_string())?);
        Ok(())
    }

    async fn stop_scheduler(&mut self) {
        match &mut self.scheduler {
            RunningScheduler::Own(own) => {
                if let Some(scheduler) = own.take() {
                    scheduler.shutdown().await;
                }
            }
            RunningScheduler::Outside(outside) => outside.stop(),
        }
    }
}

/// Sends a request and waits for the whole of a successful answer.
async fn send(sender: &Sender, method: Method, path: &str, body: Bytes) -> Result<(), Refused> {
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(|error| Refused { code: None, why: format!("{path}: {error}") })?;
    sender.send(request).await.map_err(|error| Refused::new(path, &error))
}

/// A request that did not succeed.
struct Refused {
    /// The status that the server answered with, if it did.
    code: Option<u16>,
    why: String,
}

impl Refused {
    fn new(path: &str, error: &kube::Error) -> Self {
        let code = if let kube::Error::Api(status) = error { Some(status.code) } else { None };
        let code_text = code.map_or_else(String::new, |code| format!("{code}: "));
        Self { code, why: format!("{path}: {code_text}{}", failure::describe(error)) }
    }
}

async fn create(sender: Sender, creation: Creation) -> Result<(), String> {
    let Creation { path, body, taints } = creation;
    let object = taints.as_ref().map(|_| serde_json::from_slice::<Value>(&body).unwrap_or_default());
    send(&sender, Method::POST, &path, body).await.map_err(|refused| refused.why)?;
    let (Some(taints), Some(object)) = (taints, object) else { return Ok(()) };
    let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    let patch = json!({ "spec": { "taints": taints } }).to_string();
    send(&sender, Method::PATCH, &path, patch.into()).await.map_err(|refused| refused.why)
}

/// Tells what the workload wants to know of what the scheduler did.
fn tell(what: &Happened<'_>, listener: impl Fn(News)) {
    match what {
        Happened::Performed(effect, result) => {
            let EffectKind::Bind { pod, node } = &effect.kind else { return };
            listener(match result {
                Ok(()) => {
                    News::Happened(Happening::Scheduled { namespace: Arc::clone(&pod.namespace), at: Instant::now() })
                }
                Err(error) => News::Unscheduled(format!("{pod}: binding to {node}: {error}")),
            });
        }
        Happened::Attempt(attempt) => {
            let pod = &attempt.pod;
            if attempt.attempts == 1 {
                listener(News::Happened(Happening::FirstAttempt { namespace: Arc::clone(&pod.namespace) }));
            }
            if let Outcome::Unschedulable { message, .. } | Outcome::Error { message } = &attempt.outcome {
                listener(News::Unscheduled(format!("{}/{}: {message}", pod.namespace, pod.name)));
            }
        }
    }
}

/// Where objects of a kind live: group and version, resource, whether in namespaces.
fn path(object: &Value) -> Result<String, String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kinds: HashMap<&str, (&str, bool)> = [
        ("Node", ("nodes", false)),
        ("Namespace", ("namespaces", false)),
        ("PersistentVolume", ("persistentvolumes", false)),
        ("StorageClass", ("storageclasses", false)),
        ("CSINode", ("csinodes", false)),
        ("PriorityClass", ("priorityclasses", false)),
        ("Pod", ("pods", true)),
        ("Service", ("services", true)),
        ("ServiceAccount", ("serviceaccounts", true)),
        ("Secret", ("secrets", true)),
        ("ConfigMap", ("configmaps", true)),
        ("PersistentVolumeClaim", ("persistentvolumeclaims", true)),
        ("ReplicaSet", ("replicasets", true)),
        ("StatefulSet", ("statefulsets", true)),
        ("ReplicationController", ("replicationcontrollers", true)),
        ("PodDisruptionBudget", ("poddisruptionbudgets", true)),
    ]
    .into();
    let Some((resource, is_namespaced)) = kinds.get(kind) else {
        return Err(format!("objects of kind {kind:?} are not supported end to end"));
    };
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    Ok(match object["metadata"]["namespace"].as_str().filter(|_| *is_namespaced) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    })
}

fn creation(object: &Value) -> Result<Creation, String> {
    let taints = (object["kind"] == "Node").then(|| match &object["spec"]["taints"] {
        Value::Null => json!([]),
        taints => taints.clone(),
    });
    Ok(Creation { path: path(object)?, body: object.to_string().into(), taints })
}

impl Target for ClusterTarget {
    type Prepared = Vec<Creation>;

    fn prepare(&mut self, objects: Vec<Value>) -> Result<Vec<Creation>, String> {
        let mut creations = Vec::with_capacity(objects.len());
        for mut object in objects {
            complete(&mut object);
            creations.push(creation(&object)?);
            if object["kind"] == "Namespace" {
                // No controller makes it; without a token to mount, pods stay as they are written.
                creations.push(creation(&json!({
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": { "name": "default", "namespace": object["metadata"]["name"] },
                    "automountServiceAccountToken": false,
                }))?);
            }
        }
        Ok(creations)
    }

    async fn submit(&mut self, creations: Vec<Creation>) -> Result<(), String> {
        // A namespace comes before what is in it.
        let n_writers = if creations.len() < 8 { 1 } else { N_WRITERS };
        let sender = self.sender.clone();
        stream::iter(creations)
            .map(move |creation| create(sender.clone(), creation))
            .buffer_unordered(n_writers)
            .try_collect::<()>()
            .await
    }

    async fn submit_measured(&mut self, pods: Vec<Creation>) -> Result<Moment, String> {
        if !self.options.create_first {
            let start = Moment::now();
            self.submit(pods).await?;
            return Ok(start);
        }
        self.stop_scheduler().await;
        self.submit(pods).await?;
        let start = Moment::now();
        self.start_scheduler().await?;
        Ok(start)
    }

    async fn delete(&mut self, object: &Value) -> Result<(), String> {
        let path = format!("{}/{}", path(object)?, object["metadata"]["name"].as_str().unwrap_or_default());
        match send(&self.sender, Method::DELETE, &path, Bytes::new()).await {
            Err(refused) if refused.code == Some(404) => Ok(()),
            answer => answer.map_err(|refused| refused.why),
        }
    }

    async fn turn(&mut self, until: Option<Instant>) -> Result<Turn, String> {
        let mut turn = Turn::default();
        let ended = match &mut self.scheduler {
            RunningScheduler::Own(None) => return Err("there is no scheduler".to_owned()),
            RunningScheduler::Own(Some(scheduler)) => Either::Left(scheduler.ended().map(|ended| format!("{ended:?}"))),
            RunningScheduler::Outside(outside) => {
                if let Some(why) = outside.ended() {
                    return Err(format!("the scheduler ended: {why}"));
                }
                Either::Right(std::future::pending())
            }
        };
        let pause = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            news = self.happened.recv() => news,
            () = pause => None,
            () = tokio::time::sleep(std::time::Duration::from_millis(100)) => None,
            why = ended => return Err(format!("the scheduler ended: {why}")),
        };
        let mut next = first;
        while let Some(news) = next {
            match news {
                News::Happened(happening) => turn.happened.push(happening),
                News::Unscheduled(message) => self.last_message = Some(message),
            }
            next = self.happened.try_recv().ok();
        }
        Ok(turn)
    }

    fn last_message(&self) -> Option<String> {
        self.last_message.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_created_where_their_kind_lives() {
        let object = |version: &str, kind: &str, namespace: Option<&str>| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x", "namespace": namespace } });
        for (object, want) in [
            (object("v1", "Pod", Some("n")), Ok("/api/v1/namespaces/n/pods")),
            (object("v1", "Node", None), Ok("/api/v1/nodes")),
            (object("apps/v1", "ReplicaSet", Some("n")), Ok("/apis/apps/v1/namespaces/n/replicasets")),
            (object("v1", "Gadget", None), Err("objects of kind \"Gadget\" are not supported end to end")),
        ] {
            let got = path(&object);
            assert_eq!(got.as_deref().map_err(String::as_str), want);
        }
    }

    #[test]
    fn a_node_gets_its_own_taints_back() {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" }, "spec": {} });
        assert_eq!(creation(&node).expect("a node").taints, Some(json!([])));
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" } });
        assert_eq!(creation(&pod).expect("a pod").taints, None);
    }
}
