//! The in-tree plugins, one file each, with upstream's names. This list is the only place that knows them all.

use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::framework::{BuildError, Extensions, Registry};

pub mod default_preemption;

type Build = fn(Option<&PluginArgs>) -> Result<Extensions, BuildError>;

/// Name, extension points and constructor of each plugin, sorted by name.
const IN_TREE: &[(&str, &[ExtensionPoint], Build)] =
    &[(default_preemption::NAME, default_preemption::POINTS, default_preemption::DefaultPreemption::build)];

/// A registry with every in-tree plugin; add your own with [`Registry::register`].
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for &(name, points, build) in IN_TREE {
        registry.register(name, points, build).expect("names in the list differ");
    }
    registry
}
