//! One test for each rule of the queue.

use std::sync::Arc;

use super::test_rules::{AFFINITY, FIT, GATES, TestRules, at, fail, gated, node_event, pod};
use super::{Place, QueueOptions, SchedulingQueue};
use crate::framework::{ActionType, ClusterEvent, EventResource, NominatedNode, Nominations};
use crate::model::{Labels, Pod, Timestamp};

const RULES: &TestRules = &TestRules;

fn queue(pods: &[Arc<Pod>], now: Timestamp) -> SchedulingQueue {
    let mut queue = SchedulingQueue::new(QueueOptions::default());
    for pod in pods {
        queue.add(Arc::clone(pod), now, RULES);
    }
    queue
}

fn pop(queue: &mut SchedulingQueue, now: Timestamp) -> Option<String> {
    queue.pop(now, RULES).map(|entity| entity.pod.uid.to_string())
}

fn labelled(uid: &str) -> Arc<Pod> {
    let labels: Labels = [("a", "b")].into_iter().collect();
    let mut pod = (*pod(uid, 0)).clone();
    pod.labels = labels;
    Arc::new(pod)
}

#[test]
fn higher_priority_first_then_who_came_first() {
    let mut queue = queue(&[pod("low", 1), pod("first", 5), pod("second", 5)], at(0));
    queue.add(pod("high", 9), at(1), RULES);
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, at(2))).collect();
    assert_eq!(order, ["high", "first", "second", "low"]);
}

#[test]
fn adding_a_known_pod_again_updates_it() {
    let mut queue = queue(&[pod("a", 1), pod("a", 3), pod("b", 2)], at(0));
    assert_eq!(pop(&mut queue, at(0)).as_deref(), Some("a"));
    queue.add(pod("a", 9), at(0), RULES);
    assert_eq!(queue.lengths().active, 1, "a pod in flight is not queued a second time");
}

#[test]
fn a_rejected_pod_waits_for_an_event_of_its_plugin() {
    let cases = [
        ("an event that helps", ActionType::UPDATE_NODE_ALLOCATABLE, Place::Backoff),
        ("node labels do not give cpu", ActionType::UPDATE_NODE_LABEL, Place::Unschedulable),
        ("neither do taints", ActionType::UPDATE_NODE_TAINT, Place::Unschedulable),
    ];
    for (name, action, want) in cases {
        let mut queue = queue(&[pod("a", 0)], at(0));
        fail(&mut queue, &[FIT], at(0));
        assert_eq!(queue.place("a"), Some(Place::Unschedulable));
        queue.move_all(&node_event(action), None, at(0), RULES);
        assert_eq!(queue.place("a"), Some(want), "{name}");
    }
}

#[test]
fn after_its_back_off_an_event_moves_the_pod_to_the_active_queue() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    fail(&mut queue, &[FIT], at(0));
    queue.move_all(&node_event(ActionType::ADD), None, at(2), RULES);
    assert_eq!(queue.place("a"), Some(Place::Active));
}

#[test]
fn what_a_pending_plugin_waited_for_skips_back_off() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    let mut entity = queue.pop(at(0), RULES).unwrap();
    entity.pending_plugins = vec![FIT];
    entity.unschedulable_plugins = vec![AFFINITY];
    queue.add_unschedulable(entity, at(0), RULES);
    queue.move_all(&node_event(ActionType::UPDATE_NODE_LABEL), None, at(0), RULES);
    assert_eq!(queue.place("a"), Some(Place::Backoff), "the other plugin's event");
    let mut entity = queue.pop(at(0), RULES).unwrap();
    entity.pending_plugins = vec![FIT];
    queue.add_unschedulable(entity, at(0), RULES);
    queue.move_all(&node_event(ActionType::ADD), None, at(0), RULES);
    assert_eq!(queue.place("a"), Some(Place::Active));
}

#[test]
fn back_off_does_not_hold_a_rejected_pod_when_nothing_else_waits() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    for attempt in 1..8 {
        fail(&mut queue, &[FIT], at(0));
        queue.move_all(&node_event(ActionType::ADD), None, at(0), RULES);
        assert_eq!(queue.place("a"), Some(Place::Backoff), "attempt {attempt}");
        assert!(queue.is_ready());
    }
    queue.add(pod("b", -1), at(0), RULES);
    assert_eq!(pop(&mut queue, at(0)).as_deref(), Some("b"), "something else waits: back-off holds");
    assert_eq!(pop(&mut queue, at(0)).as_deref(), Some("a"));
}

#[test]
fn an_error_serves_its_back_off_of_1_2_4_8_10_10_seconds() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    let mut now = 0;
    for wait in [1, 2, 4, 8, 10, 10] {
        fail(&mut queue, &[], at(now));
        assert_eq!(queue.place("a"), Some(Place::ErrorBackoff));
        // It is released when the second is over in which the back-off ends.
        let release = at(now + wait + 1);
        assert_eq!(queue.next_wakeup(), Some(release));
        assert_eq!(pop(&mut queue, Timestamp::from_micros(release.as_micros() - 1)), None);
        queue.tick(release, RULES);
        assert_eq!(queue.place("a"), Some(Place::Active));
        now += wait + 1;
    }
}

#[test]
fn errors_and_rejections_count_apart() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    for _ in 0..3 {
        fail(&mut queue, &[FIT], at(0));
        queue.activate(&[pod("a", 0)], at(0), RULES);
    }
    fail(&mut queue, &[], at(100));
    assert_eq!(queue.next_wakeup(), Some(at(102)), "the first error waits one second");
    queue.tick(at(102), RULES);
    fail(&mut queue, &[FIT], at(102));
    let entity = queue.get("a").unwrap();
    assert_eq!((entity.unschedulable_count, entity.consecutive_errors_count, entity.attempts), (4, 0, 5));
}

#[test]
fn pods_in_the_same_second_of_back_off_leave_by_priority() {
    let mut queue = queue(&[pod("low", 1), pod("high", 2)], at(0));
    let entities: Vec<_> = std::iter::from_fn(|| queue.pop(at(0), RULES)).collect();
    for (entity, millis) in entities.into_iter().zip([400, 100]) {
        let mut entity = entity;
        entity.unschedulable_plugins = vec![FIT];
        queue.add_unschedulable(entity, Timestamp::from_millis(millis), RULES);
    }
    queue.move_all(&node_event(ActionType::ADD), None, Timestamp::from_millis(500), RULES);
    assert_eq!(queue.lengths().backoff, 2);
    assert_eq!(pop(&mut queue, Timestamp::from_millis(500)).as_deref(), Some("high"), "though it failed later");
}

#[test]
fn events_while_in_flight_are_replayed() {
    let cases = [
        ("nothing happened", None, false, Place::Unschedulable),
        ("an event that helps", Some(ActionType::ADD), false, Place::Backoff),
        ("an event that does not", Some(ActionType::UPDATE_NODE_LABEL), false, Place::Unschedulable),
        ("an event before it was popped", Some(ActionType::ADD), true, Place::Unschedulable),
    ];
    for (name, action, before, want) in cases {
        let mut queue = queue(&[pod("other", 9), pod("a", 0)], at(0));
        pop(&mut queue, at(0));
        if let (Some(action), true) = (action, before) {
            queue.move_all(&node_event(action), None, at(0), RULES);
        }
        let mut entity = queue.pop(at(0), RULES).unwrap();
        if let (Some(action), false) = (action, before) {
            queue.move_all(&node_event(action), None, at(0), RULES);
        }
        entity.unschedulable_plugins = vec![FIT];
        assert_eq!(queue.add_unschedulable(entity, at(0), RULES), Some(want), "{name}");
    }
}

#[test]
fn replayed_events_are_forgotten_when_no_older_attempt_needs_them() {
    let mut queue = queue(&[pod("a", 3), pod("b", 2), pod("c", 1)], at(0));
    for _ in 0..3 {
        pop(&mut queue, at(0));
        queue.move_all(&node_event(ActionType::ADD), None, at(0), RULES);
    }
    assert_eq!(queue.in_flight.n_events(), 3);
    queue.done("b");
    assert_eq!(queue.in_flight.n_events(), 3, "a is older than all of them");
    queue.done("a");
    assert_eq!(queue.in_flight.n_events(), 1);
    queue.done("c");
    assert_eq!(queue.in_flight.n_events(), 0);
    queue.move_all(&node_event(ActionType::ADD), None, at(0), RULES);
    assert_eq!(queue.in_flight.n_events(), 0, "nobody is in flight");
}

#[test]
fn an_update_in_flight_is_used_and_may_help() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    let mut entity = queue.pop(at(0), RULES).unwrap();
    queue.update(Some(&pod("a", 0)), labelled("a"), at(0), RULES);
    entity.unschedulable_plugins = vec![AFFINITY];
    assert_eq!(queue.add_unschedulable(entity, at(0), RULES), Some(Place::Backoff));
    assert!(!queue.get("a").unwrap().pod.labels.is_empty(), "the new version is queued");
}

#[test]
fn a_pod_deleted_in_flight_does_not_come_back() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    let entity = queue.pop(at(0), RULES).unwrap();
    queue.delete("a", RULES);
    queue.nominate(&pod("a", 0), &NominatedNode::Set("n1".into()));
    assert!(queue.nominator().nominated_on("n1").is_empty());
    assert_eq!(queue.add_unschedulable(entity, at(0), RULES), None);
    assert_eq!(queue.place("a"), None);
    // The same name with another UID is another pod.
    queue.add(pod("a2", 0), at(0), RULES);
    assert_eq!(queue.place("a2"), Some(Place::Active));
}

#[test]
fn deletion_takes_a_pod_out_of_any_place() {
    let mut queue = queue(&[pod("active", 0), pod("unschedulable", 9), gated("gated")], at(0));
    fail(&mut queue, &[FIT], at(0));
    queue.add(pod("error", 9), at(0), RULES);
    fail(&mut queue, &[], at(0));
    for uid in ["active", "unschedulable", "gated", "error", "unknown"] {
        queue.delete(uid, RULES);
        assert_eq!(queue.place(uid), None, "{uid}");
    }
    assert_eq!(queue.lengths(), super::QueueLengths::default());
}

#[test]
fn an_update_of_a_rejected_pod_moves_it_only_if_it_may_help() {
    let cases = [
        ("labels, as affinity wants", AFFINITY, Place::Active),
        ("labels, but cpu is short", FIT, Place::Unschedulable),
    ];
    for (name, plugin, want) in cases {
        let mut queue = queue(&[pod("a", 0)], at(0));
        fail(&mut queue, &[plugin], at(0));
        queue.update(Some(&pod("a", 0)), labelled("a"), at(10), RULES);
        assert_eq!(queue.place("a"), Some(want), "{name}");
        assert!(!queue.get("a").unwrap().pod.labels.is_empty(), "{name}: the new version is kept");
    }
}

#[test]
fn an_update_of_another_kind_moves_nobody_who_wants_a_certain_one() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    fail(&mut queue, &[AFFINITY], at(0));
    let annotated = Arc::new(Pod { generation: 2, ..(*pod("a", 0)).clone() });
    queue.update(Some(&pod("a", 0)), annotated, at(10), RULES);
    assert_eq!(queue.place("a"), Some(Place::Unschedulable));
}

#[test]
fn an_update_in_the_active_queue_reorders_it() {
    let mut queue = queue(&[pod("a", 1), pod("b", 2)], at(0));
    queue.update(Some(&pod("a", 1)), pod("a", 3), at(0), RULES);
    assert_eq!(pop(&mut queue, at(0)).as_deref(), Some("a"));
}

#[test]
fn an_update_of_an_unknown_pod_adds_it() {
    let mut queue = queue(&[], at(0));
    queue.update(Some(&pod("a", 0)), pod("a", 0), at(0), RULES);
    assert_eq!(queue.place("a"), Some(Place::Active));
}

#[test]
fn a_gated_pod_waits_for_its_gate_alone() {
    let mut queue = queue(&[gated("a")], at(0));
    assert_eq!(queue.place("a"), Some(Place::Unschedulable));
    assert_eq!(queue.lengths().gated, 1);
    assert_eq!(queue.get("a").unwrap().gating_plugin, Some(GATES));
    for action in [ActionType::ADD, ActionType::UPDATE_NODE_LABEL, ActionType::DELETE] {
        queue.move_all(&node_event(action), None, at(1), RULES);
    }
    for seconds in [30, 60, 400, 800] {
        queue.tick(at(seconds), RULES);
    }
    queue.activate(&[gated("a")], at(900), RULES);
    assert_eq!(queue.place("a"), Some(Place::Unschedulable), "nor does time or another plugin open it");
    queue.update(Some(&gated("a")), pod("a", 0), at(901), RULES);
    assert_eq!(queue.place("a"), Some(Place::Active));
    assert_eq!(queue.lengths().gated, 0);
    assert_eq!(queue.pop(at(901), RULES).unwrap().attempts, 1);
}

#[test]
fn one_of_two_gates_removed_keeps_the_pod() {
    let mut two = (*pod("a", 0)).clone();
    two.scheduling_gates = ["x".into(), "y".into()].into();
    let two = Arc::new(two);
    let mut queue = queue(&[Arc::clone(&two)], at(0));
    queue.update(Some(&two), gated("a"), at(1), RULES);
    assert_eq!(queue.lengths().gated, 1);
}

#[test]
fn a_gated_pod_is_not_nominated() {
    let nominated = |pod: &Pod| Arc::new(Pod { nominated_node_name: Some("n1".into()), ..pod.clone() });
    let mut queue = queue(&[nominated(&gated("a")), nominated(&pod("b", 0))], at(0));
    let on_n1: Vec<_> = queue.nominator().nominated_on("n1").iter().map(|pod| pod.uid.to_string()).collect();
    assert_eq!(on_n1, ["b"]);
    queue.delete("b", RULES);
    assert!(queue.nominator().nominated_on("n1").is_empty());
}

#[test]
fn after_five_minutes_an_unschedulable_pod_is_tried_again() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    fail(&mut queue, &[FIT], at(0));
    for seconds in (0..=330).step_by(30) {
        queue.tick(at(seconds), RULES);
        let want = if seconds <= 300 { Place::Unschedulable } else { Place::Active };
        assert_eq!(queue.place("a"), Some(want), "{seconds}");
    }
    assert!(queue.get("a").unwrap().was_flushed_from_unschedulable);
    fail(&mut queue, &[FIT], at(331));
    assert!(!queue.get("a").unwrap().was_flushed_from_unschedulable);
}

#[test]
fn the_flush_looks_every_thirty_seconds_only() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    queue.tick(at(0), RULES);
    fail(&mut queue, &[FIT], at(1));
    queue.tick(at(290), RULES);
    queue.tick(at(310), RULES);
    assert_eq!(queue.place("a"), Some(Place::Unschedulable), "five minutes are over, the next look is not due");
    assert_eq!(queue.next_wakeup(), Some(at(320)));
    queue.tick(at(320), RULES);
    assert_eq!(queue.place("a"), Some(Place::Active));
}

#[test]
fn activation_ignores_back_off_and_is_kept_for_a_pod_in_flight() {
    let mut queue = queue(&[pod("a", 0), pod("b", 1)], at(0));
    fail(&mut queue, &[], at(0));
    assert_eq!(queue.place("b"), Some(Place::ErrorBackoff));
    let mut entity = queue.pop(at(0), RULES).unwrap();
    queue.activate(&[pod("a", 0), pod("b", 1), pod("unknown", 0)], at(0), RULES);
    assert_eq!(queue.place("b"), Some(Place::Active));
    assert_eq!(queue.place("unknown"), None);
    entity.unschedulable_plugins = vec![FIT];
    assert_eq!(queue.add_unschedulable(entity, at(0), RULES), Some(Place::Backoff), "nothing helped but the request");
}

#[test]
fn a_request_to_activate_another_pod_helps_nobody_else() {
    let mut queue = queue(&[pod("a", 1), pod("b", 0)], at(0));
    let mut a = queue.pop(at(0), RULES).unwrap();
    let _b = queue.pop(at(0), RULES).unwrap();
    queue.activate(&[pod("b", 0)], at(0), RULES);
    a.unschedulable_plugins = vec![FIT];
    assert_eq!(queue.add_unschedulable(a, at(0), RULES), Some(Place::Unschedulable));
}

#[test]
fn a_check_before_the_hints_may_spare_pods() {
    let mut queue = queue(&[pod("low", 0), pod("high", 9)], at(0));
    fail(&mut queue, &[FIT], at(0));
    fail(&mut queue, &[FIT], at(0));
    let event = ClusterEvent { resource: EventResource::AssignedPod, action: ActionType::DELETE, old: None, new: None };
    queue.move_all(&event, Some(&|pod: &Pod| pod.priority <= 5), at(10), RULES);
    assert_eq!((queue.place("low"), queue.place("high")), (Some(Place::Active), Some(Place::Unschedulable)));
}

#[test]
fn an_event_that_nobody_registered_for_is_not_even_remembered() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    pop(&mut queue, at(0));
    queue.move_all(&node_event(ActionType::UPDATE_NODE_CONDITION), None, at(0), RULES);
    assert_eq!(queue.in_flight.n_events(), 0);
}

#[test]
fn a_wild_card_moves_every_pod_that_is_not_gated() {
    let mut queue = queue(&[pod("a", 0), gated("g")], at(0));
    fail(&mut queue, &[FIT], at(0));
    queue.move_all(&ClusterEvent::wild_card(), None, at(5), RULES);
    assert_eq!((queue.place("a"), queue.place("g")), (Some(Place::Active), Some(Place::Unschedulable)));
}

#[test]
fn a_second_return_of_the_same_attempt_changes_nothing() {
    let mut queue = queue(&[pod("a", 0)], at(0));
    let mut entity = queue.pop(at(0), RULES).unwrap();
    entity.unschedulable_plugins = vec![FIT];
    assert_eq!(queue.add_unschedulable(entity.clone(), at(0), RULES), Some(Place::Unschedulable));
    assert_eq!(queue.add_unschedulable(entity, at(0), RULES), Some(Place::Unschedulable));
    assert_eq!(queue.lengths().unschedulable, 1);
}

#[test]
fn a_pod_whose_binding_failed_after_it_was_done_comes_back() {
    for (plugins, want) in [(vec![], Place::ErrorBackoff), (vec![FIT], Place::Backoff)] {
        let mut queue = queue(&[pod("a", 0)], at(0));
        let mut entity = queue.pop(at(0), RULES).unwrap();
        queue.done("a");
        assert_eq!(queue.place("a"), None);
        entity.unschedulable_plugins = plugins;
        assert_eq!(queue.add_unschedulable(entity, at(0), RULES), Some(want));
    }
}
