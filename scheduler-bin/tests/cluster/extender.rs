//! HTTP extenders beside the offline cluster: they filter by what only whole objects tell, score, and bind.

#[path = "../../src/extender/tests/server.rs"]
mod server;

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::flow::{asking, node_of, pod, running};
use super::process::{Background, Up, eventually, finish, plimsoll};
use server::Server;

/// Writes a KubeSchedulerConfiguration with these extenders, for pods of the default scheduler.
fn configuration(dir: &Path, extenders: &[Value]) -> Result<String> {
    let path = dir.join("config.yaml");
    let text = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false }, "extenders": extenders,
    });
    std::fs::write(&path, text.to_string())?;
    Ok(path.to_str().context("a temporary path is text")?.to_owned())
}

fn ok(answer: &Value) -> (u16, Vec<u8>) {
    (200, answer.to_string().into_bytes())
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Nodes annotated as closed fail; one annotated as best is best.
fn by_annotations(verb: &str, sent: &Value) -> (u16, Vec<u8>) {
    let nodes: Vec<&Value> = sent["Nodes"]["items"].as_array().into_iter().flatten().collect();
    if verb == "prioritize" {
        let score = |node: &&Value| {
            let score = if annotation(node, "example.com/best").is_some() { 10 } else { 0 };
            json!({ "Host": node["metadata"]["name"], "Score": score })
        };
        return ok(&nodes.iter().map(score).collect());
    }
    let (closed, open): (Vec<&Value>, Vec<&Value>) =
        nodes.into_iter().partition(|node| annotation(node, "example.com/closed").is_some());
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed: serde_json::Map<String, Value> =
        closed.into_iter().map(|node| (name(node), json!("node(s) were closed by hand"))).collect();
    ok(&json!({ "Nodes": { "items": open }, "FailedNodes": failed }))
}

async fn bind(client: &Client, sent: &Value) -> Result<()> {
    let text = |field: &str| sent[field].as_str().unwrap_or_default().to_owned();
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": text("PodName"), "namespace": text("PodNamespace"), "uid": text("PodUID") },
        "target": { "kind": "Node", "name": text("Node") },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}/binding", text("PodNamespace"), text("PodName"));
    let request =
        http::Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(&binding)?)?;
    client.request::<Value>(request).await?;
    Ok(())
}

async fn annotate(nodes: &Api<Node>, node: &str, annotation: &str, value: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
    nodes.patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn message_of(pods: &Api<Pod>, name: &str, reason: &str) -> Result<String> {
    eventually("the pod has a condition", || async {
        let conditions = pods.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let of_reason = conditions.into_iter().find(|condition| condition.reason.as_deref() == Some(reason));
        Ok(of_reason.and_then(|condition| condition.message))
    })
    .await
}

/// Why the pod waits; `None` once it has a node.
async fn placed_or_told(pods: &Api<Pod>, name: &str) -> Result<Option<String>> {
    eventually(&format!("pod {name} is placed, or told why not"), || async {
        let pod = pods.get(name).await?;
        if node_of(&pod).is_some() {
            return Ok(Some(None));
        }
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let told = conditions.into_iter().find(|condition| condition.reason.as_deref() == Some("Unschedulable"));
        Ok(told.map(|condition| condition.message))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_filters_scores_and_binds_and_a_replay_asks_nobody() -> Result<()> {
    let up = Up::start(&["--no-scheduler"])?;
    let client = up.client().await?;
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
    annotate(&nodes, "node-a", "example.com/closed", Some("yes")).await?;
    annotate(&nodes, "node-c", "example.com/best", Some("yes")).await?;

    let binder = client.clone();
    let extender = Server::with(
        None,
        Box::new(move |verb, sent| {
            let binder = binder.clone();
            Box::pin(async move {
                if verb != "bind" {
                    return by_annotations(&verb, &sent);
                }
                let error = bind(&binder, &sent).await.err().map(|error| error.to_string());
                ok(&json!({ "Error": error.unwrap_or_default() }))
            })
        }),
    );
    let dir = tempfile::tempdir()?;
    let config = configuration(
        dir.path(),
        &[json!({
            "urlPrefix": extender.url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100,
            "bindVerb": "bind",
        })],
    )?;
    let recording = dir.path().join("recording.jsonl");
    let file = recording.to_str().context("the directory's name is text")?;
    let child = plimsoll()
        .args(["run", "--config", &config, "--record", file, "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stderr(Stdio::piped())
        .spawn()?;
    let mut scheduler = Background(child);

    for index in 0..3 {
        pods.create(&PostParams::default(), &pod(&format!("p{index}"), asking("100m"))?).await?;
    }
    for index in 0..3 {
        let placed = running(&pods, &format!("p{index}")).await?;
        ensure!(node_of(&placed) == Some("node-c"), "its score outweighs the plugins: {:?}", placed.spec);
    }
    let sent = extender.last("filter").context("it was asked")?;
    ensure!(sent["Pod"]["spec"]["containers"][0]["image"].is_string(), "the pod is whole: {}", sent["Pod"]);
    let events: Api<Event> = Api::default_namespaced(client.clone());
    eventually("every binding is an event", || async {
        let scheduled = events.list(&ListParams::default().fields("reason=Scheduled")).await?.items;
        Ok((scheduled.len() == 3).then_some(()))
    })
    .await?;

    // All closed: told, and looked at again when a node changes, whatever it is that changes.
    for node in ["node-b", "node-c"] {
        annotate(&nodes, node, "example.com/closed", Some("yes")).await?;
    }
    let is_told = || extender.calls.lock().expect("no panic").len();
    let before = is_told();
    // The scheduler may hear of a pod before it hears of the nodes.
    let mut n_early = 0;
    let (late, message) = loop {
        let late = format!("late{n_early}");
        pods.create(&PostParams::default(), &pod(&late, asking("100m"))?).await?;
        match placed_or_told(&pods, &late).await? {
            Some(message) => break (late, message),
            None => n_early += 1,
        }
        ensure!(n_early < 100, "nodes are closed, and pods placed on them all the same");
    };
    ensure!(message.starts_with("0/3 nodes are available: 3 node(s) were closed by hand."), "{message}");
    ensure!(is_told() > before, "it was asked");
    annotate(&nodes, "node-b", "example.com/closed", None).await?;
    let open = Patch::Merge(json!({ "metadata": { "labels": { "open": "yes" } } }));
    nodes.patch("node-b", &PatchParams::default(), &open).await?;
    ensure!(node_of(&running(&pods, &late).await?) == Some("node-b"), "the only one that is open");

    let (status, stderr) = scheduler.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    let n_calls = is_told();
    let replayed = finish(&["simulate", "--replay", file, "-o", "json"])?;
    ensure!(replayed.code == 0, "{}{}", replayed.stdout, replayed.stderr);
    let replayed: Value = serde_json::from_str(&replayed.stdout)?;
    ensure!(replayed["decisions"].as_u64() >= Some(5 + n_early) && replayed["different"] == json!([]), "{replayed}");
    ensure!(is_told() == n_calls, "a replay asks nobody");
    Ok(())
}

#[tokio::test]
async fn an_extender_that_fails_is_told_or_passed_over() -> Result<()> {
    let broken = Server::start(|_, _| (500, Vec::new()));
    let dir = tempfile::tempdir()?;
    let extender = |ignorable: bool| json!({ "urlPrefix": broken.url, "filterVerb": "filter", "ignorable": ignorable });
    let up = Up::start(&["--scheduler-config", &configuration(dir.path(), &[extender(false)])?])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    pods.create(&PostParams::default(), &pod("p", asking("100m"))?).await?;
    let message = message_of(&pods, "p", "SchedulerError").await?;
    let want = format!("failed filter with extender at URL {}/filter, code 500", broken.url);
    ensure!(message == want, "{message}");

    let up = Up::start(&["--scheduler-config", &configuration(dir.path(), &[extender(true)])?])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    pods.create(&PostParams::default(), &pod("p", asking("100m"))?).await?;
    running(&pods, "p").await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_scheduler_does_not_wait_for_an_extender() -> Result<()> {
    let asked = Arc::new(OnceLock::new());
    let is_asked = Arc::clone(&asked);
    let silent = Server::with(
        None,
        Box::new(move |_, _| {
            // It may be asked more than once.
            let _ = is_asked.set(());
            Box::pin(std::future::pending())
        }),
    );
    let up = Up::start(&["--no-scheduler"])?;
    let dir = tempfile::tempdir()?;
    let extender = json!({ "urlPrefix": silent.url, "filterVerb": "filter", "httpTimeout": "1h" });
    let config = configuration(dir.path(), &[extender])?;
    let child = plimsoll()
        .args(["run", "--config", &config, "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stderr(Stdio::piped())
        .spawn()?;
    let mut scheduler = Background(child);
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    pods.create(&PostParams::default(), &pod("p", asking("100m"))?).await?;
    eventually("it is asked", || async { Ok(asked.get().copied()) }).await?;
    let (status, stderr) = scheduler.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    let conditions = pods.get("p").await?.status.and_then(|status| status.conditions).unwrap_or_default();
    ensure!(conditions.is_empty(), "the next scheduler decides: {conditions:?}");
    Ok(())
}

#[test]
fn simulations_and_questions_call_extenders_but_have_none_bind() -> Result<()> {
    let extender = Server::start(by_annotations);
    let dir = tempfile::tempdir()?;
    let config = configuration(
        dir.path(),
        &[json!({
            "urlPrefix": extender.url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100,
            "bindVerb": "bind",
        })],
    )?;
    let write = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("a temporary path is text")?.to_owned())
    };
    let node = |name: &str, annotation: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": { annotation: "yes" } },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
        })
    };
    let nodes = json!({ "apiVersion": "v1", "kind": "List", "items": [
        node("open", "example.com/none"), node("shut", "example.com/closed"), node("best", "example.com/best"),
    ] });
    let nodes = write("nodes.json", &nodes.to_string())?;
    let mut one = serde_json::to_value(pod("one", asking("3"))?)?;
    one["apiVersion"] = json!("v1");
    one["kind"] = json!("Pod");
    one["metadata"]["annotations"] = json!({ "seen": "by the extender" });
    let one = write("pod.json", &one.to_string())?;

    let says = format!(
        "calling the extenders of the configuration, {}: they see the objects that were given, and none is asked to bind",
        extender.url
    );
    let ask = |arguments: &[&str]| -> Result<String> {
        let finished = finish(&[arguments, &["--config", &config, "-o", "json"]].concat())?;
        ensure!(finished.code == 0, "{arguments:?}: {}", finished.stderr);
        ensure!(finished.stderr.matches(&says).count() == 1, "{arguments:?}: {}", finished.stderr);
        Ok(finished.stdout)
    };
    let explained: Value = serde_json::from_str(&ask(&["explain", "one", "--from", &nodes, "-f", &one])?)?;
    ensure!(explained["node"] == "best", "{explained}");
    let sent = extender.last("filter").context("it was asked")?;
    ensure!(annotation(&sent["Pod"], "seen") == Some("by the extender"), "the pod is as it was given: {sent}");
    let capacity: Value = serde_json::from_str(&ask(&["capacity", "-f", &one, "--from", &nodes])?)?;
    ensure!(capacity["nodes"] == json!({ "best": 1, "open": 1 }), "{capacity}");
    let sent = extender.last("filter").context("it was asked")?;
    ensure!(annotation(&sent["Pod"], "seen") == Some("by the extender"), "copies are as the pod: {sent}");
    let simulated: Value = serde_json::from_str(&ask(&["simulate", "-f", &one, "--from", &nodes])?)?;
    ensure!(simulated.to_string().contains("\"best\""), "{simulated}");
    ensure!(extender.last("bind").is_none(), "nobody is asked to bind");
    Ok(())
}
