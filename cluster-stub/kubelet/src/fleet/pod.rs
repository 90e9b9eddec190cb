//! The pods of the fleet: admits them, feeds their lifecycles, and performs what those ask for.

use std::cmp::Reverse;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use super::{Fleet, Message, Outcome, needs, requests};
use crate::admission::{self, Amounts};
use crate::events::Outgoing;
use crate::lifecycle::{Action, Input, PodEvent, PodLifecycle};
use crate::logs::{LogError, LogRequest, LogStream};
use crate::references;
use crate::runtime::ContainerRef;
use cluster_stub_base::correlator::Occurrence;

/// After a request that failed.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// A pod as the fleet knows it.
pub(super) struct PodEntry {
    lifecycle: PodLifecycle,
    node: Arc<str>,
    requests: Amounts,
    /// A status report is under way.
    sending: bool,
    /// The deletion follows when the status has been reported.
    wants_deletion: bool,
    /// When it is to be woken; what the heap says besides is out of date.
    wake_at: Option<Timestamp>,
    retry_at: Option<Timestamp>,
}

impl PodEntry {
    pub(super) fn pod(&self) -> &Arc<Pod> {
        self.lifecycle.pod()
    }
}

fn uid_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn key_of(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

impl Fleet {
    pub(super) fn pod_changed(&mut self, pod: Arc<Pod>) {
        if let Some(listed) = &mut self.listed_pods {
            listed.insert(uid_of(&pod).to_owned());
        }
        if self.pods.contains_key(uid_of(&pod)) {
            let uid: Arc<str> = Arc::from(uid_of(&pod));
            self.input(&uid, Input::Pod(pod));
            return;
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        // A node that registers itself but is not in the API yet runs nothing yet.
        let known = self.nodes.get_key_value(node).filter(|(_, entry)| entry.node.metadata.uid.is_some());
        match known.map(|(name, _)| name.clone()) {
            Some(node) => self.admit(&pod, &node),
            None => {
                self.orphans.entry(node.to_owned()).or_default().insert(uid_of(&pod).to_owned(), pod);
            }
        }
    }

    fn admit(&mut self, pod: &Arc<Pod>, node: &Arc<str>) {
        let now = Timestamp::now();
        let uid: Arc<str> = Arc::from(uid_of(pod));
        let Some(entry) = self.nodes.get_mut(node) else { return };
        let requests = admission::requests(pod);
        let status = pod.status.as_ref();
        let is_over = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
        let has_run = status.is_some_and(|status| status.start_time.is_some());
        let room = if is_over || has_run || pod.metadata.deletion_timestamp.is_some() {
            Ok(())
        } else {
            admission::check(&entry.node, entry.admitted.len(), &entry.used, &requests)
        };
        let (lifecycle, actions) = match room {
            Err(rejection) => PodLifecycle::rejected(pod.clone(), rejection, now),
            Ok(()) => {
                let lifecycle = PodLifecycle::new(pod.clone(), entry.host_ip(), now, self.probe_succeeds.clone());
                (lifecycle, Vec::new())
            }
        };
        if !lifecycle.is_done() {
            admission::add(&mut entry.used, &requests);
            entry.admitted.insert(uid.clone());
            if let Some(ip) = lifecycle.sandbox_ip() {
                self.shared.runtime.adopt_sandbox(pod, ip);
            }
            for (name, attempt, started) in lifecycle.running() {
                let container = ContainerRef { pod: pod.clone(), name, attempt };
                self.shared.runtime.adopt_container(container, started, self.exits.clone());
            }
        }
        self.names.insert(key_of(pod), uid.clone());
        if let (Some(namespace), Some(account)) =
            (&pod.metadata.namespace, pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()))
        {
            let account = (Arc::from(namespace.as_str()), Arc::from(account));
            self.shared.accounts.lock().unwrap_or_else(PoisonError::into_inner).insert(account);
        }
        let entry = PodEntry {
            lifecycle,
            node: node.clone(),
            requests,
            sending: false,
            wants_deletion: false,
            wake_at: None,
            retry_at: None,
        };
        self.pods.insert(uid.clone(), entry);
        self.perform(&uid, actions);
        self.input(&uid, Input::Wake);
    }

    /// Gives an input to a pod's lifecycle and does what it asks for.
    pub(super) fn input(&mut self, uid: &Arc<str>, input: Input) {
        let now = Timestamp::now();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let was_done = entry.lifecycle.is_done();
        let actions = entry.lifecycle.handle(input, now);
        if entry.lifecycle.is_done() && !was_done {
            let (node, requests) = (entry.node.clone(), std::mem::take(&mut entry.requests));
            self.leave(&node, uid, &requests);
        }
        self.depth += 1;
        self.perform(uid, actions);
        self.depth -= 1;
        // Work that was done at once has come back here: the outermost call reports what all of it led to.
        if self.depth == 0 {
            self.report(uid);
            self.schedule(uid);
        }
    }

    /// A pod no longer takes room on its node.
    fn leave(&mut self, node: &Arc<str>, uid: &Arc<str>, requests: &Amounts) {
        if let Some(entry) = self.nodes.get_mut(node)
            && entry.admitted.remove(uid)
        {
            admission::subtract(&mut entry.used, requests);
        }
    }

    fn perform(&mut self, uid: &Arc<str>, actions: Vec<Action>) {
        for action in actions {
            let Some(entry) = self.pods.get_mut(uid) else { return };
            let (pod, runtime) = (entry.pod().clone(), self.shared.runtime.clone());
            let node = entry.node.clone();
            let image = |name: &str| {
                let container = ContainerRef { pod: pod.clone(), name: Arc::from(name), attempt: 0 };
                container.spec().and_then(|(spec, _)| spec.image.clone()).unwrap_or_default()
            };
            let Some(client) = self.nodes.get(&node).map(|entry| entry.client.clone()) else { return };
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let work: BoxFuture<'static, Input> = match action {
                Action::Event(event) => {
                    self.send_event(&node, &pod, event);
                    continue;
                }
                Action::Delete => {
                    entry.wants_deletion = true;
                    continue;
                }
                Action::RemoveSandbox => {
                    self.shared.spawn(async move { runtime.remove_sandbox(pod).await });
                    continue;
                }
                Action::StopContainer(name, attempt, grace) => {
                    let container = ContainerRef { pod, name, attempt };
                    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
                    self.shared.spawn(async move { runtime.stop_container(container, grace).await });
                    continue;
                }
                Action::Mount => {
                    let needs = pod.spec.as_ref().map(references::of_volumes).unwrap_or_default();
                    let shared = self.shared.clone();
                    async move { Input::Mounted(needs::find(&shared, client, &namespace, needs).await) }.boxed()
                }
                Action::Configure(name) => {
                    let container = ContainerRef { pod, name: name.clone(), attempt: 0 };
                    let references =
                        container.spec().map(|(spec, _)| references::of_container(&spec)).unwrap_or_default();
                    let (shared, needs) = (self.shared.clone(), vec![(name.to_string(), references)]);
                    async move {
                        let found = needs::find(&shared, client, &namespace, needs).await;
                        Input::Configured(name, found)
                    }
                    .boxed()
                }
                Action::RunSandbox => async move { Input::Sandbox(runtime.run_sandbox(pod).await) }.boxed(),
                Action::InspectImage(name) => {
                    let image = image(&name);
                    async move { Input::Inspected(name, runtime.image_present(&node, &image).await) }.boxed()
                }
                Action::PullImage(name) => {
                    let image = image(&name);
                    async move { Input::Pulled(name, runtime.pull_image(&node, &image).await) }.boxed()
                }
                Action::StartContainer(name, attempt) => {
                    let container = ContainerRef { pod, name: name.clone(), attempt };
                    let exits = self.exits.clone();
                    async move { Input::Started(name, runtime.start_container(container, exits).await) }.boxed()
                }
            };
            self.work(uid, work);
        }
    }

    /// Does work for a pod and gives its outcome to the lifecycle; what is done at once needs no task of its own.
    fn work(&mut self, uid: &Arc<str>, mut work: BoxFuture<'static, Input>) {
        if let Some(input) = (&mut work).now_or_never() {
            self.tell(uid, &input);
            self.input(uid, input);
            return;
        }
        let (shared, uid) = (self.shared.clone(), uid.clone());
        self.shared.spawn(async move {
            // The fleet ends only at shutdown.
            let _ = shared.messages.send(Message::Worked(uid, work.await));
        });
    }

    /// Work that took its time is done.
    pub(super) fn worked(&mut self, uid: &Arc<str>, input: Input) {
        self.tell(uid, &input);
        self.input(uid, input);
    }

    fn tell(&self, uid: &Arc<str>, input: &Input) {
        let Some(entry) = self.pods.get(uid) else { return };
        let user = || Arc::from(format!("system:node:{}", entry.node));
        let tell = |stage, what: String| {
            self.shared.story.tell(|| requests::step(stage, what, entry.pod(), &user(), false));
        };
        match input {
            Input::Sandbox(Ok(sandbox)) => {
                tell("sandbox", format!("made the sandbox on {}", entry.node));
                match &sandbox.ip {
                    Some(ip) => tell("network", format!("gave it the address {ip}")),
                    None => tell("network", "joined it to the node's own network".to_owned()),
                }
            }
            Input::Inspected(name, Ok(true)) => tell("image", format!("found the image of container {name}")),
            Input::Pulled(name, Ok(pulled)) => {
                tell("image", format!("pulled the image of container {name} in {} ms", pulled.took.as_millis()));
            }
            Input::Pulled(name, Err(error)) => {
                tell("image", format!("could not pull the image of container {name}: {error}"));
            }
            Input::Started(name, Ok(_)) => tell("container", format!("started container {name}")),
            Input::Started(name, Err(error)) => tell("container", format!("could not start container {name}: {error}")),
            _ => {}
        }
    }

    fn send_event(&self, node: &Arc<str>, pod: &Arc<Pod>, event: PodEvent) {
        let Some(entry) = self.nodes.get(node) else { return };
        let field_path = event.container.map(|(name, list)| format!("spec.{list}{{{name}}}"));
        let metadata = &pod.metadata;
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path,
        };
        let occurrence = Occurrence {
            object,
            event_type: event.event_type,
            reason: event.reason,
            message: event.message,
            at: Timestamp::now(),
        };
        self.events.send(Outgoing { client: entry.client.clone(), node: node.clone(), occurrence });
    }

    /// Sends the pod's status if it changed and no report is under way, and after that the deletion if it is wanted.
    fn report(&mut self, uid: &Arc<str>) {
        let now = Timestamp::now();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get(&entry.node) else { return };
        if entry.sending || entry.retry_at.is_some_and(|at| at > now) {
            return;
        }
        entry.retry_at = None;
        let (shared, client, user) = (self.shared.clone(), node.client.clone(), node.user.clone());
        let (uid, pod) = (uid.clone(), entry.pod().clone());
        if let Some(status) = entry.lifecycle.report(now) {
            entry.sending = true;
            self.shared.spawn(async move {
                let _permit = shared.requests.acquire().await;
                let outcome = requests::report_pod(client, &pod, &status, &shared.story, &user).await;
                let _ = shared.messages.send(Message::Reported(uid, outcome));
            });
        } else if entry.wants_deletion {
            entry.sending = true;
            self.shared.spawn(async move {
                let _permit = shared.requests.acquire().await;
                let outcome = requests::delete_pod(client, &pod).await;
                let _ = shared.messages.send(Message::Deleted(uid, outcome));
            });
        }
    }

    pub(super) fn reported(&mut self, uid: &Arc<str>, outcome: Outcome) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.sending = false;
        if outcome == Outcome::Failed {
            entry.lifecycle.report_again();
            entry.retry_at = Some(Timestamp::now() + RETRY);
        }
        self.report(uid);
        self.schedule(uid);
    }

    pub(super) fn deletion_sent(&mut self, uid: &Arc<str>, outcome: Outcome) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.sending = false;
        entry.wants_deletion = outcome == Outcome::Failed;
        if outcome == Outcome::Failed {
            entry.retry_at = Some(Timestamp::now() + RETRY);
            self.schedule(uid);
        }
    }

    /// Sets the pod's alarm.
    fn schedule(&mut self, uid: &Arc<str>) {
        let now = Timestamp::now();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let retry = entry.retry_at;
        let at = entry.lifecycle.next_wakeup(now).into_iter().chain(retry).min();
        if at != entry.wake_at {
            entry.wake_at = at;
            self.wakeups.extend(at.map(|at| Reverse((at, uid.clone()))));
        }
    }

    /// Wakes the pods whose time has come.
    pub(super) fn wake(&mut self, now: Timestamp) {
        while let Some(Reverse((at, _))) = self.wakeups.peek()
            && *at <= now
        {
            let Some(Reverse((at, uid))) = self.wakeups.pop() else { return };
            let Some(entry) = self.pods.get_mut(&uid).filter(|entry| entry.wake_at == Some(at)) else { continue };
            entry.wake_at = None;
            self.input(&uid, Input::Wake);
        }
    }

    pub(super) fn pod_deleted(&mut self, uid: &str) {
        for pods in self.orphans.values_mut() {
            pods.remove(uid);
        }
        self.orphans.retain(|_, pods| !pods.is_empty());
        if let Some((uid, _)) = self.pods.get_key_value(uid) {
            let uid = uid.clone();
            self.forget(&uid);
        }
    }

    /// Drops a pod and whatever of it still runs.
    pub(super) fn forget(&mut self, uid: &Arc<str>) -> Option<Arc<Pod>> {
        let entry = self.pods.remove(uid)?;
        let pod = entry.pod().clone();
        self.leave(&entry.node, uid, &entry.requests);
        let key = key_of(&pod);
        if self.names.get(&key).is_some_and(|known| known == uid) {
            self.names.remove(&key);
        }
        let runtime = self.shared.runtime.clone();
        let removed = pod.clone();
        self.shared.spawn(async move { runtime.remove_sandbox(removed).await });
        Some(pod)
    }

    pub(super) fn pods_listed(&mut self) {
        let Some(listed) = self.listed_pods.take() else { return };
        let gone: Vec<Arc<str>> = self.pods.keys().filter(|uid| !listed.contains(&***uid)).cloned().collect();
        for uid in gone {
            self.forget(&uid);
        }
        for pods in self.orphans.values_mut() {
            pods.retain(|uid, _| listed.contains(uid));
        }
    }

    pub(super) fn logs(&self, request: LogRequest) -> Result<LogStream, LogError> {
        let LogRequest { namespace, pod, container, previous, options } = request;
        let uid = self.names.get(&(namespace.clone(), pod.clone()));
        let Some(entry) = uid.and_then(|uid| self.pods.get(uid)) else {
            return Err(LogError::PodNotFound { namespace, pod });
        };
        match entry.lifecycle.run_of(&container, previous) {
            None => Err(LogError::NoContainer { container, pod }),
            Some(Err(reason)) => Err(LogError::Waiting { container, pod, reason }),
            Some(Ok(None)) => Err(LogError::NoPrevious { container, pod }),
            Some(Ok(Some((attempt, started, ended)))) => {
                let container = ContainerRef { pod: entry.pod().clone(), name: Arc::from(container), attempt };
                Ok(self.shared.runtime.logs(container, started, ended, options))
            }
        }
    }
}
