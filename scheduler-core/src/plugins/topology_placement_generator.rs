//! TopologyPlacementGenerator: not a default plugin; a configuration may name it. Upstream: plugins/topologyaware (v1.36.2).
//!
//! It proposes the domains in which a pod group could be placed. Pod groups (GenericWorkload, TopologyAwareWorkloadScheduling)
//! are a feature that is off in that version: no cycle calls the point.

use crate::framework::Plugin;

/// Stands for the name in configurations.
#[derive(Debug, Default)]
pub struct TopologyPlacementGenerator;

impl TopologyPlacementGenerator {
    /// Name in configurations.
    pub const NAME: &'static str = "TopologyPlacementGenerator";
}

impl Plugin for TopologyPlacementGenerator {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}
