//! What authentication and authorization ask about stored objects, answered from the watch cache. The cache is there
//! only after them, and they must not keep it alive: hence the slot that is filled at start and emptied at the end.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use serde_json::Value;

use super::authn::ServiceAccountGetter;
use super::authz::{NodeGraph, Reference};
use super::resources::{GroupResource, Objects};

/// A slot for the stored objects; clones share it.
#[derive(Clone, Default)]
pub struct Lookup(Arc<RwLock<Option<Arc<dyn Objects>>>>);

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("filled", &self.objects().is_some()).finish()
    }
}

impl Lookup {
    /// Fills the slot.
    pub fn fill(&self, objects: Arc<dyn Objects>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(objects);
    }

    /// Empties it; from now on nothing is found.
    pub fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The stored objects, while the cluster runs.
    pub fn objects(&self) -> Option<Arc<dyn Objects>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServiceAccountGetter for Lookup {
    fn find(&self, resource: &'static str, namespace: &str, name: &str) -> Option<(String, Option<Timestamp>)> {
        let object = self.objects()?.get(&GroupResource::of("", resource), namespace, name)?;
        let metadata = &object["metadata"];
        let deleted = metadata["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
        Some((metadata["uid"].as_str()?.to_owned(), deleted))
    }
}

/// Looks at the pods of the object's namespace, or follows a volume to its claim. Upstream keeps a graph
/// (v1.36.2, plugin/pkg/auth/authorizer/node/graph.go); the answers are the same.
impl NodeGraph for Lookup {
    fn is_related(&self, node: &str, reference: Reference, namespace: &str, name: &str) -> bool {
        let Some(objects) = self.objects() else { return false };
        let named = |resource: GroupResource, namespace: &str, name: &str| objects.get(&resource, namespace, name);
        match reference {
            Reference::Pod => {
                named(GroupResource::of("", "pods"), namespace, name).is_some_and(|pod| runs_on(&pod, node))
            }
            Reference::PersistentVolume => {
                let volume = named(GroupResource::of("", "persistentvolumes"), "", name);
                let claim = volume.as_ref().map(|volume| &volume["spec"]["claimRef"]);
                let text = |member: &str| claim.and_then(|claim| claim[member].as_str()).unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name"));
                !name.is_empty() && self.is_related(node, Reference::PersistentVolumeClaim, namespace, name)
            }
            Reference::VolumeAttachment => {
                let attachment = named(GroupResource::of("storage.k8s.io", "volumeattachments"), "", name);
                attachment.is_some_and(|attachment| attachment["spec"]["nodeName"] == node)
            }
            Reference::ResourceSlice => {
                let slice = named(GroupResource::of("resource.k8s.io", "resourceslices"), "", name);
                slice.is_some_and(|slice| slice["spec"]["nodeName"] == node)
            }
            Reference::Secret
            | Reference::ConfigMap
            | Reference::PersistentVolumeClaim
            | Reference::ResourceClaim
            | Reference::ServiceAccount => {
                let pods = objects.list(&GroupResource::of("", "pods"), Some(namespace));
                pods.iter().any(|pod| runs_on(pod, node) && uses(pod, reference, name))
            }
        }
    }
}

fn runs_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

/// Whether a pod's spec refers to the object.
fn uses(pod: &Value, reference: Reference, name: &str) -> bool {
    let spec = &pod["spec"];
    match reference {
        Reference::ServiceAccount => spec["serviceAccountName"] == name,
        Reference::PersistentVolumeClaim => {
            let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
            items(&spec["volumes"]).any(|volume| {
                volume["persistentVolumeClaim"]["claimName"] == name
                    || (volume["ephemeral"].is_object()
                        && volume["name"].as_str().is_some_and(|volume| format!("{pod_name}-{volume}") == name))
            })
        }
        Reference::ResourceClaim => items(&pod["status"]["resourceClaimStatuses"])
            .chain(items(&spec["resourceClaims"]))
            .any(|claim| claim["resourceClaimName"] == name),
        Reference::Secret => {
            items(&spec["imagePullSecrets"]).any(|secret| secret["name"] == name)
                || mentions(spec, &["secretName", "secretRef", "secretKeyRef", "secret", "nodePublishSecretRef"], name)
        }
        Reference::ConfigMap => mentions(spec, &["configMap", "configMapRef", "configMapKeyRef"], name),
        Reference::Pod | Reference::PersistentVolume | Reference::VolumeAttachment | Reference::ResourceSlice => false,
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether one of `members`, anywhere below, is `name` or an object of that name.
fn mentions(value: &Value, members: &[&str], name: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(member, value)| {
            (members.contains(&member.as_str()) && (value == name || value["name"] == name))
                || mentions(value, members, name)
        }),
        Value::Array(list) => list.iter().any(|value| mentions(value, members, name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_uses_what_its_spec_names() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "robot",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{
                    "envFrom": [{"configMapRef": {"name": "env"}}],
                    "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
                }],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "mounted"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "d", "ephemeral": {}},
                ],
            },
        });
        let cases = [
            (Reference::ServiceAccount, "robot", true),
            (Reference::ServiceAccount, "default", false),
            (Reference::Secret, "pull", true),
            (Reference::Secret, "key", true),
            (Reference::Secret, "mounted", true),
            (Reference::Secret, "env", false),
            (Reference::ConfigMap, "env", true),
            (Reference::ConfigMap, "projected", true),
            (Reference::ConfigMap, "mounted", false),
            (Reference::PersistentVolumeClaim, "claim", true),
            (Reference::PersistentVolumeClaim, "p-d", true),
            (Reference::PersistentVolumeClaim, "p-a", false),
        ];
        for (reference, name, want) in cases {
            assert_eq!(uses(&pod, reference, name), want, "{reference:?} {name}");
        }
    }

    #[test]
    fn an_empty_slot_finds_nothing() {
        let lookup = Lookup::default();
        assert!(lookup.find("pods", "ns", "p").is_none());
        assert!(!lookup.is_related("n", Reference::Pod, "ns", "p"));
    }
}
