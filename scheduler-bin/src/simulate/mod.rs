//! The engine without a cluster: objects from files or from one read of a cluster, and what would happen to them over virtual time.
//! Nothing here writes to a cluster.

mod admission;
mod agenda;
mod budgets;
mod documents;
mod histogram;
pub(crate) mod measure;
pub(crate) mod node_shape;
mod nodes;
mod object;
mod placement;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod script;
mod seen;
pub(crate) mod source;
pub(crate) mod span;
mod volumes;
pub(crate) mod workload;
mod world;

pub(crate) use placement::Placement;
pub(crate) use seen::Origin;
pub(crate) use world::{Arriving, World};
