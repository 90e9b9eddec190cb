//! `plimsoll up`: the offline cluster for anyone's tools, until Ctrl-C.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use cluster_stub::story::Story;
use scheduler_core::config::{DEFAULT_SCHEDULER_NAME, KubeSchedulerConfiguration};
use scheduler_core::framework::Registry;
use serde_json::json;

use super::nodes::NodeFlags;
use super::{EXIT_CODES, Failure, Output, run, termination, with_causes};
use crate::live::LiveError;
use crate::offline::{Offline, OfflineError, OfflineOptions, write_private};

#[derive(Args)]
#[command(
    long_about = "Keep an offline cluster up for kubectl and other tools: API server, controllers, scheduler and simulated nodes in \
        one process. Without flags it has three nodes in three zones (4 CPU, 16Gi, 110 pods each) and keeps everything in memory.",
    after_help = format!("Examples:\n  plimsoll up\n  plimsoll up --nodes 20 --cpu 32 --memory 128Gi --zones a,b\n  plimsoll up --nodes examples/nodes.yaml --data-dir ./cluster --kubeconfig-out ./kubeconfig\n\n{EXIT_CODES}")
)]
pub(crate) struct Up {
    #[command(flatten)]
    nodes: NodeFlags,

    /// Write the kubeconfig here. Default: into the data directory, or a private temporary one.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,

    /// Keep the cluster's objects in this directory, so that they are there after a restart. Default: in memory.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Port of the API server; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,

    /// Address of the API server.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,

    /// Static tokens, as kube-apiserver reads them: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Start no scheduler: bring your own.
    #[arg(long)]
    no_scheduler: bool,

    /// A KubeSchedulerConfiguration for the cluster's scheduler. Default: one profile, default-scheduler, every node scored.
    #[arg(long, value_name = "FILE", conflicts_with = "no_scheduler")]
    scheduler_config: Option<PathBuf>,

    /// How the address and the kubeconfig's path are printed.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Up {
    /// Starts the cluster, says where it is, and waits for the end.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let start = Instant::now();
        let terminated =
            termination().map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
        let options = OfflineOptions {
            nodes: self.nodes.to_nodes(if self.continues() { 0 } else { 3 })?,
            address: self.bind_address,
            port: self.port,
            data_dir: self.data_dir.clone(),
            token_auth_file: self.token_auth_file.clone(),
            scheduler: self.scheduler()?,
            seed: rand::random(),
            story: Story::silent(),
            observer: None,
        };
        let mut offline = Offline::start(&registry, options).await.map_err(|error| match error {
            OfflineError::Cluster(error) if error.is_bad_input() => Failure::bad_input(with_causes(&error)),
            error @ (OfflineError::Scheduler(LiveError::Configuration(_)) | OfflineError::Node { .. }) => {
                Failure::bad_input(with_causes(&error))
            }
            other => Failure::failed(with_causes(&other)),
        })?;

        let node_names = offline.node_names().await.map_err(Failure::failed)?;
        let kubeconfig = Kubeconfig::place(self.kubeconfig_out.as_deref(), self.data_dir.as_deref())?;
        let result = write_private(&kubeconfig.path, &offline.cluster.kubeconfig()).map_err(Failure::failed);
        let result =
            result.and_then(|()| self.announce(&offline, &kubeconfig.path, &node_names, start).map_err(Failure::from));
        let mut nodes = Nodes::new(offline.cluster.node_names().len(), start);
        let result = match result {
            Ok(()) => tokio::select! {
                () = terminated => Ok(()),
                error = offline.scheduler_ended(|n_ready| nodes.tell(n_ready)) => Err(Failure::failed(error)),
            },
            failed => failed,
        };
        offline.shutdown().await;
        kubeconfig.remove();
        result
    }

    /// Whether the data directory holds a cluster already.
    fn continues(&self) -> bool {
        self.data_dir.as_ref().is_some_and(|dir| dir.join("store").is_dir())
    }

    fn scheduler(&self) -> Result<Option<KubeSchedulerConfiguration>, Failure> {
        if self.no_scheduler {
            return Ok(None);
        }
        let name = self.scheduler_config.is_none().then_some(DEFAULT_SCHEDULER_NAME);
        run::configuration(self.scheduler_config.as_deref(), name).map(Some)
    }

    fn announce(&self, offline: &Offline, kubeconfig: &Path, node_names: &[String], start: Instant) -> io::Result<()> {
        let path = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
        let (path, server, milliseconds) = (path.display(), offline.cluster.server_url(), start.elapsed().as_millis());
        let (n_ready, n_wanted) = (offline.cluster.n_ready_nodes(), offline.cluster.node_names().len());
        let yet = if n_ready < n_wanted { format!(", {n_ready} ready so far") } else { String::new() };
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => {
                let document = json!({
                    "server": server,
                    "kubeconfig": path.to_string(),
                    "nodes": node_names,
                    "nodesReady": n_ready,
                    "readyMilliseconds": u64::try_from(milliseconds).unwrap_or(u64::MAX),
                });
                writeln!(out, "{document}")?;
            }
            Output::Text => {
                writeln!(out, "Offline cluster ready after {milliseconds} ms; Ctrl-C ends it.")?;
                writeln!(out, "  server      {server}")?;
                writeln!(out, "  nodes       {}{yet}", summary(node_names))?;
                writeln!(out, "  kubeconfig  {path}\n")?;
                writeln!(out, "export KUBECONFIG={path}")?;
            }
        }
        out.flush()
    }
}

/// Says on standard error how many nodes are ready, until all are.
struct Nodes {
    n_wanted: usize,
    start: Instant,
    /// What was said last; nothing is said of nodes that were ready when the cluster was.
    told: Option<usize>,
    draws: bool,
}

impl Nodes {
    fn new(n_wanted: usize, start: Instant) -> Self {
        Self { n_wanted, start, told: None, draws: io::stderr().is_terminal() }
    }

    fn tell(&mut self, n_ready: usize) {
        let n_wanted = self.n_wanted;
        let is_first = self.told.is_none();
        if self.told == Some(n_ready) || (is_first && n_ready >= n_wanted) {
            return;
        }
        self.told = Some(n_ready);
        let mut err = io::stderr().lock();
        // A terminal that is gone needs no progress.
        let _ = match (n_ready >= n_wanted, self.draws) {
            (true, true) => {
                writeln!(err, "\r\x1b[2Kall {n_wanted} nodes ready after {} s", self.start.elapsed().as_secs())
            }
            (true, false) => writeln!(err, "all {n_wanted} nodes ready after {} s", self.start.elapsed().as_secs()),
            (false, true) => write!(err, "\r\x1b[2K{n_ready} of {n_wanted} nodes ready").and_then(|()| err.flush()),
            (false, false) => Ok(()),
        };
    }
}

fn summary(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        [first, .., last] if names.len() > 5 => format!("{} ({first} to {last})", names.len()),
        _ => names.join(", "),
    }
}

/// Where the kubeconfig goes, and what has to go with the cluster.
struct Kubeconfig {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl Kubeconfig {
    fn place(out: Option<&Path>, data_dir: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = out {
            return Ok(Self { path: path.to_owned(), temporary: None });
        }
        if let Some(dir) = data_dir {
            return Ok(Self { path: dir.join("kubeconfig"), temporary: None });
        }
        let dir = std::env::temp_dir().join(format!("plimsoll-{}", uuid::Uuid::new_v4().simple()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder
            .create(&dir)
            .map_err(|error| Failure::failed(format_args!("cannot make the directory {}: {error}", dir.display())))?;
        Ok(Self { path: dir.join("kubeconfig"), temporary: Some(dir) })
    }

    /// Removes the temporary directory, if it is one: its credentials are worth nothing any more.
    fn remove(&self) {
        if let Some(dir) = &self.temporary
            && let Err(error) = std::fs::remove_dir_all(dir)
        {
            tracing::warn!("cannot remove {}: {error}", dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_are_summed_up() {
        let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect::<Vec<_>>();
        assert_eq!(summary(&names(0)), "none");
        assert_eq!(summary(&names(2)), "n0, n1");
        assert_eq!(summary(&names(9)), "9 (n0 to n8)");
    }
}
