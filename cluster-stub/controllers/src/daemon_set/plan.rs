//! One reconcile of a DaemonSet as a function: nodes, pods and the time in, what to do out. Sends nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::runtime::intstr::scaled;
use crate::runtime::pod;

use super::nodes::{is_updated, should_run, target};

/// Most pods made or deleted in one reconcile. Upstream: daemon_controller.go v1.36.2 `BurstReplicas`.
const BURST: usize = 250;

/// What one reconcile does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Make a pod on each of these nodes.
    pub(super) create: Vec<String>,
    /// Delete these pods.
    pub(super) delete: Vec<Arc<Pod>>,
    /// Of those, the ones that ended by themselves.
    pub(super) ended: Vec<Arc<Pod>>,
    /// The new status.
    pub(super) status: DaemonSetStatus,
    /// When a ready pod becomes available.
    pub(super) again_after: Option<Duration>,
}

/// Plans a reconcile of `set`. `backing_off` says whether the failed pod of a node shall stay a while longer.
/// Upstream: daemon_controller.go v1.36.2 `syncDaemonSet`.
pub(super) fn plan(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    hash: &str,
    backing_off: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Plan {
    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = target(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| (pod::node_name(pod).is_empty(), pod.metadata.creation_timestamp.clone()));
    }
    let mut plan = Plan::default();
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = by_node.get(name).map(Vec::as_slice).unwrap_or_default();
        place(set, name, should_run(set, node), pods, hash, &backing_off, now, &mut plan);
    }
    let known = |name: &str| nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name));
    // A pod that still waits for a node that is gone waits for ever.
    let waiting = pods.iter().filter(|pod| {
        pod::node_name(pod).is_empty()
            && pod.metadata.deletion_timestamp.is_none()
            && target(pod).is_some_and(|node| !known(node))
    });
    plan.delete.extend(waiting.cloned());
    if plan.create.is_empty() && plan.delete.is_empty() {
        roll(set, nodes, &by_node, hash, now, &mut plan);
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan.status = status(set, nodes, &by_node, hash, now);
    let min_ready = min_ready(set);
    plan.again_after =
        pods.iter().filter_map(|pod| pod::until_available(pod, min_ready, now)).filter(|wait| !wait.is_zero()).min();
    plan
}

fn min_ready(set: &DaemonSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Upstream: daemon_controller.go v1.36.2 `podsShouldBeOnNode`.
#[expect(clippy::too_many_arguments, reason = "one node's share of the plan, used here only")]
fn place(
    set: &DaemonSet,
    node: &str,
    (should_run, may_stay): (bool, bool),
    pods: &[&Arc<Pod>],
    hash: &str,
    backing_off: &impl Fn(&str) -> bool,
    now: Timestamp,
    plan: &mut Plan,
) {
    if should_run && pods.is_empty() {
        plan.create.push(node.to_owned());
        return;
    }
    let alive = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    if !may_stay {
        plan.delete.extend(alive.map(|pod| Arc::clone(pod)));
        return;
    }
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for pod in alive {
        if !pod::is_terminal(pod) {
            running.push(pod);
        } else if pod::phase(pod) == "Succeeded" || !backing_off(node) {
            plan.delete.push(Arc::clone(pod));
            plan.ended.push(Arc::clone(pod));
        }
    }
    if fenceposts(set, 1).0 == 0 {
        plan.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    if running.is_empty()
        && should_run
        && plan.ended.is_empty()
        && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())
    {
        plan.create.push(node.to_owned());
        return;
    }
    if running.len() <= 1 {
        return;
    }
    let new = running.iter().find(|pod| is_updated(set, pod, hash)).copied();
    let old = running.iter().find(|pod| !is_updated(set, pod, hash)).copied();
    let is = |pod: &Arc<Pod>, kept: Option<&Arc<Pod>>| kept.is_some_and(|kept| Arc::ptr_eq(kept, pod));
    plan.delete.extend(running.iter().filter(|pod| !is(pod, new) && !is(pod, old)).map(|pod| Arc::clone(pod)));
    if let (Some(new), Some(old)) = (new, old)
        && (!pod::is_ready(old) || pod::is_available(new, min_ready(set), now))
    {
        plan.delete.push(Arc::clone(old));
    }
}

/// Surge and unavailability for `desired` pods. Upstream: daemon/update.go v1.36.2 `updatedDesiredNodeCounts`.
fn fenceposts(set: &DaemonSet, desired: i32) -> (i32, i32) {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
    let surge = rolling.filter(|_| is_rolling).and_then(|rolling| scaled(rolling.max_surge.as_ref(), desired, true));
    let unavailable = rolling.and_then(|rolling| scaled(rolling.max_unavailable.as_ref(), desired, true));
    match (surge.unwrap_or_default(), unavailable.unwrap_or_default()) {
        (0, 0) => (0, 1),
        both => both,
    }
}

/// Upstream: daemon/update.go v1.36.2 `rollingUpdate`.
fn roll(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    hash: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return;
    }
    let desired = nodes.iter().filter(|node| should_run(set, node).0).count();
    let (surge, unavailable) = fenceposts(set, i32::try_from(desired).unwrap_or(i32::MAX));
    let available = |pod: &Pod| pod::is_available(pod, min_ready(set), now);
    let (mut busy, mut at_once, mut later) = (0, Vec::new(), Vec::new());
    for (node, pods) in by_node {
        let alive =
            || pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none() && !pod::is_terminal(pod)).copied();
        let new = alive().find(|pod| is_updated(set, pod, hash));
        let old = alive().find(|pod| !is_updated(set, pod, hash));
        match (old, new) {
            (None, Some(new)) => busy += i32::from(surge == 0 && !available(new)),
            (Some(old), None) if !available(old) => {
                busy += i32::from(surge == 0);
                at_once.push((*node, old));
            }
            (Some(old), None) => later.push((*node, old)),
            (Some(old), Some(new)) if surge > 0 && available(new) => plan.delete.push(Arc::clone(old)),
            _ => busy += 1,
        }
    }
    let room = usize::try_from((if surge > 0 { surge } else { unavailable }) - busy).unwrap_or_default();
    let chosen = at_once.into_iter().chain(later.into_iter().take(room));
    if surge > 0 {
        plan.create.extend(chosen.map(|(node, _)| node.to_owned()));
    } else {
        plan.delete.extend(chosen.map(|(_, old)| Arc::clone(old)));
    }
}

/// Upstream: daemon_controller.go v1.36.2 `updateDaemonSetStatus`.
fn status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    hash: &str,
    now: Timestamp,
) -> DaemonSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: old.collision_count,
        conditions: old.conditions,
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for node in nodes {
        let pods = by_node.get(node.metadata.name.as_deref().unwrap_or_default());
        if !should_run(set, node).0 {
            status.number_misscheduled += i32::from(pods.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pods.and_then(|pods| pods.first()) else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod::is_ready(pod));
        available += i32::from(pod::is_available(pod, min_ready(set), now));
        updated += i32::from(is_updated(set, pod, hash));
    }
    let some = |count: i32| Some(count).filter(|count| *count > 0);
    status.updated_number_scheduled = some(updated);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    status
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use crate::runtime::pod::tests::{at, running_pod};

    use super::super::nodes::HASH;
    use super::*;

    fn set(surge: i32, unavailable: i32) -> DaemonSet {
        let rolling = RollingUpdateDaemonSet {
            max_surge: Some(IntOrString::Int(surge)),
            max_unavailable: Some(IntOrString::Int(unavailable)),
        };
        let update_strategy =
            Some(DaemonSetUpdateStrategy { type_: Some("RollingUpdate".to_owned()), rolling_update: Some(rolling) });
        DaemonSet { spec: Some(DaemonSetSpec { update_strategy, ..DaemonSetSpec::default() }), ..DaemonSet::default() }
    }

    fn nodes() -> Vec<Arc<Node>> {
        ["a", "b", "c"]
            .map(|name| {
                let mut node = Node::default();
                node.metadata.name = Some(name.to_owned());
                Arc::new(node)
            })
            .into()
    }

    fn on(node: &str, hash: &str, phase: &str) -> Arc<Pod> {
        let mut pod = running_pod(&format!("{node}-{hash}"));
        pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
        pod.metadata.labels = Some([(HASH.to_owned(), hash.to_owned())].into());
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        if phase != "Running" {
            pod.status.get_or_insert_default().conditions = None;
        }
        Arc::new(pod)
    }

    fn run(set: &DaemonSet, pods: &[Arc<Pod>]) -> (Vec<String>, Vec<String>) {
        let plan = plan(set, &nodes(), pods, "new", |_| false, at(9));
        (plan.create, plan.delete.iter().filter_map(|pod| pod.metadata.name.clone()).collect())
    }

    #[test]
    fn every_node_gets_one_pod_and_an_ended_one_is_replaced() {
        let up = |node| on(node, "new", "Running");
        assert_eq!(run(&set(0, 1), &[up("a")]).0, ["b", "c"]);
        assert_eq!(run(&set(0, 1), &[up("a"), up("b"), on("c", "new", "Failed")]).1, ["c-new"]);
        assert_eq!(run(&set(0, 1), &[up("a"), up("b"), up("c"), on("c", "x", "Pending")]).1, ["c-x"]);
    }

    #[test]
    fn an_update_takes_no_more_pods_down_than_it_may() {
        let old = |node| on(node, "old", "Running");
        assert_eq!(run(&set(0, 1), &[old("a"), old("b"), old("c")]).1, ["a-old"]);
        assert_eq!(run(&set(0, 2), &[old("a"), old("b"), old("c")]).1, ["a-old", "b-old"]);
        assert!(run(&set(0, 1), &[on("a", "new", "Pending"), old("b"), old("c")]).1.is_empty());
        assert_eq!(run(&set(0, 1), &[on("a", "old", "Pending"), old("b"), old("c")]).1, ["a-old"], "no loss");
    }

    #[test]
    fn an_update_with_surge_starts_the_new_pod_first() {
        let old = |node| on(node, "old", "Running");
        assert_eq!(run(&set(1, 0), &[old("a"), old("b"), old("c")]), (vec!["a".to_owned()], vec![]));
        let both = [old("a"), on("a", "new", "Running"), old("b"), old("c")];
        assert_eq!(run(&set(1, 0), &both).1, ["a-old"]);
        let waits = [old("a"), on("a", "new", "Pending"), old("b"), old("c")];
        assert_eq!(run(&set(1, 0), &waits), (vec![], vec![]));
    }

    #[test]
    fn the_status_counts_nodes() {
        let pods = [on("a", "new", "Running"), on("b", "old", "Pending")];
        let status = plan(&set(0, 1), &nodes(), &pods, "new", |_| false, at(9)).status;
        let counts = (status.desired_number_scheduled, status.current_number_scheduled, status.number_ready);
        assert_eq!(counts, (3, 2, 1));
        assert_eq!((status.updated_number_scheduled, status.number_unavailable), (Some(1), Some(2)));
    }
}
