//! The in-tree plugins, one file each, with upstream's names. This list is the only place that knows them all.

use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{BuildError, Extensions, Registry};

pub mod default_preemption;
pub mod node_volume_limits;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

type Build = fn(Option<&PluginArgs>) -> Result<Extensions, BuildError>;

/// Name, extension points and constructor of each plugin, sorted by name.
const IN_TREE: &[(&str, &[ExtensionPoint], Build)] = &[
    (default_preemption::NAME, default_preemption::POINTS, default_preemption::DefaultPreemption::build),
    (node_volume_limits::NAME, node_volume_limits::POINTS, node_volume_limits::NodeVolumeLimits::build),
    (volume_binding::NAME, volume_binding::POINTS, volume_binding::VolumeBinding::build),
    (volume_restrictions::NAME, volume_restrictions::POINTS, volume_restrictions::VolumeRestrictions::build),
    (volume_zone::NAME, volume_zone::POINTS, volume_zone::VolumeZone::build),
];

/// A registry with every in-tree plugin; add your own with [`Registry::register`].
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for &(name, points, build) in IN_TREE {
        registry.register(name, points, build).expect("names in the list differ");
    }
    registry
}
