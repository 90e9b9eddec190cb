//! The life of pods, with a runtime that answers at once and a clock that the test moves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde_json::{Value, json};

use super::{Action, Found, Input, PodLifecycle};
use crate::runtime::{ContainerExit, PulledImage, RuntimeError, Sandbox, StartedContainer};

/// A pod, its lifecycle, and everything that it has asked for.
struct World {
    lifecycle: PodLifecycle,
    now: Timestamp,
    events: Vec<String>,
    stops: Vec<(String, i64)>,
    deleted: bool,
    missing_images: bool,
    /// What is found of objects that volumes and environments need.
    found: Found,
}

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec})
}

fn typed(value: &Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(value.clone()).unwrap())
}

impl World {
    fn new(pod: &Value) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let oracle = Arc::new(|_: &Arc<Pod>, _: &str, command: &[String]| command != ["false"]);
        let lifecycle = PodLifecycle::new(typed(pod), "10.0.0.11".to_owned(), now, oracle);
        let mut world = Self::waiting(lifecycle, now, Found::Everything);
        world.give(Input::Wake);
        world
    }

    fn waiting(lifecycle: PodLifecycle, now: Timestamp, found: Found) -> Self {
        Self { lifecycle, now, events: Vec::new(), stops: Vec::new(), deleted: false, missing_images: false, found }
    }

    /// A pod whose objects are not all there.
    fn without(spec: &Value, what: &str, fault: &str) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let lifecycle = PodLifecycle::new(typed(&pod(spec)), "10.0.0.11".to_owned(), now, Arc::new(|_, _, _| true));
        let found = Found::Missing(vec![(what.to_owned(), fault.to_owned())]);
        let mut world = Self::waiting(lifecycle, now, found);
        world.give(Input::Wake);
        world
    }

    fn spec(spec: &Value) -> Self {
        Self::new(&pod(spec))
    }

    /// Gives an input and plays the runtime until nothing is left to do.
    fn give(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for action in self.lifecycle.handle(input, self.now) {
                match action {
                    Action::Mount => inputs.push(Input::Mounted(self.found.clone())),
                    Action::Configure(name) => inputs.push(Input::Configured(name, self.found.clone())),
                    Action::RunSandbox => {
                        inputs.push(Input::Sandbox(Ok(Sandbox { ip: Some("10.244.0.2".to_owned()) })));
                    }
                    Action::InspectImage(name) => inputs.push(Input::Inspected(name, Ok(!self.missing_images))),
                    Action::PullImage(name) if self.missing_images => {
                        inputs.push(Input::Pulled(name, Err(RuntimeError("not found".to_owned()))));
                    }
                    Action::PullImage(name) => {
                        let took = std::time::Duration::from_millis(100);
                        inputs.push(Input::Pulled(name, Ok(PulledImage { took, size: 1000 })));
                    }
                    Action::StartContainer(name, attempt) => {
                        let id = format!("sim://{name}/{attempt}");
                        let started = StartedContainer { id, image_id: "sha".to_owned(), at: self.now };
                        inputs.push(Input::Started(name, Ok(started)));
                    }
                    Action::StopContainer(name, _, grace) => self.stops.push((name.to_string(), grace)),
                    Action::Event(event) => self.events.push(format!("{} {}", event.reason, event.message)),
                    Action::Delete => self.deleted = true,
                    Action::RemoveSandbox => {}
                }
            }
        }
    }

    fn exit(&mut self, container: &str, attempt: i32, code: i32) {
        let (pod_uid, container) = ("u".to_owned(), Arc::from(container));
        self.give(Input::Exited(ContainerExit { pod_uid, container, attempt, code, at: self.now }));
    }

    /// Moves the clock to each time that the lifecycle names, until `seconds` have gone by.
    fn pass(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        let mut wakes = 0;
        while let Some(at) = self.lifecycle.next_wakeup(self.now).filter(|at| *at <= end) {
            wakes += 1;
            assert!(wakes < 100, "the clock stands still at {at}");
            self.now = self.now.max(at);
            self.give(Input::Wake);
        }
        self.now = end;
    }

    fn status(&mut self) -> PodStatus {
        self.lifecycle.status(self.now)
    }

    fn phase(&mut self) -> String {
        self.status().phase.unwrap()
    }

    fn container(&mut self, name: &str) -> ContainerStatus {
        let status = self.status();
        let mut all = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        all.find(|container| container.name == name).unwrap()
    }

    /// `Ready=True`, or `Ready=False Reason: message`.
    fn condition(&mut self, type_: &str) -> String {
        let conditions = self.status().conditions.unwrap();
        let condition = conditions.into_iter().find(|condition| condition.type_ == type_).unwrap();
        match (condition.reason, condition.message) {
            (None, None) => format!("{type_}={}", condition.status),
            (reason, message) => {
                format!("{type_}={} {}: {}", condition.status, reason.unwrap_or_default(), message.unwrap_or_default())
            }
        }
    }
}

fn server() -> Value {
    json!({"name": "c", "image": "app:1", "imagePullPolicy": "IfNotPresent"})
}

#[test]
fn server_starts_runs_and_is_stopped_when_it_is_deleted() {
    let mut object = pod(&json!({"containers": [server()]}));
    let mut world = World::new(&object);
    assert_eq!(
        world.events,
        [
            "Pulled Container image \"app:1\" already present on machine",
            "Created Container created",
            "Started Container started"
        ]
    );
    let status = world.status();
    assert_eq!((status.phase.as_deref(), status.pod_ip.as_deref()), (Some("Running"), Some("10.244.0.2")));
    assert_eq!(status.observed_generation, Some(1));
    for type_ in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(world.condition(type_), format!("{type_}=True"));
    }
    world.events.clear();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    world.give(Input::Pod(typed(&object)));
    assert_eq!((world.stops.clone(), world.deleted), (vec![("c".to_owned(), 30)], false));
    assert_eq!(world.events, ["Killing Stopping container c"]);
    object["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    world.give(Input::Pod(typed(&object)));
    assert_eq!(world.stops.last().unwrap().1, 5, "a shorter grace hastens the end");
    world.exit("c", 0, 0);
    assert!(world.deleted);
    assert_eq!(world.phase(), "Succeeded");
    assert_eq!(world.condition("Ready"), "Ready=False PodCompleted: ");
    assert_eq!(world.condition("PodReadyToStartContainers"), "PodReadyToStartContainers=False");
}

#[test]
fn pod_that_is_held_by_a_finalizer_is_deleted_when_it_is_let_go() {
    let mut object = pod(&json!({"containers": [server()]}));
    let mut world = World::new(&object);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["finalizers"] = json!(["example.test/hold"]);
    world.give(Input::Pod(typed(&object)));
    world.exit("c", 0, 0);
    assert!(!world.deleted);
    object["metadata"]["finalizers"] = json!([]);
    world.give(Input::Pod(typed(&object)));
    assert!(world.deleted);
}

#[test]
fn ended_containers_make_the_phase_that_the_policy_says() {
    for (policy, code, phase, restarts) in [
        ("Always", 0, "Running", 1),
        ("Always", 1, "Running", 1),
        ("OnFailure", 0, "Succeeded", 0),
        ("OnFailure", 1, "Running", 1),
        ("Never", 0, "Succeeded", 0),
        ("Never", 2, "Failed", 0),
    ] {
        let mut world = World::spec(&json!({"restartPolicy": policy, "containers": [server()]}));
        world.exit("c", 0, code);
        let container = world.container("c");
        assert_eq!((world.phase(), container.restart_count), (phase.to_owned(), restarts), "{policy} {code}");
    }
}

#[test]
fn restart_rules_of_the_container_come_before_the_policy_of_the_pod() {
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}]});
    let mut world = World::spec(&spec);
    world.exit("c", 0, 42);
    assert_eq!((world.phase(), world.container("c").restart_count), ("Running".to_owned(), 1));
    world.exit("c", 1, 1);
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn crashing_container_is_restarted_at_once_and_then_backed_off() {
    let mut world = World::spec(&json!({"containers": [server()]}));
    world.exit("c", 0, 1);
    assert_eq!(world.container("c").restart_count, 1);
    world.events.clear();
    world.exit("c", 1, 1);
    assert_eq!(world.events, ["BackOff Back-off restarting failed container c in pod p_ns(u)"]);
    let container = world.container("c");
    let waiting = container.state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(waiting.message.as_deref(), Some("back-off 10s restarting failed container=c pod=p_ns(u)"));
    assert_eq!(container.last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert_eq!((world.phase(), container.restart_count), ("Running".to_owned(), 1));
    world.pass(9);
    assert_eq!(world.container("c").restart_count, 1);
    world.pass(1);
    assert_eq!(world.container("c").restart_count, 2);
    world.exit("c", 2, 1);
    world.pass(19);
    assert_eq!(world.container("c").restart_count, 2);
    world.pass(1);
    assert_eq!(world.container("c").restart_count, 3);
}

#[test]
fn image_that_cannot_be_pulled_is_backed_off_and_tried_again() {
    let mut world = World::spec(&json!({"containers": [server()]}));
    world = World { missing_images: true, events: Vec::new(), ..world };
    let oracle = Arc::new(|_: &Arc<Pod>, _: &str, _: &[String]| true);
    world.lifecycle =
        PodLifecycle::new(typed(&pod(&json!({"containers": [server()]}))), String::new(), world.now, oracle);
    world.give(Input::Wake);
    let failed = "Failed Failed to pull image \"app:1\": not found";
    assert_eq!(world.events, ["Pulling Pulling image \"app:1\"", failed, "Failed Error: ErrImagePull"]);
    let waiting = |world: &mut World| {
        let waiting = world.container("c").state.unwrap().waiting.unwrap();
        (waiting.reason.unwrap(), waiting.message.unwrap())
    };
    assert_eq!(waiting(&mut world), ("ErrImagePull".to_owned(), "not found".to_owned()));
    world.events.clear();
    world.pass(3);
    assert_eq!(world.events, ["BackOff Back-off pulling image \"app:1\"", "Failed Error: ImagePullBackOff"]);
    let text = "Back-off pulling image \"app:1\": ErrImagePull: not found".to_owned();
    assert_eq!(waiting(&mut world), ("ImagePullBackOff".to_owned(), text));
    assert_eq!(world.phase(), "Pending");
    world.missing_images = false;
    world.pass(7);
    assert_eq!(world.phase(), "Running");
}

#[test]
fn never_policy_does_not_pull_and_always_does() {
    let with = |policy: &str| json!({"containers": [{"name": "c", "image": "app:1", "imagePullPolicy": policy}]});
    let always = World::spec(&with("Always"));
    let pulled =
        "Pulled Successfully pulled image \"app:1\" in 100ms (100ms including waiting). Image size: 1000 bytes.";
    assert_eq!(always.events[..2], ["Pulling Pulling image \"app:1\"".to_owned(), pulled.to_owned()]);
    let mut never = World::spec(&with("Never"));
    assert_eq!(never.phase(), "Running");
    never.exit("c", 0, 1);
    never.missing_images = true;
    never.exit("c", 1, 1);
    never.pass(10);
    let text = "ErrImageNeverPull Container image \"app:1\" is not present with pull policy of Never";
    assert!(never.events.contains(&text.to_owned()), "{:?}", never.events);
}

#[test]
fn init_containers_run_one_after_the_other_before_the_rest() {
    let init = |name: &str| json!({"name": name, "image": "i"});
    let mut world = World::spec(&json!({"initContainers": [init("one"), init("two")], "containers": [server()]}));
    let message = "Initialized=False ContainersNotInitialized: containers with incomplete status: [one two]";
    assert_eq!(world.condition("Initialized"), message);
    assert_eq!(world.phase(), "Pending");
    assert_eq!(world.container("c").state.unwrap().waiting.unwrap().reason.as_deref(), Some("PodInitializing"));
    world.exit("one", 0, 0);
    assert!(world.container("one").ready && world.container("two").state.unwrap().running.is_some());
    assert!(world.container("c").state.unwrap().running.is_none());
    world.exit("two", 0, 0);
    assert_eq!((world.phase(), world.condition("Initialized")), ("Running".to_owned(), "Initialized=True".to_owned()));
}

#[test]
fn failed_init_container_fails_the_pod_or_is_restarted() {
    for (policy, phase, restarts) in [("Never", "Failed", 0), ("Always", "Pending", 1), ("OnFailure", "Pending", 1)] {
        let init = json!([{"name": "one", "image": "i"}]);
        let mut world =
            World::spec(&json!({"restartPolicy": policy, "initContainers": init, "containers": [server()]}));
        world.exit("one", 0, 1);
        assert_eq!((world.phase().as_str(), world.container("one").restart_count), (phase, restarts), "{policy}");
    }
}

#[test]
fn sidecar_starts_first_runs_on_and_is_stopped_last() {
    let sidecar = json!({"name": "s", "image": "i", "restartPolicy": "Always"});
    let spec = json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [server()]});
    let mut world = World::spec(&spec);
    assert_eq!(world.phase(), "Running");
    assert!(world.container("s").ready);
    world.exit("c", 0, 0);
    assert_eq!(world.stops, [("s".to_owned(), 30)]);
    assert_eq!(world.phase(), "Running");
    world.exit("s", 0, 0);
    assert_eq!(world.phase(), "Succeeded");
}

#[test]
fn readiness_waits_for_the_probe_and_for_the_gates() {
    let probed =
        json!({"name": "c", "image": "i", "readinessProbe": {"initialDelaySeconds": 5, "httpGet": {"port": 80}}});
    let mut world = World::spec(&json!({"containers": [probed]}));
    let unready = "ContainersNotReady: containers with unready status: [c]";
    assert_eq!(world.condition("Ready"), format!("Ready=False {unready}"));
    world.pass(5);
    assert_eq!(world.condition("Ready"), "Ready=True");

    let mut object = pod(&json!({"readinessGates": [{"conditionType": "x.io/ok"}], "containers": [server()]}));
    let mut world = World::new(&object);
    assert_eq!(world.condition("ContainersReady"), "ContainersReady=True");
    let missing = "corresponding condition of pod readiness gate \"x.io/ok\" does not exist.";
    assert_eq!(world.condition("Ready"), format!("Ready=False ReadinessGatesNotReady: {missing}"));
    object["status"]["conditions"] = json!([{"type": "x.io/ok", "status": "False"}]);
    world.give(Input::Pod(typed(&object)));
    let refused = "the status of pod readiness gate \"x.io/ok\" is not \"True\", but False";
    assert_eq!(world.condition("Ready"), format!("Ready=False ReadinessGatesNotReady: {refused}"));
    object["status"]["conditions"] = json!([{"type": "x.io/ok", "status": "True"}]);
    world.give(Input::Pod(typed(&object)));
    assert_eq!(world.condition("Ready"), "Ready=True");
}

#[test]
fn failing_probes_say_so_and_liveness_restarts() {
    let probe = |kind: &str| {
        let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 2, "failureThreshold": 2});
        let mut container = json!({"name": "c", "image": "i"});
        container[kind] = probe;
        World::spec(&json!({"containers": [container]}))
    };
    let mut readiness = probe("readinessProbe");
    readiness.events.clear();
    readiness.pass(4);
    assert_eq!(readiness.events, vec!["Unhealthy Readiness probe failed: "; 3]);
    assert!(!readiness.container("c").ready);
    let mut liveness = probe("livenessProbe");
    liveness.events.clear();
    liveness.pass(2);
    let killing = "Killing Container c failed liveness probe, will be restarted";
    assert_eq!(liveness.events, ["Unhealthy Liveness probe failed: ", "Unhealthy Liveness probe failed: ", killing]);
    liveness.exit("c", 0, 0);
    assert_eq!(liveness.container("c").restart_count, 1);
}

#[test]
fn deadline_fails_the_pod() {
    let mut world = World::spec(&json!({"activeDeadlineSeconds": 3, "containers": [server()]}));
    world.events.clear();
    world.pass(3);
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(world.events, [format!("DeadlineExceeded {message}"), "Killing Stopping container c".to_owned()]);
    world.exit("c", 0, 137);
    let status = world.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("DeadlineExceeded")));
    assert_eq!(status.message.as_deref(), Some(message));
}

#[test]
fn phase_that_somebody_set_is_final() {
    let mut object = pod(&json!({"containers": [server()]}));
    let mut world = World::new(&object);
    object["status"]["phase"] = json!("Failed");
    world.give(Input::Pod(typed(&object)));
    assert_eq!(world.stops.len(), 1);
    world.exit("c", 0, 0);
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn changed_image_restarts_the_container() {
    let mut object = pod(&json!({"containers": [server()]}));
    let mut world = World::new(&object);
    world.events.clear();
    object["spec"]["containers"][0]["image"] = json!("app:2");
    world.give(Input::Pod(typed(&object)));
    assert_eq!(world.events, ["Killing Container c definition changed, will be restarted"]);
    world.exit("c", 0, 0);
    let container = world.container("c");
    assert_eq!((container.image.as_str(), container.restart_count), ("app:2", 1));
}

#[test]
fn running_pod_goes_on_after_a_restart_of_the_kubelet() {
    let mut object = pod(&json!({"containers": [server()]}));
    object["status"] = json!({"phase": "Running", "podIP": "10.244.0.7", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-02T00:00:05Z"}],
        "containerStatuses": [{"name": "c", "image": "app:1", "imageID": "sha", "ready": true, "restartCount": 2,
            "containerID": "sim://c/2", "state": {"running": {"startedAt": "1970-01-02T00:00:04Z"}}}]});
    let mut world = World::new(&object);
    assert_eq!(world.events, Vec::<String>::new());
    let status = world.status();
    assert_eq!((status.phase.as_deref(), status.pod_ip.as_deref()), (Some("Running"), Some("10.244.0.7")));
    let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.last_transition_time.unwrap().0.to_string(), "1970-01-02T00:00:05Z");
    assert_eq!(world.container("c").restart_count, 2);
    assert_eq!(world.lifecycle.running().count(), 1);
}

#[test]
fn status_is_reported_only_when_it_changed() {
    let mut world = World::spec(&json!({"containers": [server()]}));
    assert!(world.lifecycle.report(world.now).is_some());
    world.now += SignedDuration::from_secs(60);
    assert!(world.lifecycle.report(world.now).is_none());
    world.exit("c", 0, 0);
    assert!(world.lifecycle.report(world.now).is_some());
}

#[test]
fn pod_without_an_object_of_a_volume_has_no_sandbox_until_it_is_there() {
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}]
    });
    let mut world = World::without(&spec, "v", "configmap \"m\" not found");
    let told = "FailedMount MountVolume.SetUp failed for volume \"v\" : configmap \"m\" not found";
    assert_eq!(world.events, [told]);
    let status = world.lifecycle.status(world.now);
    assert_eq!((status.phase.as_deref(), status.pod_ip), (Some("Pending"), None));
    let waiting = status.container_statuses.unwrap().remove(0).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("ContainerCreating"));
    for _ in 0..10 {
        world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
        world.give(Input::Wake);
    }
    assert_eq!(world.events.len(), 5, "told with longer and longer pauses: after 1, 2, 4, 8 seconds");
    world.found = Found::Everything;
    world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
    world.give(Input::Wake);
    assert_eq!(world.lifecycle.status(world.now).phase.as_deref(), Some("Running"));
}

#[test]
fn container_without_an_object_of_its_environment_waits_and_starts_when_it_is_there() {
    let from = json!([{"secretRef": {"name": "s"}}]);
    let spec = json!({"containers": [{"name": "c", "image": "i", "envFrom": from}, {"name": "d", "image": "i"}]});
    let mut world = World::without(&spec, "c", "secret \"s\" not found");
    assert!(world.events.contains(&"Failed Error: secret \"s\" not found".to_owned()), "{:?}", world.events);
    let status = world.lifecycle.status(world.now);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let mut containers = status.container_statuses.unwrap();
    assert!(containers.remove(1).state.unwrap().running.is_some(), "the other one runs");
    let waiting = containers.remove(0).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CreateContainerConfigError"));
    assert_eq!(waiting.message.as_deref(), Some("secret \"s\" not found"));
    let n_events = world.events.len();
    for _ in 0..10 {
        world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
        world.give(Input::Wake);
    }
    assert_eq!(world.events.len(), n_events + 2, "told again after ten seconds: Pulled and Failed");
    world.found = Found::Everything;
    world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
    world.give(Input::Wake);
    assert_eq!(world.lifecycle.status(world.now).phase.as_deref(), Some("Running"));
}

#[test]
fn api_that_does_not_answer_is_asked_again_without_a_word() {
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}]
    });
    let mut world = World::without(&spec, "v", "");
    world.events.clear();
    world.found = Found::Unknown;
    world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
    world.give(Input::Wake);
    assert_eq!(world.events, [""; 0]);
    world.found = Found::Everything;
    world.now = world.lifecycle.next_wakeup(world.now).expect("it looks again");
    world.give(Input::Wake);
    assert_eq!(world.lifecycle.status(world.now).phase.as_deref(), Some("Running"));
}

#[test]
fn ephemeral_container_runs_beside_the_others_and_counts_for_nothing() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]});
    let mut world = World::spec(&spec);
    let mut with = pod(&spec);
    with["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "busybox", "targetContainerName": "c"}]);
    world.give(Input::Pod(typed(&with)));
    let status = world.lifecycle.status(world.now);
    let of = |status: &PodStatus| status.ephemeral_container_statuses.clone().unwrap().remove(0);
    assert!(of(&status).state.unwrap().running.is_some());
    assert_eq!(status.container_statuses.as_ref().map(Vec::len), Some(1));
    let ready = |status: &PodStatus| {
        status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    assert!(ready(&status));
    world.exit("debugger", 0, 1);
    world.give(Input::Wake);
    let status = world.lifecycle.status(world.now);
    assert_eq!(of(&status).state.unwrap().terminated.map(|end| end.exit_code), Some(1), "it never starts again");
    assert_eq!(of(&status).restart_count, 0);
    assert!(ready(&status) && status.phase.as_deref() == Some("Running"));
}
