//! Starts `plimsoll` as a child process and ends it with the test.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test fails; generous, since it never decides what is right.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The command under test.
pub(crate) fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.env_remove("KUBECONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `plimsoll` with `arguments` to its end.
pub(crate) fn finish(arguments: &[&str]) -> Result<Finished> {
    let output = plimsoll().args(arguments).output().context("plimsoll can be started")?;
    Ok(Finished {
        code: output.status.code().context("plimsoll was killed")?,
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// A running `plimsoll up`.
pub(crate) struct Up {
    child: Child,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) server: String,
    pub(crate) ready_milliseconds: u64,
    _dir: TempDir,
}

impl Up {
    /// Starts it with further `arguments` and waits until it says that it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let mut child = plimsoll()
            .args(["up", "-o", "json", "--kubeconfig-out"])
            .arg(&kubeconfig)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("stdout is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            bail!("plimsoll up ended with {} before it was ready", child.wait()?);
        }
        let said: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
        let server = said["server"].as_str().context("the server is named")?.to_owned();
        let ready_milliseconds = said["readyMilliseconds"].as_u64().context("the time is named")?;
        Ok(Self { child, kubeconfig, server, ready_milliseconds, _dir: dir })
    }

    /// A client with the kubeconfig's credentials.
    pub(crate) async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// A signal by name, and the exit status.
    pub(crate) fn end_with(&mut self, signal: &str) -> Result<ExitStatus> {
        end_with(signal, &mut self.child)
    }

    /// SIGHUP; fails if the process does not survive it.
    pub(crate) fn hang_up(&mut self) -> Result<()> {
        let status = Command::new("kill").arg("-HUP").arg(self.child.id().to_string()).status()?;
        anyhow::ensure!(status.success(), "kill failed");
        std::thread::sleep(Duration::from_millis(500));
        anyhow::ensure!(self.child.try_wait()?.is_none(), "the process ended on SIGHUP");
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that is killed with the test.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    /// SIGTERM, the exit status and what it wrote to standard error.
    pub(crate) fn terminate(&mut self) -> Result<(ExitStatus, String)> {
        let status = end_with("TERM", &mut self.0)?;
        let mut text = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_string(&mut text)?;
        }
        Ok((status, text))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn end_with(signal: &str, child: &mut Child) -> Result<ExitStatus> {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status()?;
    anyhow::ensure!(status.success(), "kill failed");
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the process did not end on SIG{signal}")
}

/// A client for the current context of `kubeconfig`.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Asks again until `question` has an answer.
pub(crate) async fn eventually<T, F: Future<Output = Result<Option<T>>>>(
    what: &str,
    mut question: impl FnMut() -> F,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question().await? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A program of this machine. Where CI asks for it, its absence is a failure; elsewhere it is reported and the test ends.
pub(crate) fn program(name: &str) -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file()) {
        return Ok(Some(found));
    }
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        bail!("{name} is not installed, but CI needs it");
    }
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {name} is not installed")?;
    Ok(None)
}
