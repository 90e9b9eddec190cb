//! Who a StatefulSet's pod is: its ordinal, its names, its claims. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::runtime::controller_ref::new_controller_ref;
use crate::runtime::pod_control::pod_from_template;

/// Label with the name of a pod's revision.
pub(super) const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal in a pod's name, if the rest of it is the set's. Upstream: stateful_set_utils.go v1.36.2 `isMemberOf`.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    (Some(parent) == set.metadata.name.as_deref())
        .then(|| ordinal.parse().ok())
        .flatten()
        .filter(|ordinal| *ordinal >= 0)
}

/// The first ordinal of `set`.
pub(super) fn start(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or_default()
}

/// The name of the revision that `pod` was made from.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map(String::as_str).unwrap_or_default()
}

/// The pod of `set` with `ordinal`, made from `template` of `revision`.
/// Upstream: stateful_set_utils.go v1.36.2 `newStatefulSetPod`.
pub(super) fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pod_from_template(template, set);
    let name = format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default());
    pod.metadata.name = Some(name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone()).filter(|service| !service.is_empty());
    identify(&mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
    claim_volumes(set, &mut pod, ordinal);
    pod
}

/// Gives `pod` the labels of its identity; answers whether that changed anything.
pub(super) fn identify(pod: &mut Pod, ordinal: i32) -> bool {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let labels = pod.metadata.labels.get_or_insert_default();
    let mut changed = labels.insert(POD_NAME.to_owned(), name.clone()).as_ref() != Some(&name);
    let ordinal = ordinal.to_string();
    changed |= labels.insert(POD_INDEX.to_owned(), ordinal.clone()).as_ref() != Some(&ordinal);
    changed
}

/// Replaces the volumes that the set's claim templates stand for. Upstream: stateful_set_utils.go v1.36.2 `updateStorage`.
fn claim_volumes(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let claims = claims(set, ordinal);
    let volumes = &mut pod.spec.get_or_insert_default().volumes;
    let mut all: Vec<Volume> = claims
        .iter()
        .map(|(template, claim)| Volume {
            name: template.clone(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.metadata.name.clone().unwrap_or_default(),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    all.extend(volumes.take().unwrap_or_default().into_iter().filter(|volume| !claims.contains_key(&volume.name)));
    *volumes = Some(all).filter(|all| !all.is_empty());
}

/// The claims of the pod with `ordinal`, by the name of their template.
/// Upstream: stateful_set_utils.go v1.36.2 `getPersistentVolumeClaims`.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> BTreeMap<String, PersistentVolumeClaim> {
    let spec = set.spec.as_ref();
    let templates = spec.and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let selector = spec.and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    templates
        .iter()
        .map(|template| {
            let mut claim = template.clone();
            let name = template.metadata.name.clone().unwrap_or_default();
            claim.metadata.name = Some(format!("{name}-{set_name}-{ordinal}"));
            claim.metadata.namespace.clone_from(&set.metadata.namespace);
            claim.metadata.labels.get_or_insert_default().extend(selector.clone());
            claim.status = None;
            (name, claim)
        })
        .collect()
}

/// The owner that a claim should have by the set's retention policy: the pod, the set, or nobody.
/// Upstream: stateful_set_utils.go v1.36.2 `updateClaimOwnerRefForSetAndPod`.
pub(super) fn claim_owner(set: &StatefulSet, pod: &Pod, condemned: bool) -> Option<OwnerReference> {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    if when_scaled && condemned {
        return Some(OwnerReference { controller: None, block_owner_deletion: None, ..new_controller_ref(pod) });
    }
    when_deleted.then(|| OwnerReference {
        controller: Some(true),
        block_owner_deletion: None,
        ..new_controller_ref(set)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec};
    use k8s_openapi::api::core::v1::PodSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn set() -> StatefulSet {
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta { name: Some("data".to_owned()), ..ObjectMeta::default() },
            ..PersistentVolumeClaim::default()
        };
        StatefulSet {
            metadata: ObjectMeta {
                name: Some("db".to_owned()),
                namespace: Some("d".to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(StatefulSetSpec {
                service_name: Some("svc".to_owned()),
                volume_claim_templates: Some(vec![claim]),
                ..StatefulSetSpec::default()
            }),
            ..StatefulSet::default()
        }
    }

    #[test]
    fn a_pod_carries_its_ordinal_in_name_labels_and_claims() {
        let template = PodTemplateSpec {
            metadata: None,
            spec: Some(PodSpec {
                volumes: Some(
                    ["data", "other"].map(|name| Volume { name: name.to_owned(), ..Volume::default() }).into(),
                ),
                ..PodSpec::default()
            }),
        };
        let pod = new_pod(&set(), &template, "db-abc", 3);
        assert_eq!(
            (pod.metadata.name.as_deref(), ordinal(&set(), &pod), revision(&pod)),
            (Some("db-3"), Some(3), "db-abc")
        );
        let spec = pod.spec.unwrap_or_default();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-3"), Some("svc")));
        let claim = |volume: &Volume| volume.persistent_volume_claim.clone().map(|claim| claim.claim_name);
        let volumes: Vec<_> =
            spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), claim(volume))).collect();
        assert_eq!(volumes, [("data", Some("data-db-3".to_owned())), ("other", None)]);
    }

    #[test]
    fn a_claim_belongs_to_whom_the_policy_says() {
        let policy = |scaled: &str, deleted: &str| {
            let mut set = set();
            set.spec.get_or_insert_default().persistent_volume_claim_retention_policy =
                Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_scaled: Some(scaled.to_owned()),
                    when_deleted: Some(deleted.to_owned()),
                });
            set
        };
        let owner = |set: &StatefulSet, condemned| claim_owner(set, &Pod::default(), condemned).map(|owner| owner.kind);
        assert_eq!(owner(&set(), true), None);
        assert_eq!(owner(&policy("Delete", "Retain"), true).as_deref(), Some("Pod"));
        assert_eq!(owner(&policy("Delete", "Retain"), false), None);
        assert_eq!(owner(&policy("Delete", "Delete"), false).as_deref(), Some("StatefulSet"));
        assert_eq!(owner(&policy("Retain", "Delete"), true).as_deref(), Some("StatefulSet"));
    }
}
