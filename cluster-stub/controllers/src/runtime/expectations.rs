//! What a controller still expects to see of its own creates and deletes, so that a slow watch never makes it act twice.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::key::ObjectKey;

/// After this long an expectation is given up and the object is worked on again.
/// Upstream: controller_utils.go v1.36.2 `ExpectationsTimeout`, 5 min.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Creates and deletes that were sent but not yet seen, per owner.
/// Upstream: controller_utils.go v1.36.2 `ControllerExpectations` and `UIDTrackingControllerExpectations`.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    owners: Mutex<HashMap<ObjectKey, Expected>>,
}

#[derive(Debug)]
struct Expected {
    creates: i64,
    /// Uids whose deletion was asked for.
    deletes: HashSet<String>,
    since: Instant,
}

impl Expected {
    fn fulfilled(&self) -> bool {
        self.creates <= 0 && self.deletes.is_empty()
    }
}

impl Expectations {
    /// `creates` objects of `owner` are about to be created.
    pub(crate) fn expect_creations(&self, owner: &ObjectKey, creates: usize) {
        self.expect(owner, |expected| expected.creates += i64::try_from(creates).unwrap_or(i64::MAX));
    }

    /// The objects with `uids` are about to be deleted.
    pub(crate) fn expect_deletions(&self, owner: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.expect(owner, |expected| expected.deletes.extend(uids));
    }

    /// One of the expected objects appeared, or its creation failed.
    pub(crate) fn creation_observed(&self, owner: &ObjectKey) {
        if let Some(expected) = self.lock().get_mut(owner) {
            expected.creates -= 1;
        }
    }

    /// `uid` went away, began to go, or its deletion failed.
    pub(crate) fn deletion_observed(&self, owner: &ObjectKey, uid: &str) {
        if let Some(expected) = self.lock().get_mut(owner) {
            expected.deletes.remove(uid);
        }
    }

    /// Whether all expected changes of `owner` were seen, or were waited for too long.
    pub(crate) fn satisfied(&self, owner: &ObjectKey) -> bool {
        self.lock().get(owner).is_none_or(|expected| expected.fulfilled() || expected.since.elapsed() > TIMEOUT)
    }

    /// Forgets `owner`, which no longer exists.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.lock().remove(owner);
    }

    fn expect(&self, owner: &ObjectKey, change: impl FnOnce(&mut Expected)) {
        let mut owners = self.lock();
        let fresh = || Expected { creates: 0, deletes: HashSet::new(), since: Instant::now() };
        let expected = owners.entry(owner.clone()).or_insert_with(fresh);
        if expected.fulfilled() || expected.since.elapsed() > TIMEOUT {
            *expected = fresh();
        }
        change(expected);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Expected>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_waits_for_its_creates_and_deletes() {
        let expectations = Expectations::default();
        let owner = ObjectKey::new("default", "web");
        assert!(expectations.satisfied(&owner), "nothing expected");
        expectations.expect_creations(&owner, 2);
        expectations.creation_observed(&owner);
        assert!(!expectations.satisfied(&owner));
        expectations.creation_observed(&owner);
        assert!(expectations.satisfied(&owner));
        expectations.expect_deletions(&owner, ["u1".to_owned()]);
        expectations.deletion_observed(&owner, "other");
        assert!(!expectations.satisfied(&owner));
        expectations.deletion_observed(&owner, "u1");
        expectations.deletion_observed(&owner, "u1");
        assert!(expectations.satisfied(&owner));
    }

    #[test]
    fn a_surplus_observation_does_not_hide_the_next_expectation() {
        let expectations = Expectations::default();
        let owner = ObjectKey::new("default", "web");
        expectations.expect_creations(&owner, 1);
        expectations.creation_observed(&owner);
        expectations.creation_observed(&owner);
        expectations.expect_creations(&owner, 1);
        assert!(!expectations.satisfied(&owner));
        expectations.forget(&owner);
        assert!(expectations.satisfied(&owner));
    }
}
