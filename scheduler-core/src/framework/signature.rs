//! The signature of a pod: pods with equal signatures are alike to every plugin of a profile, and share what was computed
//! for one of them. Plugins write it; the engine compares it.

use std::hash::{Hash, Hasher};

/// How far the work of a plugin on one pod holds for the next pod with the same signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// As long as neither the node nor the pods on it change: the plugin looks at nothing else but what it signed. What
    /// [`crate::model::Pod::differs_by_binding_at_most`] overlooks is no change. Its PreScore does not look at the feasible
    /// nodes.
    ByNode,
    /// Verdict and raw score may change with pods on other nodes, but alike for all nodes of one class, see
    /// [`super::Plugin::classify`].
    ByClass,
    /// Not at all: the pod is decided on by itself.
    Never,
}

/// What need not be asked of a plugin again for the next pod, if it is a replica of the last one
/// ([`crate::model::Pod::is_replica_of`]) and nothing has happened in between but that such replicas came to nodes: no
/// other pod came or went, and no node or other object changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reuse {
    /// Everything is asked again.
    Nothing,
    /// What it signed holds. PreFilter and PreScore are asked again.
    Signature,
    /// What it signed and what PreFilter left hold, and what PreScore left if it shares [by node](Sharing::ByNode).
    Everything,
}

/// What plugins look at in a pod, written one after the other with [`std::hash::Hash`]: equal signatures are equal
/// values, not just equal hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    bytes: Vec<u8>,
}

impl Signature {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Writes a value and ends the part, so that parts cannot run into each other.
    pub(crate) fn add_part(&mut self, value: &(impl Hash + ?Sized)) {
        value.hash(self);
        self.write_usize(self.bytes.len());
    }

    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(&self.bytes);
        hasher.finish()
    }
}

/// Most of what plugins write are numbers: each has its own way in, so that its length is known when it is copied.
impl Hasher for Signature {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn finish(&self) -> u64 {
        self.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: impl Hash) -> Signature {
        let mut signature = Signature::default();
        value.hash(&mut signature);
        signature
    }

    #[test]
    fn what_is_written_can_be_told_apart() {
        assert_eq!(of(("a", "b")), of(("a", "b")));
        assert_ne!(of(("a", "b")), of(("ab", "")));
        assert_ne!(of(vec!["a"]), of(vec!["a", ""]));
        assert_ne!(of(None::<u64>), of(Some(0_u64)));
        assert_ne!(of(1_i64), of(2_i64));
    }
}
