//! The documents before aggregated discovery: APIVersions, APIGroupList, APIGroup, APIResourceList.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::apiserver::resources::{Resource, Subresource, Verbs};

/// The document at `/api`.
pub(super) fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// A group with its versions, best first.
pub(super) fn group(name: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// The document at `/apis/<group>/<version>`. `storage_version` names the kind's group and version in storage.
pub(super) fn resource_list<'a>(
    group_version: &str,
    resources: &[&Resource],
    storage_version: impl Fn(&Resource) -> (&'a str, &'a str),
) -> Value {
    let mut entries: Vec<(String, Value)> = Vec::new();
    for resource in resources {
        let mut entry = own(resource);
        if !resource.storage.is_empty() && resource.verbs.contains(Verbs::CREATE) {
            let (group, version) = storage_version(resource);
            entry.insert("storageVersionHash".into(), storage_version_hash(group, version, &resource.kind).into());
        }
        entries.push((resource.plural.to_string(), Value::Object(entry)));
        for subresource in &resource.subresources {
            let name = format!("{}/{}", resource.plural, subresource.name);
            let mut entry = json!({
                "name": name,
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": subresource.kind,
                "verbs": subresource.verbs.names(),
            });
            let (group, version) = foreign_group_version(resource, subresource);
            for (key, text) in [("group", group), ("version", version)] {
                if !text.is_empty() {
                    entry[key] = json!(text);
                }
            }
            entries.push((resource.plural.to_string(), entry));
        }
    }
    // Subresources stay behind their resource, in their own order.
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let resources: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    })
}

/// Group and version of a subresource's kind where they are not the resource's own, else nothing.
pub(super) fn foreign_group_version<'a>(resource: &Resource, subresource: &'a Subresource) -> (&'a str, &'a str) {
    let own = subresource.group == resource.group && subresource.version == resource.version;
    if own { ("", "") } else { (&subresource.group, &subresource.version) }
}

fn own(resource: &Resource) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(resource.plural));
    entry.insert("singularName".into(), json!(resource.singular));
    entry.insert("namespaced".into(), json!(resource.namespaced));
    entry.insert("kind".into(), json!(resource.kind));
    entry.insert("verbs".into(), verbs(resource));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
    entry
}

/// Names of the verbs; for custom resources in upstream's own order.
///
/// Upstream v1.36.2: apiextensions-apiserver `pkg/apiserver/customresource_discovery_controller.go`.
pub(super) fn verbs(resource: &Resource) -> Value {
    if resource.custom.is_none() {
        return json!(resource.verbs.names());
    }
    json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
}

/// Upstream v1.36.2: apiserver/pkg/endpoints/discovery/storageversionhash.go.
fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    STANDARD.encode(&Sha256::digest(format!("{group}/{version}/{kind}"))[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_hashes_are_those_of_a_real_cluster() {
        assert_eq!(storage_version_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    }

    #[test]
    fn the_first_version_is_preferred() {
        let group = group("autoscaling", &["v2".into(), "v1".into()]);
        assert_eq!(group["preferredVersion"], json!({"groupVersion": "autoscaling/v2", "version": "v2"}));
        assert_eq!(group["versions"][1]["version"], "v1");
    }
}
