//! The in-tree plugins, one file each, with upstream's names. This list is the only place that knows them all.

use std::sync::Arc;

use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{BuildError, Extensions, Registry};

pub mod default_binder;
pub mod default_preemption;
mod default_selector;
pub mod dynamic_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
mod inter_pod_affinity_classes;
mod inter_pod_affinity_counts;
mod inter_pod_affinity_score;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_group_pods_count;
pub mod pod_topology_spread;
mod pod_topology_spread_classes;
mod pod_topology_spread_constraints;
mod pod_topology_spread_score;
pub mod priority_sort;
mod resource_allocation;
mod resource_evenness;
mod resource_runs;
pub mod scheduling_gates;
pub mod taint_toleration;
pub mod topology_placement_generator;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use default_binder::DefaultBinder;
use dynamic_resources::DynamicResources;
use gang_scheduling::GangScheduling;
use image_locality::ImageLocality;
use inter_pod_affinity::InterPodAffinity;
use node_affinity::NodeAffinity;
use node_declared_features::NodeDeclaredFeatures;
use node_name::NodeName;
use node_ports::NodePorts;
use node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
use node_resources_fit::NodeResourcesFit;
use node_unschedulable::NodeUnschedulable;
use pod_group_pods_count::PodGroupPodsCount;
use pod_topology_spread::PodTopologySpread;
use priority_sort::PrioritySort;
use scheduling_gates::SchedulingGates;
use taint_toleration::TaintToleration;
use topology_placement_generator::TopologyPlacementGenerator;

type Build = fn(Option<&PluginArgs>) -> Result<Extensions, BuildError>;

use ExtensionPoint as Point;

/// Name, extension points and constructor of each plugin, sorted by name.
const IN_TREE: &[(&str, &[ExtensionPoint], Build)] = &[
    (DefaultBinder::NAME, &[Point::Bind], |_| Ok(Extensions::new().bind(&Arc::new(DefaultBinder)))),
    (default_preemption::NAME, default_preemption::POINTS, default_preemption::DefaultPreemption::build),
    (
        DynamicResources::NAME,
        &[
            Point::PreEnqueue,
            Point::PreFilter,
            Point::Filter,
            Point::PostFilter,
            Point::Score,
            Point::Reserve,
            Point::PreBind,
        ],
        |_| {
            let p = Arc::new(DynamicResources);
            let e = Extensions::new().pre_enqueue(&p).pre_filter(&p).filter(&p).post_filter(&p).score(&p);
            Ok(e.reserve(&p).pre_bind(&p).enqueue(&p))
        },
    ),
    (GangScheduling::NAME, &[Point::PreEnqueue, Point::Permit], |_| {
        let p = Arc::new(GangScheduling);
        Ok(Extensions::new().pre_enqueue(&p).permit(&p).enqueue(&p))
    }),
    (ImageLocality::NAME, &[Point::Score], |_| Ok(Extensions::new().score(&Arc::new(ImageLocality)))),
    (InterPodAffinity::NAME, FILTER_AND_SCORE, |args| match args_or_defaults(InterPodAffinity::NAME, args) {
        Some(PluginArgs::InterPodAffinity(args)) => {
            let p = Arc::new(InterPodAffinity::new(&args));
            Ok(Extensions::new().pre_filter(&p).filter(&p).pre_score(&p).score(&p).enqueue(&p))
        }
        other => Err(wrong_args(other.as_ref())),
    }),
    (NodeAffinity::NAME, FILTER_AND_SCORE, |args| match args_or_defaults(NodeAffinity::NAME, args) {
        Some(PluginArgs::NodeAffinity(args)) => {
            let p = Arc::new(NodeAffinity::new(&args));
            Ok(Extensions::new().pre_filter(&p).filter(&p).pre_score(&p).score(&p).enqueue(&p))
        }
        other => Err(wrong_args(other.as_ref())),
    }),
    (NodeDeclaredFeatures::NAME, &[Point::PreFilter, Point::Filter], |_| {
        let p = Arc::new(NodeDeclaredFeatures);
        Ok(Extensions::new().pre_filter(&p).filter(&p).enqueue(&p))
    }),
    (NodeName::NAME, &[Point::Filter], |_| {
        let p = Arc::new(NodeName);
        Ok(Extensions::new().filter(&p).enqueue(&p))
    }),
    (NodePorts::NAME, &[Point::PreFilter, Point::Filter], |_| {
        let p = Arc::new(NodePorts);
        Ok(Extensions::new().pre_filter(&p).filter(&p).enqueue(&p))
    }),
    (NodeResourcesBalancedAllocation::NAME, &[Point::PreScore, Point::Score], |args| {
        match args_or_defaults(NodeResourcesBalancedAllocation::NAME, args) {
            Some(PluginArgs::NodeResourcesBalancedAllocation(args)) => {
                let p = Arc::new(NodeResourcesBalancedAllocation::new(&args));
                Ok(Extensions::new().pre_score(&p).score(&p))
            }
            other => Err(wrong_args(other.as_ref())),
        }
    }),
    (NodeResourcesFit::NAME, FILTER_AND_SCORE, |args| match args_or_defaults(NodeResourcesFit::NAME, args) {
        Some(PluginArgs::NodeResourcesFit(args)) => {
            let p = Arc::new(NodeResourcesFit::new(&args)?);
            Ok(Extensions::new().pre_filter(&p).filter(&p).pre_score(&p).score(&p).enqueue(&p))
        }
        other => Err(wrong_args(other.as_ref())),
    }),
    (NodeUnschedulable::NAME, &[Point::Filter], |_| {
        let p = Arc::new(NodeUnschedulable);
        Ok(Extensions::new().filter(&p).enqueue(&p))
    }),
    (node_volume_limits::NAME, node_volume_limits::POINTS, node_volume_limits::NodeVolumeLimits::build),
    (PodGroupPodsCount::NAME, &[Point::PlacementScore], |_| {
        Ok(Extensions::new().placement_score(&Arc::new(PodGroupPodsCount)))
    }),
    (PodTopologySpread::NAME, FILTER_AND_SCORE, |args| match args_or_defaults(PodTopologySpread::NAME, args) {
        Some(PluginArgs::PodTopologySpread(args)) => {
            let p = Arc::new(PodTopologySpread::new(&args));
            Ok(Extensions::new().pre_filter(&p).filter(&p).pre_score(&p).score(&p).enqueue(&p))
        }
        other => Err(wrong_args(other.as_ref())),
    }),
    (PrioritySort::NAME, &[Point::QueueSort], |_| Ok(Extensions::new().queue_sort(&Arc::new(PrioritySort)))),
    (SchedulingGates::NAME, &[Point::PreEnqueue], |_| {
        let p = Arc::new(SchedulingGates);
        Ok(Extensions::new().pre_enqueue(&p).enqueue(&p))
    }),
    (TaintToleration::NAME, &[Point::Filter, Point::PreScore, Point::Score], |_| {
        let p = Arc::new(TaintToleration);
        Ok(Extensions::new().filter(&p).pre_score(&p).score(&p).enqueue(&p))
    }),
    (TopologyPlacementGenerator::NAME, &[Point::PlacementGenerate], |_| {
        Ok(Extensions::new().placement_generate(&Arc::new(TopologyPlacementGenerator)))
    }),
    (volume_binding::NAME, volume_binding::POINTS, volume_binding::VolumeBinding::build),
    (volume_restrictions::NAME, volume_restrictions::POINTS, volume_restrictions::VolumeRestrictions::build),
    (volume_zone::NAME, volume_zone::POINTS, volume_zone::VolumeZone::build),
];

const FILTER_AND_SCORE: &[ExtensionPoint] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

/// A registry with every in-tree plugin; add your own with [`Registry::register`].
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for &(name, points, build) in IN_TREE {
        registry.register(name, points, build).expect("names in the list differ");
    }
    registry
}

fn args_or_defaults(name: &str, args: Option<&PluginArgs>) -> Option<PluginArgs> {
    args.cloned().or_else(|| PluginArgs::defaults(name))
}

fn wrong_args(args: Option<&PluginArgs>) -> BuildError {
    BuildError(format!("got arguments {args:?}, which are another plugin's"))
}
