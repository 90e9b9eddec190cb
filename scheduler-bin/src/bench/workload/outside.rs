//! A scheduler that is a program of its own, measured from outside: started with a kubeconfig of the offline cluster, seen by
//! what it does to pods. Knows no scheduler by name.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use kube::Client;
use kube::api::WatchEvent;
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::cluster::News;
use super::run::Happening;
use crate::offline::write_private;

/// Where the command wants the path of the kubeconfig.
const PLACEHOLDER: &str = "{kubeconfig}";

/// How long to wait before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(50);

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerCommand(Vec<String>);

impl SchedulerCommand {
    /// Reads a command line: words between blanks, one of them with `{kubeconfig}`.
    ///
    /// # Errors
    /// It says nothing of the kubeconfig.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.iter().skip(1).any(|word| word.contains(PLACEHOLDER)) {
            Ok(Self(words))
        } else {
            Err(format!("expected a program with {PLACEHOLDER} in an argument, where the path of the kubeconfig goes"))
        }
    }

    fn start(&self, kubeconfig: &Path, log: &Path) -> Result<Child, String> {
        let failed = |what: &str, error: std::io::Error| format!("--scheduler: {what}: {error}");
        let out = File::create(log).map_err(|error| failed(&format!("cannot write {}", log.display()), error))?;
        let err = out.try_clone().map_err(|error| failed("cannot share its log", error))?;
        let kubeconfig = kubeconfig.to_string_lossy();
        Command::new(&self.0[0])
            .args(self.0[1..].iter().map(|word| word.replace(PLACEHOLDER, &kubeconfig)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|error| failed(&format!("cannot start {}", self.0[0]), error))
    }
}

/// The running program, with a directory for its kubeconfig and its log.
pub(super) struct OutsideScheduler {
    command: SchedulerCommand,
    directory: PathBuf,
    child: Option<Child>,
    watch: JoinHandle<()>,
}

impl OutsideScheduler {
    /// Prepares the directory and begins to watch pods; the program itself is not started yet. `tell` hears what the
    /// watch shows.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub(super) fn new(
        command: SchedulerCommand,
        kubeconfig: &str,
        client: Client,
        tell: impl Fn(News) + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("plimsoll-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        write_private(&directory.join("kubeconfig"), kubeconfig).map_err(|error| error.to_string())?;
        let watch = tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                // Whatever ends it, the next one tells everything anew; what was seen is not told twice.
                let _ = watch(&client, &mut seen, &tell).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Self { command, directory, child: None, watch })
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Starts the program.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&mut self) -> Result<(), String> {
        self.child = Some(self.command.start(&self.directory.join("kubeconfig"), &self.log())?);
        Ok(())
    }

    /// Ends the program.
    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Why the program is not running any more; `None` while it is, or was not started.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
        Some(format!("{}: {status}; its last words: {last}", self.command.0[0]))
    }
}

impl Drop for OutsideScheduler {
    fn drop(&mut self) {
        self.watch.abort();
        self.stop();
        // Nothing can be done about a directory that stays.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What the watch needs of a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenPod {
    metadata: SeenMeta,
    #[serde(default)]
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenMeta {
    uid: Arc<str>,
    name: String,
    namespace: Arc<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SeenStatus {
    #[serde(default)]
    conditions: Vec<SeenCondition>,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: Option<String>,
}

/// Which pods were told of already, by UID.
#[derive(Default)]
struct Seen {
    bound: HashSet<Arc<str>>,
    refused: HashMap<Arc<str>, Option<String>>,
}

impl Seen {
    /// What is new in the state of a pod.
    fn news(&mut self, pod: &SeenPod) -> Vec<News> {
        let SeenMeta { uid, name, namespace } = &pod.metadata;
        let mut news = Vec::new();
        let refusal = pod
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "PodScheduled" && condition.status == "False");
        if pod.spec.node_name.is_some() {
            if self.bound.insert(Arc::clone(uid)) {
                if self.refused.remove(uid).is_none() {
                    news.push(News::Happened(Happening::FirstAttempt { namespace: Arc::clone(namespace) }));
                }
                let at = Instant::now();
                news.push(News::Happened(Happening::Scheduled { namespace: Arc::clone(namespace), at }));
            }
        } else if let Some(refusal) = refusal {
            let known = self.refused.insert(Arc::clone(uid), refusal.message.clone());
            if known.is_none() {
                news.push(News::Happened(Happening::FirstAttempt { namespace: Arc::clone(namespace) }));
            }
            if known.as_ref() != Some(&refusal.message) {
                let message = refusal.message.as_deref().unwrap_or("no message");
                news.push(News::Unscheduled(format!("{namespace}/{name}: {message}")));
            }
        }
        news
    }
}

/// Tells of all pods as they are, and then of what becomes of them, until the watch ends.
async fn watch(client: &Client, seen: &mut Seen, tell: &impl Fn(News)) -> Result<(), kube::Error> {
    let request = http::Request::get("/api/v1/pods?watch=true&resourceVersion=0").body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    let mut events = pin!(client.request_events::<SeenPod>(request).await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event {
            seen.news(&pod).into_iter().for_each(tell);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_command_says_where_the_kubeconfig_goes() {
        let command = SchedulerCommand::parse("sched  --kubeconfig={kubeconfig} -v").expect("a command");
        assert_eq!(command, SchedulerCommand(["sched", "--kubeconfig={kubeconfig}", "-v"].map(str::to_owned).to_vec()));
        for text in ["", "sched", "{kubeconfig}", "sched --kubeconfig kubeconfig"] {
            let fault = SchedulerCommand::parse(text).expect_err("it does not");
            assert!(fault.contains("{kubeconfig} in an argument"), "{fault}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let command = SchedulerCommand::parse("/nonexistent/sched {kubeconfig}").expect("a command");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let fault = command.start(Path::new("k"), &directory.path().join("log")).expect_err("it cannot start");
        assert!(fault.starts_with("--scheduler: cannot start /nonexistent/sched: "), "{fault}");
    }

    fn pod(node: Option<&str>, message: Option<&str>) -> SeenPod {
        let conditions =
            message.map(|message| json!([{"type": "PodScheduled", "status": "False", "message": message}]));
        let object = json!({
            "metadata": {"uid": "u", "name": "p", "namespace": "n"},
            "spec": {"nodeName": node},
            "status": {"conditions": conditions.unwrap_or_else(|| json!([]))},
        });
        serde_json::from_value(object).expect("a pod")
    }

    /// What is told, in a word each.
    fn told(news: &[News]) -> Vec<&str> {
        let word = |news: &News| match news {
            News::Happened(Happening::FirstAttempt { .. }) => "attempted",
            News::Happened(Happening::Scheduled { .. }) => "scheduled",
            News::Unscheduled(message) if message == "n/p: no room" => "no room",
            News::Unscheduled(_) => "another message",
        };
        news.iter().map(word).collect()
    }

    #[test]
    fn a_pod_is_told_of_once_when_it_is_refused_and_once_when_it_is_bound() {
        let mut seen = Seen::default();
        for (pod, expected) in [
            (pod(None, None), &[][..]),
            (pod(None, Some("no room")), &["attempted", "no room"]),
            (pod(None, Some("no room")), &[]),
            (pod(None, Some("still none")), &["another message"]),
            (pod(Some("node"), None), &["scheduled"]),
            (pod(Some("node"), None), &[]),
        ] {
            assert_eq!(told(&seen.news(&pod)), expected, "{pod:?}");
        }
        assert_eq!(told(&Seen::default().news(&pod(Some("node"), None))), ["attempted", "scheduled"]);
    }
}
