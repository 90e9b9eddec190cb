//! The engine without a cluster: objects from files or from one read of a cluster, placed as the scheduler would place them.
//! Nothing here writes to a cluster.

mod events;
mod expand;
pub(crate) mod node_shape;
pub(crate) mod openb;
mod placement;
mod world;

pub(crate) use events::{Arrival, Result as SimulationResult, Run};
pub(crate) use placement::Placement;
pub(crate) use world::World;
