//! Metadata and selectors.

#[cfg(feature = "k8s-openapi")]
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1 as api};

use super::{Map, Text, Time, wire};

wire! {
    ObjectMeta = api::ObjectMeta => {
        name: Option<Text<'a>>,
        namespace: Option<Text<'a>>,
        uid: Option<Text<'a>>,
        resource_version: Option<Text<'a>>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<Map<'a>>,
        annotations: Option<Map<'a>>,
        owner_references: Option<Vec<OwnerReference<'a>>>,
    }

    OwnerReference = api::OwnerReference => {
        api_version: Text<'a>,
        kind: Text<'a>,
        name: Text<'a>,
        uid: Text<'a>,
        controller: Option<bool>,
    }

    LabelSelector = api::LabelSelector => {
        match_labels: Option<Map<'a>>,
        match_expressions: Option<Vec<Requirement<'a>>>,
    }

    Requirement = api::LabelSelectorRequirement | core::NodeSelectorRequirement => {
        key: Text<'a>,
        operator: Text<'a>,
        values: Option<Vec<Text<'a>>>,
    }

    NodeSelector = core::NodeSelector => {
        node_selector_terms: Option<Vec<NodeSelectorTerm<'a>>>,
    }

    NodeSelectorTerm = core::NodeSelectorTerm => {
        match_expressions: Option<Vec<Requirement<'a>>>,
        match_fields: Option<Vec<Requirement<'a>>>,
    }
}
