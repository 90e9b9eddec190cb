//! An object of a workload as the engine's model has it.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use scheduler_core::model::{self, Object};
use serde_json::Value;

/// Converts `object`; `None` for kinds that no decision depends on.
///
/// # Errors
/// The object is not what its kind says.
pub(super) fn convert(object: Value) -> Result<Option<Object>, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let wrong = |problem: String| format!("{kind} {name}: {problem}");
    macro_rules! kinds {
        ($($api:ident => $model:ident),* $(,)?) => {
            match kind.as_str() {
                $(stringify!($api) => {
                    let object: $api = serde_json::from_value(object).map_err(|error| wrong(error.to_string()))?;
                    model::$model::try_from(&object).map_err(|error| wrong(error.to_string()))?.into()
                })*
                _ => return Ok(None),
            }
        };
    }
    Ok(Some(kinds! {
        Node => Node, Pod => Pod, Namespace => Namespace, Service => Service,
        ReplicationController => ReplicationController, ReplicaSet => ReplicaSet, StatefulSet => StatefulSet,
        PodDisruptionBudget => PodDisruptionBudget, PersistentVolume => PersistentVolume,
        PersistentVolumeClaim => PersistentVolumeClaim, StorageClass => StorageClass, CSINode => CsiNode,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_kinds_become_objects_and_others_nothing() {
        let service =
            convert(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "n" } }));
        assert!(matches!(service, Ok(Some(Object::Service(_)))), "{service:?}");
        assert!(matches!(convert(json!({ "kind": "ConfigMap" })), Ok(None)));
    }

    #[test]
    fn a_malformed_object_is_named() {
        let error = convert(json!({ "kind": "Pod", "metadata": { "name": "p" }, "spec": 3 })).expect_err("no spec");
        assert!(error.starts_with("Pod p: "), "{error}");
    }
}
