//! DefaultBinder: binds through the API. Upstream: plugins/defaultbinder (v1.36.2).

use std::sync::Arc;

use crate::framework::{BindPlugin, BindStep, Binding, ClusterView, EffectKind, Plugin, PluginError, Result};

/// Asks the host to create the binding.
#[derive(Debug, Default)]
pub struct DefaultBinder;

impl DefaultBinder {
    /// Name in configurations.
    pub const NAME: &'static str = "DefaultBinder";
}

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl BindPlugin for DefaultBinder {
    fn bind(&self, binding: &mut Binding, _world: ClusterView<'_>) -> Result<BindStep> {
        match binding.results.pop() {
            None => Ok(BindStep::Do(vec![EffectKind::Bind {
                pod: binding.pod.reference(),
                node: Arc::clone(&binding.node_name),
            }])),
            Some(Ok(())) => Ok(BindStep::Done),
            Some(Err(error)) => Err(PluginError::new(error.message)),
        }
    }
}
