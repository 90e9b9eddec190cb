//! The client that controllers write through: typed requests with one timeout, one field manager and one error type.
//! Reads of what is watched belong to the informers, not here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::key::ObjectKey;
use super::story_log;

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Field manager of everything that controllers write, as the user agent of kube-controller-manager makes it.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// A Kubernetes object type with a fixed kind.
pub(crate) trait Object:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

/// Why a reconcile did not finish. It is retried with back-off, whatever the reason.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    /// The API server refused, or the request did not come through.
    #[error("cannot {verb} {kind} {key}")]
    Request {
        /// What was asked for.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        key: ObjectKey,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer came in time.
    #[error("cannot {verb} {kind} {key}: no answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// What was asked for.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        key: ObjectKey,
    },
    /// The cluster is in a state in which the work cannot go on yet.
    #[error("{0}")]
    Unready(String),
}

impl SyncError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "NotFound")
    }

    /// Whether the object was changed meanwhile, or a precondition failed.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "Conflict")
    }

    /// Whether the object exists already.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Whether the object was refused as invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "Invalid")
    }

    /// Whether a create was refused because its namespace is going away.
    /// Upstream: apimachinery v1.36.2 `HasStatusCause(err, NamespaceTerminatingCause)`.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        self.status()
            .and_then(|status| status.details.as_ref())
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
    }

    /// The server's own words, as they stand in event messages and conditions.
    pub(crate) fn message(&self) -> String {
        match (self.status(), self) {
            (Some(status), _) => status.message.clone(),
            (None, Self::Request { source, .. }) => source.to_string(),
            (None, other) => other.to_string(),
        }
    }
}

/// The client of one controller; cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: kube::Client,
    name: Arc<str>,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// A client that acts as whoever `client` acts as; `name` is for messages.
    pub(crate) fn new(client: kube::Client, name: impl Into<Arc<str>>) -> Self {
        Self { client, name: name.into() }
    }

    /// The client underneath, for requests without a type.
    pub(crate) fn raw(&self) -> &kube::Client {
        &self.client
    }

    /// Reads an object past the informers. `None` if it does not exist.
    pub(crate) async fn get<K: Object>(&self, key: &ObjectKey) -> Result<Option<K>, SyncError> {
        let request = resource::<K>(&key.namespace).get(&key.name, &GetParams::default());
        match self.typed("get", key, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates `object`; its namespace says where.
    pub(crate) async fn create<K: Object>(&self, object: &K) -> Result<K, SyncError> {
        let mut key = ObjectKey::of(object);
        if key.name.is_empty() {
            key.name = object.meta().generate_name.clone().unwrap_or_default();
        }
        let body = encode("create", &key, object)?;
        let created: K = self.typed("create", &key, resource::<K>(&key.namespace).create(&post(), body)).await?;
        story_log::wrote("created", &created);
        Ok(created)
    }

    /// Replaces `object`, guarded by its resourceVersion.
    pub(crate) async fn update<K: Object>(&self, object: &K) -> Result<K, SyncError> {
        let key = ObjectKey::of(object);
        let body = encode("update", &key, object)?;
        let updated: K =
            self.typed("update", &key, resource::<K>(&key.namespace).replace(&key.name, &post(), body)).await?;
        story_log::wrote("updated", &updated);
        Ok(updated)
    }

    /// Replaces the status of `object`, guarded by its resourceVersion.
    pub(crate) async fn update_status<K: Object>(&self, object: &K) -> Result<K, SyncError> {
        self.update_subresource("status", object).await
    }

    /// Replaces a subresource whose body is the object itself, such as `status`, `approval` or `finalize`.
    pub(crate) async fn update_subresource<K: Object>(
        &self,
        subresource: &'static str,
        object: &K,
    ) -> Result<K, SyncError> {
        let key = ObjectKey::of(object);
        let body = encode("update", &key, object)?;
        let request = resource::<K>(&key.namespace).replace_subresource(subresource, &key.name, &post(), body);
        let updated: K = self.typed("update", &key, request).await?;
        story_log::wrote(if subresource == "status" { "updated status of" } else { "updated" }, &updated);
        Ok(updated)
    }

    /// Applies a strategic merge patch to the object at `key`.
    pub(crate) async fn patch<K: Object>(&self, key: &ObjectKey, patch: &Value) -> Result<K, SyncError> {
        let request = resource::<K>(&key.namespace).patch(&key.name, &patch_params(), &Patch::Strategic(patch));
        let patched: K = self.typed("patch", key, request).await?;
        story_log::wrote("patched", &patched);
        Ok(patched)
    }

    /// Applies a strategic merge patch to the status of the object at `key`.
    pub(crate) async fn patch_status<K: Object>(&self, key: &ObjectKey, patch: &Value) -> Result<K, SyncError> {
        let request = resource::<K>(&key.namespace).patch_subresource(
            "status",
            &key.name,
            &patch_params(),
            &Patch::Strategic(patch),
        );
        let patched: K = self.typed("patch", key, request).await?;
        story_log::wrote("patched status of", &patched);
        Ok(patched)
    }

    /// Deletes the object at `key`; one that does not exist is an error ([`SyncError::is_not_found`]).
    pub(crate) async fn delete<K: Object>(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), SyncError> {
        let request = resource::<K>(&key.namespace).delete(&key.name, params);
        self.send("delete", &K::kind(&()), key, request).await?;
        story_log::changed("deleted", &K::kind(&()), key);
        Ok(())
    }

    async fn typed<K: Object>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, SyncError> {
        let text = self.send(verb, &K::kind(&()), key, request).await?;
        decode(verb, &K::kind(&()), key, &text)
    }

    /// Sends `request` and answers with the body of the reply. `verb`, `kind` and `key` name the work in errors.
    pub(crate) async fn send(
        &self,
        verb: &'static str,
        kind: &str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, SyncError> {
        let failed = |error: kube::Error| SyncError::Request {
            verb,
            kind: kind.to_owned(),
            key: key.clone(),
            source: Box::new(error),
        };
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        match tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(SyncError::Timeout { verb, kind: kind.to_owned(), key: key.clone() }),
        }
    }
}

fn resource<K: Object>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty())))
}

fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn encode<K: Object>(verb: &'static str, key: &ObjectKey, object: &K) -> Result<Vec<u8>, SyncError> {
    serde_json::to_vec(object).map_err(|error| SyncError::Request {
        verb,
        kind: K::kind(&()).into_owned(),
        key: key.clone(),
        source: Box::new(kube::Error::SerdeError(error)),
    })
}

fn decode<T: DeserializeOwned>(verb: &'static str, kind: &str, key: &ObjectKey, text: &str) -> Result<T, SyncError> {
    serde_json::from_str(text).map_err(|error| SyncError::Request {
        verb,
        kind: kind.to_owned(),
        key: key.clone(),
        source: Box::new(kube::Error::SerdeError(error)),
    })
}
