//! Plugins that add one small thing to new objects: tolerations, taints, classes, finalizers.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/{defaulttolerationseconds,nodetaint,storage,network,runtimeclass}`.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::resources::resource_list::quantity;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const STORAGE_CLASSES: GroupResource = GroupResource::of("storage.k8s.io", "storageclasses");
const INGRESS_CLASSES: GroupResource = GroupResource::of("networking.k8s.io", "ingressclasses");
const RUNTIME_CLASSES: GroupResource = GroupResource::of("node.k8s.io", "runtimeclasses");

type Change = fn(&mut AdmissionRequest<'_>) -> Result<(), ApiError>;

/// A plugin that is one function on the mutating side.
pub(super) struct Defaulter {
    name: &'static str,
    change: Change,
}

impl AdmissionPlugin for Defaulter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready((self.change)(request)))
    }
}

/// TaintNodesByCondition: a new node is not ready yet.
pub(super) const TAINT_NODES_BY_CONDITION: Defaulter = Defaulter {
    name: "TaintNodesByCondition",
    change: |request| {
        const KEY: &str = "node.kubernetes.io/not-ready";
        if request.is("", "nodes") && request.operation == Operation::Create {
            let spec = request.object.object_mut("spec");
            let mut taints = spec.items("taints").to_vec();
            if !taints.iter().any(|taint| taint.text("key") == KEY && taint.text("effect") == "NoSchedule") {
                taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
                spec.put("taints", Value::Array(taints));
            }
        }
        Ok(())
    },
};

/// DefaultTolerationSeconds: pods stay five minutes on a node that is not ready or not reachable.
pub(super) const DEFAULT_TOLERATION_SECONDS: Defaulter = Defaulter {
    name: "DefaultTolerationSeconds",
    change: |request| {
        if request.is("", "pods") && matches!(request.operation, Operation::Create | Operation::Update) {
            add_tolerations(request.object.object_mut("spec"));
        }
        Ok(())
    },
};

fn add_tolerations(spec: &mut Value) {
    let mut tolerations = spec.items("tolerations").to_vec();
    let before = tolerations.clone();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            matches!(toleration.text("effect"), "" | "NoExecute")
                && (toleration.text("key") == key || toleration.text("key").is_empty())
        };
        if !before.iter().any(covers) {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    if tolerations.len() > before.len() {
        spec.put("tolerations", Value::Array(tolerations));
    }
}

/// DefaultStorageClass: a claim that names no class gets the newest default one.
pub(super) const DEFAULT_STORAGE_CLASS: Defaulter = Defaulter {
    name: "DefaultStorageClass",
    change: |request| {
        if !request.is("", "persistentvolumeclaims") || request.operation != Operation::Create {
            return Ok(());
        }
        let annotated = request.object.at("metadata").at("annotations").has("volume.beta.kubernetes.io/storage-class");
        if annotated || request.object.at("spec").has("storageClassName") {
            return Ok(());
        }
        let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        if let Some(name) = newest_default(request, &STORAGE_CLASSES, &keys) {
            request.object.object_mut("spec").put("storageClassName", json!(name));
        }
        Ok(())
    },
};

/// DefaultIngressClass: an ingress that names no class gets the newest default one.
pub(super) const DEFAULT_INGRESS_CLASS: Defaulter = Defaulter {
    name: "DefaultIngressClass",
    change: |request| {
        if !request.is("networking.k8s.io", "ingresses") || request.operation != Operation::Create {
            return Ok(());
        }
        let annotated = request.object.at("metadata").at("annotations").has("kubernetes.io/ingress.class");
        if annotated || request.object.at("spec").has("ingressClassName") {
            return Ok(());
        }
        if let Some(name) = newest_default(request, &INGRESS_CLASSES, &["ingressclass.kubernetes.io/is-default-class"])
        {
            request.object.object_mut("spec").put("ingressClassName", json!(name));
        }
        Ok(())
    },
};

fn newest_default(request: &AdmissionRequest<'_>, classes: &GroupResource, annotations: &[&str]) -> Option<String> {
    let classes = request.objects.list(classes, None);
    let is_default = |class: &&std::sync::Arc<Value>| {
        annotations.iter().any(|key| class.at("metadata").at("annotations").text(key) == "true")
    };
    let age = |class: &std::sync::Arc<Value>| {
        let metadata = class.at("metadata");
        (metadata.text("creationTimestamp").to_owned(), std::cmp::Reverse(metadata.text("name").to_owned()))
    };
    let newest = classes.iter().filter(is_default).max_by_key(|class| age(class))?;
    Some(newest.at("metadata").text("name").to_owned())
}

/// StorageObjectInUseProtection: volumes and claims stay while somebody uses them.
pub(super) const STORAGE_OBJECT_IN_USE_PROTECTION: Defaulter = Defaulter {
    name: "StorageObjectInUseProtection",
    change: |request| {
        if request.operation != Operation::Create {
            return Ok(());
        }
        let finalizer = if request.is("", "persistentvolumeclaims") {
            "kubernetes.io/pvc-protection"
        } else if request.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else {
            return Ok(());
        };
        let metadata = request.object.object_mut("metadata");
        let mut finalizers = metadata.items("finalizers").to_vec();
        if !finalizers.iter().any(|name| name == finalizer) {
            finalizers.push(json!(finalizer));
            metadata.put("finalizers", Value::Array(finalizers));
        }
        Ok(())
    },
};

/// RuntimeClass: overhead, node selector and tolerations of the pod's runtime.
pub(super) const RUNTIME_CLASS: Defaulter = Defaulter {
    name: "RuntimeClass",
    change: |request| {
        if !request.is("", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        let name = request.object.at("spec").text("runtimeClassName").to_owned();
        if name.is_empty() {
            return if request.object.at("spec").has("overhead") {
                Err(request
                    .forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
            } else {
                Ok(())
            };
        }
        let Some(class) = request.objects.get(&RUNTIME_CLASSES, "", &name) else {
            return Err(request.forbidden(format!("pod rejected: RuntimeClass \"{name}\" not found")));
        };
        apply_runtime_class(request, &class)
    },
};

fn apply_runtime_class(request: &mut AdmissionRequest<'_>, class: &Value) -> Result<(), ApiError> {
    let overhead = class.at("overhead").at("podFixed");
    let given = request.object.at("spec").at("overhead");
    let names = |list: &Value| -> Vec<String> {
        list.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let equal = names(given) == names(overhead)
        && names(given).iter().all(|name| quantity(given, name) == quantity(overhead, name));
    if !given.is_null() && !equal {
        return Err(request.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"));
    }
    let scheduling = class.at("scheduling");
    let selector = scheduling.entries("nodeSelector").cloned().unwrap_or_default();
    let own = request.object.at("spec").at("nodeSelector");
    if let Some((key, _)) = selector.iter().find(|(key, value)| own.has(key) && own.at(key) != *value) {
        let why = format!(
            "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
            selector[key].as_str().unwrap_or(""),
            own.text(key)
        );
        return Err(request.forbidden(why));
    }
    let spec = request.object.object_mut("spec");
    if !overhead.is_null() {
        spec.put("overhead", overhead.clone());
    }
    for (key, value) in selector {
        spec.object_mut("nodeSelector").put(&key, value);
    }
    let mut tolerations = spec.items("tolerations").to_vec();
    for toleration in scheduling.items("tolerations") {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    if !tolerations.is_empty() {
        spec.put("tolerations", Value::Array(tolerations));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_added_unless_covered() {
        let cases = [
            (json!({}), 2),
            (json!({"tolerations": [{"operator": "Exists"}]}), 1),
            (
                json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]}),
                2,
            ),
            (json!({"tolerations": [{"key": "a", "operator": "Exists"}]}), 3),
        ];
        for (mut spec, want) in cases {
            add_tolerations(&mut spec);
            assert_eq!(spec.items("tolerations").len(), want, "{spec}");
        }
    }
}
