//! The disruption controller: says in the status of a PodDisruptionBudget how many pods may be evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::controller_ref::controller_of;
use super::runtime::informers::Informers;
use super::runtime::intstr::scaled;
use super::runtime::key::ObjectKey;
use super::runtime::pod;
use super::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use super::runtime::selector::Selector;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "disruption-controller";
/// An evicted pod that is not gone by then was not deleted after all. Upstream: disruption.go v1.36.2 `DeletionTimeout`.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

struct Disruption {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the disruption controller.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(Disruption {
        recorder: context.recorder(&api, "controllermanager"),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.pod_disruption_budgets.on_change(move |delta| queue.add(ObjectKey::of(delta.object().as_ref())));
    let watcher = Arc::clone(&controller);
    context.informers.pods.on_change(move |delta| {
        for pod in [Some(delta.object()), delta.old()].into_iter().flatten() {
            watcher.enqueue_matching(pod);
        }
    });
    // A workload that is scaled changes how many pods are expected.
    for_namespace(&context.informers.deployments, &controller);
    for_namespace(&context.informers.replica_sets, &controller);
    for_namespace(&context.informers.stateful_sets, &controller);
    context.run(&controller, 1);
}

fn for_namespace<K: super::runtime::api::Object>(
    informer: &super::runtime::informer::Informer<K>,
    controller: &Arc<Disruption>,
) {
    let watcher = Arc::clone(controller);
    informer.on_change(move |delta| {
        let generation = |object: &Arc<K>| object.meta().generation;
        if delta.old().is_some_and(|old| generation(old) == generation(delta.object())) {
            return;
        }
        let namespace = delta.object().meta().namespace.clone().unwrap_or_default();
        for budget in watcher.informers.pod_disruption_budgets.list_namespace(&namespace) {
            watcher.queue.add(ObjectKey::of(budget.as_ref()));
        }
    });
}

fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    Selector::from_label_selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

impl Disruption {
    fn enqueue_matching(&self, pod: &Pod) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for budget in self.informers.pod_disruption_budgets.list_namespace(namespace) {
            if selector(&budget).is_some_and(|selector| selector.matches(pod.metadata.labels.as_ref())) {
                self.queue.add(ObjectKey::of(budget.as_ref()));
            }
        }
    }

    /// The uid and the replicas of the workload behind `owner`.
    /// Upstream: disruption.go v1.36.2 `finders`.
    fn scale_of(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
        let key = ObjectKey::new(namespace, owner.name.clone());
        let one = |uid: &Option<String>, replicas: Option<i32>| {
            (uid.as_ref() == Some(&owner.uid)).then(|| (owner.uid.clone(), replicas.unwrap_or(1)))
        };
        match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = self.informers.replica_sets.get(&key)?;
                let deployment =
                    controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment").and_then(|owner| {
                        let deployment =
                            self.informers.deployments.get(&ObjectKey::new(namespace, owner.name.clone()))?;
                        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                        Some((owner.uid.clone(), replicas))
                    });
                deployment.or_else(|| one(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            "StatefulSet" => {
                let set = self.informers.stateful_sets.get(&key)?;
                one(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            "ReplicationController" => {
                let set = self.informers.replication_controllers.get(&key)?;
                one(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            "Deployment" => {
                let set = self.informers.deployments.get(&key)?;
                one(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            _ => None,
        }
    }

    /// How many pods there should be in all; an error names a pod whose workload cannot be scaled.
    /// Upstream: disruption.go v1.36.2 `getExpectedScale`.
    fn expected_scale(&self, pods: &[Arc<Pod>]) -> Result<(i32, bool), String> {
        let (mut scales, mut unmanaged) = (BTreeMap::new(), false);
        for pod in pods {
            match controller_of(&pod.metadata) {
                None => unmanaged = true,
                Some(owner) => {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    match self.scale_of(owner, namespace) {
                        Some((uid, replicas)) => {
                            scales.insert(uid, replicas);
                        }
                        None => {
                            let name = pod.metadata.name.as_deref().unwrap_or_default();
                            return Err(format!("found no controllers for pod {name:?}"));
                        }
                    }
                }
            }
        }
        Ok((scales.values().sum(), unmanaged))
    }
}

/// Pods that were evicted and are not gone yet; those that took too long are left out.
fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> BTreeMap<String, Time> {
    let names: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect();
    let old = budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    old.into_iter().filter(|(name, since)| names.contains(name.as_str()) && since.0 + DELETION_TIMEOUT >= now).collect()
}

/// The status for `expected` pods of which `desired` must be healthy.
/// Upstream: disruption.go v1.36.2 `updatePdbStatus`, `countHealthyPods`.
fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: i32,
    desired: i32,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let disrupted = disrupted(budget, pods, now);
    let healthy = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && pod::is_ready(pod))
        .filter(|pod| pod.metadata.name.as_ref().is_none_or(|name| !disrupted.contains_key(name)))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: budget.status.as_ref().and_then(|status| status.conditions.clone()),
    };
    let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(&mut status, value, reason, String::new(), now);
    status
}

fn set_condition(status: &mut PodDisruptionBudgetStatus, value: &str, reason: &str, message: String, now: Timestamp) {
    let generation = status.observed_generation;
    let conditions = status.conditions.get_or_insert_default();
    let since = conditions
        .iter()
        .find(|it| it.type_ == "DisruptionAllowed" && it.status == value)
        .map(|it| it.last_transition_time.clone());
    let condition = Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    conditions.retain(|it| it.type_ != "DisruptionAllowed");
    conditions.push(condition);
}

impl Reconcile for Disruption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "PodDisruptionBudget"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: disruption.go v1.36.2 `trySync`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(budget) = self.informers.pod_disruption_budgets.get(key) else { return Ok(()) };
        let Some(selector) = selector(&budget) else { return Ok(()) };
        let mut pods = self.informers.pods.list_namespace(&key.namespace);
        pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()));
        if pods.is_empty() {
            self.recorder.event(budget.as_ref(), NORMAL, "NoPods", "No matching pods found".to_owned());
        }
        let spec = budget.spec.clone().unwrap_or_default();
        let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        let now = Timestamp::now();
        let numbers = match (&spec.max_unavailable, &spec.min_available) {
            (None, Some(IntOrString::Int(min))) => Ok((count, *min)),
            (max, min) => self.expected_scale(&pods).map(|(expected, unmanaged)| {
                if unmanaged {
                    let message = "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status \
                         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
                         pods please set \".spec.minAvailable\" field of the PDB to an integer value.";
                    self.recorder.event(budget.as_ref(), WARNING, "UnmanagedPods", message.to_owned());
                }
                let desired = match max {
                    Some(max) => expected - scaled(Some(max), expected, true).unwrap_or_default(),
                    None => min.as_ref().and_then(|min| scaled(Some(min), expected, true)).unwrap_or_default(),
                };
                (expected, desired.max(0))
            }),
        };
        let new = match numbers {
            Ok((expected, desired)) => status(&budget, &pods, expected, desired, now),
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder.event(budget.as_ref(), WARNING, "CalculateExpectedPodCountFailed", message);
                let mut failed = budget.status.clone().unwrap_or_default();
                failed.disruptions_allowed = Some(0);
                set_condition(&mut failed, "False", "SyncFailed", why, now);
                failed
            }
        };
        if new.disrupted_pods.is_some() {
            self.queue.add_after(key.clone(), Duration::from_secs(121));
        }
        if budget.status.as_ref() == Some(&new) {
            return Ok(());
        }
        let mut changed = budget.as_ref().clone();
        changed.status = Some(new);
        self.api.update_status(&changed).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtime::pod::tests::{at, running_pod};
    use super::*;

    #[test]
    fn evictions_are_allowed_beyond_the_desired_and_not_for_pods_that_go_already() {
        let pods = ["a", "b", "c"].map(|name| Arc::new(running_pod(name)));
        let budget = PodDisruptionBudget::default();
        for (expected, desired, allowed, reason) in
            [(3, 2, 1, "SufficientPods"), (3, 3, 0, "InsufficientPods"), (0, 0, 0, "InsufficientPods")]
        {
            let got = status(&budget, &pods, expected, desired, at(0));
            let reasons: Vec<String> = got.conditions.into_iter().flatten().map(|it| it.reason).collect();
            assert_eq!(
                (got.disruptions_allowed, got.current_healthy, reasons),
                (Some(allowed), Some(3), vec![reason.to_owned()])
            );
        }
        let mut evicting = budget;
        evicting.status.get_or_insert_default().disrupted_pods = Some([("a".to_owned(), Time(at(0)))].into());
        assert_eq!(status(&evicting, &pods, 3, 1, at(10)).disruptions_allowed, Some(1));
        assert_eq!(
            status(&evicting, &pods, 3, 1, at(500)).disruptions_allowed,
            Some(2),
            "it was not deleted after all"
        );
    }
}
