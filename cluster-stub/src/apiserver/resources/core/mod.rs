//! The resources of the core group, but pods.

mod config;
mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
pub(super) mod persistent_volume;
pub(super) mod persistent_volume_claim;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;

pub(super) use endpoints::validate_non_special;
pub(super) use event::events_k8s_io;

use super::ResourceOptions;
use super::resource::Resource;

/// Every resource of the core group, but pods and bindings.
pub(super) fn resources(options: &ResourceOptions) -> Vec<Resource> {
    let mut resources = vec![
        config::config_map(),
        config::component_status(),
        config::pod_template(),
        endpoints::resource(),
        event::core(),
        limit_range::resource(),
        namespace::resource(),
        node::resource(),
        persistent_volume::resource(),
        persistent_volume_claim::resource(),
        replication_controller::resource(),
        resource_quota::resource(),
        secret::resource(),
        service::resource(options),
    ];
    resources.push(service_account::resource());
    resources
}
