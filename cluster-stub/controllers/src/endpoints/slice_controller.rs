//! The EndpointSlice controller: the EndpointSlices of Services with a selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::controller_ref::new_controller_ref;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::recorder::{EventRecorder, WARNING};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use super::slices::{self, Changes, Group};
use super::{
    HEADLESS, TRIGGER_TIME, addresses, follow_services, is_external_or_without_selector, selected, trigger_time,
};

/// Label value of the slices that this controller keeps.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Label that names the keeper of a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label that names the Service of a slice.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-service-endpoint-syncs`.
const WORKERS: usize = 5;

struct SliceController {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the EndpointSlice controller.
pub(super) fn start(context: &Context) {
    let api = context.api("endpointslice-controller");
    let controller = Arc::new(SliceController {
        recorder: context.recorder(&api, "endpoint-slice-controller"),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    follow_services(context, &controller.queue);
    follow_slices(context, &controller.queue, MANAGER);
    context.run(&controller, WORKERS);
}

/// Enqueues the Service of a slice that is kept by `manager` and was changed by somebody.
pub(super) fn follow_slices(context: &Context, queue: &WorkQueue<ObjectKey>, manager: &'static str) {
    let queue = queue.clone();
    context.informers.endpoint_slices.on_change(move |delta| {
        for slice in [Some(delta.object()), delta.old()].into_iter().flatten() {
            let labels = slice.metadata.labels.as_ref();
            let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
            if let (Some(service), true) = (label(SERVICE_NAME), label(MANAGED_BY) == Some(manager)) {
                queue.add(ObjectKey::new(slice.metadata.namespace.clone().unwrap_or_default(), service));
            }
        }
    });
}

/// The slices of the Service at `key` that `manager` keeps.
pub(super) fn kept_slices(informers: &Informers, key: &ObjectKey, manager: &str) -> Vec<Arc<EndpointSlice>> {
    let mut slices = informers.endpoint_slices.list_term(&key.to_string());
    slices.retain(|slice| {
        slice.metadata.deletion_timestamp.is_none()
            && slice.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|it| it == manager)
    });
    slices
}

/// Carries out `changes`; `make` turns a group into a new slice.
pub(super) async fn perform(
    api: &ApiClient,
    changes: Changes,
    make: impl Fn(Group) -> EndpointSlice,
) -> Result<(), SyncError> {
    let create: Vec<EndpointSlice> = changes.create.into_iter().map(make).collect();
    for result in join_all(create.iter().map(|slice| api.create(slice))).await {
        match result {
            Err(error) if !error.is_namespace_terminating() => return Err(error),
            _ => {}
        }
    }
    join_all(changes.update.iter().map(|slice| api.update(slice))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let delete = changes.delete.iter().map(|slice| async {
        api.delete::<EndpointSlice>(&ObjectKey::of(slice.as_ref()), &DeleteParams::default()).await
    });
    for result in join_all(delete).await {
        match result {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Reconcile for SliceController {
    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn kind(&self) -> &'static str {
        "Service"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: endpointslice_controller.go v1.36.2 `syncService`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        // The slices of a Service that is gone go with it: it owns them.
        let Some(service) = self.informers.services.get(key) else { return Ok(()) };
        if is_external_or_without_selector(&service) || service.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let pods = selected(&self.informers, &service);
        let groups = groups(&service, &pods, |node| {
            let node = self.informers.nodes.get(&ObjectKey::new("", node))?;
            node.metadata.labels.as_ref()?.get("topology.kubernetes.io/zone").cloned()
        });
        let existing = kept_slices(&self.informers, key, MANAGER);
        let labels = labels(&service);
        let trigger = trigger_time(&service, &pods).map(|time| time.to_string());
        let fresh = |slice: &mut EndpointSlice| {
            let stale = slice.metadata.labels.as_ref() != Some(&labels);
            slice.metadata.labels = Some(labels.clone());
            stale
        };
        let mut changes = slices::plan(groups, &existing, &addresses::families(&service), fresh);
        let annotate = |slice: &mut EndpointSlice| {
            if let Some(trigger) = &trigger {
                slice.metadata.annotations.get_or_insert_default().insert(TRIGGER_TIME.to_owned(), trigger.clone());
            }
        };
        changes.update.iter_mut().for_each(annotate);
        let result = perform(&self.api, changes, |group| {
            let mut slice = new_slice(&service, &labels, group);
            annotate(&mut slice);
            slice
        })
        .await;
        if let Err(error) = &result
            && !error.is_conflict()
        {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", error.message());
            self.recorder.event(service.as_ref(), WARNING, "FailedToUpdateEndpointSlices", message);
        }
        result
    }
}

fn new_slice(service: &Service, labels: &BTreeMap<String, String>, group: Group) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(service.metadata.name.as_deref().unwrap_or_default())),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: Some(vec![new_controller_ref(service)]),
            ..ObjectMeta::default()
        },
        address_type: group.family,
        ports: Some(group.ports),
        endpoints: Some(group.endpoints),
    }
}

/// The prefix of a slice's generated name. Upstream: k8s.io/endpointslice v1.36.2 `getEndpointSlicePrefix`.
pub(super) fn name_prefix(service: &str) -> String {
    let prefix = format!("{service}-");
    // A name that is too long with the dash is taken without it.
    if prefix.len() > 63 { service.to_owned() } else { prefix }
}

/// Labels of the slices of `service`. Upstream: k8s.io/endpointslice v1.36.2 `setEndpointSliceLabels`.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| key != SERVICE_NAME && key != MANAGED_BY && key != HEADLESS);
    if addresses::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The endpoints of `service` by family and ports. `zone` tells the zone of a node.
/// Upstream: k8s.io/endpointslice v1.36.2 reconciler.go `reconcileByAddressType`, utils.go `podToEndpoint`.
fn groups(service: &Service, pods: &[Arc<Pod>], zone: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let publish = addresses::publishes_not_ready(service);
    let mut groups: Vec<Group> = Vec::new();
    for family in addresses::families(service) {
        for pod in pods.iter().filter(|pod| addresses::counts(pod, true)) {
            let ips = addresses::pod_addresses(pod, family);
            if ips.is_empty() {
                continue;
            }
            let served: Vec<EndpointPort> = ports
                .iter()
                .filter_map(|port| {
                    Some(EndpointPort {
                        name: Some(port.name.clone().unwrap_or_default()),
                        port: Some(addresses::find_port(pod, port)?),
                        protocol: port.protocol.clone(),
                        app_protocol: port.app_protocol.clone(),
                    })
                })
                .collect();
            let (serving, terminating) = (pod::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
            let node = Some(pod::node_name(pod)).filter(|node| !node.is_empty());
            let endpoint = Endpoint {
                addresses: ips,
                conditions: Some(EndpointConditions {
                    ready: Some(publish || (serving && !terminating)),
                    serving: Some(serving),
                    terminating: Some(terminating),
                }),
                target_ref: Some(addresses::target(pod)),
                node_name: node.map(str::to_owned),
                zone: node.and_then(&zone).filter(|zone| !zone.is_empty()),
                hostname: addresses::hostname(pod, service),
                ..Endpoint::default()
            };
            match groups.iter_mut().find(|group| group.family == family && group.ports == served) {
                Some(group) => group.endpoints.push(endpoint),
                None => groups.push(Group { family: family.to_owned(), ports: served, endpoints: vec![endpoint] }),
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};

    use super::super::addresses::tests::pod_at;
    use super::*;

    #[test]
    fn a_pod_that_is_going_serves_but_is_not_ready() {
        let port = ServicePort { port: 80, ..ServicePort::default() };
        let spec = ServiceSpec { ports: Some(vec![port]), ..ServiceSpec::default() };
        let service = Service { spec: Some(spec), ..Service::default() };
        let mut going = pod_at("b", "10.0.0.2");
        going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
        let pods = [pod_at("a", "10.0.0.1"), going].map(Arc::new);
        let groups = groups(&service, &pods, |node| Some(format!("zone-of-{node}")));
        assert_eq!(groups.len(), 1);
        let seen: Vec<_> = groups[0]
            .endpoints
            .iter()
            .map(|endpoint| {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                (conditions.ready, conditions.serving, conditions.terminating, endpoint.zone.clone())
            })
            .collect();
        let zone = Some("zone-of-n".to_owned());
        assert_eq!(seen[0], (Some(true), Some(true), Some(false), zone.clone()));
        assert_eq!(seen[1], (Some(false), Some(true), Some(true), zone));
    }
}
