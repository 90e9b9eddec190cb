//! A whole cluster in this process: store, API server, controllers and kubelets, wired and started in order. Knows how
//! the parts are put together, and nothing of what they do.

mod api;
mod error;
mod host;
mod leader_lease;
mod options;
mod service_range;

use std::sync::Weak;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use error::StartError;
pub use options::ClusterOptions;

use crate::apiserver::authn::UserInfo;
use crate::apiserver::authn::user::{NODE_USER_PREFIX, SERVICE_ACCOUNT_PREFIX};
use crate::apiserver::lookup::Lookup;
use crate::apiserver::resources::GroupResource;
use crate::apiserver::server::ApiServer;
use crate::controllers::{self, ControllerOptions, Controllers, SigningCa};
use crate::kubelet::{self, FLEET_IDENTITY, KubeletOptions, Kubelets};
use crate::store::Store;

/// How often `shutdown` looks whether the store was let go of, and after what pause.
const RELEASE_ATTEMPTS: u32 = 200;
const RELEASE_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait of `Cluster::ready`.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A running cluster. [`Cluster::shutdown`] ends it in order; dropping it leaves the rest to the runtime.
///
/// ```no_run
/// # async fn example() -> Result<(), cluster_stub::cluster::StartError> {
/// use cluster_stub::cluster::{Cluster, ClusterOptions};
/// let cluster = Cluster::start(ClusterOptions::default()).await?;
/// std::fs::write("kubeconfig", cluster.kubeconfig()).ok();
/// cluster.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Cluster {
    server: ApiServer,
    server_url: String,
    kubeconfig: String,
    lookup: Lookup,
    store: Weak<dyn Store>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    controllers: Option<Controllers>,
    kubelets: Option<Kubelets>,
    /// Names of the nodes of the start.
    node_names: Vec<String>,
}

impl Cluster {
    /// Starts the API server and, when the objects that every cluster has are there, the rest. The API server answers
    /// from the moment this returns; nodes become ready and controllers begin a little later.
    ///
    /// # Errors
    /// [`StartError`], with nothing left running.
    pub async fn start(options: ClusterOptions) -> Result<Self, StartError> {
        let api::Api { server, server_url, kubeconfig, lookup, connections, pki, store, stop, tasks } =
            api::start(&options).await?;
        let clients = {
            let server = server.clone();
            move |user: &str| server.client(user_of(user))
        };
        let controllers = options.controllers.then(|| {
            let authority = pki.cluster_authority();
            let controller_options = ControllerOptions {
                root_ca_pem: Some(authority.certificate_pem().to_owned()),
                signing_ca: Some(SigningCa {
                    certificate_pem: authority.certificate_pem().to_owned(),
                    key_pem: authority.key_pem().to_owned(),
                }),
                ..ControllerOptions::default()
            };
            controllers::start(clients.clone(), controller_options, options.story.clone())
        });
        let kubelets = options.kubelet.then(|| {
            let kubelet_options = KubeletOptions { nodes: options.nodes.clone(), ..KubeletOptions::default() };
            kubelet::start(clients.clone(), kubelet_options, options.story.clone())
        });
        if let Some(kubelets) = &kubelets {
            // The slot is empty: this is the only place that fills it.
            let _ = connections.logs.set(kubelets.log_source());
        }
        let node_names = options.nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
        let mut cluster =
            Cluster { server, server_url, kubeconfig, lookup, store, stop, tasks, controllers, kubelets, node_names };
        if options.controllers {
            cluster.hold_lease("kube-controller-manager", user_of("system:kube-controller-manager"));
        }
        Ok(cluster)
    }

    /// Where the API server listens, e.g. `https://127.0.0.1:6443`.
    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    /// A kubeconfig whose user is in `system:masters`. It holds a private key: store it for its owner only.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// Holds the Lease `name` in `kube-system` as `user`, as long as the cluster runs: what a component that elects a
    /// leader leaves there, for one that has no rival.
    pub fn hold_lease(&mut self, name: &'static str, user: UserInfo) {
        let holder = format!("{}_{}", host::name(), uuid::Uuid::new_v4());
        let lease = leader_lease::hold(self.server.client(user), name, holder, self.stop.clone());
        self.tasks.push(tokio::spawn(lease));
    }

    /// Waits until every node of the start is Ready and free of the taint of the beginning, and pods can be created in
    /// the namespace `default`. Gives up after ten seconds, and at once where nobody works towards it.
    pub async fn ready(&self) {
        let mut pause = Duration::from_millis(2);
        let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
        while self.controllers.is_some() && tokio::time::Instant::now() < deadline && !self.is_ready() {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(100));
        }
    }

    fn is_ready(&self) -> bool {
        let account = GroupResource::of("", "serviceaccounts");
        let Some(objects) = self.lookup.objects() else { return true };
        if objects.get(&account, "default", "default").is_none() {
            return false;
        }
        self.kubelets.is_none() || self.n_ready_nodes() == self.node_names.len()
    }

    /// Names of the nodes of the start.
    pub fn node_names(&self) -> &[String] {
        &self.node_names
    }

    /// How many nodes of the start are Ready and free of the taint of the beginning.
    pub fn n_ready_nodes(&self) -> usize {
        let nodes = GroupResource::of("", "nodes");
        let Some(objects) = self.lookup.objects() else { return 0 };
        let is_ready = |name: &&String| objects.get(&nodes, "", name).is_some_and(|node| takes_pods(&node));
        self.node_names.iter().filter(is_ready).count()
    }

    /// A client in this process, without a socket, that acts as `user`. What `user` may do is authorized as for anybody.
    pub fn client(&self, user: UserInfo) -> kube::Client {
        self.server.client(user)
    }

    /// The API server as a tower service, for tests that look at single requests.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Ends kubelets and controllers, then the API server with its connections, then the store. What was acknowledged
    /// is on disk if there is a data directory.
    pub async fn shutdown(mut self) {
        if let Some(kubelets) = self.kubelets.take() {
            kubelets.shutdown().await;
        }
        if let Some(controllers) = self.controllers.take() {
            controllers.shutdown().await;
        }
        self.server.drain();
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            // A task that panicked has nothing left to end.
            let _ = task.await;
        }
        let store = self.store.clone();
        drop(self);
        // Tasks that were aborted let go of the store when the runtime gets to them.
        for _ in 0..RELEASE_ATTEMPTS {
            if store.strong_count() == 0 {
                return;
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
        tracing::debug!("a client of the cluster still holds the store");
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("server_url", &self.server_url).finish_non_exhaustive()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.drain();
        self.stop.cancel();
        self.lookup.clear();
    }
}

/// Whether a node is Ready, and the node lifecycle controller has seen that.
fn takes_pods(node: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ready = list(&node["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready && !list(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == "node.kubernetes.io/not-ready")
}

/// The user of a component's name, with the groups that authentication would give it.
fn user_of(name: &str) -> UserInfo {
    if name == FLEET_IDENTITY {
        return UserInfo::admin(name);
    }
    if let Some(node) = name.strip_prefix(NODE_USER_PREFIX) {
        return UserInfo::node(node);
    }
    match name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':')) {
        Some((namespace, account)) => UserInfo::service_account(namespace, account),
        None => UserInfo::authenticated(name, [""; 0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_get_the_groups_of_their_names() {
        let cases = [
            ("system:node:n1", "system:nodes,system:authenticated"),
            (
                "system:serviceaccount:kube-system:job-controller",
                "system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated",
            ),
            ("system:kube-controller-manager", "system:authenticated"),
            (FLEET_IDENTITY, "system:masters,system:authenticated"),
        ];
        for (name, groups) in cases {
            let user = user_of(name);
            assert_eq!((user.name.as_str(), user.groups.join(",").as_str()), (name, groups));
        }
    }
}
