//! The watch cache: for every storage prefix the newest state and the latest history, fed by one watch of the store. It serves
//! lists and watches and answers look-ups inside the server; it writes nothing.
//!
//! ```text
//! store ──watch──▶ Feed ──apply──▶ StorageCache (objects by key, ring of events)
//!                                    ├── list: a snapshot of Arcs, bytes copied out
//!                                    └── Cursor: a position in the ring; whoever falls off its end is told so
//! ```
//!
//! A slow watcher costs a writer nothing: it holds a position, not a queue.

pub mod cursor;
pub mod feed;
pub mod labels;
pub mod object;
pub mod outline;
pub mod storage;

pub use cursor::{Cursor, CursorError};
pub use feed::{Feed, FeedError};
pub use object::{CachedObject, Change, ChangeKind};
pub use storage::{Snapshot, StorageCache, StorageSpec};
