//! Arguments of the in-tree plugins: typed, strictly decoded, defaulted as upstream v1.36.2 (apis/config/v1/defaults.go).
//! Their validation is in `args_validation`. Arguments of other plugins pass through as they are.

use jiff::SignedDuration;
use serde_json::Value;

use super::affinity::{NodeAffinity, decode_node_affinity};
use super::decode::{Decoded, Fields, boolean, duration, int32, int64, string};
use super::error::{ConfigError, FieldPath};
use super::spread::{TopologySpreadConstraint, decode_constraint};
use super::{API_VERSION, expect_type};

/// The arguments of one plugin.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the type of the same name")]
pub enum PluginArgs {
    DefaultPreemption(DefaultPreemptionArgs),
    DynamicResources(DynamicResourcesArgs),
    InterPodAffinity(InterPodAffinityArgs),
    NodeAffinity(NodeAffinityArgs),
    NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs),
    NodeResourcesFit(NodeResourcesFitArgs),
    PodTopologySpread(PodTopologySpreadArgs),
    VolumeBinding(VolumeBindingArgs),
    /// A plugin whose arguments this crate does not know: the document's value, untouched.
    Raw(Value),
}

impl PluginArgs {
    /// Reads the arguments of `plugin` and fills in the defaults.
    pub(super) fn decode(plugin: &str, value: &Value, path: FieldPath) -> Decoded<Self> {
        let Some(kind) = args_kind(plugin) else { return Ok(Self::Raw(value.clone())) };
        let mut fields = Fields::new(value, path)?;
        for (name, expected) in [("apiVersion", API_VERSION), ("kind", kind)] {
            if let Some(got) = fields.raw(name) {
                expect_type(Some(got), expected, fields.path().child(name))?;
            }
        }
        let args = match plugin {
            "DefaultPreemption" => DefaultPreemptionArgs::decode(&mut fields).map(Self::DefaultPreemption),
            "DynamicResources" => DynamicResourcesArgs::decode(&mut fields).map(Self::DynamicResources),
            "InterPodAffinity" => InterPodAffinityArgs::decode(&mut fields).map(Self::InterPodAffinity),
            "NodeAffinity" => NodeAffinityArgs::decode(&mut fields).map(Self::NodeAffinity),
            "NodeResourcesBalancedAllocation" => {
                NodeResourcesBalancedAllocationArgs::decode(&mut fields).map(Self::NodeResourcesBalancedAllocation)
            }
            "NodeResourcesFit" => NodeResourcesFitArgs::decode(&mut fields).map(Self::NodeResourcesFit),
            "PodTopologySpread" => PodTopologySpreadArgs::decode(&mut fields).map(Self::PodTopologySpread),
            _ => VolumeBindingArgs::decode(&mut fields).map(Self::VolumeBinding),
        }?;
        fields.finish()?;
        Ok(args)
    }

    /// The defaults of `plugin`, `None` if it takes no arguments or is not in-tree.
    pub fn defaults(plugin: &str) -> Option<Self> {
        args_kind(plugin)?;
        Some(Self::decode(plugin, &Value::Null, FieldPath::root()).expect("nothing is read from an absent object"))
    }
}

/// The `kind` of a plugin's arguments, for the in-tree plugins that take some.
fn args_kind(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        "DefaultPreemption" => "DefaultPreemptionArgs",
        "DynamicResources" => "DynamicResourcesArgs",
        "InterPodAffinity" => "InterPodAffinityArgs",
        "NodeAffinity" => "NodeAffinityArgs",
        "NodeResourcesBalancedAllocation" => "NodeResourcesBalancedAllocationArgs",
        "NodeResourcesFit" => "NodeResourcesFitArgs",
        "PodTopologySpread" => "PodTopologySpreadArgs",
        "VolumeBinding" => "VolumeBindingArgs",
        _ => return None,
    })
}

/// How many nodes preemption dry-runs at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    /// Per cent of the nodes, 0..=100. Default 10.
    pub min_candidate_nodes_percentage: i32,
    /// Nodes, 0 or more. Default 100.
    pub min_candidate_nodes_absolute: i32,
}

impl DefaultPreemptionArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self {
            min_candidate_nodes_percentage: fields.get("minCandidateNodesPercentage", int32)?.unwrap_or(10),
            min_candidate_nodes_absolute: fields.get("minCandidateNodesAbsolute", int32)?.unwrap_or(100),
        })
    }
}

/// Time limits of device allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicResourcesArgs {
    /// Per node and filter call; zero is no limit. Default 10 s.
    pub filter_timeout: SignedDuration,
    /// For binding conditions of devices, at least 1 s. Default 10 min.
    pub binding_timeout: SignedDuration,
}

impl DynamicResourcesArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self {
            filter_timeout: fields.get("filterTimeout", duration)?.unwrap_or(SignedDuration::from_secs(10)),
            binding_timeout: fields.get("bindingTimeout", duration)?.unwrap_or(SignedDuration::from_secs(600)),
        })
    }
}

/// Scoring of pod affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// Weight of existing pods' required affinity for the incoming pod, 0..=100. Default 1.
    pub hard_pod_affinity_weight: i32,
    /// Whether existing pods' preferred terms count only for incoming pods with affinity of their own.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl InterPodAffinityArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self {
            hard_pod_affinity_weight: fields.get("hardPodAffinityWeight", int32)?.unwrap_or(1),
            ignore_preferred_terms_of_existing_pods: fields
                .get("ignorePreferredTermsOfExistingPods", boolean)?
                .unwrap_or(false),
        })
    }
}

/// Node affinity that every pod of the profile gets in addition to its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinityArgs {
    /// Required and preferred terms; `None` adds nothing.
    pub added_affinity: Option<NodeAffinity>,
}

impl NodeAffinityArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self { added_affinity: fields.get("addedAffinity", decode_node_affinity)? })
    }
}

/// A resource that a score looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    /// For example `cpu` or `example.com/gpu`.
    pub name: String,
    /// Its weight in the mean; absent and 0 count as 1.
    pub weight: i64,
}

fn decode_resources(fields: &mut Fields<'_>) -> Decoded<Vec<ResourceSpec>> {
    let resources = fields.list("resources", |value, path| {
        let mut fields = Fields::new(value, path)?;
        let name = fields.get("name", string)?.unwrap_or_default();
        let weight = fields.get("weight", int64)?.filter(|weight| *weight != 0).unwrap_or(1);
        fields.finish()?;
        Ok(ResourceSpec { name, weight })
    })?;
    let defaults = || ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).to_vec();
    Ok(resources.filter(|resources| !resources.is_empty()).unwrap_or_else(defaults))
}

/// Which resources must be in balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// Default cpu and memory; every weight must be 1.
    pub resources: Vec<ResourceSpec>,
}

impl NodeResourcesBalancedAllocationArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self { resources: decode_resources(fields)? })
    }
}

/// One point of a function from utilisation to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationShapePoint {
    /// Per cent, 0..=100.
    pub utilization: i32,
    /// 0..=10.
    pub score: i32,
}

fn decode_shape(fields: &mut Fields<'_>) -> Decoded<Option<Vec<UtilizationShapePoint>>> {
    fields.list("shape", |value, path| {
        let mut fields = Fields::new(value, path)?;
        let utilization = fields.get("utilization", int32)?.unwrap_or(0);
        let score = fields.get("score", int32)?.unwrap_or(0);
        fields.finish()?;
        Ok(UtilizationShapePoint { utilization, score })
    })
}

/// How free resources turn into a score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoringStrategy {
    /// `LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`; checked by validation.
    pub strategy_type: String,
    /// Default cpu and memory with weight 1; weights 1..=100.
    pub resources: Vec<ResourceSpec>,
    /// The shape for `RequestedToCapacityRatio`, only with that type.
    pub requested_to_capacity_ratio: Option<Vec<UtilizationShapePoint>>,
}

/// Arguments of NodeResourcesFit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that the filter leaves out.
    pub ignored_resources: Vec<String>,
    /// Groups (the part before `/`) of resources that the filter leaves out.
    pub ignored_resource_groups: Vec<String>,
    /// Default `LeastAllocated`.
    pub scoring_strategy: ScoringStrategy,
}

impl NodeResourcesFitArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        let ignored_resources = fields.list("ignoredResources", string)?.unwrap_or_default();
        let ignored_resource_groups = fields.list("ignoredResourceGroups", string)?.unwrap_or_default();
        let strategy = fields.get("scoringStrategy", |value, path| {
            let mut fields = Fields::new(value, path)?;
            let strategy_type = fields.get("type", string)?.unwrap_or_default();
            let resources = decode_resources(&mut fields)?;
            let requested_to_capacity_ratio = fields.get("requestedToCapacityRatio", |value, path| {
                let mut fields = Fields::new(value, path)?;
                let shape = decode_shape(&mut fields)?.unwrap_or_default();
                fields.finish()?;
                Ok(shape)
            })?;
            fields.finish()?;
            Ok(ScoringStrategy { strategy_type, resources, requested_to_capacity_ratio })
        })?;
        let scoring_strategy = match strategy {
            Some(strategy) => strategy,
            None => ScoringStrategy {
                strategy_type: "LeastAllocated".to_owned(),
                resources: decode_resources(&mut Fields::new(&Value::Null, FieldPath::root())?)?,
                requested_to_capacity_ratio: None,
            },
        };
        Ok(Self { ignored_resources, ignored_resource_groups, scoring_strategy })
    }
}

/// Arguments of PodTopologySpread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTopologySpreadArgs {
    /// Constraints for pods without their own; only with `defaulting_type` `List`.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// `System` (default) or `List`; checked by validation.
    pub defaulting_type: String,
}

impl PodTopologySpreadArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        let defaulting_type = fields.get("defaultingType", string)?.filter(|text| !text.is_empty());
        Ok(Self {
            default_constraints: fields.list("defaultConstraints", decode_constraint)?.unwrap_or_default(),
            defaulting_type: defaulting_type.unwrap_or_else(|| "System".to_owned()),
        })
    }
}

/// Arguments of VolumeBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// Seconds to wait for volumes to be bound, 0 or more. Default 600.
    pub bind_timeout_seconds: i64,
    /// Must be absent: it belongs to a feature (StorageCapacityScoring) that is off in v1.36.2.
    pub shape: Option<Vec<UtilizationShapePoint>>,
}

impl VolumeBindingArgs {
    fn decode(fields: &mut Fields<'_>) -> Decoded<Self> {
        Ok(Self {
            bind_timeout_seconds: fields.get("bindTimeoutSeconds", int64)?.unwrap_or(600),
            shape: decode_shape(fields)?,
        })
    }
}

/// Arguments for one plugin, as `profiles[].pluginConfig[]` lists them.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    /// The plugin.
    pub name: String,
    /// Its arguments, defaulted.
    pub args: PluginArgs,
}

impl PluginConfig {
    pub(super) fn decode(value: &Value, path: FieldPath) -> Decoded<Self> {
        let mut fields = Fields::new(value, path)?;
        let name = fields.get("name", string)?.unwrap_or_default();
        let args_path = fields.path().child("args");
        let args = PluginArgs::decode(&name, fields.raw("args").unwrap_or(&Value::Null), args_path)?;
        if name.is_empty() {
            return Err(ConfigError::Required {
                path: fields.path().child("name"),
                detail: "the plugin to configure".to_owned(),
            });
        }
        fields.finish()?;
        Ok(Self { name, args })
    }
}
