//! The resources that the API server serves, as data and strategies: one file per kind that has rules, one data file per group of
//! simple kinds. How requests are handled is the registry's business.

pub mod action;
mod admission_registration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
pub mod columns;
mod coordination;
pub(in crate::apiserver) mod core;
mod custom_resource_definition;
mod kind;
mod networking;
mod objects;
mod others;
pub(in crate::apiserver) mod pod;
mod policy;
mod rbac;
mod resource;
pub(in crate::apiserver) mod resource_list;
mod scale;
mod scheduling;
pub(in crate::apiserver) mod shape;
mod storage;
mod strategy;

pub use action::{Action, ActionRequest, UsualRequest};
pub use columns::{Column, Columns};
pub(in crate::apiserver) use kind::{restore_all_but, restore_metadata, same_but};
pub use objects::{Change, EncodedChange, Objects};
pub use resource::{Behavior, GroupResource, Resource, Subresource, Verbs};
pub use strategy::{
    GarbagePolicy, GracefulDelete, OwnText, Rollback, ScaleStrategy, Strategy, UpdateStrategy, WriteContext,
};

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
pub fn builtin(options: &ResourceOptions) -> Vec<Arc<Resource>> {
    let mut resources = core::resources(options);
    resources.extend([pod::resource(), pod::bindings(), core::events_k8s_io()]);
    for group in [
        admission_registration::resources(),
        apps::resources(),
        autoscaling::resources(),
        batch::resources(),
        certificates::resources(),
        coordination::resources(),
        vec![custom_resource_definition::resource()],
        networking::resources(),
        others::resources(),
        policy::resources(),
        rbac::resources(),
        scheduling::resources(),
        storage::resources(),
    ] {
        resources.extend(group);
    }
    resources.into_iter().map(Arc::new).collect()
}
