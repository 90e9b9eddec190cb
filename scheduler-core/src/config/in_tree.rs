//! Which extension points each in-tree plugin has. Facts of v1.36.2, so that a configuration can be resolved without building plugins.

use super::plugins::ExtensionPoint::{
    self, Bind, Filter, Permit, PlacementGenerate, PlacementScore, PostFilter, PreBind, PreEnqueue, PreFilter,
    PreScore, QueueSort, Reserve, Score,
};

/// The in-tree plugins, default or not, with their extension points.
pub const IN_TREE: [(&str, &[ExtensionPoint]); 23] = [
    ("DefaultBinder", &[Bind]),
    ("DefaultPreemption", &[PreEnqueue, PostFilter]),
    ("DynamicResources", &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind]),
    ("GangScheduling", &[PreEnqueue, Permit]),
    ("ImageLocality", &[Score]),
    ("InterPodAffinity", &[PreFilter, Filter, PreScore, Score]),
    ("NodeAffinity", &[PreFilter, Filter, PreScore, Score]),
    ("NodeDeclaredFeatures", &[PreFilter, Filter]),
    ("NodeName", &[Filter]),
    ("NodePorts", &[PreFilter, Filter]),
    ("NodeResourcesBalancedAllocation", &[PreScore, Score]),
    ("NodeResourcesFit", &[PreFilter, Filter, PreScore, Score]),
    ("NodeUnschedulable", &[Filter]),
    ("NodeVolumeLimits", &[PreFilter, Filter]),
    ("PodGroupPodsCount", &[PlacementScore]),
    ("PodTopologySpread", &[PreFilter, Filter, PreScore, Score]),
    ("PrioritySort", &[QueueSort]),
    ("SchedulingGates", &[PreEnqueue]),
    ("TaintToleration", &[Filter, PreScore, Score]),
    ("TopologyPlacementGenerator", &[PlacementGenerate]),
    ("VolumeBinding", &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    ("VolumeRestrictions", &[PreFilter, Filter]),
    ("VolumeZone", &[PreFilter, Filter]),
];
