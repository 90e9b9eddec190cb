//! Pods and nodes on the simulated kubelets of a whole cluster, seen as any client sees them.

use std::time::Duration;

use cluster_stub::apiserver::authn::UserInfo;
use cluster_stub::cluster::{Cluster, ClusterOptions};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

async fn cluster() -> (Cluster, kube::Client) {
    // No controllers: nobody but the kubelets acts.
    let cluster = Cluster::start(ClusterOptions { controllers: false, ..ClusterOptions::default() }).await.unwrap();
    let client = cluster.client(UserInfo::admin("test"));
    (cluster, client)
}

/// Asks until `done` says yes. The limit only keeps a broken build from hanging.
async fn until<K>(api: &Api<K>, name: &str, done: impl Fn(Option<&K>) -> bool)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut last = None;
    for _ in 0..1200 {
        last = api.get_opt(name).await.unwrap();
        if done(last.as_ref()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} never came to be as it should, it is {last:#?}");
}

fn phase(pod: Option<&Pod>) -> &str {
    pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// A pod that is bound already, as there is no scheduler here.
fn pod(name: &str, container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = container.get("image").cloned().unwrap_or(json!("registry.example/app:1"));
    let spec = json!({"nodeName": "node-a", "restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [container]});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec})).unwrap()
}

async fn nodes_are_ready(client: &kube::Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["node-a", "node-b", "node-c"] {
        until(&nodes, name, |node| node.is_some_and(|node| ready(node) == "True")).await;
    }
    // Pods need the account that a controller would make.
    let account = json!({"metadata": {"name": "default", "namespace": "kube-system"}});
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
}

fn ready(node: &Node) -> &str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").map_or("", |condition| condition.status.as_str())
}

#[test]
fn nodes_register_and_keep_their_leases() {
    run(async {
        let (cluster, client) = cluster().await;
        nodes_are_ready(&client).await;
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes.get("node-b").await.unwrap();
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.unwrap()["cpu"].0, "4");
        assert_eq!(status.node_info.unwrap().kubelet_version, "v1.36.2");
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        until(&leases, "node-b", |lease| lease.is_some()).await;
        let lease = leases.get("node-b").await.unwrap();
        assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, node.metadata.uid.unwrap());
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("node-b"));
        cluster.shutdown().await;
    });
}

#[test]
fn pod_runs_writes_its_log_and_is_stopped_when_it_is_deleted() {
    run(async {
        let (cluster, client) = cluster().await;
        nodes_are_ready(&client).await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
        let command = json!({"command": ["sh", "-c", "echo one; echo two; sleep 3600"]});
        pods.create(&PostParams::default(), &pod("p", command)).await.unwrap();
        until(&pods, "p", |pod| phase(pod) == "Running").await;
        let status = pods.get("p").await.unwrap().status.unwrap();
        assert_eq!(status.host_ip.as_deref(), Some("10.0.0.11"));
        assert!(status.pod_ip.unwrap().starts_with("10.244."));
        assert_eq!(pods.logs("p", &LogParams::default()).await.unwrap(), "one\ntwo\n");
        let tail = LogParams { tail_lines: Some(1), ..LogParams::default() };
        assert_eq!(pods.logs("p", &tail).await.unwrap(), "two\n");
        let previous = pods.logs("p", &LogParams { previous: true, ..LogParams::default() }).await.unwrap_err();
        assert!(
            previous.to_string().contains("previous terminated container \"c\" in pod \"p\" not found"),
            "{previous}"
        );
        let events: Api<Event> = Api::namespaced(client.clone(), "kube-system");
        let of_pod = ListParams::default().fields("involvedObject.name=p");
        let mut reasons = Vec::new();
        for _ in 0..1200 {
            let items = events.list(&of_pod).await.unwrap().items;
            reasons = items.into_iter().filter_map(|event| event.reason).collect();
            if reasons.len() == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(reasons, ["Pulled", "Created", "Started"]);
        pods.delete("p", &DeleteParams::default()).await.unwrap();
        until(&pods, "p", |pod| pod.is_none()).await;
        cluster.shutdown().await;
    });
}

#[test]
fn pods_end_as_their_commands_say() {
    run(async {
        let (cluster, client) = cluster().await;
        nodes_are_ready(&client).await;
        let pods: Api<Pod> = Api::namespaced(client, "kube-system");
        for (name, container, want) in [
            ("ok", json!({"command": ["true"]}), "Succeeded"),
            ("bad", json!({"command": ["sh", "-c", "exit 3"]}), "Failed"),
            ("big", json!({"resources": {"requests": {"cpu": "5"}}}), "Failed"),
            ("missing", json!({"image": "registry.example/does-not-exist:1"}), "Pending"),
        ] {
            pods.create(&PostParams::default(), &pod(name, container)).await.unwrap();
            until(&pods, name, |pod| phase(pod) == want).await;
        }
        let big = pods.get("big").await.unwrap().status.unwrap();
        assert_eq!(big.reason.as_deref(), Some("OutOfcpu"));
        until(&pods, "missing", |pod| {
            let statuses =
                pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.container_statuses.as_deref());
            let state = statuses.and_then(|statuses| statuses.first()).and_then(|status| status.state.as_ref());
            let waiting = state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.as_deref());
            waiting == Some("ImagePullBackOff")
        })
        .await;
        cluster.shutdown().await;
    });
}

#[test]
fn node_of_a_user_is_taken_over_with_its_status_unless_it_is_to_be_left_alone() {
    run(async {
        let (cluster, client) = cluster().await;
        nodes_are_ready(&client).await;
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        let node = |name: &str, annotations: Value| -> Node {
            let status = json!({"allocatable": {"cpu": "64", "pods": "10"}, "capacity": {"cpu": "64", "pods": "10"}});
            let metadata = json!({"name": name, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let ignore = json!({"plimsoll.io/kubelet": "ignore"});
        nodes.create(&PostParams::default(), &node("left", ignore)).await.unwrap();
        nodes.create(&PostParams::default(), &node("taken", json!({}))).await.unwrap();
        until(&nodes, "taken", |node| node.is_some_and(|node| ready(node) == "True")).await;
        until(&leases, "taken", |lease| lease.is_some()).await;
        let taken = nodes.get("taken").await.unwrap().status.unwrap();
        assert_eq!(taken.allocatable.unwrap()["cpu"].0, "64");
        assert_eq!(taken.node_info.map(|info| info.kubelet_version).unwrap_or_default(), "", "it said nothing of it");
        assert_eq!(ready(&nodes.get("left").await.unwrap()), "");
        assert!(leases.get_opt("left").await.unwrap().is_none());
        cluster.shutdown().await;
    });
}

#[test]
fn held_pod_is_not_touched_again_and_goes_when_it_is_let_go() {
    run(async {
        let (cluster, client) = cluster().await;
        nodes_are_ready(&client).await;
        let pods: Api<Pod> = Api::namespaced(client, "kube-system");
        let mut held = pod("held", json!({}));
        held.metadata.finalizers = Some(vec!["example.test/hold".to_owned()]);
        pods.create(&PostParams::default(), &held).await.unwrap();
        until(&pods, "held", |pod| phase(pod) == "Running").await;
        pods.delete("held", &DeleteParams::default()).await.unwrap();
        until(&pods, "held", |pod| phase(pod) == "Succeeded").await;
        let version = pods.get("held").await.unwrap().metadata.resource_version;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(pods.get("held").await.unwrap().metadata.resource_version, version);
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        pods.patch("held", &PatchParams::default(), &none).await.unwrap();
        until(&pods, "held", |pod| pod.is_none()).await;
        cluster.shutdown().await;
    });
}
