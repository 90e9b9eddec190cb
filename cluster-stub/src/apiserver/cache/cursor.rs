//! A watcher's position in the history of a storage.

use std::sync::Arc;

use tokio::sync::watch;

use super::object::Change;
use super::storage::StorageCache;

/// Changes handed out at once.
const BATCH: usize = 256;

/// Why a position cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The history does not reach back to the wanted revision.
    #[error("too old resource version: {requested} ({oldest})")]
    TooOld {
        /// The wanted revision.
        requested: i64,
        /// The oldest revision from which the history is whole.
        oldest: i64,
    },
    /// The watcher was too slow: changes that it has not seen are gone.
    #[error("the watcher fell behind the kept history")]
    FellBehind,
    /// The server is going down.
    #[error("the watch cache has ended")]
    Ended,
}

/// A position in the history.
pub struct Cursor {
    cache: Arc<StorageCache>,
    sequence: u64,
    changed: watch::Receiver<i64>,
}

impl Cursor {
    pub(super) fn new(cache: Arc<StorageCache>, sequence: u64, changed: watch::Receiver<i64>) -> Cursor {
        Cursor { cache, sequence, changed }
    }

    /// The next changes, maybe none, and the revision up to which the history is known. Does not wait.
    ///
    /// # Errors
    /// [`CursorError::FellBehind`].
    pub fn take(&mut self) -> Result<(Vec<Arc<Change>>, i64), CursorError> {
        self.changed.mark_unchanged();
        let (changes, revision) = self.cache.changes_from(self.sequence, BATCH)?;
        self.sequence += changes.len() as u64;
        Ok((changes, revision))
    }

    /// Waits until there may be something new.
    ///
    /// # Errors
    /// [`CursorError::Ended`].
    pub async fn wait(&mut self) -> Result<(), CursorError> {
        self.changed.changed().await.map_err(|_| CursorError::Ended)
    }
}
