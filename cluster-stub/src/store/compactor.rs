//! Keeps the history of a store bounded: what is older than an interval is compacted, as an API server does with etcd.

use std::sync::Arc;
use std::time::Duration;

use super::{Revision, Store, StoreError};

/// How long history is kept: upstream kube-apiserver's `--etcd-compaction-interval` (v1.36.2).
pub const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Compacts once per `interval`, up to the revision that was newest one interval ago, until the store is closed or its
/// disk has failed. Never ends otherwise: spawn it and abort it at shutdown.
pub async fn run(store: Arc<dyn Store>, interval: Duration) {
    let mut last: Option<Revision> = None;
    loop {
        tokio::time::sleep(interval).await;
        if let Some(revision) = last {
            match store.compact(revision).await {
                // Nothing was written for an interval, or somebody else has compacted.
                Ok(()) | Err(StoreError::Compacted { .. } | StoreError::FutureRevision { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "compaction of the store's history ended");
                    return;
                }
            }
        }
        match store.revision().await {
            Ok(revision) => last = Some(revision),
            Err(_) => return,
        }
    }
}
