//! The cluster as columns: nodes in stable slots, pods on them, and indexes that pod and node events keep current.
//!
//! The engine owns one [`Cache`]. A cycle borrows its [`Snapshot`]: events are applied between cycles, never during
//! one, so nothing is copied. Plugins read the snapshot; only the engine writes to the cache.

mod bits;
mod candidates;
mod changes;
mod cluster_index;
mod counts;
mod domain_counts;
mod domain_sums;
pub(crate) mod exact;
mod growth;
mod images;
mod label_columns;
mod lanes;
mod node_counts;
mod node_matcher;
mod objects;
mod pods;
mod ports;
mod priorities;
mod resource_columns;
mod selector_index;
mod slot_run;
mod snapshot;
mod taint_classes;
mod terms;
mod view;

pub(crate) use bits::{clear_bit, ones, set_bit};
pub use candidates::{Candidates, IdSet, WordMask};
pub use changes::{ChangeLog, NodeChange};
pub use cluster_index::ClusterIndex;
pub use counts::{CountIdx, CountKey, DomainIdx, PodCounts};
pub use domain_counts::{DomainCounts, Inclusion};
pub use images::Images;
pub use label_columns::{LabelColumn, LabelColumns, LabelIdx};
pub use lanes::{LANES, mask_of, words};
pub(crate) use lanes::{Lanes, vectorized};
pub use node_counts::NodeCounts;
pub use node_matcher::NodeMatcher;
pub use objects::Objects;
pub use pods::{Cache, CacheError, Indexes};
pub use ports::HostPorts;
pub(crate) use resource_columns::Amounts;
#[cfg(test)]
pub(crate) use resource_columns::is_irregular;
pub use resource_columns::{ResourceColumns, ResourceId};
pub use slot_run::{SlotRun, add_where};
pub use snapshot::{NodeIdx, Snapshot};
pub use taint_classes::TaintClasses;
pub use terms::{TermCounts, TermEntry, TermIdx};
pub use view::{NodeOverlay, NodeView};
