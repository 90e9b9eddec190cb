//! What the server itself writes into `metadata`.

use rand::Rng as _;
use serde_json::{Map, Value};

use super::context::{RequestContext, format_time};
use crate::apiserver::status::ApiError;

/// Letters and digits of generated names: no vowels and no look-alikes. Upstream: apimachinery `util/rand`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them a generated name ends in.
pub(super) const RANDOM: usize = 5;
/// Room for the prefix of a generated name: 63 less the random part.
const PREFIX: usize = 63 - RANDOM;

/// `metadata` of an object, made if it has none.
pub(super) fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let members = object.as_object_mut().ok_or_else(|| ApiError::bad_request("the body is no JSON object"))?;
    let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    metadata.as_object_mut().ok_or_else(|| ApiError::bad_request("metadata is no JSON object"))
}

/// A text of `metadata`, empty if it has none.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or("")
}

/// A name of this prefix and five random characters. Upstream: apiserver v1.36.2 `pkg/storage/names/generate.go`.
pub(super) fn generate_name(prefix: &str) -> String {
    let end = prefix.char_indices().map(|(at, _)| at).chain([prefix.len()]).take_while(|at| *at <= PREFIX).last();
    let mut name = prefix[..end.unwrap_or(0)].to_string();
    let mut random = rand::rng();
    name.extend((0..RANDOM).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])));
    name
}

/// Takes out what a client must not set on a create, and fills in uid and creation time.
pub(super) fn fill_new(ctx: &RequestContext, object: &mut Value) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(key);
    }
    metadata.insert("creationTimestamp".to_string(), format_time(ctx.now).into());
    metadata.insert("uid".to_string(), cluster_stub_wire::uuid::random().into());
    Ok(())
}

/// Keeps what an update can never change or remove. Upstream: apiserver v1.36.2 `pkg/registry/rest/update.go` BeforeUpdate.
pub(super) fn keep_old(object: &mut Value, old: &Value) -> Result<(), ApiError> {
    let before = &old["metadata"];
    let metadata = metadata_mut(object)?;
    metadata.remove("selfLink");
    let mut put = |key: &str, value: &Value| match value {
        Value::Null => metadata.remove(key),
        value => metadata.insert(key.to_string(), value.clone()),
    };
    put("generation", &before["generation"]);
    if !before["deletionTimestamp"].is_null() {
        put("deletionTimestamp", &before["deletionTimestamp"]);
    }
    for key in ["uid", "creationTimestamp", "deletionGracePeriodSeconds"] {
        if metadata.get(key).is_none_or(|value| value.is_null() || value == "") && !before[key].is_null() {
            metadata.insert(key.to_string(), before[key].clone());
        }
    }
    Ok(())
}

/// Drops owner references that occur twice, with a warning for the client.
///
/// Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/rest.go` dedupOwnerReferencesAndAddWarning.
pub(super) fn dedup_owner_references(ctx: &RequestContext, object: &mut Value) {
    let Some(references) = object["metadata"]["ownerReferences"].as_array() else {
        return;
    };
    let mut unique: Vec<&Value> = Vec::with_capacity(references.len());
    let mut repeated: Vec<String> = Vec::new();
    for reference in references {
        if unique.contains(&reference) {
            repeated.push(reference["uid"].as_str().unwrap_or("").to_string());
        } else {
            unique.push(reference);
        }
    }
    if repeated.is_empty() {
        return;
    }
    let unique: Vec<Value> = unique.into_iter().cloned().collect();
    object["metadata"]["ownerReferences"] = unique.into();
    repeated.dedup();
    ctx.warn(format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
}

/// Whether a write that leaves these finalizers ends the object: it is being deleted, without any grace left.
pub(super) fn is_released(object: &Value, old: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
    finalizers == 0
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !old["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_generated_name_is_the_cut_prefix_and_five_characters() {
        let short = generate_name("web-");
        assert_eq!(short.len(), 9);
        assert!(short.starts_with("web-"));
        assert!(short[4..].bytes().all(|byte| ALPHABET.contains(&byte)), "{short}");
        let long = generate_name(&"a".repeat(70));
        assert_eq!(long.len(), 63);
        assert_eq!(generate_name(&format!("{}é", "a".repeat(57))).chars().count(), 62);
    }

    #[test]
    fn an_update_keeps_identity_and_deletion() {
        let old = json!({"metadata": {"uid": "u", "creationTimestamp": "t", "generation": 3,
            "deletionTimestamp": "d", "deletionGracePeriodSeconds": 0}});
        let mut object = json!({"metadata": {"name": "a", "generation": 9, "deletionTimestamp": "other"}});
        keep_old(&mut object, &old).expect("both are objects");
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t", "generation": 3,
                "deletionTimestamp": "d", "deletionGracePeriodSeconds": 0}})
        );
    }

    #[test]
    fn repeated_owners_are_dropped_with_a_warning() {
        let ctx = RequestContext::internal("create");
        let owner = json!({"uid": "u", "name": "o"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        dedup_owner_references(&ctx, &mut object);
        assert_eq!(object["metadata"]["ownerReferences"], json!([owner]));
        assert_eq!(ctx.take_warnings().len(), 1);
        dedup_owner_references(&ctx, &mut object);
        assert!(ctx.take_warnings().is_empty());
    }

    #[test]
    fn an_object_is_released_when_no_finalizer_and_no_grace_are_left() {
        let dying =
            json!({"metadata": {"deletionTimestamp": "d", "deletionGracePeriodSeconds": 0, "finalizers": ["f"]}});
        let free = json!({"metadata": {"deletionTimestamp": "d"}});
        let held = json!({"metadata": {"finalizers": ["f"]}});
        assert!(is_released(&free, &dying));
        assert!(!is_released(&held, &dying));
        assert!(is_released(&free, &free), "no grace at all is none left");
        let graceful = json!({"metadata": {"deletionTimestamp": "d", "deletionGracePeriodSeconds": 30}});
        assert!(!is_released(&free, &graceful));
        assert!(!is_released(&free, &json!({"metadata": {}})));
    }
}
