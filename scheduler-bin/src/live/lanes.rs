//! Effects in flight: many pods at once, one effect of a pod at a time and in order, so that no late patch overtakes a binding.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use rustc_hash::FxHashMap;
use scheduler_core::framework::{Effect, EffectError, EffectId, EffectKind};
use tokio::sync::mpsc;

/// Requests in flight at once, over all pods.
const MAX_IN_FLIGHT: usize = 256;

/// What became of an effect.
pub(crate) type Report = (EffectId, Result<(), EffectError>);

type Work = dyn Fn(Arc<Effect>) -> BoxFuture<'static, Result<(), EffectError>> + Send + Sync;

/// Performs what comes in with `work` and hands every report to `report`; ends when `effects` is closed and all is done.
pub(crate) async fn run(mut effects: mpsc::UnboundedReceiver<Effect>, work: Box<Work>, report: impl Fn(Report) + Send) {
    let mut lanes: FxHashMap<Arc<str>, VecDeque<Arc<Effect>>> = FxHashMap::default();
    let mut ready: VecDeque<Arc<Effect>> = VecDeque::new();
    let mut in_flight = FuturesUnordered::new();
    let mut open = true;
    while open || !in_flight.is_empty() || !ready.is_empty() {
        while in_flight.len() < MAX_IN_FLIGHT
            && let Some(effect) = ready.pop_front()
        {
            let result = work(Arc::clone(&effect));
            in_flight.push(result.map(move |result| (effect, result)));
        }
        tokio::select! {
            next = effects.recv(), if open => match next {
                Some(effect) => {
                    let effect = Arc::new(effect);
                    match lane(&effect) {
                        None => ready.push_back(effect),
                        Some(key) => match lanes.entry(key) {
                            Entry::Occupied(mut lane) => {
                                let waiting = lane.get_mut();
                                for overtaken in supersede(waiting, &effect) {
                                    report((overtaken.id, Ok(())));
                                }
                                waiting.push_back(effect);
                            }
                            Entry::Vacant(place) => {
                                place.insert(VecDeque::new());
                                ready.push_back(effect);
                            }
                        },
                    }
                }
                None => open = false,
            },
            Some((effect, result)) = in_flight.next(), if !in_flight.is_empty() => {
                if let Some(key) = lane(&effect) {
                    match lanes.get_mut(&key).and_then(VecDeque::pop_front) {
                        Some(next) => ready.push_back(next),
                        None => drop(lanes.remove(&key)),
                    }
                }
                report((effect.id, result));
            }
        }
    }
}

/// The object whose effects stay in order; events have none.
fn lane(effect: &Effect) -> Option<Arc<str>> {
    match &effect.kind {
        EffectKind::Bind { pod, .. }
        | EffectKind::BindByExtender { pod, .. }
        | EffectKind::PatchPodStatus { pod, .. } => Some(Arc::clone(&pod.uid)),
        EffectKind::DeleteVictim { victim, .. } => Some(Arc::clone(&victim.uid)),
        EffectKind::BindVolume { claim, .. } => Some(Arc::clone(&claim.uid)),
        EffectKind::RecordEvent { .. } | EffectKind::Custom(_) => None,
    }
}

/// A binding makes waiting status patches of its pod pointless. Upstream: api_calls pod_binding.go Merge.
fn supersede(waiting: &mut VecDeque<Arc<Effect>>, by: &Effect) -> Vec<Arc<Effect>> {
    if !matches!(by.kind, EffectKind::Bind { .. }) {
        return Vec::new();
    }
    let (overtaken, kept) =
        waiting.drain(..).partition(|effect| matches!(effect.kind, EffectKind::PatchPodStatus { .. }));
    *waiting = kept;
    Vec::from_iter::<VecDeque<_>>(overtaken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler_core::framework::NominatedNode;
    use scheduler_core::model::ObjectRef;
    use std::sync::Mutex;
    use tokio::sync::Notify;

    fn effect(id: u64, uid: &str, bind: bool) -> Effect {
        let pod = ObjectRef { uid: uid.into(), ..ObjectRef::default() };
        let kind = if bind {
            EffectKind::Bind { pod, node: "n".into() }
        } else {
            EffectKind::PatchPodStatus { pod, condition: None, nominated: NominatedNode::Clear }
        };
        Effect { id: EffectId(id), scheduler_name: "s".into(), kind }
    }

    #[tokio::test]
    async fn effects_of_one_pod_stay_in_order_and_others_go_ahead() {
        let (sender, receiver) = mpsc::unbounded_channel();
        for effect in [effect(1, "a", false), effect(2, "a", false), effect(3, "b", true)] {
            sender.send(effect).expect("the receiver is there");
        }
        drop(sender);
        let done = Arc::new(Mutex::new(Vec::new()));
        let reports = Mutex::new(Vec::new());
        let third_is_done = Arc::new(Notify::new());
        let log = Arc::clone(&done);
        let work: Box<Work> = Box::new(move |effect| {
            let (log, third_is_done) = (Arc::clone(&log), Arc::clone(&third_is_done));
            async move {
                match effect.id.0 {
                    1 => third_is_done.notified().await,
                    3 => third_is_done.notify_one(),
                    _ => {}
                }
                log.lock().expect("no panic").push(effect.id.0);
                Ok(())
            }
            .boxed()
        });
        run(receiver, work, |(id, _)| reports.lock().expect("no panic").push(id.0)).await;
        assert_eq!(*done.lock().expect("no panic"), [3, 1, 2]);
        assert_eq!(reports.into_inner().expect("no panic"), [3, 1, 2]);
    }

    #[test]
    fn a_binding_replaces_the_patches_that_wait() {
        let mut waiting: VecDeque<_> = [effect(1, "a", false), effect(2, "a", false)].map(Arc::new).into();
        assert!(supersede(&mut waiting, &effect(3, "a", false)).is_empty(), "a patch does not");
        let overtaken: Vec<_> =
            supersede(&mut waiting, &effect(3, "a", true)).iter().map(|effect| effect.id.0).collect();
        assert_eq!((overtaken.as_slice(), waiting.len()), (&[1, 2][..], 0));
    }
}
