//! The resource quota controller: writes into a quota's status what its namespace uses, after something went or shrank, or the
//! quota itself changed. What comes is charged by admission. Upstream: v1.36.2 pkg/controller/resourcequota.

mod usage;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceQuota, ResourceQuotaStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::discovery::{Collection, discover};
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;
use cluster_stub_base::quantity::Quantity;

use usage::Amounts;

const NAME: &str = "resourcequota-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-resource-quota-syncs`.
const WORKERS: usize = 5;
/// Resources that are counted under their plain name as well.
const PLAIN: [&str; 4] = ["configmaps", "secrets", "replicationcontrollers", "resourcequotas"];

struct QuotaController {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    /// Served collections by `count/` name.
    collections: RwLock<HashMap<String, Collection>>,
}

/// Starts the resource quota controller.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(QuotaController {
        api: context.api(NAME),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        collections: RwLock::default(),
    });
    let queue = controller.queue.clone();
    // Admission charges what comes, before it is there: whoever counted because of a charge, or of what came, might miss an
    // object on its way, and give back what it was charged.
    context.informers.resource_quotas.on_change(move |delta| {
        if delta.old().is_none_or(|old| has_other_limits(old, delta.object())) {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    let watcher = Arc::clone(&controller);
    let _watched = context.informers.on_metadata(move |_, meta, is_gone| {
        if is_gone {
            watcher.enqueue_namespace(meta.namespace.as_deref().unwrap_or_default());
        }
    });
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| {
        if delta.old().is_some_and(|old| is_counted_otherwise(old, delta.object())) {
            watcher.enqueue_namespace(delta.object().metadata.namespace.as_deref().unwrap_or_default());
        }
    });
    let watcher = Arc::clone(&controller);
    context.informers.services.on_change(move |delta| {
        if delta.old().is_some_and(|old| old.spec != delta.object().spec) {
            watcher.enqueue_namespace(delta.object().metadata.namespace.as_deref().unwrap_or_default());
        }
    });
    context.run(&controller, WORKERS);
}

/// Whether what the quota allows changed, and not only what is charged.
fn has_other_limits(old: &ResourceQuota, new: &ResourceQuota) -> bool {
    fn hard(quota: &ResourceQuota) -> Option<&BTreeMap<String, ApiQuantity>> {
        quota.spec.as_ref()?.hard.as_ref()
    }
    hard(old) != hard(new)
}

/// Whether a quota may count the pod otherwise than before. Upstream: v1.36.2 pkg/quota/v1/install/update_filter.go.
fn is_counted_otherwise(old: &Pod, new: &Pod) -> bool {
    fn spec<'p, T>(pod: &'p Pod, of: impl Fn(&'p PodSpec) -> T) -> Option<T> {
        pod.spec.as_ref().map(of)
    }
    fn requests(spec: &PodSpec) -> impl Iterator<Item = &Option<ResourceRequirements>> {
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        containers.map(|container| &container.resources).chain([&spec.resources])
    }
    let same_requests = match (spec(old, requests), spec(new, requests)) {
        (Some(old), Some(new)) => old.eq(new),
        (old, new) => old.is_none() && new.is_none(),
    };
    let deadline = |pod| spec(pod, |spec| spec.active_deadline_seconds);
    !same_requests || pod::is_terminal(old) != pod::is_terminal(new) || deadline(old) != deadline(new)
}

impl QuotaController {
    fn enqueue_namespace(&self, namespace: &str) {
        if namespace.is_empty() {
            return;
        }
        for quota in self.informers.resource_quotas.list_namespace(namespace) {
            self.queue.add(ObjectKey::of(quota.as_ref()));
        }
    }

    /// The collection behind a `count/` name; discovered once, and again when a name is unknown.
    async fn collection(&self, name: &str) -> Result<Option<Collection>, SyncError> {
        let known = |controller: &Self| {
            controller.collections.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
        };
        if let Some(found) = known(self) {
            return Ok(Some(found));
        }
        let served = discover(&self.api)
            .await?
            .collections
            .into_iter()
            .filter(|served| served.namespaced && served.supports(&["list"]));
        let named = served.map(|served| {
            let group = if served.group.is_empty() { String::new() } else { format!(".{}", served.group) };
            (format!("count/{}{group}", served.plural), served)
        });
        *self.collections.write().unwrap_or_else(PoisonError::into_inner) = named.collect();
        Ok(known(self))
    }

    /// What the namespace uses of the resources in `hard`. Upstream: quota/v1/resources.go v1.36.2 `CalculateUsage`.
    async fn usage(&self, quota: &ResourceQuota, hard: &BTreeMap<String, ApiQuantity>) -> Result<Amounts, SyncError> {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let spec = quota.spec.clone().unwrap_or_default();
        let mut used = Amounts::new();
        for pod in self.informers.pods.list_namespace(namespace) {
            if usage::covers(&spec, &pod) {
                usage::add(&mut used, usage::of_pod(&pod));
            }
        }
        if !usage::is_scoped(&spec) {
            for service in self.informers.services.list_namespace(namespace) {
                usage::add(&mut used, usage::of_service(&service));
            }
            for claim in self.informers.persistent_volume_claims.list_namespace(namespace) {
                usage::add(&mut used, usage::of_claim(&claim));
            }
            for name in hard.keys() {
                let count = if PLAIN.contains(&name.as_str()) { format!("count/{name}") } else { name.clone() };
                if !count.starts_with("count/") || used.contains_key(name) {
                    continue;
                }
                if let Some(collection) = self.collection(&count).await? {
                    let objects = self.api.list_metadata(&collection, namespace).await?.len();
                    used.insert(name.clone(), Quantity::of(i64::try_from(objects).unwrap_or(i64::MAX)));
                }
            }
        }
        used.retain(|name, _| hard.contains_key(name));
        for name in hard.keys() {
            used.entry(name.clone()).or_insert(Quantity::ZERO);
        }
        Ok(used)
    }
}

impl Reconcile for QuotaController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "ResourceQuota"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: resource_quota_controller.go v1.36.2 `syncResourceQuota`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(quota) = self.informers.resource_quotas.get(key) else { return Ok(()) };
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
        let used = self.usage(&quota, &hard).await?;
        let old = quota.status.clone().unwrap_or_default();
        let same_used = old.used.as_ref().is_some_and(|old| {
            old.len() == used.len()
                && used.iter().all(|(name, amount)| {
                    old.get(name).is_some_and(|old| Quantity::parse(&old.0).is_ok_and(|old| old == *amount))
                })
        });
        if same_used && old.hard.as_ref() == Some(&hard) {
            return Ok(());
        }
        let used = used.into_iter().map(|(name, amount)| (name, ApiQuantity(amount.to_string()))).collect();
        let mut changed = quota.as_ref().clone();
        changed.status = Some(ResourceQuotaStatus { hard: Some(hard), used: Some(used) });
        match self.api.update_status(&changed).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: impl FnOnce(&mut Pod)) -> Pod {
        let object = serde_json::json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        });
        let mut pod = serde_json::from_value(object).expect("a pod");
        change(&mut pod);
        pod
    }

    #[test]
    fn a_charge_is_no_reason_to_count_and_another_limit_is() {
        let quota = |allowed: &str, used: &str| {
            let object = serde_json::json!({
                "metadata": {"name": "q"},
                "spec": {"hard": {"pods": allowed}},
                "status": {"hard": {"pods": allowed}, "used": {"pods": used}},
            });
            serde_json::from_value::<ResourceQuota>(object).expect("a quota")
        };
        assert!(!has_other_limits(&quota("5", "1"), &quota("5", "2")));
        assert!(has_other_limits(&quota("5", "1"), &quota("6", "1")));
    }

    #[test]
    fn a_binding_is_no_reason_to_count_and_what_counts_is() {
        let before = pod(|_| {});
        let spec = |pod: &mut Pod, change: fn(&mut PodSpec)| change(pod.spec.as_mut().expect("it has one"));
        let bound = pod(|pod| spec(pod, |spec| spec.node_name = Some("n".to_owned())));
        assert!(!is_counted_otherwise(&before, &bound));
        for counted in [
            pod(|pod| spec(pod, |spec| spec.containers[0].resources = None)),
            pod(|pod| spec(pod, |spec| spec.active_deadline_seconds = Some(5))),
            pod(|pod| pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned())),
        ] {
            assert!(is_counted_otherwise(&before, &counted), "{counted:?}");
        }
    }
}
