//! Revisions of a pod template as ControllerRevisions, for StatefulSets and DaemonSets. Knows neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::api::{ApiClient, Object, SyncError};
use super::controller_ref::new_controller_ref;
use super::hash::{canonical, revision_hash};
use super::key::ObjectKey;

/// Label with the hash of a revision's data.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Longest prefix of a revision's name. Upstream: controller_history.go v1.36.2 `ControllerRevisionName`.
const MAX_PREFIX: usize = 223;

/// The data of a revision: a patch that gives an owner this template.
/// Upstream: stateful_set_utils.go v1.36.2 `getPatch`, daemon/update.go `getPatch`.
pub(crate) fn patch_of(template: &PodTemplateSpec) -> Value {
    let mut template = canonical(template);
    if !template.is_object() {
        template = json!({});
    }
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision's data holds.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// What the history of an owner needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The newest revision has the template.
    None(Arc<ControllerRevision>),
    /// An older one has it: it becomes the newest, with this number.
    Renumber(Arc<ControllerRevision>, i64),
    /// None has it: make one with this number.
    Create(i64),
}

/// Decides what to do so that the newest of `revisions` holds `patch`.
/// Upstream: stateful_set_control.go v1.36.2 `getStatefulSetRevisions`.
pub(crate) fn decide(revisions: &[Arc<ControllerRevision>], patch: &Value) -> Change {
    let mut sorted: Vec<&Arc<ControllerRevision>> = revisions.iter().collect();
    sorted.sort_by_key(|revision| {
        (revision.revision, revision.metadata.creation_timestamp.clone(), revision.metadata.name.clone())
    });
    let next = sorted.last().map_or(1, |last| last.revision + 1);
    let patch = canonical(patch);
    let same =
        |revision: &&&Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|data| canonical(&data.0) == patch);
    match sorted.iter().rev().find(same) {
        None => Change::Create(next),
        Some(found) if found.revision == next - 1 => Change::None(Arc::clone(found)),
        Some(found) => Change::Renumber(Arc::clone(found), next),
    }
}

/// A new revision of `owner`.
pub(crate) fn new_revision<O: Object>(
    owner: &O,
    labels: Option<&BTreeMap<String, String>>,
    patch: Value,
    revision: i64,
    collisions: Option<i32>,
) -> ControllerRevision {
    let hash = revision_hash(canonical(&patch).to_string().as_bytes(), collisions);
    let name = owner.meta().name.clone().unwrap_or_default();
    let mut end = name.len().min(MAX_PREFIX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut labels = labels.cloned().unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", &name[..end])),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![new_controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(patch)),
        revision,
    }
}

/// Carries out [`decide`]; answers the newest revision and the number of name collisions so far.
pub(crate) async fn sync<O: Object>(
    api: &ApiClient,
    owner: &O,
    revisions: &[Arc<ControllerRevision>],
    template: &PodTemplateSpec,
    collisions: i32,
) -> Result<(Arc<ControllerRevision>, i32), SyncError> {
    let patch = patch_of(template);
    match decide(revisions, &patch) {
        Change::None(revision) => Ok((revision, collisions)),
        Change::Renumber(revision, number) => {
            let mut changed = revision.as_ref().clone();
            changed.revision = number;
            Ok((Arc::new(api.update(&changed).await?), collisions))
        }
        Change::Create(number) => {
            let labels = template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
            let mut collisions = collisions;
            loop {
                let new = new_revision(owner, labels, patch.clone(), number, Some(collisions));
                match api.create(&new).await {
                    Ok(created) => return Ok((Arc::new(created), collisions)),
                    Err(error) if error.is_already_exists() => {
                        let existing: Option<ControllerRevision> = api.get(&ObjectKey::of(&new)).await?;
                        match existing {
                            Some(existing) if existing.data == new.data => return Ok((Arc::new(existing), collisions)),
                            Some(_) => collisions += 1,
                            None => return Err(error),
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Deletes the oldest of `revisions` that are not in `live`, beyond `limit`.
/// Upstream: stateful_set_control.go v1.36.2 `truncateHistory`.
pub(crate) async fn truncate(
    api: &ApiClient,
    revisions: &[Arc<ControllerRevision>],
    live: &[&str],
    limit: usize,
) -> Result<(), SyncError> {
    let is_live = |revision: &&Arc<ControllerRevision>| {
        revision.metadata.name.as_deref().is_some_and(|name| live.contains(&name))
    };
    let mut old: Vec<&Arc<ControllerRevision>> = revisions.iter().filter(|revision| !is_live(revision)).collect();
    old.sort_by_key(|revision| revision.revision);
    let surplus = old.len().saturating_sub(limit);
    for revision in old.into_iter().take(surplus) {
        match api.delete::<ControllerRevision>(&ObjectKey::of(revision.as_ref()), &DeleteParams::default()).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec};

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        let container = Container { name: "c".to_owned(), image: Some(image.to_owned()), ..Container::default() };
        PodTemplateSpec { metadata: None, spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }) }
    }

    #[test]
    fn a_template_is_found_renumbered_or_made() {
        let revision = |image: &str, number: i64| {
            Arc::new(ControllerRevision {
                data: Some(RawExtension(patch_of(&template(image)))),
                revision: number,
                ..ControllerRevision::default()
            })
        };
        let history = [revision("a", 1), revision("b", 2)];
        assert_eq!(decide(&history, &patch_of(&template("b"))), Change::None(Arc::clone(&history[1])));
        assert_eq!(decide(&history, &patch_of(&template("a"))), Change::Renumber(Arc::clone(&history[0]), 3));
        assert_eq!(decide(&history, &patch_of(&template("c"))), Change::Create(3));
        assert_eq!(decide(&[], &patch_of(&template("a"))), Change::Create(1));
        assert_eq!(template_of(&history[0]), Some(template("a")));
    }
}
