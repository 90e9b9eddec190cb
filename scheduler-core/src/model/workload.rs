//! Owners and groups of pods: what default spreading, namespaces and disruption budgets are read from.

use std::sync::Arc;

use super::{Labels, Selector};

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Name.
    pub name: Arc<str>,
    /// Labels, for namespace selectors.
    pub labels: Labels,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// `spec.selector`; `None` when absent, which selects nothing.
    pub selector: Option<Labels>,
}

/// A replication controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationController {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// `spec.selector`.
    pub selector: Labels,
}

/// A replica set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// `spec.selector`.
    pub selector: Selector,
}

/// A stateful set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSet {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// `spec.selector`.
    pub selector: Selector,
}

/// A pod disruption budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Pods it protects.
    pub selector: Selector,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// Names of pods in `status.disruptedPods`: their eviction is counted already.
    pub disrupted_pods: Box<[Arc<str>]>,
}

/// A device class of dynamic resource allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClass {
    /// Name.
    pub name: Arc<str>,
    /// The extended resource that the class backs.
    pub extended_resource_name: Option<Arc<str>>,
}
