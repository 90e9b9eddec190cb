//! `plimsoll explain` on problems that people have reported: the right node, or the right cause and a change that helps.
//! tests/explained holds the clusters as manifests and, in expected.json, what is true of them; a new case needs no code.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::process::finish;

#[test]
fn every_case_is_explained_with_its_cause() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explained");
    let expected: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json"))?)?;
    let mut faults = Vec::new();
    for want in &expected {
        let text = |key: &str| want[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("case"), text("pod"));
        if let Err(error) = check(&folder, want) {
            faults.push(format!("{name}: {error:#}"));
        }
    }
    ensure!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), expected.len(), faults.join("\n"));
    Ok(())
}

fn check(folder: &Path, want: &Value) -> Result<()> {
    let text = |key: &str| want[key].as_str();
    let file = folder.join(format!("{}.yaml", text("case").context("a case")?));
    let file = file.to_str().context("a path of text")?;
    let namespace = text("namespace").unwrap_or("default");
    let pod = text("pod").context("a pod")?;
    let run = finish(&["explain", pod, "-n", namespace, "--from", file, "-o", "json"])?;
    ensure!(run.code == 0, "exit code {}: {}", run.code, run.stderr);
    let answer: Value = serde_json::from_str(&run.stdout)?;
    let nodes: Vec<&str> = text("node").map(|nodes| nodes.split('|').collect()).unwrap_or_default();
    let node = answer["node"].as_str();
    ensure!(node.map_or(nodes.is_empty(), |node| nodes.contains(&node)), "node {node:?}, expected one of {nodes:?}");
    let message = answer["message"].as_str().unwrap_or_default();
    for says in want["says"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        ensure!(message.contains(says), "the message has no {says:?}: {message}");
    }
    let changes: Vec<&str> =
        answer["changes"].as_array().into_iter().flatten().filter_map(|change| change["text"].as_str()).collect();
    for change in want["changes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        ensure!(changes.iter().any(|text| text.contains(change)), "no change has {change:?}: {changes:#?}");
    }
    Ok(())
}
