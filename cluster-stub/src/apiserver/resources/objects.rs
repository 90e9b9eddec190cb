//! Access to stored objects for admission plugins, allocators and actions inside the API server. The registry implements it.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use serde_json::Value;

use super::resource::GroupResource;
use crate::apiserver::codec::sketch::Wanted;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

/// A change to an object that can be tried again on a newer version of it.
pub type Change = Box<dyn FnMut(&mut Value) -> Result<(), ApiError> + Send>;

/// A change to an encoded object, which can be tried again on newer bytes of it; `None` if it is not to be made in this way.
pub type EncodedChange<'a> = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'a>;

/// Stored objects as code inside the API server sees them: in the storage version, with `metadata.resourceVersion` set.
pub trait Objects: Send + Sync {
    /// The object as the watch cache has it; `namespace` is `""` for cluster-scoped kinds.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// Whether the watch cache has the object, with a label of one of these keys.
    fn has_label(&self, resource: &GroupResource, namespace: &str, name: &str, keys: &[&str]) -> bool {
        let object = self.get(resource, namespace, name);
        let labels = object.as_ref().map(|object| object.at("metadata").at("labels"));
        labels.is_some_and(|labels| keys.iter().any(|key| labels.has(key)))
    }

    /// All objects of a kind in a namespace, or everywhere, as the watch cache has them, by name.
    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// The resource whose objects are of this kind, if one is served.
    fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<(GroupResource, bool)>;

    /// The object as the store has it now.
    fn read<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// Creates an object as it is: no admission, defaults or validation; uid and creation timestamp are filled in.
    fn create<'a>(&'a self, resource: &'a GroupResource, object: Value) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// Reads, changes and writes an object until no other writer is in between; the change is written as it is. A change that leaves the
    /// object as it was is not written.
    fn update<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        change: Change,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// The same for a change that looks at no other members than the wanted ones, and changes no others: it is given an object
    /// that has only these, and its `metadata.resourceVersion`.
    fn update_members<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        _wanted: &'static Wanted,
        change: Change,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.update(resource, namespace, name, change).map_ok(drop).boxed()
    }

    /// Writes what `change` makes of the encoded object, until no other writer is in between; `false` when there is no such
    /// object, or when `change` makes nothing of it: then nothing is written.
    fn update_encoded<'a>(
        &'a self,
        _resource: &'a GroupResource,
        _namespace: &'a str,
        _name: &'a str,
        _change: EncodedChange<'a>,
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Deletes an object with the given DeleteOptions: finalizers, grace and preconditions hold.
    fn delete<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
}
