//! A queue of keys for workers: no key twice, no key with two workers at once, delayed and backed-off adds.
//! Knows nothing of what the keys mean.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay of a failing key. Upstream: client-go v1.36.2 `DefaultTypedControllerRateLimiter`, 5 ms.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest delay of a failing key. Upstream: the same, 1000 s.
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// A de-duplicating queue with delays; cheap to clone, all clones are the same queue.
/// Upstream: client-go v1.36.2 util/workqueue. A key added while a worker holds it comes back once the worker is done.
#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    /// Keys that must be worked on: those in `ready` and those added again while in `processing`.
    dirty: HashSet<T>,
    processing: HashSet<T>,
    delayed: BinaryHeap<Reverse<(Instant, u64)>>,
    /// The key behind a heap entry, and for every key its earliest pending delay.
    delayed_keys: HashMap<u64, T>,
    due: HashMap<T, (Instant, u64)>,
    next_id: u64,
    failures: HashMap<T, u32>,
    closed: bool,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Clone + Eq + Hash> Default for WorkQueue<T> {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    ready: VecDeque::new(),
                    dirty: HashSet::new(),
                    processing: HashSet::new(),
                    delayed: BinaryHeap::new(),
                    delayed_keys: HashMap::new(),
                    due: HashMap::new(),
                    next_id: 0,
                    failures: HashMap::new(),
                    closed: false,
                }),
                changed: Notify::new(),
            }),
        }
    }
}

impl<T: Clone + Eq + Hash> WorkQueue<T> {
    /// Adds `key` now, unless it already waits.
    pub(crate) fn add(&self, key: T) {
        let woken = {
            let mut state = self.state();
            if state.closed { false } else { state.push(key) }
        };
        if woken {
            self.shared.changed.notify_one();
        }
    }

    /// Adds `key` after `delay`; an earlier pending delay of the same key wins.
    pub(crate) fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay;
        {
            let mut state = self.state();
            if state.closed || state.due.get(&key).is_some_and(|(pending, _)| *pending <= at) {
                return;
            }
            let id = state.next_id;
            state.next_id += 1;
            if let Some((_, old)) = state.due.insert(key.clone(), (at, id)) {
                state.delayed_keys.remove(&old);
            }
            state.delayed_keys.insert(id, key);
            state.delayed.push(Reverse((at, id)));
        }
        self.shared.changed.notify_one();
    }

    /// Adds `key` after its own back-off: 5 ms, doubled with every failure since the last [`WorkQueue::forget`].
    pub(crate) fn add_rate_limited(&self, key: T) {
        let delay = {
            let mut state = self.state();
            let failures = state.failures.entry(key.clone()).or_default();
            let delay = backoff(*failures);
            *failures = failures.saturating_add(1);
            delay
        };
        self.add_after(key, delay);
    }

    /// Forgets the failures of `key`.
    pub(crate) fn forget(&self, key: &T) {
        self.state().failures.remove(key);
    }

    /// The next key, held by the caller until [`WorkQueue::done`]. `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<T> {
        loop {
            let changed = self.shared.changed.notified();
            let wake_at = {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                state.move_due(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.processing.insert(key.clone());
                    let more = !state.ready.is_empty() || !state.delayed.is_empty();
                    drop(state);
                    if more {
                        self.shared.changed.notify_one(); // another worker may be asleep over it
                    }
                    return Some(key);
                }
                state.delayed.peek().map(|Reverse((at, _))| *at)
            };
            match wake_at {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Gives `key` back; if it was added meanwhile it is ready again.
    pub(crate) fn done(&self, key: &T) {
        let again = {
            let mut state = self.state();
            state.processing.remove(key);
            let again = state.dirty.contains(key);
            if again {
                state.ready.push_back(key.clone());
            }
            again
        };
        if again {
            self.shared.changed.notify_one();
        }
    }

    /// Ends the queue: all waiting and future [`WorkQueue::next`] calls answer `None`.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.shared.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // A poisoned lock still holds a consistent queue: every change below completes without calling out.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// Whether a worker has something new to do.
    fn push(&mut self, key: T) -> bool {
        if !self.dirty.insert(key.clone()) {
            return false;
        }
        if self.processing.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn move_due(&mut self, now: Instant) {
        while let Some(Reverse((at, id))) = self.delayed.peek().copied() {
            if at > now {
                // Entries that an earlier delay replaced need no wake-up of their own.
                if self.delayed_keys.contains_key(&id) {
                    break;
                }
            }
            self.delayed.pop();
            if let Some(key) = self.delayed_keys.remove(&id) {
                self.due.remove(&key);
                self.push(key);
            }
        }
    }
}

/// Delay before the retry after `failures` earlier failures.
fn backoff(failures: u32) -> Duration {
    BASE_DELAY
        .checked_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX))
        .map_or(MAX_DELAY, |delay| delay.min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        for (failures, want) in
            [(0, 5), (1, 10), (4, 80), (17, 655_360), (18, 1_000_000), (31, 1_000_000), (40, 1_000_000)]
        {
            assert_eq!(backoff(failures), Duration::from_millis(want), "{failures}");
        }
    }

    #[tokio::test]
    async fn a_key_waits_once_and_is_never_held_twice() {
        let queue = WorkQueue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        assert_eq!(queue.next().await, Some("b"));
        assert!(tokio::time::timeout(Duration::from_millis(20), queue.next()).await.is_err(), "a is still held");
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("a"));
    }

    #[tokio::test]
    async fn the_earlier_delay_of_a_key_wins() {
        let queue = WorkQueue::default();
        queue.add_after("a", Duration::from_secs(3600));
        queue.add_after("a", Duration::from_millis(5));
        queue.add_after("a", Duration::from_secs(60));
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        assert!(queue.state().delayed_keys.is_empty() && queue.state().due.is_empty());
    }

    #[tokio::test]
    async fn failures_count_until_forgotten() {
        let queue = WorkQueue::default();
        queue.add_rate_limited("a");
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        queue.add_rate_limited("a");
        assert_eq!(queue.state().failures.get("a"), Some(&2));
        queue.forget(&"a");
        assert_eq!(queue.state().failures.get("a"), None);
    }

    #[tokio::test]
    async fn closing_ends_all_waiters() {
        let queue: WorkQueue<&str> = WorkQueue::default();
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(waiter.await.expect("no panic"), None);
        queue.add("late");
        assert_eq!(queue.next().await, None);
    }
}
