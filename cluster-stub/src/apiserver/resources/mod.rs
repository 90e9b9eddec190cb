//! The resources that the API server serves, as data and strategies: one file per kind that has rules, one data file per group of
//! simple kinds. How requests are handled is the registry's business.

pub mod action;
pub mod columns;
mod objects;
mod resource;
mod strategy;

pub use action::{Action, ActionRequest};
pub use columns::{Column, Columns};
pub use objects::{Change, Objects};
pub use resource::{Behavior, GroupResource, Resource, Subresource, Verbs};
pub use strategy::{GarbagePolicy, GracefulDelete, Rollback, ScaleStrategy, Strategy, UpdateStrategy, WriteContext};

use std::sync::Arc;

/// What the resources need to know of the cluster.
#[derive(Clone, Debug)]
pub struct ResourceOptions {
    /// Addresses of Services, e.g. `10.96.0.0/16`.
    pub service_range: String,
}

impl Default for ResourceOptions {
    fn default() -> Self {
        ResourceOptions { service_range: "10.96.0.0/16".to_owned() }
    }
}

/// Every built-in resource, in no particular order.
pub fn builtin(_options: &ResourceOptions) -> Vec<Arc<Resource>> {
    Vec::new()
}
