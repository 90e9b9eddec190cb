//! The offline cluster with its scheduler, in this process: what `up` and `demo` have in common.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cluster_stub::apiserver::authn::UserInfo;
use cluster_stub::cluster::{Cluster, ClusterOptions, StartError};
use cluster_stub::story::Story;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::framework::Registry;

use crate::live::{LiveError, LiveScheduler, Observer, Options};

/// The user that the scheduler's requests come from; bootstrap roles are bound to it.
const SCHEDULER_USER: &str = "system:kube-scheduler";

/// How often nodes that are not ready yet are counted.
const LOOK_AT_NODES: std::time::Duration = std::time::Duration::from_secs(1);

/// Nodes that are tried before the start; those of flags are all alike.
const MAX_TRIED: usize = 100;

/// What to start.
pub(crate) struct OfflineOptions {
    /// Nodes at the start.
    pub(crate) nodes: Vec<Node>,
    /// Address of the API server; port 0 takes a free one.
    pub(crate) address: IpAddr,
    /// Port of the API server.
    pub(crate) port: u16,
    /// Keeps the store here; `None` keeps it in memory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Static tokens.
    pub(crate) token_auth_file: Option<PathBuf>,
    /// Configuration of the scheduler; `None` starts none.
    pub(crate) scheduler: Option<KubeSchedulerConfiguration>,
    /// Seed of the scheduler's draws.
    pub(crate) seed: u64,
    /// Who hears of the cluster's steps.
    pub(crate) story: Story,
    /// Who hears of the scheduler's attempts.
    pub(crate) observer: Option<Observer>,
}

/// Why the cluster did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfflineError {
    /// The API server, the store or a component.
    #[error(transparent)]
    Cluster(#[from] StartError),
    /// The scheduler.
    #[error(transparent)]
    Scheduler(#[from] LiveError),
    /// The API server refuses a node.
    #[error("node {name:?}: {message}")]
    Node {
        /// Its name.
        name: String,
        /// What the API server says.
        message: String,
    },
    /// The nodes cannot be listed.
    #[error("cannot list the nodes: {0}")]
    Nodes(kube::Error),
    /// The kubeconfig cannot be written.
    #[error("cannot write the kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// A running offline cluster.
pub(crate) struct Offline {
    /// API server, controllers, kubelets.
    pub(crate) cluster: Cluster,
    scheduler: Option<LiveScheduler>,
}

impl Offline {
    /// Starts the API server, then everything else.
    ///
    /// # Errors
    /// See [`OfflineError`].
    pub(crate) async fn start(registry: &Registry, options: OfflineOptions) -> Result<Self, OfflineError> {
        let asked_for: Vec<Node> = options.nodes.iter().take(MAX_TRIED).cloned().collect();
        let mut cluster = Cluster::start(ClusterOptions {
            data_dir: options.data_dir,
            bind_address: options.address,
            port: options.port,
            nodes: options.nodes,
            token_auth_file: options.token_auth_file,
            story: options.story,
            ..ClusterOptions::default()
        })
        .await?;
        if let Err(refused) = would_be_taken(cluster.client(admin()), &asked_for).await {
            cluster.shutdown().await;
            return Err(refused);
        }
        let scheduler = match options.scheduler {
            None => None,
            Some(configuration) => {
                let live = Options {
                    configuration,
                    seed: options.seed,
                    leader_election: None,
                    metrics_address: None,
                    record_decisions: options.observer.is_some(),
                    record: None,
                    observer: options.observer,
                };
                let user = || UserInfo::authenticated(SCHEDULER_USER, [""; 0]);
                // The only scheduler of this cluster has no rival: it need not wait for an old Lease to run out.
                cluster.hold_lease("kube-scheduler", user());
                Some(LiveScheduler::start(cluster.client(user()), registry, live).await?)
            }
        };
        cluster.ready().await;
        Ok(Self { cluster, scheduler })
    }

    /// The nodes that there are or will be, sorted.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn node_names(&self) -> Result<Vec<String>, OfflineError> {
        let nodes: Api<Node> = Api::all(self.cluster.client(admin()));
        let list = nodes.list_metadata(&ListParams::default()).await.map_err(OfflineError::Nodes)?;
        let mut names: Vec<String> = list.items.into_iter().filter_map(|node| node.metadata.name).collect();
        // Those that are still being registered.
        names.extend(self.cluster.node_names().iter().cloned());
        names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        names.dedup();
        Ok(names)
    }

    /// Waits until the scheduler fails; for ever without one. Until all nodes of the start are ready, `n_ready` hears once a
    /// second how many are.
    pub(crate) async fn scheduler_ended(&mut self, mut n_ready: impl FnMut(usize)) -> LiveError {
        let Self { cluster, scheduler } = self;
        let follow = async {
            loop {
                let n = cluster.n_ready_nodes();
                n_ready(n);
                if n >= cluster.node_names().len() {
                    return std::future::pending().await;
                }
                tokio::time::sleep(LOOK_AT_NODES).await;
            }
        };
        let ended = async {
            match scheduler {
                Some(scheduler) => scheduler.ended().await.err().unwrap_or(LiveError::Ended),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = ended => error,
            error = follow => error,
        }
    }

    /// Ends the scheduler, then the cluster; what was acknowledged is kept where there is a data directory.
    pub(crate) async fn shutdown(self) {
        if let Some(scheduler) = self.scheduler {
            scheduler.shutdown().await;
        }
        self.cluster.shutdown().await;
    }
}

fn admin() -> UserInfo {
    UserInfo::authenticated("system:admin", ["system:masters"])
}

/// Whether the API server would take these nodes: a kubelet tries for ever, and nobody hears why.
async fn would_be_taken(client: kube::Client, nodes: &[Node]) -> Result<(), OfflineError> {
    let api: Api<Node> = Api::all(client);
    let tries = PostParams { dry_run: true, ..PostParams::default() };
    for node in nodes {
        match api.create(&tries, node).await {
            Err(kube::Error::Api(status)) if status.code != 409 => {
                let name = node.metadata.name.clone().unwrap_or_default();
                return Err(OfflineError::Node { name, message: status.message });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes `text` so that only its owner can read it.
///
/// # Errors
/// The file or its directory cannot be written.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), OfflineError> {
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let mut file = options.open(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // The mode above counts only for a new file.
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| OfflineError::Kubeconfig { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_private_file_is_private_even_if_it_was_not() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, "old and longer").expect("the file can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("our own file");
        write_private(&path, "new").expect("our own directory");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!((mode & 0o777, std::fs::read_to_string(&path).expect("it is text")), (0o600, "new".to_owned()));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let error =
            write_private(Path::new("/no/such/dir/kubeconfig"), "x").expect_err("no such directory").to_string();
        assert!(error.starts_with("cannot write the kubeconfig /no/such/dir/kubeconfig: "), "{error}");
    }
}
