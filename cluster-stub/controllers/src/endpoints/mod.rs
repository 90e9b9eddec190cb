//! The endpoints controllers: Endpoints and EndpointSlices of Services, and the mirroring of hand-made Endpoints.

mod addresses;
mod mirror;
mod slice_controller;
mod slices;
mod subsets;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::{DeleteParams, ObjectMeta};

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::recorder::{EventRecorder, WARNING};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

const NAME: &str = "endpoint-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-endpoint-syncs`.
const WORKERS: usize = 5;
/// Label of the objects that this controller keeps.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Label of a Service without an address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// When what led to the last change happened.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation of an object that could not hold all addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

struct EndpointsController {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the controllers of Endpoints, EndpointSlices and mirrored EndpointSlices.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(EndpointsController {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    follow_services(context, &controller.queue);
    let queue = controller.queue.clone();
    context.informers.endpoints.on_change(move |delta| {
        if delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&controller, WORKERS);
    slice_controller::start(context);
    mirror::start(context);
}

/// Enqueues a Service when it or one of its pods changes.
fn follow_services(context: &Context, queue: &WorkQueue<ObjectKey>) {
    let of_service = queue.clone();
    context.informers.services.on_change(move |delta| of_service.add(ObjectKey::of(delta.object().as_ref())));
    let (informers, queue) = (Arc::clone(&context.informers), queue.clone());
    context.informers.pods.on_change(move |delta| {
        if delta.old().is_some_and(|old| !matters(old, delta.object())) {
            return;
        }
        let pods = [Some(delta.object()), delta.old()];
        let namespace = delta.object().metadata.namespace.as_deref().unwrap_or_default();
        for service in informers.services.list_namespace(namespace) {
            let Some(selector) = addresses::selector(&service) else { continue };
            if pods.iter().flatten().any(|pod| selector.matches(pod.metadata.labels.as_ref())) {
                queue.add(ObjectKey::of(service.as_ref()));
            }
        }
    });
}

/// Whether endpoints can differ after this change of a pod.
/// Upstream: k8s.io/endpointslice/util v1.36.2 `podEndpointsChanged`.
fn matters(old: &Pod, new: &Pod) -> bool {
    let ips = |pod: &Pod| pod.status.as_ref().map(|status| (status.pod_ip.clone(), status.pod_ips.clone()));
    let seen = |pod: &Pod| (pod::is_ready(pod), pod::is_terminal(pod), pod.metadata.deletion_timestamp.is_some());
    old.metadata.labels != new.metadata.labels
        || ips(old) != ips(new)
        || seen(old) != seen(new)
        || pod::node_name(old) != pod::node_name(new)
}

/// The pods that `service` selects.
fn selected(informers: &Informers, service: &Service) -> Vec<Arc<Pod>> {
    let Some(selector) = addresses::selector(service) else { return Vec::new() };
    let mut pods = informers.pods.list_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
    pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()));
    pods
}

/// The newest of the moments in which the Service or one of its pods changed.
fn trigger_time(service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
    let ready = |pod: &Arc<Pod>| pod::condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0);
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pods.iter().filter_map(ready).chain(created).max()
}

fn is_external_or_without_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
        || spec.is_none_or(|spec| spec.selector.is_none())
}

/// Labels of the Endpoints of `service`. Upstream: endpoints_controller.go v1.36.2 `syncService`.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if addresses::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), NAME.to_owned());
    labels
}

impl Reconcile for EndpointsController {
    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    fn kind(&self) -> &'static str {
        "Service"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let current = self.informers.endpoints.get(key);
        let Some(service) = self.informers.services.get(key) else {
            if current.is_none() {
                return Ok(());
            }
            return match self.api.delete::<Endpoints>(key, &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            };
        };
        if is_external_or_without_selector(&service) {
            return Ok(());
        }
        let pods = selected(&self.informers, &service);
        let (subsets, truncated) = subsets::subsets(&service, &pods);
        let subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
        let labels = labels(&service);
        if let Some(current) = &current
            && current.subsets.clone().filter(|subsets| !subsets.is_empty()) == subsets
            && current.metadata.labels.as_ref() == Some(&labels)
        {
            return Ok(());
        }
        let mut wanted = current.as_ref().map(|current| current.as_ref().clone()).unwrap_or_else(|| Endpoints {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                ..ObjectMeta::default()
            },
            subsets: None,
        });
        wanted.subsets = subsets;
        wanted.metadata.labels = Some(labels);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        if let Some(time) = trigger_time(&service, &pods) {
            annotations.insert(TRIGGER_TIME.to_owned(), time.to_string());
        }
        if truncated {
            annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
        } else {
            annotations.remove(OVER_CAPACITY);
        }
        let written = if current.is_some() { self.api.update(&wanted).await } else { self.api.create(&wanted).await };
        match written {
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                if !error.is_conflict() && !error.is_already_exists() {
                    let (reason, what) = if current.is_some() {
                        ("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {}", error.message()))
                    } else {
                        (
                            "FailedToCreateEndpoint",
                            format!("Failed to create endpoint for service {key}: {}", error.message()),
                        )
                    };
                    self.recorder.event(&wanted, WARNING, reason, what);
                }
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }
}
