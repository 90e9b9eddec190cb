//! The learner's way with the real kubectl, where one is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};

use super::process::{Background, PATIENCE, Up, finish, plimsoll, program};

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

const UNPLACED: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a-large}, spec: &large {containers: [{name: c, image: i, resources: {requests: {cpu: 3500m}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b-large}, spec: *large}
- {apiVersion: v1, kind: Pod, metadata: {name: c-large}, spec: *large}
- {apiVersion: v1, kind: Pod, metadata: {name: d-large}, spec: *large}
- {apiVersion: v1, kind: Pod, metadata: {name: e-huge}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '5'}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: f-small}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: g-elsewhere}, spec: {nodeSelector: {disk: none}, containers: [{name: c, image: i}]}}
";

/// Names of the pods that a simulation of `dump` places, and of those that it does not.
fn simulated(dump: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let dump = dump.to_string_lossy();
    let done = finish(&["simulate", "--from", &dump, "-o", "json"])?;
    ensure!(done.code == 0, "simulate --from {dump}: {}", done.stderr);
    let report: serde_json::Value = serde_json::from_str(&done.stdout)?;
    let names = |list: &str| {
        let pods = report[list].as_array().into_iter().flatten();
        let mut names: Vec<String> = pods.filter_map(|pod| pod["pod"].as_str().map(str::to_owned)).collect();
        names.sort_unstable();
        names
    };
    Ok((names("bindings"), names("unschedulable")))
}

#[test]
fn a_dump_simulates_to_what_the_scheduler_then_does() -> Result<()> {
    let Some(path) = program("kubectl")? else { return Ok(()) };
    let up = Up::start(&["--no-scheduler"])?;
    let home = tempfile::tempdir()?;
    let kubectl = Kubectl { path, up: &up, home: home.path() };
    let file = |name: &str| home.path().join(name);
    kubectl.eventually_says(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=10s"], &["node-c"])?;
    std::fs::write(file("pods.yaml"), UNPLACED)?;
    kubectl.run(&["apply", "-f", &file("pods.yaml").to_string_lossy()])?;

    std::fs::write(file("dump.yaml"), kubectl.run(&["get", "pods,nodes", "-A", "-o", "yaml"])?)?;
    std::fs::write(file("dump.json"), kubectl.run(&["get", "nodes,pods", "-A", "-o", "json"])?)?;
    let folder = file("cluster-info");
    kubectl.run(&["cluster-info", "dump", "-A", "--output-directory", &folder.to_string_lossy()])?;
    std::fs::write(file("cluster-info.txt"), kubectl.run(&["cluster-info", "dump", "-A"])?)?;
    must_gather(&kubectl, &file("must-gather"))?;

    let child = plimsoll()
        .args(["run", "--scheduler-name", "default-scheduler", "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stderr(Stdio::piped())
        .spawn()?;
    let _scheduler = Background(child);
    let conditions = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=='PodScheduled')].status} {end}";
    let arguments = ["get", "pods", "-o", &format!("jsonpath={conditions}")];
    let start = Instant::now();
    let decided = loop {
        let text = kubectl.run(&arguments)?;
        let decided: Vec<(String, bool)> = text
            .split_whitespace()
            .filter_map(|pod| pod.split_once('=').filter(|(_, status)| !status.is_empty()))
            .map(|(name, status)| (name.to_owned(), status == "True"))
            .collect();
        if decided.len() == 7 {
            break decided;
        }
        ensure!(start.elapsed() < PATIENCE, "not every pod was decided: {text}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let with = |wanted: bool| decided.iter().filter(|(_, is)| *is == wanted).map(|(name, _)| name.clone()).collect();
    let really: (Vec<String>, Vec<String>) = (with(true), with(false));
    ensure!(really.0.len() == 4, "three large pods and the small one: {really:?}");
    for dump in ["dump.yaml", "dump.json", "cluster-info", "cluster-info.txt", "must-gather"] {
        let simulated = simulated(&file(dump))?;
        ensure!(simulated == really, "{dump}: simulated {simulated:?}, really {really:?}");
    }
    Ok(())
}

/// The layout of a must-gather: each node in a file, the pods of a namespace in a list and once more one by one, and
/// much else beside them.
fn must_gather(kubectl: &Kubectl<'_>, folder: &Path) -> Result<()> {
    let image = folder.join("registry-example-must-gather-sha256-0123");
    let write = |path: PathBuf, text: &str| -> Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        Ok(std::fs::write(path, text)?)
    };
    for node in ["node-a", "node-b", "node-c"] {
        let text = kubectl.run(&["get", "node", node, "-o", "yaml"])?;
        write(image.join(format!("cluster-scoped-resources/core/nodes/{node}.yaml")), &format!("---\n{text}"))?;
    }
    let namespace = image.join("namespaces/default");
    let pods = kubectl.run(&["get", "pods", "-o", "yaml"])?.replace("\nkind: List", "\nkind: PodList");
    write(namespace.join("core/pods.yaml"), &format!("---\n{pods}"))?;
    for name in ["a-large", "e-huge"] {
        let text = kubectl.run(&["get", "pod", name, "-o", "yaml"])?;
        write(namespace.join(format!("pods/{name}/{name}.yaml")), &format!("---\n{text}"))?;
        write(namespace.join(format!("pods/{name}/c/c/logs/current.log")), "2026-01-01T00:00:00Z {not: [yaml\n")?;
    }
    write(image.join("event-filter.html"), "<html></html>")?;
    write(folder.join("timestamp"), "2026-01-01 00:00:00 +0000 UTC\n")
}
