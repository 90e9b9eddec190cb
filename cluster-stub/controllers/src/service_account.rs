//! What every namespace gets: the ServiceAccount `default` and the ConfigMap with the cluster's root CA.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::ObjectMeta;

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

/// Name of the ServiceAccount that pods get which ask for none.
const DEFAULT: &str = "default";
/// Name of the ConfigMap that pods find the root CA in.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Annotation of that ConfigMap, and its text. Upstream: rootcacertpublisher v1.36.2 `DescriptionAnnotation`.
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
     service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

/// Starts the service account controller and the root CA publisher.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(ServiceAccounts {
        api: context.api("service-account-controller"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    follow_namespaces(context, &controller.queue);
    let queue = controller.queue.clone();
    context.informers.service_accounts.on_change(move |delta| {
        let meta = &delta.object().metadata;
        if delta.is_deleted() && meta.name.as_deref() == Some(DEFAULT) {
            queue.add(ObjectKey::new("", meta.namespace.clone().unwrap_or_default()));
        }
    });
    context.run(&controller, 2);

    let Some(root_ca) = context.options.root_ca_pem.clone() else { return };
    let publisher = Arc::new(RootCaPublisher {
        api: context.api("root-ca-cert-publisher"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        root_ca,
    });
    follow_namespaces(context, &publisher.queue);
    let queue = publisher.queue.clone();
    context.informers.config_maps.on_change(move |delta| {
        let meta = &delta.object().metadata;
        if meta.name.as_deref() == Some(ROOT_CA) {
            queue.add(ObjectKey::new("", meta.namespace.clone().unwrap_or_default()));
        }
    });
    context.run(&publisher, 2);
}

/// Enqueues every namespace that appears or changes.
fn follow_namespaces(context: &Context, queue: &WorkQueue<ObjectKey>) {
    let queue = queue.clone();
    context.informers.namespaces.on_change(move |delta| {
        if !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
}

/// Whether the namespace is there to stay. Upstream: both controllers v1.36.2 act in active namespaces only.
fn is_active(informers: &Informers, namespace: &ObjectKey) -> bool {
    informers.namespaces.get(namespace).is_some_and(|namespace| {
        namespace.metadata.deletion_timestamp.is_none()
            && namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating")
    })
}

/// A namespace that is going, or an object that somebody else just made, needs nothing more.
fn settle<T>(result: Result<T, SyncError>) -> Result<(), SyncError> {
    match result {
        Err(error) if !error.is_already_exists() && !error.is_namespace_terminating() && !error.is_not_found() => {
            Err(error)
        }
        _ => Ok(()),
    }
}

struct ServiceAccounts {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

impl Reconcile for ServiceAccounts {
    fn name(&self) -> &'static str {
        "service-account-controller"
    }

    fn kind(&self) -> &'static str {
        "Namespace"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: serviceaccounts_controller.go v1.36.2 `syncNamespace`.
    async fn reconcile(&self, namespace: &ObjectKey) -> Result<(), SyncError> {
        let key = ObjectKey::new(namespace.name.clone(), DEFAULT);
        if !is_active(&self.informers, namespace) || self.informers.service_accounts.get(&key).is_some() {
            return Ok(());
        }
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(key.name), namespace: Some(key.namespace), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        settle(self.api.create(&account).await)
    }
}

struct RootCaPublisher {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    root_ca: String,
}

impl Reconcile for RootCaPublisher {
    fn name(&self) -> &'static str {
        "root-ca-cert-publisher"
    }

    fn kind(&self) -> &'static str {
        "Namespace"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: rootcacertpublisher/publisher.go v1.36.2 `syncNamespace`.
    async fn reconcile(&self, namespace: &ObjectKey) -> Result<(), SyncError> {
        if !is_active(&self.informers, namespace) {
            return Ok(());
        }
        let key = ObjectKey::new(namespace.name.clone(), ROOT_CA);
        let data = BTreeMap::from([("ca.crt".to_owned(), self.root_ca.clone())]);
        let (name, text) = DESCRIPTION;
        match self.informers.config_maps.get(&key) {
            None => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(key.name),
                        namespace: Some(key.namespace),
                        annotations: Some([(name.to_owned(), text.to_owned())].into()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    ..ConfigMap::default()
                };
                settle(self.api.create(&map).await)
            }
            Some(map) => {
                let described =
                    map.metadata.annotations.as_ref().and_then(|map| map.get(name)).is_some_and(|it| it == text);
                if map.data.as_ref() == Some(&data) && described {
                    return Ok(());
                }
                let mut changed = map.as_ref().clone();
                changed.data = Some(data);
                changed.metadata.annotations.get_or_insert_default().insert(name.to_owned(), text.to_owned());
                settle(self.api.update(&changed).await)
            }
        }
    }
}
