//! Where the objects come from: dumps of kubectl, manifests, directories, or one read of a live cluster.

use std::fmt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use scheduler_core::model::{self, Object};
use serde::de::DeserializeOwned;

use super::expand;
use crate::live::failure;
use crate::manifest::{self, Document, ManifestError};

/// Objects of a page of a LIST; the pages keep a large cluster's answers small.
const PAGE: u32 = 500;

/// Everything that a decision depends on, and the pods apart.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Nodes, volumes, workloads and so on.
    pub(crate) objects: Vec<Object>,
    /// Pods that have a node.
    pub(crate) bound: Vec<std::sync::Arc<model::Pod>>,
    /// Pods that wait for one, in the order of the input.
    pub(crate) waiting: Vec<std::sync::Arc<model::Pod>>,
}

/// Why there is no world.
#[derive(Debug)]
pub(crate) enum WorldError {
    /// A file cannot be read or is malformed.
    Manifest(ManifestError),
    /// An object is not what its kind says.
    Object {
        /// File and line.
        place: String,
        /// Kind and name.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// A directory without a file that could be read.
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// The cluster did not answer.
    Cluster {
        /// The resource that was asked for.
        resource: &'static str,
        /// The server's message.
        problem: String,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(error) => error.fmt(f),
            Self::Object { place, object, problem } => write!(f, "{place}: {object}: {problem}"),
            Self::NoFiles { path } => write!(f, "{}: no .yaml, .yml or .json file in this directory", path.display()),
            Self::Cluster { resource, problem } => write!(f, "cannot list {resource}: {problem}"),
        }
    }
}

impl World {
    /// Reads files and directories (recursively).
    ///
    /// # Errors
    /// A file cannot be read, or an object is malformed; file, line and object are named.
    pub(crate) fn from_files(paths: &[PathBuf]) -> Result<Self, WorldError> {
        let mut world = Self::default();
        for path in paths {
            for file in files_of(path)? {
                for document in manifest::read(&file).map_err(WorldError::Manifest)? {
                    world.take(&document)?;
                }
            }
        }
        Ok(world)
    }

    /// Reads a live cluster once, page by page.
    ///
    /// # Errors
    /// The server refuses a LIST or does not answer.
    pub(crate) async fn from_cluster(client: &Client) -> Result<Self, WorldError> {
        let mut world = Self::default();
        macro_rules! read {
            ($($name:literal $kind:ty => $model:ident),* $(,)?) => {$(
                for object in list::<$kind>(client, $name).await? {
                    let problem = |error: String| WorldError::Object { place: "cluster".to_owned(), object: $name.to_owned(), problem: error };
                    world.add(model::$model::try_from(&object).map_err(|error| problem(error.to_string()))?.into());
                }
            )*};
        }
        read! {
            "nodes" Node => Node, "pods" Pod => Pod, "namespaces" Namespace => Namespace, "services" Service => Service,
            "replicationcontrollers" ReplicationController => ReplicationController, "replicasets.apps" ReplicaSet => ReplicaSet,
            "statefulsets.apps" StatefulSet => StatefulSet, "poddisruptionbudgets.policy" PodDisruptionBudget => PodDisruptionBudget,
            "persistentvolumes" PersistentVolume => PersistentVolume,
            "persistentvolumeclaims" PersistentVolumeClaim => PersistentVolumeClaim,
            "storageclasses.storage.k8s.io" StorageClass => StorageClass, "csinodes.storage.k8s.io" CSINode => CsiNode,
            "csidrivers.storage.k8s.io" CSIDriver => CsiDriver,
            "csistoragecapacities.storage.k8s.io" CSIStorageCapacity => CsiStorageCapacity,
        }
        Ok(world)
    }

    /// Adds one document; kinds that no decision depends on are passed over, workloads become their pods.
    ///
    /// # Errors
    /// The object is not what its kind says.
    pub(crate) fn take(&mut self, document: &Document) -> Result<(), WorldError> {
        let wrong = |problem: String| WorldError::Object {
            place: document.place.clone(),
            object: format!("{} {}", document.kind(), document.name()),
            problem,
        };
        for pod in expand::pods_of(document).map_err(wrong)? {
            self.add(model::Pod::try_from(&pod).map_err(|error| wrong(error.to_string()))?.into());
        }
        macro_rules! convert {
            ($kind:ty => $model:ident) => {{
                let object: $kind =
                    serde_json::from_value(document.object.clone()).map_err(|error| wrong(error.to_string()))?;
                model::$model::try_from(&object).map_err(|error| wrong(error.to_string()))?.into()
            }};
        }
        let object: Object = match document.kind() {
            "Node" => convert!(Node => Node),
            "Namespace" => convert!(Namespace => Namespace),
            "Service" if document.api_version() == "v1" => convert!(Service => Service),
            "ReplicationController" => convert!(ReplicationController => ReplicationController),
            "ReplicaSet" => convert!(ReplicaSet => ReplicaSet),
            "StatefulSet" => convert!(StatefulSet => StatefulSet),
            "PodDisruptionBudget" => convert!(PodDisruptionBudget => PodDisruptionBudget),
            "PersistentVolume" => convert!(PersistentVolume => PersistentVolume),
            "PersistentVolumeClaim" => convert!(PersistentVolumeClaim => PersistentVolumeClaim),
            "StorageClass" => convert!(StorageClass => StorageClass),
            "CSINode" => convert!(CSINode => CsiNode),
            "CSIDriver" => convert!(CSIDriver => CsiDriver),
            "CSIStorageCapacity" => convert!(CSIStorageCapacity => CsiStorageCapacity),
            _ => return Ok(()),
        };
        self.add(object);
        Ok(())
    }

    fn add(&mut self, object: Object) {
        match object {
            Object::Pod(pod) if pod.is_terminal() => {}
            Object::Pod(pod) if pod.node_name.is_some() => self.bound.push(pod),
            Object::Pod(pod) => self.waiting.push(pod),
            other => self.objects.push(other),
        }
    }
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, WorldError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let io = |source| WorldError::Manifest(ManifestError::Io { path: directory.display().to_string(), source });
        for entry in std::fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?.path();
            if entry.is_dir() {
                directories.push(entry);
            } else if entry
                .extension()
                .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
            {
                files.push(entry);
            }
        }
    }
    files.sort_unstable();
    if files.is_empty() { Err(WorldError::NoFiles { path: path.to_owned() }) } else { Ok(files) }
}

async fn list<K>(client: &Client, resource: &'static str) -> Result<Vec<K>, WorldError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api
            .list(&params)
            .await
            .map_err(|error| WorldError::Cluster { resource, problem: failure::describe(&error) })?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}
