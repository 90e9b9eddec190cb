//! The plugins, and the one list that names them.
mod pair_up;
mod rack_limit;
mod smallest_first;

use scheduler_core::config::plugins::ExtensionPoint as Point;
use scheduler_core::framework::{Extensions, RegisterError, Registry};
use {pair_up::PairUp, smallest_first::SmallestFirst};

/// kube-scheduler's plugins and ours.
pub fn registry() -> Result<Registry, RegisterError> {
    let mut registry = scheduler_core::plugins::registry();
    registry.register("RackLimit", &[Point::PreFilter, Point::Filter, Point::Score], rack_limit::build)?;
    registry
        .register("SmallestFirst", &[Point::QueueSort], |_| Ok(Extensions::new().queue_sort(&SmallestFirst.into())))?;
    registry.register("PairUp", &[Point::Permit], |_| Ok(Extensions::new().permit(&PairUp.into())))?;
    Ok(registry)
}
