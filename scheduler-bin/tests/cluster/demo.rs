//! Command one: what a learner sees, and what a script reads.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::process::finish;

fn in_order(text: &str, parts: &[&str]) -> Result<()> {
    let mut rest = text;
    for part in parts {
        let at =
            rest.find(part).with_context(|| format!("{part:?} is not there, or not in this order, in:\n{text}"))?;
        rest = &rest[at + part.len()..];
    }
    Ok(())
}

#[test]
fn the_story_is_told_in_causal_order_and_ends_well() -> Result<()> {
    let finished = finish(&["demo"])?;
    ensure!(finished.code == 0, "exit code {}: {}", finished.code, finished.stderr);
    let text = &finished.stdout;
    for stage in [
        "request",
        "authentication",
        "authorization",
        "admission",
        "storage",
        "filter",
        "score",
        "bind",
        "image",
        "sandbox",
        "network",
        "container",
        "status",
    ] {
        ensure!(
            text.lines().any(|line| line.split_whitespace().nth(2) == Some(stage)),
            "no step of stage {stage} in:\n{text}"
        );
    }
    in_order(
        text,
        &[
            "Deployment web",
            "ReplicaSet web-",
            "Pod web-",
            "\nPods\n",
            "Running",
            "\nWhy there\n",
            "score by plugin",
            "total",
            "\nEvents",
        ],
    )?;
    let events = text.split("\nEvents").nth(1).context("events")?;
    in_order(events, &["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Pull", "Created", "Started"])?;
    in_order(events, &["All 3 pods run"])?;
    let n_lines = text.lines().count();
    ensure!(n_lines <= 140, "{n_lines} lines are more than a learner follows");
    let n_wide =
        text.split("\nPods\n").next().context("steps")?.lines().filter(|line| line.chars().count() > 120).count();
    ensure!(n_wide == 0, "{n_wide} lines of the story are wider than 120");
    Ok(())
}

#[test]
fn the_same_as_data() -> Result<()> {
    let finished = finish(&["demo", "-o", "json"])?;
    ensure!(finished.code == 0, "exit code {}: {}", finished.code, finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout)?;
    ensure!(report["running"] == true && report["applied"][0]["outcome"] == "created", "{report:#}");
    let pods = report["pods"].as_array().context("pods")?;
    ensure!(pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Running"), "three pods run");
    let decisions = report["decisions"].as_array().context("decisions")?;
    ensure!(decisions.len() == 3, "one decision a pod, found {}", decisions.len());
    for decision in decisions {
        let node = decision["node"].as_str().context("a node")?;
        ensure!(
            pods.iter().any(|pod| pod["metadata"]["name"] == decision["pod"] && pod["spec"]["nodeName"] == node),
            "{decision:#}"
        );
        let totals = decision["totals"].as_object().context("totals")?;
        let best = totals.values().filter_map(Value::as_i64).max();
        ensure!(totals[node].as_i64() == best, "the best node was chosen: {decision:#}");
    }
    let milliseconds: Vec<f64> =
        report["steps"].as_array().context("steps")?.iter().filter_map(|step| step["milliseconds"].as_f64()).collect();
    ensure!(milliseconds.len() > 20 && milliseconds.iter().all(|ms| *ms >= 0.0), "steps count from apply");
    Ok(())
}

#[test]
fn a_pod_that_fits_nowhere_is_a_failure_with_the_schedulers_reason() -> Result<()> {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/unschedulable.yaml");
    let finished = finish(&["demo", "-f", example])?;
    ensure!(finished.code == 1, "exit code {}", finished.code);
    ensure!(
        finished.stderr.contains("pod big: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
        "{}",
        finished.stderr
    );
    ensure!(finished.stdout.contains("FailedScheduling"), "{}", finished.stdout);
    in_order(
        &finished.stdout,
        &["Why there", "big → nowhere", "filtered out: node-a, node-b, node-c Insufficient cpu (NodeResourcesFit)"],
    )
}

#[test]
fn an_image_that_cannot_be_pulled_is_a_failure_with_the_kubelets_reason() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("image.yaml");
    std::fs::write(
        &path,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: does-not-exist}]}\n",
    )?;
    let finished = finish(&["demo", "--timeout", "3s", "-f", path.to_str().context("a temporary path is text")?])?;
    ensure!(finished.code == 1, "exit code {}", finished.code);
    ensure!(
        finished.stderr.contains("pod a: container c: ErrImagePull")
            || finished.stderr.contains("pod a: container c: ImagePullBackOff"),
        "{}",
        finished.stderr
    );
    Ok(())
}

#[test]
fn the_examples_of_its_help_succeed() -> Result<()> {
    let help = finish(&["demo", "--help"])?.stdout;
    let examples: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_prefix("plimsoll ")).collect();
    ensure!(examples.len() >= 3, "{help}");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/");
    for example in examples {
        let example = example.replace("examples/", root);
        let finished = finish(&example.split(' ').collect::<Vec<_>>())?;
        ensure!(finished.code == 0, "{example}: {}", finished.stderr);
    }
    Ok(())
}
