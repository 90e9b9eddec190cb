//! The EndpointSlice mirroring controller: slices for Endpoints that people keep by hand.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::new_controller_ref;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use super::addresses::family;
use super::slice_controller::{MANAGED_BY, SERVICE_NAME, follow_slices, kept_slices, name_prefix, perform};
use super::slices::{self, Changes, Group};

/// Label value of the slices that this controller keeps.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label of Endpoints that shall not be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of Endpoints that are a lock, not addresses.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that stay with the Endpoints.
const NOT_COPIED: [&str; 2] = [super::TRIGGER_TIME, "kubectl.kubernetes.io/last-applied-configuration"];
/// Addresses that are mirrored per subset. Upstream: `--mirroring-max-endpoints-per-subset`.
const MAX_PER_SUBSET: usize = 1000;

struct MirrorController {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the mirroring controller.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(MirrorController {
        api: context.api("endpointslicemirroring-controller"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.endpoints.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    let queue = controller.queue.clone();
    context.informers.services.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    follow_slices(context, &controller.queue, MANAGER);
    context.run(&controller, 5);
}

impl Reconcile for MirrorController {
    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    fn kind(&self) -> &'static str {
        "Endpoints"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: endpointslicemirroring_controller.go v1.36.2 `syncEndpoints`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let existing = kept_slices(&self.informers, key, MANAGER);
        let without_selector = self
            .informers
            .services
            .get(key)
            .is_some_and(|service| service.spec.as_ref().is_none_or(|spec| spec.selector.is_none()));
        let endpoints =
            self.informers.endpoints.get(key).filter(|endpoints| without_selector && is_mirrored(endpoints));
        let Some(endpoints) = endpoints else {
            return perform(&self.api, Changes { delete: existing, ..Changes::default() }, |group| EndpointSlice {
                address_type: group.family,
                ..EndpointSlice::default()
            })
            .await;
        };
        let meta = slice_meta(&endpoints);
        let changes = slices::plan(groups(&endpoints), &existing, &[], |slice| {
            let stale = slice.metadata.labels != meta.labels
                || slice.metadata.annotations.clone().unwrap_or_default()
                    != meta.annotations.clone().unwrap_or_default();
            slice.metadata.labels.clone_from(&meta.labels);
            slice.metadata.annotations.clone_from(&meta.annotations);
            stale
        });
        perform(&self.api, changes, |group| EndpointSlice {
            metadata: meta.clone(),
            address_type: group.family,
            ports: Some(group.ports),
            endpoints: Some(group.endpoints),
        })
        .await
    }
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let skip =
        endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(SKIP)).is_some_and(|skip| skip == "true");
    let lock = endpoints.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER));
    !skip && !lock
}

/// Upstream: endpointslicemirroring/utils.go v1.36.2 `newEndpointSlice`.
fn slice_meta(endpoints: &Endpoints) -> ObjectMeta {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    ObjectMeta {
        generate_name: Some(name_prefix(&name)),
        namespace: endpoints.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![new_controller_ref(endpoints)]),
        ..ObjectMeta::default()
    }
}

fn groups(endpoints: &Endpoints) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let others = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(others).take(MAX_PER_SUBSET) {
            let Some(family) = family(&address.ip) else { continue };
            let endpoint = endpoint(address, ready);
            match groups.iter_mut().find(|group| group.family == family && group.ports == ports) {
                Some(group) => group.endpoints.push(endpoint),
                None => {
                    groups.push(Group { family: family.to_owned(), ports: ports.clone(), endpoints: vec![endpoint] });
                }
            }
        }
    }
    groups
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EndpointSubset;

    use super::*;

    #[test]
    fn addresses_of_both_families_and_states_are_mirrored() {
        let address = |ip: &str| EndpointAddress { ip: ip.to_owned(), ..EndpointAddress::default() };
        let endpoints = Endpoints {
            subsets: Some(vec![EndpointSubset {
                addresses: Some(vec![address("192.0.2.10"), address("2001:db8::1"), address("no address")]),
                not_ready_addresses: Some(vec![address("192.0.2.11")]),
                ports: None,
            }]),
            ..Endpoints::default()
        };
        let sizes: Vec<(String, usize)> =
            groups(&endpoints).into_iter().map(|group| (group.family, group.endpoints.len())).collect();
        assert_eq!(sizes, [("IPv4".to_owned(), 2), ("IPv6".to_owned(), 1)]);
    }

    #[test]
    fn locks_and_marked_endpoints_are_not_mirrored() {
        let mut endpoints = Endpoints::default();
        assert!(is_mirrored(&endpoints));
        endpoints.metadata.labels = Some([(SKIP.to_owned(), "true".to_owned())].into());
        assert!(!is_mirrored(&endpoints));
        endpoints.metadata.labels = None;
        endpoints.metadata.annotations = Some([(LEADER.to_owned(), "{}".to_owned())].into());
        assert!(!is_mirrored(&endpoints));
    }
}
