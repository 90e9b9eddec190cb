//! The registry: every resource that is served, the verbs over them, and the caches behind reads. A request comes in
//! authenticated and authorized; what leaves is an HTTP answer. Kinds are data and strategies (`resources`), never named here.
//!
//! ```text
//! serve ─▶ find resource ─▶ options ─▶ decode ─▶ defaults ─▶ managed fields ─▶ mutating admission
//!       ─▶ strategy: prepare, validate ─▶ validating admission ─▶ allocate ─▶ store (one revision) ─▶ answer
//! ```

mod act;
mod alike;
mod body;
mod collection;
mod connect;
mod context;
mod create;
mod delete;
mod get;
mod list;
mod media;
mod meta;
mod objects;
mod options;
mod page;
mod patch;
mod reads;
mod response;
mod scale;
mod serve;
mod table_of;
#[cfg(test)]
mod tests;
mod update;
mod watch;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

pub use connect::{ConnectRequest, Connector};
pub use context::{RequestContext, format_time};
pub use media::{Accept, Encoding, View};
pub use options::{DeleteOptions, FieldValidation, ListOptions, Propagation, WriteOptions};
pub use response::Response;

use super::admission::AdmissionChain;
use super::cache::{Feed, FeedError, StorageCache, StorageSpec};
use super::codec::stored;
use super::resources::{GroupResource, Resource};
use super::schema::{Schema, TypeIdx};
use super::status::{ApiError, Qualified};
use crate::store::Store;
use cluster_stub_base::story::Story;

/// What a registry is made of.
pub struct RegistryConfig {
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// The API types.
    pub schema: Arc<Schema>,
    /// The resources to serve.
    pub resources: Vec<Arc<Resource>>,
    /// Admission.
    pub admission: AdmissionChain,
    /// Answers connections to pods, services and nodes (logs, exec, port-forward, proxy) and requests for kinds that are
    /// not stored (reviews).
    pub connector: Arc<dyn Connector>,
    /// Who follows along.
    pub story: Story,
}

/// All resources and their objects. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    schema: Arc<Schema>,
    admission: AdmissionChain,
    connector: Arc<dyn Connector>,
    story: Story,
    feed: Feed,
    alike: alike::Known,
    passed: act::Passed,
    table: RwLock<Arc<Table>>,
}

/// The served resources, by path and by name.
#[derive(Default)]
struct Table {
    entries: Vec<Arc<Entry>>,
    /// By plural, which is mostly enough.
    by_plural: FxHashMap<String, Vec<Arc<Entry>>>,
    by_name: FxHashMap<GroupResource, Arc<Entry>>,
}

/// A resource with what the registry works out for it once.
pub(crate) struct Entry {
    /// The resource.
    pub resource: Arc<Resource>,
    /// `apiVersion` of its objects.
    pub api_version: String,
    /// Its type in the schema, if it has one there.
    pub ty: Option<TypeIdx>,
    /// The cache of its storage; `None` when nothing is stored.
    pub cache: Option<Arc<StorageCache>>,
    /// Whether stored objects have another `apiVersion`.
    pub converts: bool,
}

impl Registry {
    /// Reads what the store holds and starts to follow it.
    ///
    /// # Errors
    /// [`FeedError`] when the store cannot be read.
    pub async fn start(config: RegistryConfig) -> Result<Registry, FeedError> {
        let mut specs: HashMap<String, StorageSpec> = HashMap::new();
        for resource in config.resources.iter().filter(|resource| !resource.storage.is_empty()) {
            // Of several views of one storage, the one that is stored as it is knows the stored fields.
            if !specs.contains_key(&*resource.storage) || !converts(resource) {
                specs.insert(resource.storage.to_string(), spec_of(resource));
            }
        }
        let feed = Feed::start(config.store.clone(), specs.into_values().collect()).await?;
        let mut table = Table::default();
        for resource in config.resources {
            let cache = feed.cache(&resource.storage);
            table.insert(resource, &config.schema, cache);
        }
        Ok(Registry(Arc::new(Inner {
            store: config.store,
            schema: config.schema,
            admission: config.admission,
            connector: config.connector,
            story: config.story,
            feed,
            alike: alike::Known::default(),
            passed: act::Passed::default(),
            table: RwLock::new(Arc::new(table)),
        })))
    }

    /// Serves one more resource, in place of one of the same group, version and plural.
    ///
    /// # Errors
    /// [`FeedError`] when its storage cannot be read.
    pub async fn add(&self, resource: Arc<Resource>) -> Result<(), FeedError> {
        let cache = if resource.storage.is_empty() { None } else { Some(self.0.feed.add(spec_of(&resource)).await?) };
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = table.copy_without(&resource.group, &resource.version, &resource.plural);
        next.insert(resource, &self.0.schema, cache);
        *table = Arc::new(next);
        Ok(())
    }

    /// Stops serving a resource; its objects stay in the store.
    pub fn remove(&self, group: &str, version: &str, plural: &str) {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(table.copy_without(group, version, plural));
    }

    /// The served resources, for discovery.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.table().entries.iter().map(|entry| entry.resource.clone()).collect()
    }

    /// One served resource.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.entry(group, version, plural).map(|entry| entry.resource.clone())
    }

    /// The watch cache of a stored resource, for code inside the server that follows it.
    pub fn cache(&self, resource: &GroupResource) -> Option<Arc<StorageCache>> {
        self.table().by_name.get(resource).and_then(|entry| entry.cache.clone())
    }

    /// The API types.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.0.schema
    }

    /// The store's keys are behind this; only wiring and health checks may use it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn table(&self) -> Arc<Table> {
        self.0.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn entry(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Entry>> {
        let table = self.table();
        let is_it = |entry: &&Arc<Entry>| entry.resource.group == group && entry.resource.version == version;
        // The last one added is served.
        table.by_plural.get(plural)?.iter().rfind(is_it).cloned()
    }

    fn entry_of(&self, resource: &GroupResource) -> Result<Arc<Entry>, ApiError> {
        let entry = self.table().by_name.get(resource).cloned();
        entry.ok_or_else(|| ApiError::internal(format!("resource {resource} is not served")))
    }
}

impl Table {
    fn insert(&mut self, resource: Arc<Resource>, schema: &Schema, cache: Option<Arc<StorageCache>>) {
        let entry = Arc::new(Entry {
            api_version: resource.api_version(),
            ty: schema.find(&resource.type_name),
            converts: converts(&resource),
            cache,
            resource,
        });
        self.push(entry);
    }

    fn push(&mut self, entry: Arc<Entry>) {
        self.by_plural.entry(entry.resource.plural.to_string()).or_default().push(entry.clone());
        let name = entry.resource.group_resource();
        if !entry.converts || !self.by_name.contains_key(&name) {
            self.by_name.insert(name, entry.clone());
        }
        self.entries.push(entry);
    }

    fn copy_without(&self, group: &str, version: &str, plural: &str) -> Table {
        let mut next = Table::default();
        for entry in &self.entries {
            let resource = &entry.resource;
            if resource.group == group && resource.version == version && resource.plural == plural {
                continue;
            }
            next.push(entry.clone());
        }
        next
    }
}

fn spec_of(resource: &Resource) -> StorageSpec {
    StorageSpec {
        prefix: Arc::from(&*resource.storage),
        namespaced: resource.namespaced,
        strategy: resource.strategy.clone(),
    }
}

/// Whether the strategy stores objects under another `apiVersion`.
fn converts(resource: &Resource) -> bool {
    let api_version = resource.api_version();
    let mut probe = json!({"apiVersion": api_version, "kind": resource.kind, "metadata": {}});
    resource.strategy.convert_to_storage(&mut probe);
    probe["apiVersion"].as_str() != Some(&api_version)
}

impl Entry {
    fn qualified(&self) -> Qualified<'_> {
        Qualified { group: &self.resource.group, name: &self.resource.plural }
    }

    fn qualified_kind(&self) -> Qualified<'_> {
        Qualified { group: &self.resource.group, name: &self.resource.kind }
    }

    fn cache(&self) -> Result<&Arc<StorageCache>, ApiError> {
        self.cache.as_ref().ok_or_else(ApiError::method_not_allowed)
    }

    /// The store's key of an object.
    fn key(&self, namespace: &str, name: &str) -> String {
        if self.resource.namespaced {
            format!("/registry/{}/{namespace}/{name}", self.resource.storage)
        } else {
            format!("/registry/{}/{name}", self.resource.storage)
        }
    }

    /// The object of stored bytes in the version of this resource, with its resource version.
    fn decode(&self, bytes: &[u8], revision: i64) -> Result<Value, ApiError> {
        let mut object = stored::decode(bytes, revision).map_err(ApiError::internal)?;
        if self.converts {
            self.resource.strategy.convert_from_storage(&mut object);
        }
        Ok(object)
    }

    /// The bytes to store of an object in the version of this resource.
    fn encode(&self, object: &Value) -> Vec<u8> {
        if self.converts {
            let mut object = object.clone();
            self.resource.strategy.convert_to_storage(&mut object);
            return stored::encode(&object);
        }
        stored::encode(object)
    }

    /// The same for an object that may be changed on the way, as long as it is the same afterwards.
    fn encode_own(&self, object: &mut Value) -> Vec<u8> {
        let strategy = &self.resource.strategy;
        if !self.converts || !strategy.converts_back() {
            return self.encode(object);
        }
        strategy.convert_to_storage(object);
        let bytes = stored::encode(object);
        strategy.convert_from_storage(object);
        bytes
    }

    /// What clients get of cached bytes: the bytes themselves, unless they are of another version.
    fn served(&self, object: &super::cache::CachedObject) -> bytes::Bytes {
        if !self.converts {
            return object.bytes.clone();
        }
        let mut value = (*object.value()).clone();
        self.resource.strategy.convert_from_storage(&mut value);
        stored::encode_served(&value).into()
    }

    /// The decoded object of cached bytes in the version of this resource.
    fn value(&self, object: &super::cache::CachedObject) -> Value {
        let mut value = stored::parse(&object.bytes).unwrap_or(Value::Null);
        if self.converts {
            self.resource.strategy.convert_from_storage(&mut value);
        }
        value
    }
}

/// A failure of the caches or the store as the client is told.
fn feed_failure(error: &FeedError) -> ApiError {
    match error {
        FeedError::Late { wanted, current } => ApiError::too_large_resource_version(*wanted, *current),
        other => ApiError::unavailable(other.to_string()),
    }
}

/// A failure of the store as the client is told.
fn store_failure(error: &crate::store::StoreError) -> ApiError {
    ApiError::internal(error)
}
