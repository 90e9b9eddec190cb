//! Which collections the API server serves, and requests to collections whose types are known at run time only.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, ObjectMeta};
use kube::api::{DeleteParams, GetParams, ListParams, Patch};
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;

use super::api::{ApiClient, SyncError, patch_params};
use super::key::ObjectKey;
use super::story_log;

/// One served collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Collection {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Version in the group.
    pub(crate) version: String,
    /// Plural resource name.
    pub(crate) plural: String,
    /// Kind of the objects.
    pub(crate) kind: String,
    /// Whether the objects live in namespaces.
    pub(crate) namespaced: bool,
    /// What may be done with it.
    pub(crate) verbs: BTreeSet<String>,
}

impl Collection {
    /// `group/version`, or `version` in the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Path of the collection, of one namespace if `namespace` is not empty.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let (version, plural) = (self.api_version(), &self.plural);
        if self.namespaced && !namespace.is_empty() {
            format!("/{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{root}/{version}/{plural}")
        }
    }

    /// Whether all of `verbs` are served.
    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }
}

/// What discovery found, and what it could not read.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    /// One version of every resource: the preferred one of its group, or else the first that has it.
    pub(crate) collections: Vec<Collection>,
    /// Group versions that could not be read, with the reason.
    pub(crate) failures: Vec<(String, String)>,
}

/// Asks the API server what it serves. Upstream: client-go v1.36.2 discovery `ServerPreferredResources`.
pub(crate) async fn discover(api: &ApiClient) -> Result<Discovered, SyncError> {
    let client = api.raw();
    let failed = |error: kube::Error| SyncError::Request {
        verb: "discover",
        kind: "APIGroup".to_owned(),
        key: ObjectKey::default(),
        source: Box::new(error),
    };
    let mut found = Discovered::default();
    let core = client.list_core_api_resources("v1").await.map_err(failed)?;
    found.add("", "v1", core.resources);
    for group in client.list_api_groups().await.map_err(failed)?.groups {
        let preferred = group.preferred_version.iter().map(|version| version.group_version.clone());
        let others = group.versions.iter().map(|version| version.group_version.clone());
        let mut seen = BTreeSet::new();
        for group_version in preferred.chain(others).filter(|version| seen.insert(version.clone())) {
            match client.list_api_group_resources(&group_version).await {
                Ok(list) => {
                    let version = group_version.rsplit('/').next().unwrap_or_default();
                    found.add(&group.name, version, list.resources);
                }
                Err(error) => found.failures.push((group_version, error.to_string())),
            }
        }
    }
    Ok(found)
}

impl Discovered {
    fn add(&mut self, group: &str, version: &str, resources: Vec<APIResource>) {
        for resource in resources {
            let known = self.collections.iter().any(|known| known.group == group && known.plural == resource.name);
            if known || resource.name.contains('/') {
                continue;
            }
            self.collections.push(Collection {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: resource.name,
                kind: resource.kind,
                namespaced: resource.namespaced,
                verbs: resource.verbs.into_iter().collect(),
            });
        }
    }
}

/// An object of which only the metadata is known.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MetadataOnly {
    /// The metadata.
    pub(crate) metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct MetadataList {
    #[serde(default)]
    items: Vec<MetadataOnly>,
}

impl ApiClient {
    /// Metadata of one object of `collection`; `None` if it does not exist.
    pub(crate) async fn get_metadata(
        &self,
        collection: &Collection,
        key: &ObjectKey,
    ) -> Result<Option<ObjectMeta>, SyncError> {
        let request = Request::new(collection.path(&key.namespace)).get_metadata(&key.name, &GetParams::default());
        match self.send("get", &collection.kind, key, request).await {
            Ok(text) => decode::<MetadataOnly>("get", &collection.kind, key, &text).map(|object| Some(object.metadata)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Metadata of all objects of `collection` in `namespace`.
    pub(crate) async fn list_metadata(
        &self,
        collection: &Collection,
        namespace: &str,
    ) -> Result<Vec<ObjectMeta>, SyncError> {
        let key = ObjectKey::new(namespace, "");
        let request = Request::new(collection.path(namespace)).list_metadata(&ListParams::default());
        let text = self.send("list", &collection.kind, &key, request).await?;
        let list: MetadataList = decode("list", &collection.kind, &key, &text)?;
        Ok(list.items.into_iter().map(|item| item.metadata).collect())
    }

    /// Applies a JSON merge patch to one object of `collection`.
    pub(crate) async fn merge_patch(
        &self,
        collection: &Collection,
        key: &ObjectKey,
        patch: &Value,
    ) -> Result<(), SyncError> {
        let request =
            Request::new(collection.path(&key.namespace)).patch(&key.name, &patch_params(), &Patch::Merge(patch));
        self.send("patch", &collection.kind, key, request).await?;
        story_log::changed("patched", &collection.kind, key);
        Ok(())
    }

    /// Deletes one object of `collection`.
    pub(crate) async fn delete_from(
        &self,
        collection: &Collection,
        key: &ObjectKey,
        params: &DeleteParams,
    ) -> Result<(), SyncError> {
        let request = Request::new(collection.path(&key.namespace)).delete(&key.name, params);
        self.send("delete", &collection.kind, key, request).await?;
        story_log::changed("deleted", &collection.kind, key);
        Ok(())
    }

    /// Deletes all objects of `collection` in `namespace`.
    pub(crate) async fn delete_collection(&self, collection: &Collection, namespace: &str) -> Result<(), SyncError> {
        let key = ObjectKey::new(namespace, "");
        let request = Request::new(collection.path(namespace))
            .delete_collection(&DeleteParams::background(), &ListParams::default());
        self.send("delete all", &collection.kind, &key, request).await?;
        Ok(())
    }
}

fn decode<T: serde::de::DeserializeOwned>(
    verb: &'static str,
    kind: &str,
    key: &ObjectKey,
    text: &str,
) -> Result<T, SyncError> {
    serde_json::from_str(text).map_err(|error| SyncError::Request {
        verb,
        kind: kind.to_owned(),
        key: key.clone(),
        source: Box::new(kube::Error::SerdeError(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_version_of_a_resource_is_taken_and_subresources_are_not() {
        let resource =
            |name: &str| APIResource { name: name.to_owned(), kind: "K".to_owned(), ..APIResource::default() };
        let mut found = Discovered::default();
        found.add(
            "autoscaling",
            "v2",
            vec![resource("horizontalpodautoscalers"), resource("horizontalpodautoscalers/status")],
        );
        found.add("autoscaling", "v1", vec![resource("horizontalpodautoscalers"), resource("only-here")]);
        let names: Vec<String> =
            found.collections.iter().map(|found| format!("{} {}", found.version, found.plural)).collect();
        assert_eq!(names, ["v2 horizontalpodautoscalers", "v1 only-here"]);
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let collection = |group: &str, namespaced| Collection {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: "things".to_owned(),
            kind: "Thing".to_owned(),
            namespaced,
            verbs: BTreeSet::new(),
        };
        assert_eq!(collection("", true).path("a"), "/api/v1/namespaces/a/things");
        assert_eq!(collection("g.io", true).path(""), "/apis/g.io/v1/things");
        assert_eq!(collection("g.io", false).path("a"), "/apis/g.io/v1/things");
    }
}
