//! Amounts of resources: by name and exact (`ResourceList`), and in the scheduler's integer units (`Resources`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Quantity;

/// Exact amounts by resource name, as API objects state them. A missing name differs from an explicit zero.
pub type ResourceList = BTreeMap<Arc<str>, Quantity>;

/// Amounts in the units that the scheduler computes with. Upstream: framework `Resource` (v1.36.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Number of pods; only nodes have it.
    pub pods: i64,
    /// Extended resources, huge pages and attachable volumes in their own units, sorted by name.
    pub scalars: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// Rounds exact amounts up to the scheduler's units. Names that are no scalar resource are dropped.
    #[must_use]
    pub fn from_list(list: &ResourceList) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list {
            match name.as_ref() {
                "cpu" => resources.milli_cpu = quantity.milli_value(),
                "memory" => resources.memory = quantity.value(),
                "ephemeral-storage" => resources.ephemeral_storage = quantity.value(),
                "pods" => resources.pods = quantity.value(),
                scalar if is_scalar_resource(scalar) => {
                    resources.scalars.push((Arc::clone(name), quantity.value()));
                }
                _ => {}
            }
        }
        resources
    }

    /// The amount of one scalar resource; zero when absent.
    #[must_use]
    pub fn scalar(&self, name: &str) -> i64 {
        match self.scalars.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            Ok(at) => self.scalars[at].1,
            Err(_) => 0,
        }
    }

    /// The amount of any resource by name; zero when absent.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => self.pods,
            scalar => self.scalar(scalar),
        }
    }
}

/// Whether a name denotes an extended resource: fully qualified, outside `kubernetes.io/`, not a quota name.
/// Upstream: apis/core/v1/helper `IsExtendedResourceName` (v1.36.2).
#[must_use]
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Whether the scheduler accounts the name as a scalar resource.
/// Upstream: scheduler/util `IsScalarResourceName` (v1.36.2).
#[must_use]
pub fn is_scalar_resource(name: &str) -> bool {
    is_extended_resource(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_rounded_up_and_unknown_names_dropped() {
        let list: ResourceList = [
            ("cpu", "0.5m"),
            ("memory", "1.5"),
            ("pods", "110"),
            ("example.com/gpu", "2"),
            ("hugepages-2Mi", "4Mi"),
            ("storage", "1Gi"),
        ]
        .into_iter()
        .map(|(name, text)| (Arc::from(name), Quantity::parse(text).expect("valid")))
        .collect();
        let resources = Resources::from_list(&list);
        assert_eq!(resources.milli_cpu, 1);
        assert_eq!(resources.memory, 2);
        assert_eq!(resources.pods, 110);
        assert_eq!(resources.get("example.com/gpu"), 2);
        assert_eq!(resources.get("hugepages-2Mi"), 4 << 20);
        assert_eq!(resources.get("storage"), 0);
    }
}
