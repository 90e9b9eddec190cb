//! The objects that every cluster has from its first second, as data, and their creation through the API.
//! Upstream v1.36.2: pkg/controlplane, plugin/pkg/auth/authorizer/rbac/bootstrappolicy.

mod authentication;
mod create;
mod flow_control;
mod groups;
mod kubernetes_service;
mod namespaces;
mod rbac;

pub use create::{BootstrapError, BootstrapOptions, bootstrap};
pub use rbac::node_rules;
