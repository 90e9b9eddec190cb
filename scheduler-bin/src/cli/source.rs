//! The flags that say which cluster a question is about: a live one, or files.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use crate::live::connect::connect;
use crate::simulate::World;

/// A live cluster, which is only read, or dumps and manifests.
#[derive(Args, Clone, Debug)]
pub(crate) struct Source {
    /// Files or directories of objects, for example from `kubectl get nodes,pods -A -o yaml`; no cluster is asked.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Cluster")]
    from: Vec<PathBuf>,

    /// Kubeconfig of the cluster to read. Default: the variable KUBECONFIG, the pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", conflicts_with = "from", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
}

impl Source {
    /// Reads everything once.
    ///
    /// # Errors
    /// A file is missing or malformed, or the cluster does not answer.
    pub(crate) async fn read(&self) -> Result<World, Failure> {
        if !self.from.is_empty() {
            return World::from_files(&self.from, false).map_err(Failure::bad_input);
        }
        let connection = connect(self.kubeconfig.as_deref())
            .await
            .map_err(|error| if error.is_bad_input() { Failure::bad_input(error) } else { Failure::failed(error) })?;
        World::from_cluster(&connection.client).await.map_err(Failure::failed)
    }
}
