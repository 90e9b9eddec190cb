//! `plimsoll run --record` and `plimsoll simulate --replay`: the same decisions, all of them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::flow::{asking, pod, running};
use super::process::{Background, Up, eventually, finish, plimsoll};

#[tokio::test]
async fn a_recording_is_decided_again_as_it_was() -> Result<()> {
    let up = Up::start(&["--no-scheduler"])?;
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording.jsonl");
    let file = recording.to_str().context("the directory's name is text")?;
    let child = plimsoll()
        .args(["run", "--scheduler-name", "default-scheduler", "--record", file, "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let mut scheduler = Background(child);
    let client = up.client().await?;
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));

    // Pods that fit, and two that do not: one until others leave, one until its node label comes.
    for index in 0..24 {
        let cpu = format!("{}m", 100 + 50 * (index % 7));
        pods.create(&PostParams::default(), &pod(&format!("p{index}"), asking(&cpu))?).await?;
    }
    let mut choosy = asking("100m");
    choosy["nodeSelector"] = json!({"disk": "fast"});
    pods.create(&PostParams::default(), &pod("choosy", choosy)?).await?;
    for index in 0..24 {
        running(&pods, &format!("p{index}")).await?;
    }
    pods.create(&PostParams::default(), &pod("large", asking("3500m"))?).await?;
    let refused = |name: &'static str| {
        let pods = &pods;
        eventually("the pod is refused", move || async move {
            let conditions = pods.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
            Ok(conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable")).then_some(()))
        })
    };
    refused("choosy").await?;
    refused("large").await?;

    // The cluster changes, and one pod makes room for itself.
    let label = Patch::Merge(json!({"metadata": {"labels": {"disk": "fast"}}}));
    nodes.patch("node-b", &PatchParams::default(), &label).await?;
    running(&pods, "choosy").await?;
    let on_a = pods.list(&ListParams::default().fields("spec.nodeName=node-a")).await?.items;
    for pod in &on_a {
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    running(&pods, "large").await?;
    let urgent: PriorityClass = serde_json::from_value(json!({"metadata": {"name": "urgent"}, "value": 1000}))?;
    Api::all(client.clone()).create(&PostParams::default(), &urgent).await?;
    let mut important = asking("3900m");
    important["priorityClassName"] = json!("urgent");
    pods.create(&PostParams::default(), &pod("important", important)?).await?;
    running(&pods, "important").await?;

    let (status, stderr) = scheduler.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    let replayed = finish(&["simulate", "--replay", file, "-o", "json"])?;
    ensure!(replayed.code == 0, "{}{}", replayed.stdout, replayed.stderr);
    let replayed: Value = serde_json::from_str(&replayed.stdout)?;
    ensure!(replayed["decisions"].as_u64() >= Some(27), "every attempt was decided again: {replayed}");
    ensure!(replayed["different"] == json!([]), "{replayed}");

    // A recording that was changed does not pass.
    let text = std::fs::read_to_string(&recording)?;
    let elsewhere = text.replacen(r#""node":"node-b""#, r#""node":"node-x""#, 1);
    ensure!(elsewhere != text, "an attempt names its node");
    std::fs::write(&recording, elsewhere)?;
    let replayed = finish(&["simulate", "--replay", file])?;
    ensure!(replayed.code == 1, "exit code {}: {}{}", replayed.code, replayed.stdout, replayed.stderr);
    Ok(())
}
