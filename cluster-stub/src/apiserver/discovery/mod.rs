//! Discovery: which groups, versions and resources the server has, as the documents that clients read. Made from the
//! list of resources; knows none by name.

mod accept;
mod aggregated;
mod documents;
mod legacy;
mod priority;

pub use accept::MediaType;
pub use documents::Discovery;
pub use priority::{GroupVersionPriority, priority, version_rank};
