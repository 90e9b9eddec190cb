//! The name of an object inside its kind: namespace and name. No kind and no uid in it.

use std::fmt;

use kube::Resource;

/// Namespace and name; the namespace is empty for cluster-scoped kinds. Ordered by namespace, so that a namespace is a
/// contiguous range of a sorted map.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    /// Namespace, empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

impl ObjectKey {
    /// Key of `namespace`/`name`.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Key of `object`.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}
