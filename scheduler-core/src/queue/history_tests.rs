//! Random histories: every pod is in exactly one place, none is lost, and nothing depends on chance.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::test_rules::{AFFINITY, FIT, TestRules, gated, node_event, pod};
use super::{Place, QueueOptions, SchedulingQueue};
use crate::framework::{ActionType, ClusterEvent, NominatedNode, Nominations, QueuedEntity};
use crate::model::Timestamp;

#[derive(Clone, Debug)]
enum Op {
    Add { uid: u8, priority: i32, gated: bool },
    Update { uid: u8, priority: i32, gated: bool },
    Delete { uid: u8 },
    Pop,
    Fail { nth: usize, plugins: u8 },
    Done { nth: usize },
    Node { action: u8 },
    Activate { uid: u8 },
    Nominate { uid: u8, node: Option<u8> },
    Wait { millis: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let uid = 0_u8..12;
    prop_oneof![
        4 => (uid.clone(), 0..4, any::<bool>()).prop_map(|(uid, priority, gated)| Op::Add { uid, priority, gated }),
        3 => (uid.clone(), 0..4, any::<bool>()).prop_map(|(uid, priority, gated)| Op::Update { uid, priority, gated }),
        2 => uid.clone().prop_map(|uid| Op::Delete { uid }),
        6 => Just(Op::Pop),
        6 => (any::<usize>(), 0_u8..8).prop_map(|(nth, plugins)| Op::Fail { nth, plugins }),
        1 => any::<usize>().prop_map(|nth| Op::Done { nth }),
        4 => (0_u8..5).prop_map(|action| Op::Node { action }),
        1 => uid.clone().prop_map(|uid| Op::Activate { uid }),
        1 => (uid, prop::option::of(0_u8..3)).prop_map(|(uid, node)| Op::Nominate { uid, node }),
        4 => prop_oneof![0_i64..3_000, 0_i64..400_000].prop_map(|millis| Op::Wait { millis }),
    ]
}

/// What must be known of the queue without looking into it.
#[derive(Default)]
struct Model {
    known: BTreeSet<String>,
    deleted_in_flight: BTreeSet<String>,
    in_flight: Vec<QueuedEntity>,
}

fn run(ops: &[Op]) -> Result<(Vec<String>, SchedulingQueue), TestCaseError> {
    let rules = &TestRules;
    let mut queue = SchedulingQueue::new(QueueOptions::default());
    let mut model = Model::default();
    let mut now = Timestamp::ZERO;
    let mut popped = Vec::new();
    for op in ops {
        match op {
            Op::Add { uid, priority, gated: is_gated } | Op::Update { uid, priority, gated: is_gated } => {
                let name = uid.to_string();
                if model.deleted_in_flight.contains(&name) {
                    continue; // A UID is never used again.
                }
                let new = if *is_gated { gated(&name) } else { pod(&name, *priority) };
                match op {
                    Op::Add { .. } => queue.add(new, now, rules),
                    _ => queue.update(Some(&pod(&name, 0)), new, now, rules),
                }
                model.known.insert(name);
            }
            Op::Delete { uid } => {
                let name = uid.to_string();
                queue.delete(&name, rules);
                model.known.remove(&name);
                if model.in_flight.iter().any(|entity| *entity.pod.uid == *name) {
                    model.deleted_in_flight.insert(name);
                }
            }
            Op::Pop => match queue.pop(now, rules) {
                Some(entity) => {
                    prop_assert!(!entity.is_gated());
                    popped.push(entity.pod.uid.to_string());
                    model.in_flight.push(entity);
                }
                None => prop_assert!(!queue.is_ready()),
            },
            Op::Fail { nth, plugins } if !model.in_flight.is_empty() => {
                let mut entity = model.in_flight.remove(nth % model.in_flight.len());
                let uid = entity.pod.uid.to_string();
                entity.clear_rejector_plugins();
                let pick = |bit: u8, name| (plugins & bit != 0).then_some(name);
                entity.unschedulable_plugins = [pick(1, AFFINITY), pick(2, FIT)].into_iter().flatten().collect();
                entity.pending_plugins = pick(4, FIT).into_iter().collect();
                let place = queue.add_unschedulable(entity, now, rules);
                prop_assert_eq!(place.is_none(), model.deleted_in_flight.remove(&uid));
            }
            Op::Done { nth } if !model.in_flight.is_empty() => {
                let entity = model.in_flight.remove(nth % model.in_flight.len());
                queue.done(&entity.pod.uid);
                queue.delete(&entity.pod.uid, rules);
                model.known.remove(&*entity.pod.uid);
                model.deleted_in_flight.remove(&*entity.pod.uid);
            }
            Op::Node { action } => {
                let event = match action {
                    0 => node_event(ActionType::ADD),
                    1 => node_event(ActionType::UPDATE_NODE_LABEL),
                    2 => node_event(ActionType::UPDATE_NODE_ALLOCATABLE),
                    3 => node_event(ActionType::UPDATE_NODE_TAINT),
                    _ => ClusterEvent::wild_card(),
                };
                queue.move_all(&event, None, now, rules);
            }
            Op::Activate { uid } => queue.activate(&[pod(&uid.to_string(), 0)], now, rules),
            Op::Nominate { uid, node } => {
                let nominated = node.map_or(NominatedNode::Clear, |node| NominatedNode::Set(node.to_string().into()));
                queue.nominate(&pod(&uid.to_string(), 0), &nominated);
            }
            Op::Wait { millis } => {
                now = Timestamp::from_micros(now.as_micros() + millis * 1_000);
                queue.tick(now, rules);
                prop_assert!(queue.next_wakeup().is_none_or(|wakeup| wakeup > now), "nothing is overdue after a tick");
            }
            Op::Fail { .. } | Op::Done { .. } => {}
        }
        check(&queue, &model)?;
    }
    Ok((popped, queue))
}

fn check(queue: &SchedulingQueue, model: &Model) -> Result<(), TestCaseError> {
    let lengths = queue.lengths();
    let waiting: BTreeSet<String> =
        model.known.iter().filter(|uid| !model.in_flight.iter().any(|e| *e.pod.uid == ***uid)).cloned().collect();
    for uid in &waiting {
        prop_assert!(queue.get(uid).is_some(), "pod {} is lost", uid);
    }
    for entity in &model.in_flight {
        prop_assert_eq!(queue.place(&entity.pod.uid), Some(Place::InFlight));
    }
    prop_assert_eq!(lengths.in_flight, model.in_flight.len());
    prop_assert_eq!(queue.in_flight.uids().count(), lengths.in_flight);
    let n_waiting = lengths.active + lengths.backoff + lengths.unschedulable + lengths.gated;
    prop_assert_eq!(n_waiting, waiting.len());
    // Each stored entity is in the structure of its place and in no other.
    let heaps =
        [(&queue.active, Place::Active), (&queue.backoff, Place::Backoff), (&queue.error_backoff, Place::ErrorBackoff)];
    let mut seen = BTreeSet::new();
    for (heap, place) in heaps {
        for slot in heap.iter() {
            prop_assert_eq!(queue.entry(slot).place, place);
            prop_assert!(seen.insert(slot));
            prop_assert!(!queue.entry(slot).entity.is_gated());
        }
    }
    let mut n_gated = 0;
    for slot in queue.unschedulable.all() {
        prop_assert_eq!(queue.entry(slot).place, Place::Unschedulable);
        prop_assert!(seen.insert(slot));
        n_gated += usize::from(queue.entry(slot).entity.is_gated());
    }
    prop_assert_eq!(n_gated, lengths.gated);
    prop_assert_eq!(seen.len(), queue.slots.len());
    if model.in_flight.is_empty() {
        prop_assert_eq!(queue.in_flight.n_events(), 0);
    }
    for node in queue.nominator().nominated_nodes() {
        for pod in queue.nominator().nominated_on(&node) {
            prop_assert!(model.known.contains(&*pod.uid), "pod {} is gone and still nominated", pod.uid);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_history_loses_a_pod_or_has_it_twice(ops in prop::collection::vec(op(), 1..80)) {
        let (popped, mut queue) = run(&ops)?;
        let (again, _) = run(&ops)?;
        prop_assert_eq!(popped, again, "the same history gives the same order");
        // Whatever happened: with no gate, time alone brings every waiting pod to a try.
        let mut now = Timestamp::from_secs(100_000_000);
        for _ in 0..40 {
            queue.tick(now, &TestRules);
            now = now.after(std::time::Duration::from_secs(30));
        }
        let n_ready = queue.lengths().active + queue.lengths().backoff;
        prop_assert_eq!(n_ready + queue.lengths().gated, queue.slots.len());
        let tried: BTreeSet<Arc<str>> = std::iter::from_fn(|| queue.pop(now, &TestRules)).map(|e| Arc::clone(&e.pod.uid)).collect();
        prop_assert_eq!(tried.len(), n_ready);
    }
}
