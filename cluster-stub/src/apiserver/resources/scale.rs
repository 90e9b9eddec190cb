//! The `scale` subresource of kinds with `spec.replicas` and `status.replicas`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::kind::SPEC;
use super::strategy::ScaleStrategy;
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{format_labels, format_selector};
use crate::apiserver::validation::meta::validate_nonnegative;

/// Scale over `spec.replicas`; the selector is `spec.selector`, a label selector or a plain map.
pub(super) struct ReplicaScale;

impl ScaleStrategy for ReplicaScale {
    fn scale_of(&self, object: &Value) -> Value {
        let mut scale = json!({"spec": {}, "status": {"replicas": object.at("status").int("replicas").unwrap_or(0)}});
        let replicas = object.at("spec").int("replicas").unwrap_or(0);
        if replicas != 0 {
            scale["spec"].put("replicas", json!(replicas));
        }
        let selector = object.at("spec").at("selector");
        let is_label_selector = selector.has("matchLabels") || selector.has("matchExpressions");
        let text = if is_label_selector { format_selector(selector) } else { format_labels(selector) };
        if text != "<none>" {
            scale["status"].put("selector", json!(text));
        }
        scale
    }

    fn apply_scale(&self, object: &mut Value, scale: &Value) {
        let replicas = scale.at("spec").int("replicas").unwrap_or(0);
        object.object_mut("spec").put("replicas", json!(replicas));
    }

    fn validate_scale(&self, scale: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate_nonnegative(scale.at("spec").int("replicas"), &SPEC.child("replicas"), &mut errors);
        errors
    }

    fn replicas_path(&self) -> Vec<Cow<'static, str>> {
        vec!["spec".into(), "replicas".into()]
    }
}
