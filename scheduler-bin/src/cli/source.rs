//! The flags that say which cluster a question is about: a live one, or files.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use scheduler_core::model::Object;

use super::{Failure, run};
use crate::counted::counted;
use crate::extender::{Wanted, WholeObjects};
use crate::live::connect::connect;
use crate::simulate::{Origin, World, node_shape};

/// A live cluster, which is only read, or dumps, manifests and shapes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Source {
    /// Files or directories of objects, for example from `kubectl get nodes,pods -A -o yaml`; no cluster is asked.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Cluster")]
    from: Vec<PathBuf>,

    /// Nodes: a shape such as 5000x32cpu,128Gi, or a file of Node objects; may be repeated. No cluster is asked, unless with
    /// --cluster, to whose nodes they are added.
    #[arg(long, value_name = "SHAPE|FILE", help_heading = "Cluster")]
    nodes: Vec<String>,

    /// Read a live cluster; so it is too if neither --from nor --nodes is there.
    #[arg(long, conflicts_with = "from", help_heading = "Cluster")]
    cluster: bool,

    /// Kubeconfig of the cluster to read. Default: the variable KUBECONFIG, the pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", conflicts_with = "from", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
}

impl Source {
    /// Reads everything once, and `manifests` behind it. What is odd is told as warnings. Pods and nodes are kept in
    /// `whole_objects`, too, as they were given.
    ///
    /// # Errors
    /// A file is missing or malformed, or the cluster does not answer.
    pub(crate) async fn read(
        &self,
        manifests: &[PathBuf],
        whole_objects: Option<Arc<WholeObjects>>,
    ) -> Result<World, Failure> {
        let asks_cluster = self.cluster || self.kubeconfig.is_some() || (self.from.is_empty() && self.nodes.is_empty());
        let mut world = if asks_cluster {
            live(self.kubeconfig.as_deref(), whole_objects).await?
        } else {
            World::keeping(whole_objects)
        };
        let mut inputs: Vec<_> = self.from.iter().map(|path| (path.clone(), Origin::Dump)).collect();
        add_nodes(&mut world, &self.nodes, &mut inputs)?;
        inputs.extend(manifests.iter().map(|path| (path.clone(), Origin::Manifest)));
        world.add_files(&inputs, false).map_err(Failure::bad_input)?;
        world.finish();
        tell(&world);
        Ok(world)
    }
}

/// Reads a live cluster once, page by page.
///
/// # Errors
/// The kubeconfig is wrong, or the cluster does not answer.
pub(super) async fn live(
    kubeconfig: Option<&Path>,
    whole_objects: Option<Arc<WholeObjects>>,
) -> Result<World, Failure> {
    let connection = connect(kubeconfig)
        .await
        .map_err(|error| if error.is_bad_input() { Failure::bad_input(error) } else { Failure::failed(error) })?;
    World::from_cluster(&connection.client, whole_objects).await.map_err(Failure::failed)
}

/// A place for whole pods and nodes if one of these configurations has extenders; then it is said that they are called.
///
/// # Errors
/// A configuration cannot be read or is invalid.
pub(super) fn whole_objects(configurations: &[PathBuf]) -> Result<Option<Arc<WholeObjects>>, Failure> {
    let mut urls: Vec<String> = Vec::new();
    for path in configurations {
        let configuration = run::configuration(Some(path), None)?;
        urls.extend(configuration.extenders.into_iter().map(|extender| extender.url_prefix));
    }
    if urls.is_empty() {
        return Ok(None);
    }
    urls.dedup();
    // Standard error may be closed; that is no reason not to answer.
    let _ = writeln!(
        io::stderr(),
        "calling the extenders of the configuration, {}: they see the objects that were given, and none is asked to bind",
        urls.join(", ")
    );
    Ok(Some(Arc::new(WholeObjects::new(Wanted::ALL))))
}

/// Adds the nodes of shapes to the world, and the files among the words to `inputs`.
///
/// # Errors
/// A word is neither a file nor a shape.
pub(super) fn add_nodes(
    world: &mut World,
    words: &[String],
    inputs: &mut Vec<(PathBuf, Origin)>,
) -> Result<(), Failure> {
    for word in words {
        let path = Path::new(word);
        if path.exists() {
            inputs.push((path.to_owned(), Origin::Manifest));
        } else {
            let shaped = node_shape::nodes(word, world.nodes().count()).map_err(Failure::bad_input)?;
            world.objects.extend(shaped.into_iter().map(Object::from));
        }
    }
    Ok(())
}

/// Says what was odd about the input.
pub(super) fn tell(world: &World) {
    for warning in &world.warnings {
        tracing::warn!("{warning}");
    }
    if world.n_unknown_fields > 0 {
        let fields = counted(world.n_unknown_fields, "field");
        tracing::info!("{fields} of the dumps, unknown to this version of Kubernetes, left out");
    }
}
