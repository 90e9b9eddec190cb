//! Extension points, plugin sets, the default plugin list, and how a profile's own list is merged into it. No plugin is built here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::decode::{Decoded, Fields, int32, string};
use super::error::FieldPath;

/// A place in the scheduling of a pod where plugins run. Upstream v1.36.2: apis/config/types.go Plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are upstream's; one line for each would repeat them")]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    PlacementGenerate,
    PlacementScore,
}

impl ExtensionPoint {
    /// All of them, in the order in which a pod meets them.
    pub const ALL: [Self; 14] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::PlacementGenerate,
        Self::PlacementScore,
    ];

    /// The field name in `profiles[].plugins`, for example `preFilter`.
    pub const fn field(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::PlacementGenerate => "placementGenerate",
            Self::PlacementScore => "placementScore",
        }
    }
}

impl fmt::Display for ExtensionPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field())
    }
}

/// A plugin that a set enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The registered name.
    pub name: String,
    /// Factor of the plugin's normalised score; 0 (absent) counts as 1. Only for score plugins.
    pub weight: i32,
}

/// What one extension point, or `multiPoint`, enables and disables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSet {
    /// Added to the default plugins, in this order.
    pub enabled: Vec<Plugin>,
    /// Default plugins to leave out; `*` leaves out all.
    pub disabled: Vec<String>,
}

impl PluginSet {
    /// Whether the set says nothing.
    pub fn is_empty(&self) -> bool {
        self.enabled.is_empty() && self.disabled.is_empty()
    }

    fn decode(value: &Value, path: FieldPath) -> Decoded<Self> {
        let mut fields = Fields::new(value, path)?;
        let enabled = fields.list("enabled", decode_plugin)?.unwrap_or_default();
        let disabled = fields.list("disabled", decode_plugin)?.unwrap_or_default();
        fields.finish()?;
        Ok(Self { enabled, disabled: disabled.into_iter().map(|plugin| plugin.name).collect() })
    }

    /// This set as the defaults, changed by `custom`. A default that `custom` enables again keeps its place and takes the
    /// new weight; one that is disabled and enabled moves to the end. Upstream v1.36.2: default_plugins.go mergePluginSet.
    pub fn merged_with(&self, custom: &PluginSet) -> PluginSet {
        let disabled: Vec<String> = custom.disabled.iter().chain(&self.disabled).cloned().collect();
        let is_disabled = |name: &str| disabled.iter().any(|entry| entry == name);
        let last_index: BTreeMap<&str, usize> =
            custom.enabled.iter().enumerate().map(|(index, plugin)| (plugin.name.as_str(), index)).collect();
        let mut replaced = BTreeSet::new();
        let mut enabled = Vec::new();
        if !is_disabled("*") {
            for default in self.enabled.iter().filter(|plugin| !is_disabled(&plugin.name)) {
                match last_index.get(default.name.as_str()) {
                    Some(&index) => {
                        replaced.insert(index);
                        enabled.push(custom.enabled[index].clone());
                    }
                    None => enabled.push(default.clone()),
                }
            }
        }
        let added = custom.enabled.iter().enumerate().filter(|(index, _)| !replaced.contains(index));
        enabled.extend(added.map(|(_, plugin)| plugin.clone()));
        PluginSet { enabled, disabled }
    }
}

fn decode_plugin(value: &Value, path: FieldPath) -> Decoded<Plugin> {
    let mut fields = Fields::new(value, path)?;
    let name = fields.get("name", string)?.unwrap_or_default();
    let weight = fields.get("weight", int32)?.unwrap_or(0);
    fields.finish()?;
    Ok(Plugin { name, weight })
}

/// `profiles[].plugins`: a set for every extension point, and one for all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins {
    /// Enables plugins at every extension point that they have.
    pub multi_point: PluginSet,
    points: BTreeMap<ExtensionPoint, PluginSet>,
}

impl Plugins {
    /// The plugins of a profile that says nothing, with upstream's weights.
    /// Upstream v1.36.2: apis/config/v1/default_plugins.go getDefaultPlugins with the default feature gates.
    pub fn defaults() -> Self {
        let enabled = DEFAULT_MULTI_POINT.iter().map(|&(name, weight)| Plugin { name: name.to_owned(), weight });
        Self { multi_point: PluginSet { enabled: enabled.collect(), disabled: Vec::new() }, points: BTreeMap::new() }
    }

    /// The set of one extension point.
    pub fn at(&self, point: ExtensionPoint) -> &PluginSet {
        static EMPTY: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };
        self.points.get(&point).unwrap_or(&EMPTY)
    }

    /// Replaces the set of one extension point.
    pub fn set(&mut self, point: ExtensionPoint, set: PluginSet) {
        if set.is_empty() {
            self.points.remove(&point)
        } else {
            self.points.insert(point, set)
        };
    }

    pub(super) fn decode(value: &Value, path: FieldPath) -> Decoded<Self> {
        let mut fields = Fields::new(value, path)?;
        let mut plugins =
            Self { multi_point: fields.get("multiPoint", PluginSet::decode)?.unwrap_or_default(), ..Self::default() };
        for point in ExtensionPoint::ALL {
            plugins.set(point, fields.get(point.field(), PluginSet::decode)?.unwrap_or_default());
        }
        fields.finish()?;
        Ok(plugins)
    }

    /// These plugins as the defaults, changed by a profile's own, point by point.
    pub fn merged_with(&self, custom: &Plugins) -> Plugins {
        let mut merged =
            Plugins { multi_point: self.multi_point.merged_with(&custom.multi_point), points: BTreeMap::new() };
        for point in ExtensionPoint::ALL {
            merged.set(point, self.at(point).merged_with(custom.at(point)));
        }
        merged
    }

    /// Every plugin that is enabled anywhere, sorted.
    pub fn names(&self) -> BTreeSet<&str> {
        let sets = self.points.values().chain([&self.multi_point]);
        sets.flat_map(|set| &set.enabled).map(|plugin| plugin.name.as_str()).collect()
    }
}

/// The default plugins with their weights (0: the plugin has no weight of its own), in order.
pub const DEFAULT_MULTI_POINT: [(&str, i32); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

#[cfg(test)]
mod tests {
    use super::{Plugin, PluginSet};

    fn set(enabled: &[(&str, i32)], disabled: &[&str]) -> PluginSet {
        PluginSet {
            enabled: enabled.iter().map(|&(name, weight)| Plugin { name: name.to_owned(), weight }).collect(),
            disabled: disabled.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn custom_sets_merge_into_the_defaults() {
        let defaults = set(&[("A", 1), ("B", 2), ("C", 3)], &[]);
        let cases = [
            ("says nothing", set(&[], &[]), set(&[("A", 1), ("B", 2), ("C", 3)], &[])),
            ("listed again keeps its place", set(&[("B", 9)], &[]), set(&[("A", 1), ("B", 9), ("C", 3)], &[])),
            (
                "disabled and enabled moves to the end",
                set(&[("A", 0)], &["A"]),
                set(&[("B", 2), ("C", 3), ("A", 0)], &["A"]),
            ),
            ("star leaves only the custom ones", set(&[("X", 0)], &["*"]), set(&[("X", 0)], &["*"])),
            (
                "duplicates stay to be found later",
                set(&[("X", 0), ("X", 1)], &["*"]),
                set(&[("X", 0), ("X", 1)], &["*"]),
            ),
            (
                "the last of two re-listings wins",
                set(&[("A", 5), ("A", 6)], &[]),
                set(&[("A", 6), ("B", 2), ("C", 3), ("A", 5)], &[]),
            ),
        ];
        for (name, custom, want) in cases {
            assert_eq!(defaults.merged_with(&custom), want, "{name}");
        }
    }
}
