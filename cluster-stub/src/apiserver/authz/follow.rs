//! Keeps the RBAC authorizer up to date from the watch caches of roles and bindings.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Rbac, RbacKind};
use crate::apiserver::cache::{CachedObject, ChangeKind, Cursor, StorageCache};

/// Loads all of one kind, then applies its changes until `stop`. The load is done when this returns; the future that it
/// gives back is the rest of the work.
pub fn follow(
    rbac: Arc<Rbac>,
    kind: RbacKind,
    cache: Arc<StorageCache>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let mut cursor = load(&rbac, kind, &cache);
    async move {
        let mut known = Vec::new();
        while !stop.is_cancelled() {
            match cursor.take() {
                Ok((changes, _)) => {
                    for change in changes {
                        set(&rbac, kind, &change.object, change.kind != ChangeKind::Deleted);
                    }
                }
                Err(error) => {
                    // Fell behind the kept history: what was deleted meanwhile must go, the rest is loaded anew.
                    tracing::debug!(%error, resource = kind.resource(), "loading roles and bindings again");
                    known.clear();
                    known.extend(rbac.names(kind));
                    cursor = load(&rbac, kind, &cache);
                    for (namespace, name) in known.drain(..) {
                        if cache.get(&namespace, &name).is_none() {
                            rbac.set(kind, &namespace, &name, None);
                        }
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                more = cursor.wait() => if more.is_err() { return },
            }
        }
    }
}

fn load(rbac: &Rbac, kind: RbacKind, cache: &Arc<StorageCache>) -> Cursor {
    let (snapshot, cursor) = cache.snapshot_and_cursor("", 0, |_| true);
    for object in &snapshot.objects {
        set(rbac, kind, object, true);
    }
    cursor
}

fn set(rbac: &Rbac, kind: RbacKind, object: &CachedObject, exists: bool) {
    rbac.set(kind, &object.namespace, &object.name, exists.then_some(&*object.bytes));
}
