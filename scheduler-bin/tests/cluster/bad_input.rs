//! What goes wrong is said clearly, with exit code 2 for bad input and 1 for everything else.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use cluster_stub::apiserver::tls::{CertificateAuthority, Validity};
use serde_json::{Value, json};

use super::process::{Up, finish};

fn check(name: &str, arguments: &[&str], code: i32, says: &[&str]) -> Result<()> {
    let finished = finish(arguments)?;
    ensure!(finished.code == code, "{name}: exit code {}, want {code}: {}", finished.code, finished.stderr);
    for words in says {
        ensure!(finished.stderr.contains(words), "{name}: {words:?} is not in: {}", finished.stderr);
    }
    ensure!(!finished.stderr.contains("panicked"), "{name}: {}", finished.stderr);
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<String> {
    let path = dir.join(name);
    std::fs::File::create(&path)?.write_all(text.as_bytes())?;
    Ok(path.to_str().context("a temporary path is text")?.to_owned())
}

#[test]
fn usage() -> Result<()> {
    check("no command", &[], 2, &["Usage: plimsoll"])?;
    check("an unknown command", &["fly"], 2, &["unrecognized subcommand 'fly'"])?;
    check("an unknown flag", &["run", "--fast"], 2, &["--fast"])?;
    check("a wrong quantity", &["up", "--cpu", "lots"], 2, &["--cpu", "expected a quantity"])?;
    check("a wrong taint", &["up", "--taints", "a:Never"], 2, &["expected KEY[=VALUE]:EFFECT"])?;
    check("a wrong node count", &["up", "--nodes", "many"], 2, &["--nodes many", "existing file of Node objects"])?;
    check("a wrong address", &["run", "--metrics-bind-address", "here"], 2, &["--metrics-bind-address"])
}

#[test]
fn manifests() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    let malformed = file("malformed.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n bad: [\n")?;
    check("malformed YAML", &["demo", "-f", &malformed], 2, &["malformed.yaml:5: malformed YAML"])?;
    check("a missing file", &["demo", "-f", "/no/such.yaml"], 2, &["cannot read /no/such.yaml"])?;
    let empty = file("empty.yaml", "# nothing\n")?;
    check("an empty file", &["demo", "-f", &empty], 2, &["no objects found"])?;
    let kind = file("kind.yaml", "apiVersion: apps/v1\nkind: Deploymint\nmetadata: {name: a}\n")?;
    check(
        "a wrong kind",
        &["demo", "-f", &kind],
        2,
        &["kind.yaml:1", "no matches for kind \"Deploymint\" in version \"apps/v1\""],
    )?;
    let field = file(
        "field.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  container: []\n  containers: [{name: c, image: i}]\n",
    )?;
    check("an unknown field", &["demo", "-f", &field], 2, &["field.yaml:1", "unknown field \"spec.container\""])?;
    let invalid = file("invalid.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n")?;
    check("an invalid object", &["demo", "-f", &invalid], 2, &["invalid.yaml:1", "spec.containers: Required value"])?;
    let nodes = file("nodes.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")?;
    let slip = file("slip.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {unschedulble: true}\n")?;
    check(
        "an unknown field of a node",
        &["up", "--nodes", &slip],
        2,
        &["slip.yaml:1: Node a: unknown field \"spec.unschedulble\", did you mean \"unschedulable\"?"],
    )?;
    check("a file of other things than nodes", &["up", "--nodes", &nodes], 2, &["found v1 Pod, expected v1 Node"])
}

/// What `simulate -f` reads is meant: a slip in it is no silent difference.
#[test]
fn manifests_of_a_simulation() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    let simulate = |name: &str, flags: &[&str], code: i32, says: &[&str]| {
        check(name, &[&["simulate", "--nodes", "3x4cpu,8Gi"], flags].concat(), code, says)
    };
    let pod = |image: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
        )
    };
    let field = file("field.yaml", &format!("{}\n---\n{}", pod("one"), pod("two").replace("image:", "imge:")))?;
    let says = ["field.yaml:7: Pod a: unknown field \"spec.containers[0].imge\", did you mean \"image\"?"];
    simulate("an unknown field", &["-f", &field], 2, &says)?;
    simulate("an unknown field of a dump", &["--from", &field], 0, &["imge", "it is left out", "this one counts"])?;
    check("capacity", &["capacity", "--nodes", "1x4cpu,8Gi", "-f", &field], 2, &says)?;
    check("explain", &["explain", "a", "--nodes", "1x4cpu,8Gi", "-f", &field], 2, &says)?;
    let kind = file("kind.yaml", "apiVersion: apps/v1\nkind: Deploymint\nmetadata: {name: a}\n")?;
    simulate(
        "a wrong kind",
        &["-f", &kind],
        2,
        &["no matches for kind \"Deploymint\"", "did you mean \"Deployment\""],
    )?;
    let twice = file("twice.yaml", &format!("{}\n---\n{}", pod("one"), pod("two")))?;
    simulate("different twice", &["-f", &twice], 2, &["twice.yaml:7: Pod a: stands at ", "twice.yaml:1 already"])?;
    let (one, same) = (file("one.yaml", &pod("one"))?, file("same.yaml", &pod("one"))?);
    simulate("the same twice", &["-f", &one, "-f", &same], 0, &[])?;
    let two = file("two.yaml", &pod("two"))?;
    simulate("different in two files", &["-f", &one, "-f", &two], 2, &["two.yaml:1: Pod a: stands at ", "one.yaml:1"])?;
    simulate("different in dumps", &["--from", &one, "--from", &two], 0, &["two.yaml:1: Pod a stands at ", "counts"])?;
    for format in ["openb", "events", "simkube", "kwok", "kube-scheduler-simulator"] {
        let says = ["cannot read /no/such: No such file or directory"];
        simulate(format, &["--trace", format, "--pods", "/no/such"], 2, &says)?;
    }
    let service = file("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {}\n")?;
    simulate("nothing to place", &["-f", &service], 0, &["no pod and no workload", "nothing is placed"])?;
    check("no nodes", &["capacity", "-f", &one, "--from", &service], 1, &["no nodes: expected Node objects"])?;
    let boolean = file("n.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: n}\n")?;
    simulate("a name that is none", &["-f", &boolean], 2, &["metadata.name is false, a boolean", "quotes"])
}

#[test]
fn pods_of_other_schedulers_are_not_for_us() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pod = |name: &str, scheduler: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods = write(dir.path(), "pods.json", &format!("{}\n{}", pod("a", "ours"), pod("b", "theirs")))?;
    let config = write(
        dir.path(),
        "config.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: ours}]\n",
    )?;
    let simulate = |flags: &[&str]| -> Result<(Value, String)> {
        let flags = [&["simulate", "--nodes", "1x4cpu,8Gi", "-f", &pods, "-o", "json"], flags].concat();
        let finished = finish(&flags)?;
        ensure!(finished.code == 0, "{}", finished.stderr);
        Ok((serde_json::from_str(&finished.stdout)?, finished.stderr))
    };
    let (report, says) = simulate(&["--config", &config])?;
    let summary = &report["summary"];
    let counts =
        ["podsScheduled", "podsUnschedulable", "podsPending", "podsOfOtherSchedulers"].map(|key| &summary[key]);
    ensure!(counts == [1, 0, 0, 1], "{summary:#}");
    ensure!(says.contains("1 pod of theirs left out") && says.contains("schedulerName is ours"), "{says}");
    let (report, says) = simulate(&[])?;
    ensure!(
        report["summary"]["podsScheduled"] == 2 && says.is_empty(),
        "without a configuration all are served: {says}"
    );
    Ok(())
}

/// Writes that fail are failures, but a reader that has seen enough is none.
#[test]
#[cfg(target_os = "linux")]
fn standard_output() -> Result<()> {
    use std::process::{Command, Stdio};
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let simulate = ["simulate", "--nodes", "300x4cpu,8Gi", "--nodes", "1x4cpu,8Gi", "-o", "json"];
    for arguments in [&["--help"][..], &["up", "--help"], &simulate] {
        let full = std::fs::File::options().write(true).open("/dev/full")?;
        let output = Command::new(plimsoll).args(arguments).stdout(full).output()?;
        let says = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{arguments:?}: {}", output.status);
        ensure!(says.contains("cannot write to standard output: No space left on device"), "{arguments:?}: {says}");
        let mut child = Command::new(plimsoll).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        let says = String::from_utf8_lossy(&output.stderr);
        ensure!(!says.contains("plimsoll:") && !says.contains("panicked"), "{arguments:?} into a closed pipe: {says}");
    }
    Ok(())
}

/// A run that is ended leaves no file that is not whole, and an old one as it was.
#[test]
#[cfg(target_os = "linux")]
fn a_simulation_that_is_ended_leaves_nothing_half_written() -> Result<()> {
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir()?;
    let (report, decisions) = (dir.path().join("report.html"), dir.path().join("decisions.jsonl"));
    std::fs::write(&report, "old")?;
    // A trace that does not end: the run is in the middle of it.
    let trace = dir.path().join("trace");
    ensure!(Command::new("mkfifo").arg(&trace).status()?.success(), "mkfifo");
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["simulate", "--nodes", "3x4cpu,8Gi", "--trace", "events", "--pods"])
        .arg(&trace)
        .arg("--report")
        .arg(&report)
        .arg("--decisions")
        .arg(&decisions)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut pipe = std::fs::File::options().write(true).open(&trace)?;
    writeln!(pipe, "{{\"apiVersion\":\"plimsoll.io/v1alpha1\",\"kind\":\"EventTrace\"}}")?;
    writeln!(pipe, "{{\"at\":0,\"pod\":{{\"name\":\"a\"}}}}")?;
    // Files are begun before the trace is read.
    while std::fs::read_dir(dir.path())?.count() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    ensure!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?.success(), "kill");
    let status = child.wait()?;
    drop(pipe);
    ensure!(status.code() == Some(1), "{status}");
    let mut left: Vec<_> = std::fs::read_dir(dir.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    left.sort();
    ensure!(left == ["report.html", "trace"], "{left:?}");
    ensure!(std::fs::read_to_string(&report)? == "old", "the old report");
    Ok(())
}

#[test]
fn kubeconfigs() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    check("a missing kubeconfig", &["run", "--kubeconfig", "/no/such"], 2, &["/no/such: No such file"])?;
    let broken = file("broken", "clusters: [")?;
    check("a broken kubeconfig", &["run", "--kubeconfig", &broken], 2, &["broken: not a kubeconfig"])?;
    let empty = file("empty", "apiVersion: v1\nkind: Config\n")?;
    check("an empty kubeconfig", &["run", "--kubeconfig", &empty], 2, &["current-context is not set"])?;
    // A port that was free a moment ago and that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let unreachable = file("unreachable", &kubeconfig(&format!("https://127.0.0.1:{port}"), &json!({}), &json!({})))?;
    check(
        "an unreachable server",
        &["run", "--kubeconfig", &unreachable],
        1,
        &["cannot reach the API server", &port.to_string()],
    )
}

fn kubeconfig(server: &str, cluster: &Value, user: &Value) -> String {
    let mut cluster = cluster.clone();
    cluster["server"] = json!(server);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

/// `cluster` and `user` of a kubeconfig, as JSON.
fn parts(up: &Up) -> Result<(Value, Value)> {
    let text = std::fs::read_to_string(&up.kubeconfig)?;
    let file = serde_json::to_value(kube::config::Kubeconfig::from_yaml(&text)?)?;
    let user = kube::config::Kubeconfig::from_yaml(&text)?.auth_infos.remove(0).auth_info.context("a user")?;
    // Secrets are not written by default, so the key is put back by hand.
    let key =
        text.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).context("a key")?.trim_matches('"');
    let certificate = user.client_certificate_data.context("a certificate")?;
    Ok((
        file["clusters"][0]["cluster"].clone(),
        json!({"client-certificate-data": certificate, "client-key-data": key}),
    ))
}

#[test]
fn certificates_and_permissions() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let tokens = write(dir.path(), "tokens.csv", "tok-alice,alice,alice-uid,\"dev,ops\"\n")?;
    let up = Up::start(&["--token-auth-file", &tokens])?;
    let other = Up::start(&[])?;
    let (cluster, user) = parts(&up)?;
    let (other_cluster, _) = parts(&other)?;
    let file =
        |name: &str, cluster: &Value, user: &Value| write(dir.path(), name, &kubeconfig(&up.server, cluster, user));

    let wrong_ca =
        file("wrong-ca", &json!({"certificate-authority-data": other_cluster["certificate-authority-data"]}), &user)?;
    check("a wrong CA", &["run", "--kubeconfig", &wrong_ca], 1, &["is not trusted", "wrong-ca"])?;

    let expired = expired_certificate()?;
    let expired =
        file("expired", &cluster, &json!({"client-certificate-data": expired.0, "client-key-data": expired.1}))?;
    check("an expired certificate", &["run", "--kubeconfig", &expired], 1, &["client certificate", "expired at 2001"])?;

    let stranger = file("stranger", &cluster, &json!({"token": "nobody's"}))?;
    check(
        "an unknown token",
        &["run", "--kubeconfig", &stranger],
        1,
        &["does not accept the credentials", "stranger"],
    )?;

    let alice = file("alice", &cluster, &json!({"token": "tok-alice"}))?;
    check(
        "no permission",
        &["run", "--kubeconfig", &alice],
        1,
        &["lacks permissions", "list pods", "create pods/binding"],
    )
}

fn expired_certificate() -> Result<(String, String)> {
    let (begin, end) = ("2000-01-01T00:00:00Z".parse()?, "2001-01-01T00:00:00Z".parse()?);
    let authority = CertificateAuthority::generate("kubernetes", begin)?;
    let issued = authority.issue_client_for("jane", "dev", Validity::between(begin, end))?;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    Ok((encode(&issued.certificate_pem), encode(&issued.key_pem)))
}

#[test]
fn configurations() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    let version =
        file("version.yaml", "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n")?;
    check(
        "an old version",
        &["run", "--config", &version],
        2,
        &["version.yaml", "apiVersion", "kubescheduler.config.k8s.io/v1"],
    )?;
    let field = file("field.yaml", &format!("{head}profile: []\n"))?;
    check("an unknown field", &["run", "--config", &field], 2, &["field.yaml", "profile"])?;
    let range = file("range.yaml", &format!("{head}percentageOfNodesToScore: 101\n"))?;
    check("a value out of range", &["run", "--config", &range], 2, &["percentageOfNodesToScore", "101"])?;
    let plugin =
        file("plugin.yaml", &format!("{head}profiles:\n- plugins: {{filter: {{enabled: [{{name: NodeFitt}}]}}}}\n"))?;
    check("an unknown plugin", &["up", "--scheduler-config", &plugin], 2, &["NodeFitt"])?;
    check("a missing file", &["run", "--config", "/no/such.yaml"], 2, &["cannot read the configuration /no/such.yaml"])
}

#[test]
fn places() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    check("a port in use", &["up", "--port", &port], 1, &[&port, "in use"])?;
    let dir = tempfile::tempdir()?;
    let file = write(dir.path(), "file", "not a directory")?;
    check("a data directory that is a file", &["up", "--data-dir", &file], 1, &[&file, "Not a directory (os error"])?;
    let below = format!("{file}/data");
    check("a data directory that cannot be made", &["up", "--data-dir", &below], 1, &[&below, "Not a directory"])?;
    std::fs::create_dir_all(dir.path().join("kept/pki/ca.crt"))?;
    let kept = dir.path().join("kept").display().to_string();
    check(
        "an authority that is no file",
        &["up", "--data-dir", &kept],
        1,
        &["cannot read", "pki/ca.crt: Is a directory"],
    )?;
    check(
        "an address that is not ours",
        &["up", "--bind-address", "192.0.2.1"],
        1,
        &["cannot listen on 192.0.2.1", "Cannot assign requested address"],
    )?;
    check(
        "a kubeconfig that cannot be written",
        &["up", "--kubeconfig-out", &below],
        1,
        &["cannot write the kubeconfig", &below],
    )?;
    check(
        "a missing token file",
        &["up", "--token-auth-file", "/no/such"],
        2,
        &["cannot read the token file /no/such: No such file or directory"],
    )
}
