//! `plimsoll run` next to the cluster's own scheduler: pods are split by schedulerName, and nobody touches another's.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::flow::{asking, node_of, pod, running};
use super::process::{Background, Up, eventually, plimsoll};

fn run(up: &Up, arguments: &[&str]) -> Result<Background> {
    let child =
        plimsoll().args(["run", "--kubeconfig"]).arg(&up.kubeconfig).args(arguments).stderr(Stdio::piped()).spawn()?;
    Ok(Background(child))
}

fn for_scheduler(name: &str, scheduler: &str) -> Result<Pod> {
    let mut spec = asking("100m");
    spec["schedulerName"] = json!(scheduler);
    pod(name, spec)
}

#[tokio::test]
async fn two_schedulers_split_the_pods_by_name() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut second = run(&up, &[])?;
    for index in 0..20 {
        let scheduler = if index % 2 == 0 { "default-scheduler" } else { "plimsoll" };
        pods.create(&PostParams::default(), &for_scheduler(&format!("p{index}"), scheduler)?).await?;
    }
    pods.create(&PostParams::default(), &for_scheduler("nobodys", "unknown")?).await?;
    for index in 0..20 {
        running(&pods, &format!("p{index}")).await?;
    }
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let scheduled = eventually("every binding is an event", || async {
        let scheduled = events.list(&ListParams::default().fields("reason=Scheduled")).await?.items;
        Ok((scheduled.len() >= 20).then_some(scheduled))
    })
    .await?;
    ensure!(scheduled.len() == 20, "each pod is bound once, found {}", scheduled.len());
    for event in &scheduled {
        let pod = pods.get(event.involved_object.name.as_deref().unwrap_or_default()).await?;
        let wanted = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        ensure!(
            event.reporting_component.as_deref() == wanted,
            "{} was placed by {:?}",
            pod.name_any(),
            event.reporting_component
        );
    }
    let nobodys = pods.get("nobodys").await?;
    let conditions = nobodys.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    ensure!(
        node_of(&nobodys).is_none() && conditions.is_empty(),
        "no scheduler of that name, nobody touches it: {conditions:?}"
    );
    let (status, stderr) = second.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    let serves = format!("serving profile plimsoll on {}, leader election off", up.server);
    ensure!(stderr.contains(&serves), "{stderr}");
    Ok(())
}

#[tokio::test]
async fn the_second_scheduler_counts_what_the_first_has_placed() -> Result<()> {
    let up = Up::start(&["--nodes", "1", "--cpu", "1"])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    let mut theirs = for_scheduler("theirs", "default-scheduler")?;
    if let Some(spec) = &mut theirs.spec {
        *spec = pod("theirs", asking("800m"))?.spec.unwrap_or_default();
    }
    pods.create(&PostParams::default(), &theirs).await?;
    running(&pods, "theirs").await?;
    let _second = run(&up, &["--scheduler-name", "mine"])?;
    let mut spec = asking("500m");
    spec["schedulerName"] = json!("mine");
    pods.create(&PostParams::default(), &pod("ours", spec)?).await?;
    let message = eventually("ours is marked", || async {
        let conditions = pods.get("ours").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled")
            .and_then(|condition| condition.message))
    })
    .await?;
    ensure!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    Ok(())
}

#[tokio::test]
async fn of_two_replicas_with_one_lease_the_second_takes_over() -> Result<()> {
    let up = Up::start(&["--no-scheduler"])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    let mut first = run(&up, &["--leader-elect"])?;
    pods.create(&PostParams::default(), &for_scheduler("one", "plimsoll")?).await?;
    running(&pods, "one").await?;
    let _second = run(&up, &["--leader-elect"])?;
    let (status, stderr) = first.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    ensure!(
        stderr.contains("leader election on") && stderr.contains("holding the lease kube-system/plimsoll"),
        "{stderr}"
    );
    pods.create(&PostParams::default(), &for_scheduler("two", "plimsoll")?).await?;
    running(&pods, "two").await?;
    Ok(())
}

#[tokio::test]
async fn it_goes_on_when_the_server_was_killed_and_comes_back() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let data = data.to_str().context("a temporary path is text")?;
    let mut up = Up::start(&["--no-scheduler", "--data-dir", data])?;
    let mut second = run(&up, &[])?;
    let pods: Api<Pod> = Api::default_namespaced(up.client().await?);
    pods.create(&PostParams::default(), &for_scheduler("before", "plimsoll")?).await?;
    running(&pods, "before").await?;
    let port = up.server.rsplit(':').next().context("the server has a port")?.to_owned();
    up.kill()?;
    let again = Up::start(&["--no-scheduler", "--data-dir", data, "--port", &port])?;
    let pods: Api<Pod> = Api::default_namespaced(again.client().await?);
    // More than it has connections.
    for index in 0..20 {
        pods.create(&PostParams::default(), &for_scheduler(&format!("p{index}"), "plimsoll")?).await?;
    }
    for index in 0..20 {
        running(&pods, &format!("p{index}")).await?;
    }
    let (status, stderr) = second.terminate()?;
    ensure!(status.success(), "{status}: {stderr}");
    ensure!(!stderr.contains("panicked"), "{stderr}");
    Ok(())
}
