//! PodGroupPodsCount: not a default plugin; a configuration may name it. Upstream: plugins/podgrouppodscount (v1.36.2).
//!
//! It prefers the placement that holds most pods of a group. Pod groups (GenericWorkload, TopologyAwareWorkloadScheduling)
//! are a feature that is off in that version: no cycle calls the point.

use crate::framework::Plugin;

/// Stands for the name in configurations.
#[derive(Debug, Default)]
pub struct PodGroupPodsCount;

impl PodGroupPodsCount {
    /// Name in configurations.
    pub const NAME: &'static str = "PodGroupPodsCount";
}

impl Plugin for PodGroupPodsCount {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}
