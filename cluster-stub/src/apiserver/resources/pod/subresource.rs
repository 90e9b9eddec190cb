//! Parts of a pod that have their own writers: status, ephemeral containers, resources of containers.
//!
//! Upstream: v1.36.2 `pkg/registry/core/pod/strategy.go`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::super::kind::{dedup, restore_all_but, restore_metadata};
use super::super::strategy::{UpdateStrategy, WriteContext};
use super::{bump_generation, update, validate_meta_update};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;

/// `pods/status`.
pub(super) struct Status;

impl UpdateStrategy for Status {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, pod: &mut Value, old: &Value) {
        restore_all_but(pod, old, &["metadata", "status"]);
        let old_meta = old.at("metadata");
        let metadata = pod.object_mut("metadata");
        metadata.put("ownerReferences", old_meta.at("ownerReferences").clone());
        metadata.put("deletionTimestamp", old_meta.at("deletionTimestamp").clone());
        let status = pod.object_mut("status");
        let old_status = old.at("status");
        if status.text("qosClass").is_empty() {
            status.put("qosClass", old_status.at("qosClass").clone());
        }
        if status.int("observedGeneration").unwrap_or(0) == 0 {
            status.put("observedGeneration", old_status.at("observedGeneration").clone());
        }
        for condition in status.items_mut("conditions") {
            if condition.int("observedGeneration").unwrap_or(0) == 0 {
                let same_type = |other: &&Value| other.text("type") == condition.text("type");
                let before = old_status.items("conditions").iter().find(same_type);
                let generation = before.map_or(json!(null), |before| before.at("observedGeneration").clone());
                condition.put("observedGeneration", generation);
            }
        }
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_update(pod, old);
        errors.extend(update::validate_status_update(pod, old));
        dedup(errors)
    }
}

/// `pods/ephemeralcontainers`.
pub(super) struct EphemeralContainers;

impl UpdateStrategy for EphemeralContainers {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, pod: &mut Value, old: &Value) {
        let containers = pod.at("spec").at("ephemeralContainers").clone();
        restore_all_but(pod, old, &["metadata"]);
        restore_metadata(pod, old);
        pod.object_mut("spec").put("ephemeralContainers", containers);
        bump_generation(pod, old);
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> Vec<FieldError> {
        dedup(update::validate_ephemeral_update(pod, old))
    }

    fn reset_fields(&self) -> Cow<'static, [&'static str]> {
        Cow::Borrowed(&["status"])
    }
}

/// `pods/resize`.
pub(super) struct Resize;

impl UpdateStrategy for Resize {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, pod: &mut Value, old: &Value) {
        let given = pod.at("spec").clone();
        let same_shape = ["containers", "initContainers"].iter().all(|list| {
            let (new, old) = (given.items(list), old.at("spec").items(list));
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.text("name") == old.text("name"))
        });
        restore_all_but(pod, old, &["metadata"]);
        restore_metadata(pod, old);
        if same_shape {
            let spec = pod.object_mut("spec");
            spec.put("resources", given.at("resources").clone());
            for list in ["containers", "initContainers"] {
                for (container, new) in spec.items_mut(list).iter_mut().zip(given.items(list)) {
                    container.put("resources", new.at("resources").clone());
                    container.put("resizePolicy", new.at("resizePolicy").clone());
                }
            }
        } else {
            // Left as it came, so that validation can say what is wrong with it.
            pod.put("spec", given);
        }
        bump_generation(pod, old);
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> Vec<FieldError> {
        dedup(update::validate_resize(pod, old))
    }

    fn reset_fields(&self) -> Cow<'static, [&'static str]> {
        Cow::Borrowed(&["status"])
    }
}
