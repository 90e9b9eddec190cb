//! Where the objects come from: dumps of kubectl, manifests, directories, or one read of a live cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use rustc_hash::{FxHashMap, FxHashSet};
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::framework::Extender;
use scheduler_core::model::{self, Object};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admission::Admission;
use super::budgets::Budget;
use super::documents;
use super::object::{self, Parsed};
use super::script::Leaves;
use super::seen::{Key, List, Origin, Seen, Spot, Told};
use super::workload::{Action, Controller, Workload};
use crate::extender::{ExtenderError, Extenders, WholeObjects};
use crate::field_validation;
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
    /// Pods and nodes as they were given, if an extender is to see them.
    pub(crate) whole_objects: Option<Arc<WholeObjects>>,
    /// What is odd but was usable.
    pub(crate) warnings: Vec<String>,
    /// Objects that were read already: dumps tell some twice.
    seen: Seen,
    /// Fields of dumps that this version of Kubernetes does not know, which newer servers write.
    pub(crate) n_unknown_fields: usize,
    /// Budgets that are counted here, since no controller has.
    pub(crate) budgets: Vec<Budget>,
    /// The same before everything is read.
    uncounted: FxHashMap<(Arc<str>, Arc<str>), Value>,
    /// Objects that came again as something that belongs into another list.
    replaced: FxHashSet<Spot>,
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
    /// An empty one that keeps pods and nodes there as they are given, if anywhere.
    pub(crate) fn keeping(whole_objects: Option<Arc<WholeObjects>>) -> Self {
        Self { whole_objects, ..Self::default() }
    }

    /// Adds what stands in files and directories (recursively). Classes are read first: a pod's priority comes from its class,
    /// wherever that stands. With `partial`, what is broken is left out and told as a warning.
    ///
    /// # Errors
    /// A file cannot be read, or an object is malformed; file, line and object are named.
    pub(crate) fn add_files(&mut self, inputs: &[(PathBuf, Origin)], partial: bool) -> Result<(), WorldError> {
        let mut files = Vec::new();
        for (path, origin) in inputs {
            let found = files_of(path)?;
            let is_directory = path.is_dir();
            files.extend(found.into_iter().map(|file| (file, *origin, is_directory)));
        }
        let mut held = Vec::new();
        let mut failed = None;
        for (file, origin, in_directory) in files {
            let world = &mut *self;
            let result = documents::each(&file, &mut |document| {
                let result = document.map_err(WorldError::Manifest).and_then(|document| {
                    if document.object["kind"] == documents::CONFIGURATION_KIND {
                        world.warnings.push(format!(
                            "{}: the scheduler configuration in an export is not used; give it with --config",
                            document.place
                        ));
                        return Ok(());
                    }
                    world.check(&document, origin)?;
                    let told = world.seen.tell(&document, origin)?;
                    if told == Told::Again {
                        return Ok(());
                    }
                    world.warnings.extend(told.warning());
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

    /// Reads a live cluster once, page by page. [`World::finish`] comes next.
    ///
    /// # Errors
    /// The server refuses a LIST or does not answer.
    pub(crate) async fn from_cluster(
        client: &Client,
        whole_objects: Option<Arc<WholeObjects>>,
    ) -> Result<Self, WorldError> {
        let mut world = Self::keeping(whole_objects);
        macro_rules! read {
            ($($name:literal $kind:ty => $model:ident),* $(,)?) => {$(
                for object in list::<$kind>(client, $name).await? {
                    let problem = |error: String| WorldError::Object { place: "cluster".to_owned(), object: $name.to_owned(), problem: error };
                    let given = world.whole_objects.is_some().then(|| serde_json::to_value(&object).unwrap_or_default());
                    let object = model::$model::try_from(&object).map_err(|error| problem(error.to_string()))?.into();
                    world.keep_whole(&object, given);
                    world.add(object, None);
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
        // What manifests get of the cluster's classes.
        for class in list::<PriorityClass>(client, "priorityclasses.scheduling.k8s.io").await? {
            world.learn("PriorityClass", &class);
        }
        for class in list::<RuntimeClass>(client, "runtimeclasses.node.k8s.io").await? {
            world.learn("RuntimeClass", &class);
        }
        Ok(world)
    }

    fn learn(&mut self, kind: &str, class: &impl serde::Serialize) {
        if let Ok(mut object) = serde_json::to_value(class) {
            object["kind"] = kind.into();
            self.admission.learn(&object);
        }
    }

    /// Adds one document; kinds that no decision depends on are passed over.
    ///
    /// # Errors
    /// The object is not what its kind says.
    pub(crate) fn take(&mut self, document: Document) -> Result<(), WorldError> {
        let (key, title) = (Key::of(&document), document.title());
        let budget = (document.kind() == "PodDisruptionBudget"
            && document.object["status"]["disruptionsAllowed"].is_null())
        .then(|| document.object["spec"].clone());
        let from_cluster = document.object["metadata"]["uid"].is_string();
        let mut odd = Vec::new();
        let given = self.whole_objects.is_some().then(|| document.object.clone());
        let parsed = object::parse(document.object, &self.admission, &mut odd)
            .map_err(|problem| WorldError::Object { place: document.place.clone(), object: title.clone(), problem })?;
        self.warnings.extend(odd.into_iter().map(|odd| format!("{}: {title}: {odd}", document.place)));
        match parsed {
            Parsed::Pod(pod, duration) => {
                self.keep_whole(&Object::Pod(Arc::clone(&pod)), given);
                if let Some(duration) = duration {
                    self.durations.insert(Arc::clone(&pod.uid), duration);
                }
                if from_cluster || pod.node_name.is_some() || pod.is_terminal() {
                    self.add(pod.into(), Some(&key));
                } else {
                    self.arrive(Arriving::Pod(pod), &key);
                }
            }
            Parsed::Workload(workload) => self.arrive(Arriving::Workload(workload), &key),
            Parsed::Object(object) => {
                if let (Object::PodDisruptionBudget(object), Some(spec)) = (&object, budget) {
                    self.uncounted.insert((Arc::clone(&object.namespace), Arc::clone(&object.name)), spec);
                }
                self.keep_whole(&object, given);
                self.add(object, Some(&key));
            }
            Parsed::Other => {}
        }
        Ok(())
    }

    fn keep_whole(&self, object: &Object, given: Option<Value>) {
        if let Some(objects) = &self.whole_objects {
            objects.applied_value(object, given);
        }
    }

    /// The extenders of the configuration, for the engine.
    ///
    /// # Errors
    /// Their certificates cannot be read.
    pub(crate) fn extenders(
        &self,
        configuration: &KubeSchedulerConfiguration,
    ) -> Result<Vec<Arc<dyn Extender>>, ExtenderError> {
        let objects = self.whole_objects.clone().unwrap_or_default();
        for node in self.nodes() {
            objects.describe_if_unknown(node);
        }
        Ok(Extenders::of_simulation(configuration, &objects)?.seam())
    }

    /// Says what is wrong with the fields of a manifest; counts those of dumps.
    fn check(&mut self, document: &Document, origin: Origin) -> Result<(), WorldError> {
        let from_cluster = document.object["metadata"]["uid"].is_string();
        if origin == Origin::Dump && from_cluster && !tracing::enabled!(tracing::Level::INFO) {
            // They are counted for those who listen only: looking takes longer than reading.
            return Ok(());
        }
        let faults = field_validation::faults(&document.object);
        if faults.is_empty() {
            return Ok(());
        }
        let (place, object) = (document.place.clone(), document.title());
        if origin == Origin::Dump {
            let unknown = faults.iter().filter(|fault| fault.starts_with("unknown field"));
            if from_cluster {
                self.n_unknown_fields += unknown.count();
            } else {
                // No cluster wrote this, so it is perhaps a slip.
                self.warnings.extend(unknown.map(|fault| format!("{place}: {object}: {fault}; it is left out")));
            }
            return Ok(());
        }
        Err(WorldError::Object { place, object, problem: faults.join("; ") })
    }

    /// Adds an object; `key` is its own if it may come again.
    fn add(&mut self, object: Object, key: Option<&Key>) {
        let old = key.and_then(|key| self.seen.spot(key));
        let spot = match object {
            Object::Pod(pod) if pod.is_terminal() => {
                self.replaced.extend(old);
                None
            }
            Object::Pod(pod) if pod.node_name.is_some() => {
                Some(put(&mut self.bound, List::Bound, pod, old, &mut self.replaced))
            }
            Object::Pod(pod) => Some(put(&mut self.waiting, List::Waiting, pod, old, &mut self.replaced)),
            other => Some(put(&mut self.objects, List::Objects, other, old, &mut self.replaced)),
        };
        if let Some(key) = key {
            self.seen.set_spot(key, spot);
        }
    }

    fn arrive(&mut self, arriving: Arriving, key: &Key) {
        let old = self.seen.spot(key);
        let spot = put(&mut self.arriving, List::Arriving, arriving, old, &mut self.replaced);
        self.seen.set_spot(key, Some(spot));
    }

    /// Names of the nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<model::Node>> {
        self.objects.iter().filter_map(|object| if let Object::Node(node) = object { Some(node) } else { None })
    }

    /// How long a pod works.
    pub(crate) fn leaves(&self, pod: &model::Pod) -> Leaves {
        self.durations.get(&pod.uid).map_or(Leaves::Never, |duration| Leaves::After(*duration))
    }

    /// What can be said only when everything is read: what came again as something else, which budgets are to be counted, and which pods have a node that is not there.
    pub(crate) fn finish(&mut self) {
        let replaced = std::mem::take(&mut self.replaced);
        without(&mut self.objects, List::Objects, &replaced);
        without(&mut self.bound, List::Bound, &replaced);
        without(&mut self.waiting, List::Waiting, &replaced);
        without(&mut self.arriving, List::Arriving, &replaced);
        self.seen = Seen::default();
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

/// Puts an item where its predecessor was; one that is in another list is added to `replaced`.
fn put<T>(list: &mut Vec<T>, which: List, item: T, old: Option<Spot>, replaced: &mut FxHashSet<Spot>) -> Spot {
    match old {
        Some(old) if old.list == which => {
            list[old.at] = item;
            old
        }
        old => {
            replaced.extend(old);
            list.push(item);
            Spot { list: which, at: list.len() - 1 }
        }
    }
}

fn without<T>(list: &mut Vec<T>, which: List, replaced: &FxHashSet<Spot>) {
    if replaced.is_empty() {
        return;
    }
    let mut at = 0..;
    list.retain(|_| at.next().is_none_or(|at| !replaced.contains(&Spot { list: which, at })));
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
