//! Where the objects come from: dumps of kubectl, manifests, directories, or one read of a live cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use rustc_hash::{FxHashMap, FxHashSet};
use scheduler_core::model::{self, Object};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admission::Admission;
use super::budgets::Budget;
use super::documents;
use super::object::{self, Parsed};
use super::script::{Leaves, Name};
use super::workload::{Action, Controller, Workload};
use crate::live::failure;
use crate::manifest::{Document, ManifestError};

/// Objects of a page of a LIST; the pages keep a large cluster's answers small.
const PAGE: u32 = 500;

/// Everything that a decision depends on, and the pods apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// Nodes, volumes, workloads and so on.
    pub(crate) objects: Vec<Object>,
    /// Pods that have a node.
    pub(crate) bound: Vec<Arc<model::Pod>>,
    /// Pods of a cluster that wait for one, in the order of the input.
    pub(crate) waiting: Vec<Arc<model::Pod>>,
    /// Pods and workloads of manifests: they come one after the other, in the order of the input.
    pub(crate) arriving: Vec<Arriving>,
    /// How long some of the pods work, by uid.
    pub(crate) durations: FxHashMap<Arc<str>, Duration>,
    /// The cluster's classes.
    pub(crate) admission: Admission,
    /// What is odd but was usable.
    pub(crate) warnings: Vec<String>,
    /// Objects that were read already: dumps tell some twice.
    seen: FxHashSet<Name>,
    /// Budgets that are counted here, since no controller has.
    pub(crate) budgets: Vec<Budget>,
    /// The same before everything is read.
    uncounted: FxHashMap<(Arc<str>, Arc<str>), Value>,
}

/// What a manifest brings.
#[derive(Clone, Debug)]
pub(crate) enum Arriving {
    /// A pod.
    Pod(Arc<model::Pod>),
    /// A workload that makes its own pods.
    Workload(Box<Workload>),
}

impl Arriving {
    /// The scheduler that its pods ask for.
    pub(crate) fn scheduler_name(&self) -> &Arc<str> {
        match self {
            Self::Pod(pod) => &pod.scheduler_name,
            Self::Workload(workload) => &workload.template.pod.scheduler_name,
        }
    }
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
    /// Reads files and directories (recursively). With `partial`, what is broken is left out and told as a warning.
    ///
    /// # Errors
    /// A file cannot be read, or an object is malformed; file, line and object are named.
    pub(crate) fn from_files(paths: &[PathBuf], partial: bool) -> Result<Self, WorldError> {
        let mut world = Self::default();
        world.add_files(paths, partial)?;
        world.finish();
        Ok(world)
    }

    /// Adds what stands in files. Classes are read first: a pod's priority comes from its class, wherever that stands.
    ///
    /// # Errors
    /// As [`World::from_files`].
    pub(crate) fn add_files(&mut self, paths: &[PathBuf], partial: bool) -> Result<(), WorldError> {
        let mut files = Vec::new();
        for path in paths {
            let found = files_of(path)?;
            let is_directory = path.is_dir();
            files.extend(found.into_iter().map(|file| (file, is_directory)));
        }
        let mut held = Vec::new();
        let mut failed = None;
        for (file, in_directory) in files {
            let world = &mut *self;
            let result = documents::each(&file, &mut |document| {
                let result = document.map_err(WorldError::Manifest).and_then(|document| {
                    if world.admission.learn(&document.object) {
                        return Ok(());
                    }
                    if has_classes(&document.object) {
                        // Whatever names a class waits until all classes are known.
                        held.push(document);
                        return Ok(());
                    }
                    world.take(document)
                });
                match result {
                    Ok(()) => Ok(()),
                    // A file without objects in a directory of many says nothing.
                    Err(WorldError::Manifest(ManifestError::Empty { .. })) if in_directory => Ok(()),
                    Err(error) if partial => {
                        world.warnings.push(format!("left out: {error}"));
                        Ok(())
                    }
                    Err(error) => {
                        failed = Some(error);
                        Err(ManifestError::Empty { path: String::new() })
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            result.map_err(WorldError::Manifest)?;
        }
        for document in held {
            match self.take(document) {
                Err(error) if partial => self.warnings.push(format!("left out: {error}")),
                result => result?,
            }
        }
        Ok(())
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
        world.finish();
        Ok(world)
    }

    /// Adds one document; kinds that no decision depends on are passed over.
    ///
    /// # Errors
    /// The object is not what its kind says.
    pub(crate) fn take(&mut self, document: Document) -> Result<(), WorldError> {
        let (kind, name) = (document.kind().to_owned(), document.name().to_owned());
        let namespace = document.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let key = Name { kind, namespace, name };
        if self.seen.contains(&key) && !key.name.is_empty() {
            return Ok(());
        }
        let budget = (key.kind == "PodDisruptionBudget" && document.object["status"]["disruptionsAllowed"].is_null())
            .then(|| document.object["spec"].clone());
        let from_cluster = document.object["metadata"]["uid"].is_string();
        let mut odd = Vec::new();
        let parsed = object::parse(document.object, &self.admission, &mut odd).map_err(|problem| {
            WorldError::Object { place: document.place.clone(), object: key.to_string(), problem }
        })?;
        self.warnings.extend(odd.into_iter().map(|odd| format!("{}: {key}: {odd}", document.place)));
        match parsed {
            Parsed::Pod(pod, duration) => {
                if let Some(duration) = duration {
                    self.durations.insert(Arc::clone(&pod.uid), duration);
                }
                if from_cluster || pod.node_name.is_some() || pod.is_terminal() {
                    self.add(pod.into());
                } else {
                    self.arriving.push(Arriving::Pod(pod));
                }
            }
            Parsed::Workload(workload) => self.arriving.push(Arriving::Workload(workload)),
            Parsed::Object(object) => {
                if let (Object::PodDisruptionBudget(object), Some(spec)) = (&object, budget) {
                    self.uncounted.insert((Arc::clone(&object.namespace), Arc::clone(&object.name)), spec);
                }
                self.add(object);
            }
            Parsed::Other => return Ok(()),
        }
        self.seen.insert(key);
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

    /// Names of the nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<model::Node>> {
        self.objects.iter().filter_map(|object| if let Object::Node(node) = object { Some(node) } else { None })
    }

    /// How long a pod works.
    pub(crate) fn leaves(&self, pod: &model::Pod) -> Leaves {
        self.durations.get(&pod.uid).map_or(Leaves::Never, |duration| Leaves::After(*duration))
    }

    /// What can be said only when everything is read: which budgets are to be counted, and which pods have a node that is not there.
    pub(crate) fn finish(&mut self) {
        let nodes: FxHashSet<&str> = self.nodes().map(|node| &*node.name).collect();
        let lost = |pod: &&Arc<model::Pod>| pod.node_name.as_deref().is_some_and(|node| !nodes.contains(node));
        let warnings: Vec<String> = self
            .bound
            .iter()
            .filter(lost)
            .map(|pod| {
                let node = pod.node_name.as_deref().unwrap_or_default();
                format!(
                    "Pod {}/{} is on node {node}, which is not in the input: it counts nowhere",
                    pod.namespace, pod.name
                )
            })
            .collect();
        if !nodes.is_empty() {
            self.warnings.extend(warnings);
        }
        for object in &self.objects {
            if let Object::PodDisruptionBudget(budget) = object
                && let Some(spec) = self.uncounted.remove(&(Arc::clone(&budget.namespace), Arc::clone(&budget.name)))
            {
                self.budgets.push(Budget::new(Arc::clone(budget), spec));
            }
        }
    }

    /// The budgets that are counted here, as they are with the pods that have a node.
    pub(crate) fn counted_budgets(&self) -> Vec<Object> {
        let mut budgets = self.budgets.clone();
        let mut objects = Vec::new();
        for budget in &mut budgets {
            objects.extend(self.bound.iter().filter_map(|pod| budget.count(pod, true)).last());
        }
        objects
    }

    /// Turns what manifests bring into pods; all of them wait.
    pub(crate) fn expand(&mut self) {
        let nodes: Vec<_> = self.nodes().cloned().collect();
        for arriving in std::mem::take(&mut self.arriving) {
            let workload = match arriving {
                Arriving::Pod(pod) => {
                    self.waiting.push(pod);
                    continue;
                }
                Arriving::Workload(workload) => *workload,
            };
            self.objects.extend(workload.owner.clone());
            let workload = workload.first_run();
            let mut controller = Controller::new(workload);
            loop {
                let actions = controller.plan(model::Timestamp::ZERO, &nodes);
                if actions.is_empty() {
                    break;
                }
                for action in actions {
                    if let Action::Create(pod, _) = action {
                        controller.bound(&pod.uid);
                        self.waiting.push(pod);
                    }
                }
            }
        }
    }
}

/// Whether the pod or template names a class that may stand further down, or may get the default one.
fn has_classes(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    let spec = match kind {
        "Pod" => &object["spec"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        _ if super::workload::is_workload(kind) => &object["spec"]["template"]["spec"],
        _ => return false,
    };
    spec["priority"].is_null() || spec["priorityClassName"].is_string() || spec["runtimeClassName"].is_string()
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
