//! Validation of the in-tree plugins' arguments. Upstream v1.36.2: apis/config/validation/validation_pluginargs.go.

use std::collections::BTreeSet;
use std::fmt::Display;

use jiff::SignedDuration;

use super::affinity::validate_node_affinity;
use super::args::{
    DefaultPreemptionArgs, DynamicResourcesArgs, NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArgs,
    PodTopologySpreadArgs, UtilizationShapePoint, VolumeBindingArgs,
};
use super::error::{ConfigError, FieldPath};
use super::names::qualified_name_fault;
use super::spread::validate_constraints;

/// Appends every fault of `args`, which stand at `path`.
pub(super) fn validate_args(args: &PluginArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    match args {
        PluginArgs::DefaultPreemption(args) => validate_preemption(args, path, errors),
        PluginArgs::DynamicResources(args) => validate_dynamic_resources(args, path, errors),
        PluginArgs::InterPodAffinity(args) => {
            let weight = args.hard_pod_affinity_weight;
            if !(0..=100).contains(&weight) {
                errors.push(invalid(path.child("hardPodAffinityWeight"), weight, "not in valid range [0, 100]"));
            }
        }
        PluginArgs::NodeAffinity(args) => {
            if let Some(affinity) = &args.added_affinity {
                validate_node_affinity(affinity, &path.child("addedAffinity"), errors);
            }
        }
        PluginArgs::NodeResourcesBalancedAllocation(args) => validate_balanced(args, path, errors),
        PluginArgs::NodeResourcesFit(args) => validate_fit(args, path, errors),
        PluginArgs::PodTopologySpread(args) => validate_spread(args, path, errors),
        PluginArgs::VolumeBinding(args) => validate_volume_binding(args, path, errors),
        PluginArgs::Raw(_) => {}
    }
}

fn invalid(path: FieldPath, value: impl Display, detail: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { path, value: value.to_string(), detail: detail.into() }
}

fn validate_preemption(args: &DefaultPreemptionArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    let percentage_path = path.child("minCandidateNodesPercentage");
    let absolute_path = path.child("minCandidateNodesAbsolute");
    if !(0..=100).contains(&percentage) {
        errors.push(invalid(percentage_path.clone(), percentage, "not in valid range [0, 100]"));
    }
    if absolute < 0 {
        errors.push(invalid(absolute_path.clone(), absolute, "not in valid range [0, inf)"));
    }
    if percentage == 0 && absolute == 0 {
        errors.push(invalid(percentage_path, 0, "cannot be zero at the same time as minCandidateNodesAbsolute"));
        errors.push(invalid(absolute_path, 0, "cannot be zero at the same time as minCandidateNodesPercentage"));
    }
}

fn validate_dynamic_resources(args: &DynamicResourcesArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    if args.filter_timeout.is_negative() {
        errors.push(invalid(path.child("filterTimeout"), args.filter_timeout, "must be zero or positive"));
    }
    if args.binding_timeout < SignedDuration::from_secs(1) {
        errors.push(invalid(path.child("bindingTimeout"), args.binding_timeout, "must be at least 1 second"));
    }
}

fn validate_balanced(args: &NodeResourcesBalancedAllocationArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let mut seen = BTreeSet::new();
    for (index, resource) in args.resources.iter().enumerate() {
        let path = path.child("resources").index(index);
        if !seen.insert(resource.name.as_str()) {
            errors.push(ConfigError::Duplicate { path: path.child("name"), value: resource.name.clone() });
        }
        if resource.weight != 1 {
            errors.push(invalid(path.child("weight"), resource.weight, "must be 1"));
        }
    }
}

fn validate_fit(args: &NodeResourcesFitArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    for (index, name) in args.ignored_resources.iter().enumerate() {
        if let Some(fault) = qualified_name_fault(name) {
            errors.push(invalid(path.child("ignoredResources").index(index), format!("{name:?}"), fault));
        }
    }
    for (index, group) in args.ignored_resource_groups.iter().enumerate() {
        let path = path.child("ignoredResourceGroups").index(index);
        if group.contains('/') {
            errors.push(invalid(path.clone(), format!("{group:?}"), "resource group name can't contain '/'"));
        }
        if let Some(fault) = qualified_name_fault(group) {
            errors.push(invalid(path, format!("{group:?}"), fault));
        }
    }
    let strategy = &args.scoring_strategy;
    let path = path.child("scoringStrategy");
    let supported = vec!["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    if !supported.contains(&strategy.strategy_type.as_str()) {
        errors.push(ConfigError::NotSupported {
            path: path.child("type"),
            value: strategy.strategy_type.clone(),
            supported,
        });
    }
    for (index, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let detail = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            errors.push(invalid(path.child("resources").index(index).child("weight"), resource.weight, detail));
        }
    }
    let ratio_path = path.child("requestedToCapacityRatio");
    match (strategy.strategy_type.as_str(), &strategy.requested_to_capacity_ratio) {
        ("RequestedToCapacityRatio", Some(shape)) => validate_shape(shape, &ratio_path.child("shape"), errors),
        ("RequestedToCapacityRatio", None) => errors.push(ConfigError::Required {
            path: ratio_path,
            detail: "must be specified when type is RequestedToCapacityRatio".to_owned(),
        }),
        (_, Some(_)) => errors.push(ConfigError::Forbidden {
            path: ratio_path,
            detail: "must be absent when type is not RequestedToCapacityRatio".to_owned(),
        }),
        (_, None) => {}
    }
}

fn validate_shape(shape: &[UtilizationShapePoint], path: &FieldPath, errors: &mut Vec<ConfigError>) {
    if shape.is_empty() {
        errors.push(ConfigError::Required {
            path: path.clone(),
            detail: "at least one point must be specified".to_owned(),
        });
    }
    if let Some(index) = shape.windows(2).position(|pair| pair[0].utilization >= pair[1].utilization) {
        let index = index + 1;
        let path = path.index(index).child("utilization");
        errors.push(invalid(path, shape[index].utilization, "values must be sorted in increasing order"));
    }
    for (index, point) in shape.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            let path = path.index(index).child("utilization");
            errors.push(invalid(path, point.utilization, "not in valid range [0, 100]"));
        }
        if !(0..=10).contains(&point.score) {
            errors.push(invalid(path.index(index).child("score"), point.score, "not in valid range [0, 10]"));
        }
    }
}

fn validate_spread(args: &PodTopologySpreadArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let type_path = path.child("defaultingType");
    match args.defaulting_type.as_str() {
        "System" if !args.default_constraints.is_empty() => {
            errors.push(invalid(type_path, "\"System\"", "when .defaultConstraints are not empty"));
        }
        "System" | "List" => {}
        other => errors.push(ConfigError::NotSupported {
            path: type_path,
            value: other.to_owned(),
            supported: vec!["System", "List"],
        }),
    }
    validate_constraints(&args.default_constraints, &path.child("defaultConstraints"), errors);
}

fn validate_volume_binding(args: &VolumeBindingArgs, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    if args.bind_timeout_seconds < 0 {
        errors.push(invalid(path.child("bindTimeoutSeconds"), args.bind_timeout_seconds, "must not be negative"));
    }
    if args.shape.is_some() {
        let detail = "must be absent, the feature StorageCapacityScoring is off".to_owned();
        errors.push(ConfigError::Forbidden { path: path.child("shape"), detail });
    }
}
