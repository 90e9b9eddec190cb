//! The ConfigMaps and Secrets that a pod cannot do without: where its spec names them, and what a kubelet says when one is not
//! there. Reads the spec only; who asks the API is the fleet.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, Volume};

/// A kind of object that holds values by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

/// Where a value goes: the words for a missing key differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Environment,
    Volume,
}

/// An object that has to be there, and the keys in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    keys: Vec<String>,
    place: Use,
}

/// The object that every namespace gets soon after its beginning; no pod of a cluster without controllers would run if it were
/// waited for.
const ROOT_CA: &str = "kube-root-ca.crt";

impl Reference {
    /// What a kubelet says of the object, which has `keys` or is not there; `None` if nothing is missing.
    ///
    /// Upstream: v1.36.2 pkg/kubelet kubelet_pods.go `makeEnvironmentVariables`, pkg/volume configmap.go and secret.go
    /// `MakePayload`; `NewNotFound` of the managers in pkg/kubelet/{configmap,secret}.
    pub(crate) fn fault(&self, namespace: &str, keys: Option<&BTreeSet<String>>) -> Option<String> {
        let Some(keys) = keys else {
            let resource = match self.kind {
                Kind::ConfigMap => "configmap",
                Kind::Secret => "secret",
            };
            return Some(format!("{resource} {:?} not found", self.name));
        };
        let missing = self.keys.iter().find(|key| !keys.contains(*key))?;
        let name = &self.name;
        Some(match (self.place, self.kind) {
            (Use::Environment, Kind::ConfigMap) => {
                format!("couldn't find key {missing} in ConfigMap {namespace}/{name}")
            }
            (Use::Environment, Kind::Secret) => format!("couldn't find key {missing} in Secret {namespace}/{name}"),
            (Use::Volume, Kind::ConfigMap) => format!("configmap references non-existent config key: {missing}"),
            (Use::Volume, Kind::Secret) => format!("references non-existent secret key: {missing}"),
        })
    }
}

/// What the environment of a container needs, in the order in which it is put together.
pub(crate) fn of_container(container: &Container) -> Vec<Reference> {
    let mut references = Vec::new();
    let mut add = |kind, name: &str, key: Option<&String>, optional: Option<bool>| {
        if optional != Some(true) {
            let keys = key.into_iter().cloned().collect();
            references.push(Reference { kind, name: name.to_owned(), keys, place: Use::Environment });
        }
    };
    for source in container.env_from.iter().flatten() {
        if let Some(source) = &source.config_map_ref {
            add(Kind::ConfigMap, &source.name, None, source.optional);
        }
        if let Some(source) = &source.secret_ref {
            add(Kind::Secret, &source.name, None, source.optional);
        }
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(selector) = &source.config_map_key_ref {
            add(Kind::ConfigMap, &selector.name, Some(&selector.key), selector.optional);
        }
        if let Some(selector) = &source.secret_key_ref {
            add(Kind::Secret, &selector.name, Some(&selector.key), selector.optional);
        }
    }
    references
}

/// What the volumes that containers mount need, by volume.
pub(crate) fn of_volumes(spec: &PodSpec) -> Vec<(String, Vec<Reference>)> {
    let volumes = spec.volumes.iter().flatten();
    let needs = volumes.map(|volume| (volume.name.clone(), of_volume(volume)));
    needs.filter(|(_, references)| !references.is_empty()).collect()
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    let mut references = Vec::new();
    let mut add = |kind, name: &str, items: Option<&Vec<KeyToPath>>, optional: Option<bool>| {
        if optional != Some(true) && !name.is_empty() && name != ROOT_CA {
            let keys = items.into_iter().flatten().map(|item| item.key.clone()).collect();
            references.push(Reference { kind, name: name.to_owned(), keys, place: Use::Volume });
        }
    };
    if let Some(source) = &volume.config_map {
        add(Kind::ConfigMap, &source.name, source.items.as_ref(), source.optional);
    }
    if let Some(source) = &volume.secret {
        add(Kind::Secret, source.secret_name.as_deref().unwrap_or_default(), source.items.as_ref(), source.optional);
    }
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        if let Some(source) = &source.config_map {
            add(Kind::ConfigMap, &source.name, source.items.as_ref(), source.optional);
        }
        if let Some(source) = &source.secret {
            add(Kind::Secret, &source.name, source.items.as_ref(), source.optional);
        }
    }
    references
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn faults(references: &[Reference], there: &[(&str, &[&str])]) -> Vec<String> {
        let keys = |name: &str| -> Option<BTreeSet<String>> {
            let (_, keys) = there.iter().find(|(known, _)| *known == name)?;
            Some(keys.iter().map(|key| (*key).to_owned()).collect())
        };
        references.iter().filter_map(|reference| reference.fault("ns", keys(&reference.name).as_ref())).collect()
    }

    #[test]
    fn environment_of_a_container() {
        let container =
            |value: Value| -> Vec<Reference> { of_container(&serde_json::from_value(value).expect("a container")) };
        let key = |kind: &str, optional: Value| {
            container(
                json!({"name": "c", "env": [{"name": "A", "valueFrom": {kind: {"name": "o", "key": "k", "optional": optional}}}]}),
            )
        };
        let config = key("configMapKeyRef", Value::Null);
        assert_eq!(faults(&config, &[]), ["configmap \"o\" not found"]);
        assert_eq!(faults(&config, &[("o", &["x"])]), ["couldn't find key k in ConfigMap ns/o"]);
        assert_eq!(faults(&config, &[("o", &["k"])]), [""; 0]);
        let secret = key("secretKeyRef", Value::Null);
        assert_eq!(faults(&secret, &[]), ["secret \"o\" not found"]);
        assert_eq!(faults(&secret, &[("o", &[])]), ["couldn't find key k in Secret ns/o"]);
        assert_eq!(key("secretKeyRef", json!(true)), []);
        let all = container(
            json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c", "optional": true}}]}),
        );
        assert_eq!(faults(&all, &[]), ["secret \"s\" not found"]);
        assert_eq!(container(json!({"name": "c", "env": [{"name": "A", "value": "b"}]})), []);
    }

    #[test]
    fn volumes_of_a_pod() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [], "volumes": [
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
            {"name": "maybe", "configMap": {"name": "d", "optional": true}},
            {"name": "secret", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
            {"name": "empty", "emptyDir": {}},
            {"name": "token", "projected": {"sources": [{"configMap": {"name": ROOT_CA}}, {"serviceAccountToken": {"path": "t"}}]}},
            {"name": "both", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}},
        ]}))
        .expect("a spec");
        let volumes = of_volumes(&spec);
        assert_eq!(volumes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["config", "secret", "both"]);
        assert_eq!(faults(&volumes[0].1, &[]), ["configmap \"c\" not found"]);
        assert_eq!(faults(&volumes[0].1, &[("c", &[])]), ["configmap references non-existent config key: k"]);
        assert_eq!(faults(&volumes[1].1, &[("s", &[])]), ["references non-existent secret key: k"]);
        assert_eq!(faults(&volumes[2].1, &[("c", &[])]), ["secret \"s\" not found"]);
    }
}
