//! The body of the target `cycle`: odd objects come and go, cycles run, effects succeed, fail or are lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Change, Options, Scheduler};
use scheduler_core::framework::{EffectError, EffectId, EffectKind};
use scheduler_core::model::{Object, Timestamp};
use scheduler_core::testing::pool;

use super::odd::{Reader, object};

/// Longer histories find nothing that shorter ones do not.
const MAX_STEPS: usize = 100;

pub(crate) fn run(data: &[u8]) {
    let mut reader = Reader::new(data);
    let registry = scheduler_core::plugins::registry();
    let options = Options { seed: 1, record_decisions: reader.below(2) == 0, ..Options::default() };
    let mut scheduler = Scheduler::new(&KubeSchedulerConfiguration::default(), &registry, options)
        .expect("the default configuration names in-tree plugins alone");
    let mut now = Timestamp::ZERO;
    let mut applied: Vec<Object> = Vec::new();
    let mut outstanding: Vec<(EffectId, Option<Arc<str>>)> = Vec::new();
    let mut binding: BTreeSet<Arc<str>> = BTreeSet::new();
    for _ in 0..MAX_STEPS {
        if reader.is_empty() {
            break;
        }
        match reader.below(8) {
            0..=2 => {
                let Some(object) = object(&mut reader) else { continue };
                forget(&object, &mut binding);
                applied.push(object.clone());
                scheduler.handle(Change::Applied(object), now);
            }
            3 if !applied.is_empty() => {
                let object = applied.swap_remove(reader.below(applied.len()));
                forget(&object, &mut binding);
                scheduler.handle(Change::Deleted(object), now);
            }
            4 => {
                now = now.after(std::time::Duration::from_secs(u64::from(reader.byte())));
                scheduler.tick(now);
            }
            5 if !outstanding.is_empty() => {
                let (id, bound) = outstanding.swap_remove(reader.below(outstanding.len()));
                let result = match reader.below(3) {
                    0 => continue, // lost
                    1 => Ok(()),
                    _ => Err(EffectError { message: "refused".to_owned(), not_found: reader.below(2) == 0 }),
                };
                if let (Err(_), Some(uid)) = (&result, bound) {
                    binding.remove(&uid);
                }
                scheduler.handle_result(id, result, now);
            }
            _ => drop(scheduler.schedule_one(now, pool())),
        }
        for effect in scheduler.drain_effects() {
            let bound = match &effect.kind {
                EffectKind::Bind { pod, .. } => {
                    assert!(binding.insert(Arc::clone(&pod.uid)), "pod {} is bound twice", pod.uid);
                    Some(Arc::clone(&pod.uid))
                }
                _ => None,
            };
            outstanding.push((effect.id, bound));
        }
        check(&scheduler);
    }
}

/// News of a pod: it may be bound anew.
fn forget(object: &Object, binding: &mut BTreeSet<Arc<str>>) {
    if let Object::Pod(pod) = object {
        binding.remove(&pod.uid);
    }
}

fn check(scheduler: &Scheduler) {
    let snapshot = scheduler.cache().snapshot();
    let mut seen = BTreeSet::new();
    for pod in snapshot.iter().flat_map(|node| snapshot.pods(node)) {
        assert!(seen.insert(&pod.uid), "pod {} is on two nodes", pod.uid);
    }
}
