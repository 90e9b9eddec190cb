//! Node affinity as plugin arguments write it (`NodeAffinityArgs.addedAffinity`): data, decoding, validation.
//! Matching nodes is the plugin's business.

use serde_json::Value;

use super::decode::{Decoded, Fields, int32, string};
use super::error::{ConfigError, FieldPath};
use super::names::{label_value_fault, qualified_name_fault};

/// `core/v1` NodeAffinity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`; one of them must match.
    pub required: Option<Vec<NodeSelectorTerm>>,
    /// `preferredDuringSchedulingIgnoredDuringExecution`.
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// All requirements of a term must match; a term without any matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelectorTerm {
    /// On labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// On fields; `metadata.name` is the only one.
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// `key operator values`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSelectorRequirement {
    /// Label key or field name.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; fields know the first two.
    pub operator: String,
    /// As many as the operator takes.
    pub values: Vec<String>,
}

/// A term that adds its weight to the score of matching nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredSchedulingTerm {
    /// Weight, 0 adds nothing.
    pub weight: i32,
    /// The term.
    pub preference: NodeSelectorTerm,
}

pub(super) fn decode_node_affinity(value: &Value, path: FieldPath) -> Decoded<NodeAffinity> {
    let mut fields = Fields::new(value, path)?;
    let required = fields.get("requiredDuringSchedulingIgnoredDuringExecution", |value, path| {
        let mut fields = Fields::new(value, path)?;
        let terms = fields.list("nodeSelectorTerms", decode_term)?.unwrap_or_default();
        fields.finish()?;
        Ok(terms)
    })?;
    let preferred = fields.list("preferredDuringSchedulingIgnoredDuringExecution", |value, path| {
        let mut fields = Fields::new(value, path)?;
        let weight = fields.get("weight", int32)?.unwrap_or(0);
        let preference = fields.get("preference", decode_term)?.unwrap_or_default();
        fields.finish()?;
        Ok(PreferredSchedulingTerm { weight, preference })
    })?;
    fields.finish()?;
    Ok(NodeAffinity { required, preferred: preferred.unwrap_or_default() })
}

fn decode_term(value: &Value, path: FieldPath) -> Decoded<NodeSelectorTerm> {
    let mut fields = Fields::new(value, path)?;
    let term = NodeSelectorTerm {
        match_expressions: fields.list("matchExpressions", decode_requirement)?.unwrap_or_default(),
        match_fields: fields.list("matchFields", decode_requirement)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(term)
}

fn decode_requirement(value: &Value, path: FieldPath) -> Decoded<NodeSelectorRequirement> {
    let mut fields = Fields::new(value, path)?;
    let requirement = NodeSelectorRequirement {
        key: fields.get("key", string)?.unwrap_or_default(),
        operator: fields.get("operator", string)?.unwrap_or_default(),
        values: fields.list("values", string)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(requirement)
}

/// Upstream v1.36.2: component-helpers nodeaffinity.go, which parses the terms with these rules.
pub(super) fn validate_node_affinity(affinity: &NodeAffinity, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
    for (index, term) in affinity.required.iter().flatten().enumerate() {
        validate_term(term, &required.index(index), errors);
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.preferred.iter().enumerate().filter(|(_, term)| term.weight != 0) {
        validate_term(&term.preference, &preferred.index(index), errors);
    }
}

fn validate_term(term: &NodeSelectorTerm, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    for (index, requirement) in term.match_expressions.iter().enumerate() {
        validate_expression(requirement, &path.child("matchExpressions").index(index), errors);
    }
    for (index, requirement) in term.match_fields.iter().enumerate() {
        let path = path.child("matchFields").index(index);
        match requirement.operator.as_str() {
            "In" | "NotIn" if requirement.values.len() == 1 => {}
            "In" | "NotIn" => errors.push(ConfigError::Invalid {
                path: path.child("values"),
                value: requirement.values.len().to_string(),
                detail: "a field takes exactly one value".to_owned(),
            }),
            other => errors.push(ConfigError::NotSupported {
                path: path.child("operator"),
                value: other.to_owned(),
                supported: vec!["In", "NotIn"],
            }),
        }
    }
}

fn validate_expression(requirement: &NodeSelectorRequirement, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let mut invalid = |field: &str, value: String, detail: &str| {
        errors.push(ConfigError::Invalid { path: path.child(field), value, detail: detail.to_owned() });
    };
    if let Some(fault) = qualified_name_fault(&requirement.key) {
        invalid("key", format!("{:?}", requirement.key), fault);
    }
    let values = &requirement.values;
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            invalid("values", "[]".to_owned(), "In and NotIn take at least one value")
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            invalid("values", format!("{values:?}"), "Exists and DoesNotExist take no value");
        }
        "Gt" | "Lt" if values.len() != 1 || values[0].parse::<i64>().is_err() => {
            invalid("values", format!("{values:?}"), "Gt and Lt take exactly one integer");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(ConfigError::NotSupported {
            path: path.child("operator"),
            value: other.to_owned(),
            supported: vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        }),
    }
    for (index, value) in values.iter().enumerate() {
        if let Some(fault) = label_value_fault(value) {
            let path = path.child("values").index(index);
            errors.push(ConfigError::Invalid { path, value: format!("{value:?}"), detail: fault.to_owned() });
        }
    }
}
