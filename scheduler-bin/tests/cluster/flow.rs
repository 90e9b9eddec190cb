//! The way of a workload over HTTPS with a kube-rs client.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::process::{Up, eventually};

pub(crate) fn pod(name: &str, spec: serde_json::Value) -> Result<Pod> {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "main", "image": "registry.k8s.io/pause:3.10"}]);
    }
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
}

pub(crate) fn asking(cpu: &str) -> serde_json::Value {
    json!({"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}]})
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

pub(crate) async fn running(pods: &Api<Pod>, name: &str) -> Result<Pod> {
    eventually(&format!("pod {name} runs"), || async {
        let pod = pods.get(name).await?;
        Ok((phase(&pod) == "Running").then_some(pod))
    })
    .await
}

/// The PodScheduled condition's reason and message, once it is False.
async fn unschedulable(pods: &Api<Pod>, name: &str) -> Result<(String, String)> {
    eventually(&format!("pod {name} is marked"), || async {
        let pod = pods.get(name).await?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let condition =
            conditions.into_iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        Ok(condition.map(|condition| (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default())))
    })
    .await
}

/// Waits until so many nodes take pods: they register a moment after the API server is ready.
async fn nodes_ready(client: &Client, n_nodes: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    eventually("the nodes are ready", || async {
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let untainted =
            |node: &&Node| node.spec.as_ref().is_none_or(|spec| spec.taints.as_deref().unwrap_or_default().is_empty());
        let conditions =
            |node: &Node| node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let is_ready = |node: &&Node| {
            conditions(node).iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        Ok((nodes.iter().filter(untainted).filter(is_ready).count() == n_nodes).then_some(()))
    })
    .await
}

async fn events(client: &Client, regarding: &str) -> Result<Vec<Event>> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    Ok(events.list(&ListParams::default().fields(&format!("involvedObject.name={regarding}"))).await?.items)
}

fn deployment() -> Result<Deployment> {
    let container = json!({"name": "web", "image": "nginx:1.27", "resources": {"requests": {"cpu": "500m"}}});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }))?)
}

#[tokio::test]
async fn a_deployment_becomes_running_pods_on_nodes_and_leaves_the_usual_events() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment()?).await?;
    eventually("three replicas are ready", || async {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        Ok((status.ready_replicas == Some(3)).then_some(()))
    })
    .await?;

    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let sets = sets.list(&ListParams::default().labels("app=web")).await?.items;
    ensure!(sets.len() == 1, "one ReplicaSet, found {}", sets.len());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default().labels("app=web")).await?.items;
    ensure!(
        pods.len() == 3 && pods.iter().all(|pod| phase(pod) == "Running" && node_of(pod).is_some()),
        "three pods run on nodes"
    );
    ensure!(
        pods.iter()
            .all(|pod| pod.owner_references().iter().any(|owner| owner.uid == sets[0].uid().unwrap_or_default())),
        "the ReplicaSet owns them"
    );

    let pod = pods[0].name_any();
    let told = eventually("the pod was started", || async {
        let mut told = events(&client, &pod).await?;
        told.sort_by_key(|event| event.resource_version().and_then(|version| version.parse::<u64>().ok()));
        let reasons: Vec<_> = told.iter().filter_map(|event| event.reason.clone()).collect();
        Ok(reasons.contains(&"Started".to_owned()).then_some(told))
    })
    .await?;
    let reasons: Vec<_> =
        told.iter().filter_map(|event| event.reason.as_deref()).filter(|reason| *reason != "Pulling").collect();
    ensure!(reasons == ["Scheduled", "Pulled", "Created", "Started"], "events of the pod: {reasons:?}");

    let scheduled =
        told.iter().find(|event| event.reason.as_deref() == Some("Scheduled")).context("it was scheduled")?;
    let node = node_of(&pods[0]).context("it has a node")?;
    ensure!(
        scheduled.message.as_deref() == Some(&*format!("Successfully assigned default/{pod} to {node}")),
        "{:?}",
        scheduled.message
    );
    ensure!(scheduled.action.as_deref() == Some("Binding"), "{:?}", scheduled.action);
    ensure!(
        scheduled.reporting_component.as_deref() == Some("default-scheduler"),
        "{:?}",
        scheduled.reporting_component
    );
    ensure!(
        scheduled.event_time.is_some() && scheduled.first_timestamp.is_none() && scheduled.count.is_none(),
        "the new API's fields only"
    );
    ensure!(scheduled.involved_object.resource_version.is_some(), "the reference names the version that was scheduled");
    Ok(())
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_waits_with_the_exact_message_and_runs_when_a_node_changes() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    nodes_ready(&client, 3).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("big", asking("6"))?).await?;
    let (reason, message) = unschedulable(&pods, "big").await?;
    let wanted = "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, \
        preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    ensure!(reason == "Unschedulable", "{reason}");
    ensure!(message == wanted, "condition: {message}");
    let told = eventually("the failure is an event", || async {
        Ok(events(&client, "big").await?.into_iter().find(|event| event.reason.as_deref() == Some("FailedScheduling")))
    })
    .await?;
    ensure!(told.message.as_deref() == Some(wanted), "event: {:?}", told.message);
    ensure!((told.type_.as_deref(), told.action.as_deref()) == (Some("Warning"), Some("Scheduling")), "{told:?}");

    let nodes: Api<Node> = Api::all(client.clone());
    let larger = json!({"status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}});
    nodes.patch_status("node-b", &PatchParams::default(), &Patch::Strategic(larger)).await?;
    let big = running(&pods, "big").await?;
    ensure!(node_of(&big) == Some("node-b"), "{:?}", node_of(&big));
    let conditions = big.status.and_then(|status| status.conditions).unwrap_or_default();
    let scheduled =
        conditions.iter().find(|condition| condition.type_ == "PodScheduled").context("the condition is there")?;
    ensure!(scheduled.status == "True", "{scheduled:?}");
    Ok(())
}

#[tokio::test]
async fn an_empty_cluster_places_its_first_pod_when_a_user_creates_a_node() -> Result<()> {
    let up = Up::start(&["--nodes", "0"])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("first", asking("1"))?).await?;
    let (_, message) = unschedulable(&pods, "first").await?;
    ensure!(message == "no nodes available to schedule pods", "{message}");
    let nodes: Api<Node> = Api::all(client.clone());
    let shape = json!({"cpu": "2", "memory": "4Gi", "pods": "10"});
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": "mine"}, "status": {"capacity": shape, "allocatable": shape}}),
    )?;
    nodes.create(&PostParams::default(), &node).await?;
    let first = running(&pods, "first").await?;
    ensure!(node_of(&first) == Some("mine"), "{:?}", node_of(&first));
    Ok(())
}

#[tokio::test]
async fn a_thousand_pods_are_each_bound_once_and_no_node_is_overcommitted() -> Result<()> {
    let up = Up::start(&["--nodes", "10", "--cpu", "10", "--pods", "200"])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    nodes_ready(&client, 10).await?;
    // 10 nodes of 10 CPU take 1 000 pods of 100m exactly.
    let create = |index: usize| {
        let pods = pods.clone();
        async move {
            pods.create(&PostParams::default(), &pod(&format!("p{index}"), asking("100m"))?)
                .await
                .map_err(anyhow::Error::from)
        }
    };
    for chunk in (0..1000).collect::<Vec<_>>().chunks(50) {
        for created in futures::future::join_all(chunk.iter().map(|&index| create(index))).await {
            created?;
        }
    }
    let bound = eventually("all pods are bound", || async {
        let all = pods.list(&ListParams::default()).await?.items;
        Ok(all.iter().all(|pod| node_of(pod).is_some()).then_some(all))
    })
    .await?;
    let mut per_node = std::collections::BTreeMap::new();
    for pod in &bound {
        *per_node.entry(node_of(pod).context("it is bound")?.to_owned()).or_insert(0) += 1;
    }
    ensure!(per_node.len() == 10 && per_node.values().all(|&n_pods| n_pods == 100), "{per_node:?}");
    Ok(())
}

#[tokio::test]
async fn a_deleted_pod_makes_room_for_the_next() -> Result<()> {
    let up = Up::start(&["--nodes", "1", "--cpu", "2"])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    pods.create(&PostParams::default(), &pod("first", asking("2"))?).await?;
    running(&pods, "first").await?;
    pods.create(&PostParams::default(), &pod("second", asking("2"))?).await?;
    unschedulable(&pods, "second").await?;
    pods.delete("first", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    running(&pods, "second").await?;
    Ok(())
}

#[tokio::test]
async fn signals_end_the_cluster_cleanly_and_it_starts_fast() -> Result<()> {
    for signal in ["TERM", "INT", "HUP"] {
        let mut up = Up::start(&[])?;
        ensure!(up.server.starts_with("https://127.0.0.1:"), "{}", up.server);
        ensure!(up.ready_milliseconds > 0, "the time until it was ready is told");
        let signal = if signal == "HUP" && ignores_hangup()? {
            // The tests run under nohup, and so does the cluster: it outlives the terminal.
            up.hang_up()?;
            "TERM"
        } else {
            signal
        };
        let status = up.end_with(signal)?;
        ensure!(status.success(), "SIG{signal}: {status}");
    }
    Ok(())
}

/// Whether these tests were told to outlive their terminal.
fn ignores_hangup() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim).unwrap_or("0");
    Ok(u64::from_str_radix(ignored, 16)? & 1 == 1)
}
