//! The learner's way with the real kubectl, where one is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};

use super::process::{PATIENCE, Up, program};

struct Kubectl<'a> {
    path: PathBuf,
    up: &'a Up,
    home: &'a Path,
}

impl Kubectl<'_> {
    fn output(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let output = Command::new(&self.path)
            .args(arguments)
            .env("KUBECONFIG", &self.up.kubeconfig)
            .env("HOME", self.home)
            .stdin(Stdio::null())
            .output()?;
        Ok((output.status.success(), String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?))
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let (success, text) = self.output(arguments)?;
        ensure!(success, "kubectl {}: {text}", arguments.join(" "));
        Ok(text)
    }

    fn says(&self, arguments: &[&str], words: &[&str]) -> Result<()> {
        let text = self.run(arguments)?;
        for word in words {
            ensure!(text.contains(word), "kubectl {}: {word:?} is not in:\n{text}", arguments.join(" "));
        }
        Ok(())
    }

    fn eventually_says(&self, arguments: &[&str], words: &[&str]) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.says(arguments, words) {
                Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(std::time::Duration::from_millis(100)),
                answer => return answer,
            }
        }
    }
}

#[test]
fn apply_to_running_with_the_usual_commands() -> Result<()> {
    let Some(path) = program("kubectl")? else { return Ok(()) };
    let up = Up::start(&[])?;
    let home = tempfile::tempdir()?;
    let kubectl = Kubectl { path, up: &up, home: home.path() };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/deployment.yaml");

    kubectl.says(&["apply", "-f", example], &["deployment.apps/web created"])?;
    kubectl.says(
        &["rollout", "status", "deployment/web", "--timeout=60s"],
        &["deployment \"web\" successfully rolled out"],
    )?;
    kubectl.says(&["apply", "-f", example], &["deployment.apps/web unchanged"])?;
    kubectl.says(
        &["get", "deployment,replicaset,pods", "-o", "wide"],
        &["3/3", "replicaset.apps/web-", "Running", "node-a"],
    )?;
    let events = kubectl.run(&["get", "events", "--sort-by=.metadata.creationTimestamp"])?;
    for reason in ["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Pulled", "Created", "Started"] {
        ensure!(events.contains(reason), "no {reason} in:\n{events}");
    }
    kubectl.says(&["describe", "deployment", "web"], &["Scaled up replica set", "3 available"])?;
    kubectl.says(&["describe", "pods"], &["Successfully assigned default/web-", "Status:"])?;
    kubectl.run(&["logs", "deployment/web"])?;
    kubectl.says(&["scale", "deployment/web", "--replicas=5"], &["deployment.apps/web scaled"])?;
    kubectl.eventually_says(&["get", "deployment", "web"], &["5/5"])?;
    kubectl.says(&["set", "image", "deployment/web", "nginx=nginx:1.28"], &["image updated"])?;
    kubectl.says(&["rollout", "status", "deployment/web", "--timeout=60s"], &["successfully rolled out"])?;
    kubectl.says(&["rollout", "undo", "deployment/web"], &["rolled back"])?;
    kubectl.says(&["rollout", "status", "deployment/web", "--timeout=60s"], &["successfully rolled out"])?;
    kubectl.says(&["label", "node", "node-a", "disk=ssd"], &["node/node-a labeled"])?;
    kubectl.says(&["taint", "node", "node-b", "key=value:NoSchedule"], &["node/node-b tainted"])?;
    kubectl.says(&["cordon", "node-c"], &["node/node-c cordoned"])?;
    kubectl.eventually_says(&["get", "nodes"], &["SchedulingDisabled"])?;
    kubectl.says(&["delete", "-f", example, "--timeout=60s"], &["deployment.apps \"web\" deleted"])?;
    kubectl.eventually_says(&["get", "pods"], &["No resources found in default namespace."])
}

#[test]
fn bad_input_is_refused_in_the_words_of_a_real_server() -> Result<()> {
    let Some(path) = program("kubectl")? else { return Ok(()) };
    let up = Up::start(&["--nodes", "1"])?;
    let home = tempfile::tempdir()?;
    let kubectl = Kubectl { path, up: &up, home: home.path() };
    let file = home.path().join("bad.yaml");
    let name = file.to_string_lossy();
    for (text, says) in [
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {container: [], containers: [{name: c, image: i}]}\n",
            "unknown field \"spec.container\"",
        ),
        ("apiVersion: v1\nkind: Pud\nmetadata: {name: a}\n", "no matches for kind \"Pud\" in version \"v1\""),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: A}\nspec: {containers: [{name: c, image: i}]}\n",
            "metadata.name: Invalid value: \"A\"",
        ),
    ] {
        std::fs::write(&file, text)?;
        let (success, said) = kubectl.output(&["apply", "-f", &name])?;
        ensure!(!success && said.contains(says), "{says:?} is not in:\n{said}");
    }
    Ok(())
}
