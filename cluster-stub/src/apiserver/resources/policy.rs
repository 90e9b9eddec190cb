//! PodDisruptionBudgets.
//!
//! Upstream: v1.36.2 `pkg/apis/policy/validation/validation.go`, `pkg/registry/policy/poddisruptionbudget/strategy.go`.

use serde_json::{Value, json};

use super::apps::{validate_at_most_100_percent, validate_int_or_percent};
use super::columns::{self, Column, int_or_text};
use super::kind::{Kind, SPEC, STATUS};
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_label_selector;
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::{FieldError, go_struct};

/// PodDisruptionBudget.
pub(super) fn resources() -> Vec<Resource> {
    let budget = Kind::new("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
        .short_names(&["pdb"])
        .generation()
        .status()
        .conditional_update_only()
        .validate(validate)
        .validate_status(|object, _old, out| {
            for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                validate_nonnegative(object.at("status").int(key), &STATUS.child(key), out);
            }
        })
        .columns(
            const {
                &[
                    columns::NAME,
                    Column::text("Min Available"),
                    Column::text("Max Unavailable"),
                    Column::integer("Allowed Disruptions"),
                    columns::AGE,
                ]
            },
            |object, now| {
                let spec = object.at("spec");
                let shown = |key: &str| if spec.has(key) { int_or_text(spec.at(key)) } else { "N/A".to_owned() };
                vec![
                    columns::name(object),
                    json!(shown("minAvailable")),
                    json!(shown("maxUnavailable")),
                    json!(object.at("status").int("disruptionsAllowed").unwrap_or(0)),
                    columns::age(object, now),
                ]
            },
        )
        .build();
    vec![budget]
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let members = [
            ("MinAvailable", spec.at("minAvailable").to_string()),
            ("Selector", spec.at("selector").to_string()),
            ("MaxUnavailable", spec.at("maxUnavailable").to_string()),
            ("UnhealthyPodEvictionPolicy", spec.at("unhealthyPodEvictionPolicy").to_string()),
        ];
        let why = "minAvailable and maxUnavailable cannot be both set";
        out.push(FieldError::invalid(&SPEC, spec.clone(), why).showing(go_struct(&members)));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if spec.has(key) {
            validate_int_or_percent(spec.at(key), &SPEC.child(key), out);
            validate_at_most_100_percent(spec.at(key), &SPEC.child(key), out);
        }
    }
    validate_label_selector(spec.at("selector"), &SPEC.child("selector"), out);
    let policy = spec.text("unhealthyPodEvictionPolicy");
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if spec.has("unhealthyPodEvictionPolicy") && !policies.contains(&policy) {
        out.push(FieldError::not_supported(&SPEC.child("unhealthyPodEvictionPolicy"), policy, &policies));
    }
}
