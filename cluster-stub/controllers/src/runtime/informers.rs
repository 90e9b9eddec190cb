//! The informers that all controllers share: one list and watch per kind.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::controller_ref::controller_of;
use super::discovery::Collection;
use super::informer::Informer;
use super::pod;

/// Index term of the pods on `node`.
pub(crate) fn on_node(node: &str) -> String {
    format!("node/{node}")
}

/// Index term of the pods in `namespace` that nobody controls.
pub(crate) fn without_controller(namespace: &str) -> String {
    format!("orphan/{namespace}")
}

fn collection_of<K: k8s_openapi::Resource<Scope: 'static>>() -> Collection {
    Collection {
        group: K::GROUP.to_owned(),
        version: K::VERSION.to_owned(),
        plural: K::URL_PATH_SEGMENT.to_owned(),
        kind: K::KIND.to_owned(),
        namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        verbs: BTreeSet::new(),
    }
}

macro_rules! informers {
    ($($(#[$doc:meta])* $field:ident: $kind:ty = $index:expr;)*) => {
        /// One informer per kind. Fields are the plural resource names.
        pub(crate) struct Informers {
            $($(#[$doc])* pub(crate) $field: Informer<$kind>,)*
        }

        impl Informers {
            /// The pods that the owner with `uid` controls, and those of `namespace` that nobody controls.
            /// Upstream: controller_utils.go v1.36.2 `FilterPodsByOwner`.
            pub(crate) fn pods_for_owner(&self, namespace: &str, uid: &str) -> Vec<Arc<Pod>> {
                let owned = self.pods.list_owned_by(uid).into_iter();
                let controlled = owned.filter(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid));
                controlled.chain(self.pods.list_term(&without_controller(namespace))).collect()
            }

            /// Informers that have seen nothing yet.
            pub(crate) fn new() -> Arc<Self> {
                Arc::new(Self { $($field: Informer::new($index),)* })
            }

            /// Calls `handler` with the collection and metadata of every change of every kind, and whether the object is
            /// gone. Answers the collections that are heard of this way.
            pub(crate) fn on_metadata(
                &self,
                handler: impl Fn(&Arc<Collection>, &ObjectMeta, bool) + Clone + Send + Sync + 'static,
            ) -> Vec<Arc<Collection>> {
                vec![$({
                    let collection = Arc::new(collection_of::<$kind>());
                    let (of_handler, handler) = (Arc::clone(&collection), handler.clone());
                    self.$field.on_change(move |delta| {
                        let new = &delta.object().metadata;
                        let same = delta.old().is_some_and(|old| {
                            old.metadata.owner_references == new.owner_references
                                && old.metadata.deletion_timestamp == new.deletion_timestamp
                                && old.metadata.finalizers == new.finalizers
                        });
                        if !same {
                            handler(&of_handler, new, delta.is_deleted());
                        }
                    });
                    collection
                }),*]
            }

            /// Starts all watches through `client`.
            pub(crate) fn start(&self, client: &kube::Client, tasks: &TaskTracker, shutdown: &CancellationToken) {
                $({
                    let (informer, client, shutdown) = (self.$field.clone(), client.clone(), shutdown.clone());
                    let watch: BoxFuture<'static, ()> = Box::pin(async move { informer.run(client, shutdown).await });
                    tasks.spawn(watch);
                })*
            }

            /// Waits until every informer has listed its kind once.
            pub(crate) async fn synced(&self) {
                $(self.$field.synced().await;)*
            }
        }
    };
}

informers! {
    /// Pods; extra index: [`on_node`] and [`without_controller`].
    pods: Pod = Some(|pod| {
        let node = Some(pod::node_name(pod)).filter(|node| !node.is_empty()).map(on_node);
        let orphan = controller_of(&pod.metadata)
            .is_none()
            .then(|| without_controller(pod.metadata.namespace.as_deref().unwrap_or_default()));
        node.into_iter().chain(orphan).collect()
    });
    /// Nodes.
    nodes: Node = None;
    /// Namespaces.
    namespaces: Namespace = None;
    /// Services.
    services: Service = None;
    /// Endpoints.
    endpoints: Endpoints = None;
    /// EndpointSlices; extra index: `namespace/service`.
    endpoint_slices: EndpointSlice = Some(|slice| {
        let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
        let labels = slice.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get("kubernetes.io/service-name"))
            .map(|service| format!("{namespace}/{service}"))
            .into_iter()
            .collect()
    });
    /// ServiceAccounts.
    service_accounts: ServiceAccount = None;
    /// ConfigMaps.
    config_maps: ConfigMap = None;
    /// Secrets.
    secrets: Secret = None;
    /// ReplicationControllers.
    replication_controllers: ReplicationController = None;
    /// ResourceQuotas.
    resource_quotas: ResourceQuota = None;
    /// PersistentVolumes.
    persistent_volumes: PersistentVolume = None;
    /// PersistentVolumeClaims.
    persistent_volume_claims: PersistentVolumeClaim = None;
    /// StorageClasses.
    storage_classes: StorageClass = None;
    /// Leases.
    leases: Lease = None;
    /// Deployments.
    deployments: Deployment = None;
    /// ReplicaSets.
    replica_sets: ReplicaSet = None;
    /// StatefulSets.
    stateful_sets: StatefulSet = None;
    /// DaemonSets.
    daemon_sets: DaemonSet = None;
    /// ControllerRevisions.
    controller_revisions: ControllerRevision = None;
    /// Jobs.
    jobs: Job = None;
    /// CronJobs.
    cron_jobs: CronJob = None;
    /// HorizontalPodAutoscalers.
    horizontal_pod_autoscalers: HorizontalPodAutoscaler = None;
    /// PodDisruptionBudgets.
    pod_disruption_budgets: PodDisruptionBudget = None;
    /// CertificateSigningRequests.
    certificate_signing_requests: CertificateSigningRequest = None;
    /// ClusterRoles.
    cluster_roles: ClusterRole = None;
}
