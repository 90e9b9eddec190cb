//! Applying what watches say: to the cache, the other objects and the queue. Upstream: eventhandlers.go (v1.36.2).

use std::sync::Arc;

use super::Change;
use super::scheduler::Scheduler;
use crate::framework::{ActionType, ClusterEvent, EventResource};
use crate::model::{Node, Object, Pod, Timestamp};
use crate::queue::pod_update_actions;

impl Scheduler {
    /// Hears of a change. Pods that it may help become ready to be tried.
    pub fn handle(&mut self, change: Change, now: Timestamp) {
        match self.with_shared_template(change) {
            Change::Applied(Object::Pod(pod)) if pod.is_terminal() => self.pod_gone(&pod, now),
            Change::Applied(Object::Pod(pod)) if pod.node_name.is_some() => self.assigned_pod_applied(pod, now),
            Change::Applied(Object::Pod(pod)) => self.unassigned_pod_applied(pod, now),
            Change::Deleted(Object::Pod(pod)) => self.pod_gone(&pod, now),
            Change::Applied(Object::Node(node)) => self.node_applied(&node, now),
            Change::Deleted(Object::Node(node)) => self.node_deleted(&node, now),
            Change::Applied(object) => {
                let old = self.objects.apply(&object);
                let action = if old.is_some() { ActionType::UPDATE } else { ActionType::ADD };
                self.object_changed(old, Some(object), action, now);
            }
            Change::Deleted(object) => {
                if let Some(old) = self.objects.remove(&object) {
                    self.object_changed(Some(old), None, ActionType::DELETE, now);
                }
            }
        }
    }

    /// The change with the template of an earlier object, if an equal one is known.
    fn with_shared_template(&mut self, mut change: Change) -> Change {
        match &mut change {
            Change::Applied(Object::Pod(pod)) => {
                if let Some(known) = self.pod_templates.known(&pod.template) {
                    Arc::make_mut(pod).template = known;
                }
            }
            Change::Applied(Object::Node(node)) => {
                if let Some(known) = self.node_templates.known(&node.template) {
                    Arc::make_mut(node).template = known;
                }
            }
            _ => {}
        }
        change
    }

    fn object_changed(&mut self, old: Option<Object>, new: Option<Object>, action: ActionType, now: Timestamp) {
        self.last_required = None;
        self.cache.object_changed(old.as_ref(), new.as_ref());
        let kind = new.as_ref().or(old.as_ref()).map(Object::kind);
        if let Some(resource) = kind.and_then(EventResource::of) {
            self.move_all(&ClusterEvent { resource, action, old, new }, now);
        }
    }

    fn move_all(&mut self, event: &ClusterEvent, now: Timestamp) {
        let (queue, rules) = self.queue_and_rules(now);
        queue.move_all(event, None, now, &rules);
        self.advance_bindings_on(event, now);
    }

    fn node_applied(&mut self, node: &Arc<Node>, now: Timestamp) {
        let snapshot = self.cache.snapshot();
        let old = snapshot.find(&node.name).map(|idx| Arc::clone(&snapshot.nodes[idx.slot()]));
        if old.is_none() {
            // Pods may have waited for it.
            self.last_required = None;
        }
        self.cache.set_node(Arc::clone(node));
        let actions = match &old {
            None => vec![ActionType::ADD],
            Some(old) => node_update_actions(old, node),
        };
        for action in actions {
            let event = ClusterEvent {
                resource: EventResource::Node,
                action,
                old: old.clone().map(Object::Node),
                new: Some(Object::Node(Arc::clone(node))),
            };
            self.move_all(&event, now);
        }
    }

    fn node_deleted(&mut self, node: &Node, now: Timestamp) {
        let snapshot = self.cache.snapshot();
        let Some(idx) = snapshot.find(&node.name) else { return };
        let old = Arc::clone(&snapshot.nodes[idx.slot()]);
        let event = ClusterEvent {
            resource: EventResource::Node,
            action: ActionType::DELETE,
            old: Some(Object::Node(old)),
            new: None,
        };
        self.move_all(&event, now);
        self.cache.remove_node(&node.name);
    }

    fn assigned_pod_applied(&mut self, mut pod: Arc<Pod>, now: Timestamp) {
        let mut known = None;
        if !self.cache.confirm_assumed(&mut pod) {
            let placed = self.cache.placed(&pod.uid);
            let was_assumed = placed.is_some_and(|(_, is_assumed)| is_assumed);
            known = placed.filter(|_| !was_assumed).map(|(known, _)| Arc::clone(known));
            if !was_assumed {
                self.last_required = None;
            }
            self.cache.set_pod_and_share(&mut pod);
        }
        let mut event = ClusterEvent {
            resource: EventResource::AssignedPod,
            action: ActionType::ADD,
            old: None,
            new: Some(Object::Pod(Arc::clone(&pod))),
        };
        match known {
            Some(old) => {
                for action in pod_update_actions(&old, &pod) {
                    event.action = action;
                    event.old = Some(Object::Pod(Arc::clone(&old)));
                    self.move_all(&event, now);
                }
            }
            None => {
                self.move_all(&event, now);
                if self.unassigned.remove(&pod.uid).is_some() {
                    let (queue, rules) = self.queue_and_rules(now);
                    queue.delete(&pod.uid, &rules);
                }
            }
        }
    }

    fn unassigned_pod_applied(&mut self, pod: Arc<Pod>, now: Timestamp) {
        let Some(profile) = self.profile_position(&pod.scheduler_name) else { return };
        if pod.nominated_node_name.is_some() {
            // Filters will look at it from other pods' cycles: what it names must have columns.
            self.require_indexes(profile, &pod);
        }
        let uid = Arc::clone(&pod.uid);
        let old = self.unassigned.insert(Arc::clone(&uid), Arc::clone(&pod));
        match self.cache.placed(&uid) {
            Some((_, true)) => {
                let deletion_began = pod.is_terminating() && old.as_ref().is_some_and(|old| !old.is_terminating());
                if deletion_began {
                    self.assumed_pod_deleted(&uid, now);
                }
                return;
            }
            Some((_, false)) => {
                // News from before the binding: the pod is on its node already.
                self.unassigned.remove(&uid);
                return;
            }
            None => {}
        }
        let Some(old) = old else {
            let (queue, rules) = self.queue_and_rules(now);
            queue.add(pod, now, &rules);
            return;
        };
        if !pod.resource_version.is_empty() && old.resource_version == pod.resource_version {
            return;
        }
        let (queue, rules) = self.queue_and_rules(now);
        queue.update(Some(&old), Arc::clone(&pod), now, &rules);
        let nomination_changed =
            old.nominated_node_name.is_some() && old.nominated_node_name != pod.nominated_node_name;
        if nomination_changed {
            self.nomination_freed(&old, now);
        }
    }

    fn pod_gone(&mut self, pod: &Pod, now: Timestamp) {
        let uid = &pod.uid;
        if let Some(waiting) = self.unassigned.remove(uid) {
            let (queue, rules) = self.queue_and_rules(now);
            queue.delete(uid, &rules);
            if self.cache.is_assumed(uid) {
                self.assumed_pod_deleted(uid, now);
            } else if waiting.nominated_node_name.is_some() {
                self.nomination_freed(&waiting, now);
            }
        }
        if let Some(old) = self.cache.remove_pod(uid) {
            self.abandon_binding(uid, now);
            self.move_all(&assigned_pod_deleted(old), now);
        }
    }

    /// A pod on its way to a node is being deleted: the node is free at once. Upstream: `handleAssumedPodDeletion`.
    fn assumed_pod_deleted(&mut self, uid: &Arc<str>, now: Timestamp) {
        let Some((_, node)) = self.cache.pod(uid) else { return };
        let node = Arc::clone(node);
        let Some(pod) = self.cache.remove_pod(uid) else { return };
        self.abandon_binding(uid, now);
        self.move_all(&assigned_pod_deleted(placed(&pod, &node)), now);
    }

    /// A nominated pod no longer holds its place: pods of no higher priority may use it.
    fn nomination_freed(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let priority = pod.priority;
        let event = assigned_pod_deleted(Arc::clone(pod));
        let (queue, rules) = self.queue_and_rules(now);
        queue.move_all(&event, Some(&|other: &Pod| other.priority <= priority), now, &rules);
    }
}

/// An assumed pod as others see it: on its node. Events about it are judged by where it was.
pub(super) fn placed(pod: &Arc<Pod>, node: &Arc<str>) -> Arc<Pod> {
    Arc::new(Pod { node_name: Some(Arc::clone(node)), ..(**pod).clone() })
}

pub(super) fn assigned_pod_deleted(pod: Arc<Pod>) -> ClusterEvent {
    ClusterEvent {
        resource: EventResource::AssignedPod,
        action: ActionType::DELETE,
        old: Some(Object::Pod(pod)),
        new: None,
    }
}

/// Upstream: framework `NodeSchedulingPropertiesChange` (v1.36.2 framework/events.go).
fn node_update_actions(old: &Node, new: &Node) -> Vec<ActionType> {
    let mut actions = Vec::new();
    if old.unschedulable && !new.unschedulable {
        actions.push(ActionType::UPDATE_NODE_TAINT);
    }
    if old.allocatable != new.allocatable {
        actions.push(ActionType::UPDATE_NODE_ALLOCATABLE);
    }
    if old.labels != new.labels {
        actions.push(ActionType::UPDATE_NODE_LABEL);
    }
    if old.taints != new.taints {
        actions.push(ActionType::UPDATE_NODE_TAINT);
    }
    if old.conditions != new.conditions {
        actions.push(ActionType::UPDATE_NODE_CONDITION);
    }
    if old.annotations != new.annotations {
        actions.push(ActionType::UPDATE_NODE_ANNOTATION);
    }
    if old.declared_features != new.declared_features {
        actions.push(ActionType::UPDATE_NODE_DECLARED_FEATURE);
    }
    actions
}
