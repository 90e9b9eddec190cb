//! Which version of an object a controller wrote itself, so that it never decides on one that is older than its own words.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::Resource;

use super::key::ObjectKey;

/// The newest version of each object that this controller wrote and its watch has not yet brought.
/// Upstream: pkg/controller/util/consistency v1.36.2 `ConsistencyStore`.
#[derive(Debug, Default)]
pub(crate) struct Consistency {
    written: Mutex<HashMap<ObjectKey, u64>>,
}

impl Consistency {
    /// `object` is the server's answer to a write.
    pub(crate) fn wrote<K: Resource<DynamicType = ()>>(&self, key: &ObjectKey, object: &K) {
        if let Some(version) = version(object) {
            let mut written = self.lock();
            let newest = written.entry(key.clone()).or_default();
            *newest = version.max(*newest);
        }
    }

    /// Whether `cached`, as the watch brought it, is at least as new as what was written. When it is not, the watch will
    /// bring a newer one and with it another reconcile.
    pub(crate) fn is_current<K: Resource<DynamicType = ()>>(&self, key: &ObjectKey, cached: &K) -> bool {
        let mut written = self.lock();
        let (Some(newest), Some(version)) = (written.get(key), version(cached)) else { return true };
        if version < *newest {
            return false;
        }
        written.remove(key);
        true
    }

    /// Forgets an object that no longer exists.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version<K: Resource<DynamicType = ()>>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;

    use super::*;

    fn job(version: &str) -> Job {
        let mut job = Job::default();
        job.metadata.resource_version = Some(version.to_owned());
        job
    }

    #[test]
    fn an_object_older_than_the_last_write_is_not_current() {
        let (consistency, key) = (Consistency::default(), ObjectKey::new("default", "j"));
        assert!(consistency.is_current(&key, &job("9")), "nothing written");
        consistency.wrote(&key, &job("10"));
        consistency.wrote(&key, &job("8"));
        assert!(!consistency.is_current(&key, &job("9")), "numbers, not texts, are compared");
        assert!(consistency.is_current(&ObjectKey::new("default", "other"), &job("9")));
        assert!(consistency.is_current(&key, &job("11")));
        assert!(consistency.is_current(&key, &job("9")), "an object of the same name made anew begins without a past");
        consistency.wrote(&key, &job("12"));
        consistency.forget(&key);
        assert!(consistency.is_current(&key, &job("1")));
    }
}
