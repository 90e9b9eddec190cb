//! Revisions of a Deployment: which ReplicaSet is the new one, revision numbers and the annotations that carry them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::runtime::hash::canonical;

/// Label that tells the ReplicaSets of one Deployment apart.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// Number of the revision, on the Deployment and its ReplicaSets.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier numbers of a ReplicaSet that was rolled back to.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Replicas of the Deployment when it last scaled the ReplicaSet.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Revision that a client of an old API version asked to roll back to.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Longest history annotation. Upstream: deployment/sync.go v1.36.2 `maxRevHistoryLengthInChars`.
const MAX_HISTORY_CHARS: usize = 2000;

/// Annotations that are not copied between a Deployment and its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];

/// Older first, ties by name. Upstream: controller_utils.go v1.36.2 `ReplicaSetsByCreationTimestamp`.
pub(super) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    let created = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created(a).cmp(&created(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Lower revision first. Upstream: deployment_util.go v1.36.2 `ReplicaSetsByRevision`.
pub(super) fn by_revision(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    match (revision(&a.metadata), revision(&b.metadata)) {
        (Some(first), Some(second)) if first != second => first.cmp(&second),
        _ => by_age(a, b),
    }
}

/// Whether two templates are the same but for the hash label.
/// Upstream: deployment_util.go v1.36.2 `EqualIgnoreHash`.
pub(super) fn same_template(a: Option<&PodTemplateSpec>, b: Option<&PodTemplateSpec>) -> bool {
    let strip = |template: Option<&PodTemplateSpec>| {
        let mut template = template.cloned().unwrap_or_default();
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        template
    };
    let (a, b) = (strip(a), strip(b));
    a == b || canonical(&a) == canonical(&b)
}

/// The ReplicaSet among `sets` (oldest first) that has the Deployment's template.
/// Upstream: deployment_util.go v1.36.2 `FindNewReplicaSet`.
pub(super) fn find_new(deployment: &Deployment, sets: &[ReplicaSet]) -> Option<usize> {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    sets.iter().position(|set| same_template(set.spec.as_ref().and_then(|spec| spec.template.as_ref()), template))
}

/// The revision in `meta`: 0 if there is none, `None` if it is no number.
pub(super) fn revision(meta: &ObjectMeta) -> Option<i64> {
    match meta.annotations.as_ref().and_then(|annotations| annotations.get(REVISION)) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// The highest revision of `sets`.
pub(super) fn max_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    sets.into_iter().filter_map(|set| revision(&set.metadata)).max().unwrap_or_default().max(0)
}

/// The second highest revision of `sets`. Upstream: deployment_util.go v1.36.2 `LastRevision`.
pub(super) fn last_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let mut revisions: Vec<i64> = sets.into_iter().filter_map(|set| revision(&set.metadata)).collect();
    revisions.sort_unstable_by(|a, b| b.cmp(a));
    revisions.get(1).copied().unwrap_or_default().max(0)
}

/// Brings the annotations of the new ReplicaSet up to date: the Deployment's own, the revision and its history.
/// Upstream: deployment_util.go v1.36.2 `SetNewReplicaSetAnnotations`.
pub(super) fn annotate_new(deployment: &Deployment, set: &mut ReplicaSet, new_revision: i64) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) && annotations.get(key) != Some(value) {
            annotations.insert(key.clone(), value.clone());
            changed = true;
        }
    }
    let old_text = annotations.get(REVISION).cloned();
    let old = match old_text.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(old) => old,
            Err(_) => return false, // somebody else's annotation; leave the ReplicaSet alone
        },
    };
    if old < new_revision {
        annotations.insert(REVISION.to_owned(), new_revision.to_string());
        changed = true;
        if let Some(old_text) = old_text {
            extend_history(annotations, &old_text);
        }
    }
    changed
}

fn extend_history(annotations: &mut BTreeMap<String, String>, old: &str) {
    let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(old);
    while revisions.len() > 1
        && revisions.iter().map(|revision| revision.len() + 1).sum::<usize>() > MAX_HISTORY_CHARS + 1
    {
        revisions.remove(0);
    }
    annotations.insert(REVISION_HISTORY.to_owned(), revisions.join(","));
}

/// Sets the two replica annotations; answers whether one changed.
/// Upstream: deployment_util.go v1.36.2 `SetReplicasAnnotations`.
pub(super) fn annotate_replicas(set: &mut ReplicaSet, desired: i32, max: i32) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (key, value) in [(DESIRED_REPLICAS, desired), (MAX_REPLICAS, max)] {
        let value = value.to_string();
        if annotations.get(key) != Some(&value) {
            annotations.insert(key.to_owned(), value);
            changed = true;
        }
    }
    changed
}

/// A replica annotation of `set`, if it holds a number of replicas.
pub(super) fn replicas_annotation(set: &ReplicaSet, key: &str) -> Option<i32> {
    set.metadata.annotations.as_ref()?.get(key)?.parse().ok().filter(|replicas: &i32| *replicas >= 0)
}

/// Gives `deployment` the template and the annotations of `set`.
/// Upstream: deployment_util.go v1.36.2 `SetFromReplicaSetTemplate`, `SetDeploymentAnnotationsTo`.
pub(super) fn roll_back_to(deployment: &mut Deployment, set: &ReplicaSet) {
    if let (Some(spec), Some(template)) =
        (deployment.spec.as_mut(), set.spec.as_ref().and_then(|spec| spec.template.clone()))
    {
        spec.template = template;
        if let Some(labels) = spec.template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
    }
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| NOT_COPIED.contains(&key.as_str()));
    for (key, value) in set.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(pairs: &[(&str, &str)]) -> ObjectMeta {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }
    }

    #[test]
    fn the_new_set_gets_the_deployments_annotations_and_the_next_revision() {
        let deployment = Deployment {
            metadata: annotated(&[("kubernetes.io/change-cause", "why"), (REVISION, "9"), (ROLLBACK_TO, "1")]),
            ..Deployment::default()
        };
        let mut set = ReplicaSet { metadata: annotated(&[(REVISION, "1")]), ..ReplicaSet::default() };
        assert!(annotate_new(&deployment, &mut set, 3));
        let want = annotated(&[("kubernetes.io/change-cause", "why"), (REVISION, "3"), (REVISION_HISTORY, "1")]);
        assert_eq!(set.metadata, want);
        assert!(!annotate_new(&deployment, &mut set, 3), "nothing left to change");
        assert!(annotate_new(&deployment, &mut set, 7));
        let history = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION_HISTORY));
        assert_eq!(history.map(String::as_str), Some("1,3"));
    }

    #[test]
    fn a_long_history_forgets_its_oldest_revisions() {
        let mut annotations = BTreeMap::new();
        for revision in 0..2000 {
            extend_history(&mut annotations, &revision.to_string());
        }
        let history = &annotations[REVISION_HISTORY];
        assert!(history.len() <= MAX_HISTORY_CHARS && history.ends_with("1998,1999"), "{}", history.len());
    }

    #[test]
    fn last_revision_is_the_one_before_the_newest() {
        let set = |revision: &str| ReplicaSet { metadata: annotated(&[(REVISION, revision)]), ..ReplicaSet::default() };
        let sets = [set("2"), set("5"), set("3"), set("x")];
        assert_eq!((max_revision(&sets), last_revision(&sets)), (5, 3));
        assert_eq!((max_revision(&sets[..1]), last_revision(&sets[..1])), (2, 0));
        assert_eq!(max_revision([]), 0);
    }
}
