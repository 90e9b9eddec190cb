//! Questions that need no cluster: explain, capacity, simulate, from files.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::process::finish;

const NODES: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: small, uid: small}, status: {allocatable: {cpu: '2', memory: 4Gi, pods: '10'}}}
- {apiVersion: v1, kind: Node, metadata: {name: large, uid: large}, status: {allocatable: {cpu: '8', memory: 16Gi, pods: '10'}}}
- apiVersion: v1
  kind: Node
  metadata: {name: tainted, uid: tainted}
  spec: {taints: [{key: k, effect: NoSchedule}]}
  status: {allocatable: {cpu: '64', memory: 64Gi, pods: '10'}}
- apiVersion: v1
  kind: Pod
  metadata: {name: there, namespace: default, uid: there}
  spec: {nodeName: large, containers: [{name: c, resources: {requests: {cpu: '2'}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: waiting, namespace: default, uid: waiting}
  spec: {containers: [{name: c, resources: {requests: {cpu: '4'}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: hopeless, namespace: default, uid: hopeless}
  spec: {containers: [{name: c, resources: {requests: {cpu: '32'}}}]}
";

fn file(dir: &Path, name: &str, text: &str) -> Result<String> {
    let path = dir.join(name);
    std::fs::write(&path, text)?;
    Ok(path.to_str().context("a temporary path is text")?.to_owned())
}

fn answer(arguments: &[&str]) -> Result<String> {
    let finished = finish(arguments)?;
    ensure!(finished.code == 0, "{arguments:?}: exit code {}: {}", finished.code, finished.stderr);
    Ok(finished.stdout)
}

fn json(arguments: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&answer(&[arguments, &["-o", "json"]].concat())?)?)
}

#[test]
fn explain_says_where_a_pod_goes_and_why_not_elsewhere() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let dump = file(dir.path(), "dump.yaml", NODES)?;
    let waiting = json(&["explain", "waiting", "--from", &dump, "--why-not", "small"])?;
    ensure!(waiting["node"] == "large", "{waiting:#}");
    ensure!(waiting["whyNot"] == "filtered out by NodeResourcesFit: Insufficient cpu", "{waiting:#}");
    let hopeless = answer(&["explain", "hopeless", "--from", &dump, "--why-not", "tainted"])?;
    ensure!(
        hopeless.contains(
            "hopeless → nowhere: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        ),
        "{hopeless}"
    );
    ensure!(hopeless.contains("why not tainted: filtered out by TaintToleration"), "{hopeless}");
    let there = answer(&["explain", "there", "--from", &dump])?;
    ensure!(there.contains("Pod there is on large"), "{there}");
    let nobody = finish(&["explain", "nobody", "--from", &dump])?;
    ensure!(nobody.code == 2 && nobody.stderr.contains("no pod nobody in namespace default"), "{}", nobody.stderr);
    Ok(())
}

#[test]
fn capacity_counts_what_fits_and_names_the_limit() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let dump = file(dir.path(), "dump.yaml", NODES)?;
    let pod = file(
        dir.path(),
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}",
    )?;
    let report = json(&["capacity", "-f", &pod, "--from", &dump])?;
    ensure!(report["pods"] == 8, "2 on small, 6 more on large: {report:#}");
    ensure!(report["nodes"] == serde_json::json!({"small": 2, "large": 6}), "{report:#}");
    let message = report["limitedBy"]["message"].as_str().context("a message")?;
    ensure!(message.contains("2 Insufficient cpu"), "{message}");
    Ok(())
}

#[test]
fn simulate_places_manifests_on_nodes_that_do_not_exist() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let deployment = file(
        dir.path(),
        "d.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 25\n  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}\n",
    )?;
    let arguments = ["simulate", "--nodes", "3x4cpu,8Gi", "-f", &deployment];
    let report = json(&arguments)?;
    ensure!(
        report["summary"]["podsScheduled"] == 24 && report["summary"]["podsUnschedulable"] == 1,
        "{:#}",
        report["summary"]
    );
    ensure!(report["summary"]["utilisation"]["cpu"] == 1.0, "{:#}", report["summary"]);
    let again = json(&arguments)?;
    ensure!(report["bindings"] == again["bindings"], "the same seed, the same placement");
    let none = finish(&["simulate", "-f", &deployment])?;
    ensure!(none.code == 2 && none.stderr.contains("no nodes"), "{}", none.stderr);
    Ok(())
}

#[test]
fn simulate_replays_a_trace_with_and_without_departures() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let nodes = file(dir.path(), "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,2000,4096,1,T4\n")?;
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";
    let rows = "p0,1000,1024,1,1000,,LS,Failed,0,10,0\np1,1000,1024,1,1000,T4,LS,Running,5,20,5\np2,1000,1024,1,1000,A10,LS,Pending,30,40,\n";
    let pods = file(dir.path(), "pods.csv", &format!("{head}{rows}"))?;
    let arguments = ["simulate", "--trace", "openb", "--nodes", &nodes, "--pods", &pods];
    let stay = json(&[&arguments[..], &["--arrivals-only"]].concat())?;
    ensure!(stay["summary"]["podsScheduled"] == 1 && stay["summary"]["podsUnschedulable"] == 2, "{stay:#}");
    let leave = json(&arguments)?;
    ensure!(leave["summary"]["podsScheduled"] == 2, "the second one gets the GPU of the first: {leave:#}");
    ensure!(leave["bindings"][1]["pod"] == "p1" && leave["bindings"][1]["waitSeconds"] == 5.0, "{leave:#}");
    ensure!(leave["unschedulable"][0]["pod"] == "p2", "no node has its model: {leave:#}");
    Ok(())
}

#[test]
fn capacity_counts_missing_and_needless_nodes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let dump = file(dir.path(), "dump.yaml", NODES)?;
    let deployment = file(
        dir.path(),
        "d.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 20\n  template: {spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}\n",
    )?;
    let missing = json(&["capacity", "-f", &deployment, "--from", &dump, "--add-nodes", "4cpu,16Gi"])?;
    ensure!(
        missing["nodesToAdd"] == 3 && missing["unplacedWithout"] == 12,
        "8 fit, 12 more need three nodes: {missing:#}"
    );
    let hopeless = json(&["capacity", "-f", &deployment, "--from", &dump, "--add-nodes", "500mcpu,16Gi"])?;
    ensure!(hopeless["nodesToAdd"].is_null(), "no such node takes one: {hopeless:#}");
    let drain = json(&["capacity", "--drain", "--from", &dump])?;
    let names: Vec<_> = drain["drainable"].as_array().context("a list")?.iter().map(|node| &node["node"]).collect();
    ensure!(names == ["small", "tainted"], "there's pod has room on large only: {drain:#}");
    Ok(())
}

#[test]
fn configurations_are_compared_and_conditions_decide_the_exit_code() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let spread = file(dir.path(), "spread.yaml", head)?;
    let pack = "profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}\n  plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}\n";
    let packed = file(dir.path(), "packed.yaml", &format!("{head}{pack}"))?;
    let pods = file(
        dir.path(),
        "pods.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 4\n  template: {spec: {containers: [{name: c, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}\n",
    )?;
    let arguments = ["simulate", "--nodes", "4x4cpu,4Gi", "-f", &pods, "--config", &spread, "--config", &packed];
    let report = json(&arguments)?;
    let imbalance = |run: usize| report["runs"][run]["summary"]["imbalance"]["cpu"].as_f64();
    ensure!(report["runs"][1]["name"] == "packed", "{report:#}");
    ensure!(
        imbalance(0) == Some(0.0) && imbalance(1) > Some(0.4),
        "one a node, four on one: {:?} {:?}",
        imbalance(0),
        imbalance(1)
    );
    for (condition, code) in [
        ("pending>0", 0),
        ("imbalance.cpu>40%", 3),
        ("pending>0 || imbalance.cpu>40%", 3),
        ("nonsense>0", 2),
        ("imbalance.gpu>0", 2),
    ] {
        let run = finish(&[&arguments[..], &["--fail-if", condition]].concat())?;
        ensure!(run.code == code, "{condition}: exit code {}, expected {code}: {}", run.code, run.stderr);
    }
    let once = [&arguments[..], &["--reproducible", "-o", "json"]].concat();
    ensure!(finish(&once)?.stdout == finish(&once)?.stdout, "the same input and seed, the same bytes");
    let text = answer(&arguments)?;
    ensure!(text.contains("imbalance.cpu") && text.contains("points)"), "the difference stands in the table: {text}");
    let csv = answer(&[&arguments[..], &["-o", "csv"]].concat())?;
    ensure!(csv.starts_with("run,seconds,attempts,nodes,placed,pending,utilisation.cpu,utilisation.memory"), "{csv}");
    Ok(())
}

#[test]
fn a_trace_scales_drains_and_fails_on_virtual_time() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let template = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#;
    let deployment = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},"spec":{{"replicas":2,"template":{template}}}}}"#
    );
    let lines = [
        r#"{"apiVersion":"plimsoll.io/v1alpha1","kind":"EventTrace"}"#.to_owned(),
        format!(r#"{{"at":0,"apply":{deployment}}}"#),
        r#"{"at":"1m","scale":{"kind":"Deployment","name":"web","replicas":6}}"#.to_owned(),
        r#"{"at":"2m","drain":"node-0"}"#.to_owned(),
        r#"{"at":"3m","fail":"node-1"}"#.to_owned(),
        r#"{"at":"20m","uncordon":"node-0"}"#.to_owned(),
        r#"{"at":"30m","pod":{"name":"job","requests":{"cpu":"1"}},"duration":"10m"}"#.to_owned(),
    ];
    let trace = file(dir.path(), "t.jsonl", &lines.join("\n"))?;
    let report = json(&["simulate", "--nodes", "3x4cpu,8Gi", "--trace", &trace])?;
    let summary = &report["summary"];
    ensure!(summary["podsPending"] == 0 && summary["displaced"].as_u64() > Some(2), "{summary:#}");
    ensure!(
        summary["simulatedSeconds"] == 2400.0 && summary["podsLeft"] == 1,
        "the job ends at 40 minutes: {summary:#}"
    );
    let wrong = file(dir.path(), "w.jsonl", &format!("{}\n{{\"at\":1,\"drain\":\"nobody\"}}\n", lines[0]))?;
    let run = finish(&["simulate", "--nodes", "1x4cpu,8Gi", "--trace", &wrong])?;
    ensure!(run.code == 2 && run.stderr.contains("w.jsonl:2: node nobody is not there"), "{}", run.stderr);
    Ok(())
}
