//! The aggregated discovery document: `apidiscovery.k8s.io/v2` APIGroupDiscoveryList.

use serde_json::{Value, json};

use super::legacy::foreign_group_version;
use crate::apiserver::resources::Resource;

/// A list of groups; each is its name, its versions (best first) and their resources.
pub(super) fn group_list(groups: &[(String, Vec<(String, Vec<&Resource>)>)]) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, versions)| {
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, resources)| {
                    let resources: Vec<Value> = resources.iter().map(|resource| entry(resource)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

/// The response kind names group and version only where they are not the resource's own.
fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": super::legacy::verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|subresource| {
            let (group, version) = foreign_group_version(resource, subresource);
            json!({
                "subresource": subresource.name,
                "responseKind": {"group": group, "version": version, "kind": subresource.kind},
                "verbs": subresource.verbs.names(),
            })
        });
        entry["subresources"] = subresources.collect();
    }
    entry
}
