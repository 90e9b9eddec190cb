//! Replays what a real control plane answered; see cluster-stub/tests/transcripts/README.md.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::process::{Up, program};

/// Folders and single scenarios that must pass.
const SCENARIOS: &[&str] = &[
    "flow",
    "scheduling/node-selector.json",
    "scheduling/host-ports.json",
    "scheduling/unschedulable-cpu.json",
    "scheduling/gates-and-schedulers.json",
];

#[test]
fn recorded_scenarios_replay() -> Result<()> {
    for name in ["python3", "bash", "kubectl"] {
        if program(name)?.is_none() {
            return Ok(());
        }
    }
    let dir = tempfile::tempdir()?;
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "tok-alice,alice,alice-uid,\"dev,ops\"\n")?;
    let up = Up::start(&["--token-auth-file", &tokens.to_string_lossy()])?;
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cluster-stub/tests/transcripts"));
    let output = Command::new("python3")
        .arg(folder.join("run.py"))
        .arg("--kubeconfig")
        .arg(&up.kubeconfig)
        // A debug build on a busy machine is slow: waiting longer never makes a wrong answer right.
        .args(["-j", "2", "--slow", "3"])
        .args(SCENARIOS.iter().map(|scenario| folder.join("given").join(scenario)))
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    ensure!(text.lines().last().is_some_and(|line| line.ends_with(" 0 failed")), "{text}");
    Ok(())
}
