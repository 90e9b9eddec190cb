//! Owner references of controlled objects: who controls what, and claiming (adopt, release) by selector.
//! Decides only; the caller sends the patches.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::api::{ApiClient, Object, SyncError};
use super::key::ObjectKey;
use super::selector::Selector;

/// The reference of the managing controller among the owners in `meta`.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` controls the object with `meta`.
pub(crate) fn is_controlled_by<K: Object>(meta: &ObjectMeta, owner: &K) -> bool {
    controller_of(meta).is_some_and(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

/// The owner reference that makes `owner` the controller of something.
/// Upstream: apimachinery v1.36.2 meta/v1/controller_ref.go `NewControllerRef`.
pub(crate) fn new_controller_ref<K: Object>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What to do with one object that a controller sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is ours and stays ours.
    Keep,
    /// It matches and has no controller: take it.
    Adopt,
    /// It is ours but no longer matches: let it go.
    Release,
    /// It is none of our business.
    Ignore,
}

/// Decides about an object with `meta`. `matches` says whether the selector selects it (and any further filter passes).
/// Upstream: controller_ref_manager.go v1.36.2 `ClaimObject`.
pub(crate) fn claim(meta: &ObjectMeta, owner: &ObjectMeta, matches: bool) -> Claim {
    match controller_of(meta) {
        Some(reference) if Some(&reference.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        Some(_) if owner.deletion_timestamp.is_some() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if owner.deletion_timestamp.is_some() || !matches => Claim::Ignore,
        None if meta.deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// The patch that adopts an object with `uid`; the server refuses it if another object has the name by now.
pub(crate) fn adopt_patch(owner: &OwnerReference, uid: Option<&str>) -> Value {
    json!({"metadata": {"ownerReferences": [owner], "uid": uid}})
}

/// The patch that takes `owner_uid` out of the owners of the object with `uid`.
pub(crate) fn release_patch(owner_uid: &str, uid: Option<&str>) -> Value {
    json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner_uid}], "uid": uid}})
}

/// Claims `candidates` for `owner`: adopts and releases over the API and returns the objects that are now controlled.
/// Before the first adoption it makes sure, past the cache, that the owner still exists and is not being deleted.
pub(crate) async fn claim_all<O: Object, K: Object>(
    api: &ApiClient,
    owner: &O,
    selector: &Selector,
    candidates: Vec<Arc<K>>,
    filter: impl Fn(&K) -> bool + Send + Sync,
) -> Result<Vec<Arc<K>>, SyncError> {
    let mut claimed = Vec::new();
    let mut failure = None;
    let mut may_adopt = None;
    for object in candidates {
        let meta = object.meta();
        let matches = selector.matches(meta.labels.as_ref()) && filter(&object);
        let key = ObjectKey::of(object.as_ref());
        match claim(meta, owner.meta(), matches) {
            Claim::Keep => claimed.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let uid = owner.meta().uid.as_deref().unwrap_or_default();
                match api.patch::<K>(&key, &release_patch(uid, meta.uid.as_deref())).await {
                    // Gone, replaced by another object, or the reference is not there any more: released all the same.
                    Ok(_) => {}
                    Err(error) if error.is_not_found() || error.is_invalid() || error.is_conflict() => {}
                    Err(error) => failure = Some(error),
                }
            }
            Claim::Adopt => {
                let allowed = match may_adopt {
                    Some(allowed) => allowed,
                    None => {
                        let allowed = still_owner(api, owner).await?;
                        may_adopt = Some(allowed);
                        allowed
                    }
                };
                if !allowed {
                    continue;
                }
                match api.patch::<K>(&key, &adopt_patch(&new_controller_ref(owner), meta.uid.as_deref())).await {
                    Ok(adopted) => claimed.push(Arc::new(adopted)),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => failure = Some(error),
                }
            }
        }
    }
    failure.map_or(Ok(claimed), Err)
}

/// Upstream: controller_ref_manager.go v1.36.2 `RecheckDeletionTimestamp`.
async fn still_owner<O: Object>(api: &ApiClient, owner: &O) -> Result<bool, SyncError> {
    let fresh: Option<O> = api.get(&ObjectKey::of(owner)).await?;
    Ok(fresh.is_some_and(|fresh| fresh.meta().uid == owner.meta().uid && fresh.meta().deletion_timestamp.is_none()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn claims_follow_controller_selector_and_deletion() {
        let meta = |uid: &str, controller: Option<&str>, deleted: bool| ObjectMeta {
            uid: Some(uid.to_owned()),
            deletion_timestamp: deleted.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
            owner_references: controller.map(|uid| {
                vec![OwnerReference { uid: uid.to_owned(), controller: Some(true), ..OwnerReference::default() }]
            }),
            ..ObjectMeta::default()
        };
        let cases = [
            ("ours and matching", meta("p", Some("o"), false), false, true, Claim::Keep),
            ("ours, matching, owner going", meta("p", Some("o"), false), true, true, Claim::Keep),
            ("ours, no longer matching", meta("p", Some("o"), false), false, false, Claim::Release),
            ("ours, not matching, owner going", meta("p", Some("o"), false), true, false, Claim::Ignore),
            ("another's", meta("p", Some("x"), false), false, true, Claim::Ignore),
            ("orphan that matches", meta("p", None, false), false, true, Claim::Adopt),
            ("orphan that does not match", meta("p", None, false), false, false, Claim::Ignore),
            ("orphan, owner going", meta("p", None, false), true, true, Claim::Ignore),
            ("orphan that is going", meta("p", None, true), false, true, Claim::Ignore),
        ];
        for (name, object, owner_deleted, matches, want) in cases {
            assert_eq!(claim(&object, &meta("o", None, owner_deleted), matches), want, "{name}");
        }
    }
}
