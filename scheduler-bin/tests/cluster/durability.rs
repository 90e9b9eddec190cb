//! kill -9 in the middle of many creates: after the restart every acknowledged object is there, and none is half there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::process::Up;

const N_OBJECTS: usize = 1000;
const N_WRITERS: usize = 16;

fn object(index: usize) -> Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({"metadata": {"name": format!("c{index}")}, "data": {"index": index.to_string(), "filling": "x".repeat(200)}}),
    )?)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_object_survives_kill_9() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let data = data.to_str().context("a temporary path is text")?;
    let mut up = Up::start(&["--data-dir", data])?;
    let objects: Api<ConfigMap> = Api::default_namespaced(up.client().await?);
    let next = Arc::new(AtomicUsize::new(0));
    let n_acknowledged = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..N_WRITERS)
        .map(|_| {
            let (objects, next, n_acknowledged) = (objects.clone(), Arc::clone(&next), Arc::clone(&n_acknowledged));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= N_OBJECTS {
                        return anyhow::Ok(acknowledged);
                    }
                    match objects.create(&PostParams::default(), &object(index)?).await {
                        Ok(created) => acknowledged.push((created.name_any(), created.uid().context("it has a uid")?)),
                        // The server was killed.
                        Err(_) => return Ok(acknowledged),
                    }
                    n_acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while n_acknowledged.load(Ordering::Relaxed) < N_OBJECTS / 2 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        ensure!(writers.iter().any(|writer| !writer.is_finished()), "the writers ended early");
    }
    up.kill()?;
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.await??);
    }
    ensure!(acknowledged.len() >= N_OBJECTS / 2, "{} objects were acknowledged", acknowledged.len());

    let again = Up::start(&["--data-dir", data])?;
    let objects: Api<ConfigMap> = Api::default_namespaced(again.client().await?);
    let found = objects.list(&ListParams::default()).await?.items;
    let mut names = BTreeSet::new();
    for object in found.iter().filter(|object| object.name_any() != "kube-root-ca.crt") {
        let index = object.name_any().trim_start_matches('c').parse::<usize>()?;
        ensure!(
            object.data == self::object(index)?.data && object.uid().is_some(),
            "{} is half there",
            object.name_any()
        );
        names.insert((object.name_any(), object.uid().unwrap_or_default()));
    }
    let lost: Vec<_> = acknowledged.difference(&names).collect();
    ensure!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
    objects.create(&PostParams::default(), &object(N_OBJECTS + 1)?).await.context("the store takes writes again")?;
    Ok(())
}
