//! Topology spread constraints as plugin arguments write them (`PodTopologySpreadArgs.defaultConstraints`). Counting is the plugin's business.

use serde_json::Value;

use super::decode::{Decoded, Fields, int32, string};
use super::error::{ConfigError, FieldPath};
use super::names::qualified_name_fault;

/// `core/v1` TopologySpreadConstraint without the selector, which is derived from each pod's owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologySpreadConstraint {
    /// Largest allowed difference of pods between two domains, 1 or more.
    pub max_skew: i32,
    /// Node label whose values are the domains.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Fewer domains than this count as an empty one more; absent is 1.
    pub min_domains: Option<i32>,
    /// `Honor` (absent) or `Ignore`.
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore` (absent).
    pub node_taints_policy: Option<String>,
    /// Labels of the incoming pod that narrow the selector.
    pub match_label_keys: Vec<String>,
    /// Whether the forbidden `labelSelector` is there.
    pub has_label_selector: bool,
}

pub(super) fn decode_constraint(value: &Value, path: FieldPath) -> Decoded<TopologySpreadConstraint> {
    let mut fields = Fields::new(value, path)?;
    let constraint = TopologySpreadConstraint {
        max_skew: fields.get("maxSkew", int32)?.unwrap_or(0),
        topology_key: fields.get("topologyKey", string)?.unwrap_or_default(),
        when_unsatisfiable: fields.get("whenUnsatisfiable", string)?.unwrap_or_default(),
        min_domains: fields.get("minDomains", int32)?,
        node_affinity_policy: fields.get("nodeAffinityPolicy", string)?,
        node_taints_policy: fields.get("nodeTaintsPolicy", string)?,
        match_label_keys: fields.list("matchLabelKeys", string)?.unwrap_or_default(),
        has_label_selector: fields.raw("labelSelector").is_some(),
    };
    fields.finish()?;
    Ok(constraint)
}

/// Upstream v1.36.2: validation_pluginargs.go ValidatePodTopologySpreadArgs.
pub(super) fn validate_constraints(
    constraints: &[TopologySpreadConstraint],
    path: &FieldPath,
    errors: &mut Vec<ConfigError>,
) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        if constraint.max_skew <= 0 {
            errors.push(ConfigError::Invalid {
                path: path.child("maxSkew"),
                value: constraint.max_skew.to_string(),
                detail: "not in valid range (0, inf)".to_owned(),
            });
        }
        let key = &constraint.topology_key;
        if key.is_empty() {
            errors
                .push(ConfigError::Required { path: path.child("topologyKey"), detail: "can not be empty".to_owned() });
        } else if let Some(fault) = qualified_name_fault(key) {
            errors.push(ConfigError::Invalid {
                path: path.child("topologyKey"),
                value: format!("{key:?}"),
                detail: fault.to_owned(),
            });
        }
        match constraint.when_unsatisfiable.as_str() {
            "DoNotSchedule" | "ScheduleAnyway" => {}
            "" => errors.push(ConfigError::Required {
                path: path.child("whenUnsatisfiable"),
                detail: "can not be empty".to_owned(),
            }),
            other => errors.push(ConfigError::NotSupported {
                path: path.child("whenUnsatisfiable"),
                value: other.to_owned(),
                supported: vec!["DoNotSchedule", "ScheduleAnyway"],
            }),
        }
        if constraint.has_label_selector {
            let detail = "a default constraint has no selector, it is deduced for each pod".to_owned();
            errors.push(ConfigError::Forbidden { path: path.child("labelSelector"), detail });
        }
        let same = |other: &&TopologySpreadConstraint| {
            other.topology_key == *key && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if constraints[..index].iter().find(same).is_some() {
            errors
                .push(ConfigError::Duplicate { path, value: format!("{{{key}, {}}}", constraint.when_unsatisfiable) });
        }
    }
}
