//! The in-tree plugins, one file each, with upstream's names. This list is the only place that knows them all.

use crate::framework::Registry;

/// A registry with every in-tree plugin; add your own with [`Registry::register`].
#[must_use]
pub fn registry() -> Registry {
    Registry::new()
}
