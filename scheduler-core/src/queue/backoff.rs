//! How long an entity waits after a failed attempt. Upstream v1.36.2: backend/queue/backoff_queue.go.

use std::time::Duration;

use crate::framework::QueuedEntity;
use crate::model::Timestamp;

/// Entities whose back-off ends within the same second are ordered like the active queue, and leave together.
const ORDERING_WINDOW_MICROS: i64 = 1_000_000;

/// First and longest back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) initial: Duration,
    /// Zero turns back-off off.
    pub(super) max: Duration,
}

impl Backoff {
    /// When the entity's back-off ends, cut to the whole second; `None` if it has none to serve.
    /// Errors count apart from unschedulable attempts, and while the last attempt was an error they alone count.
    pub(super) fn expiration(self, entity: &QueuedEntity) -> Option<Timestamp> {
        let count = if entity.consecutive_errors_count > 0 {
            entity.consecutive_errors_count
        } else {
            entity.unschedulable_count
        };
        if self.max.is_zero() || count == 0 {
            return None;
        }
        Some(align_to_window(entity.timestamp.after(self.duration(count))))
    }

    /// `initial · 2^(count - 1)`, at most `max`.
    fn duration(self, count: u32) -> Duration {
        let doubled = 1_u32.checked_shl(count - 1).and_then(|factor| self.initial.checked_mul(factor));
        doubled.map_or(self.max, |duration| duration.min(self.max))
    }

    /// Whether the entity still waits at `now`: until the second is over in which its back-off ends.
    pub(super) fn is_backing_off(self, entity: &QueuedEntity, now: Timestamp) -> bool {
        self.expiration(entity).is_some_and(|expiration| expiration >= align_to_window(now))
    }
}

/// When an entity with this expiration leaves the back-off queue.
pub(super) fn release_time(expiration: Timestamp) -> Timestamp {
    Timestamp::from_micros(expiration.as_micros().saturating_add(ORDERING_WINDOW_MICROS))
}

fn align_to_window(time: Timestamp) -> Timestamp {
    Timestamp::from_micros(time.as_micros().div_euclid(ORDERING_WINDOW_MICROS).saturating_mul(ORDERING_WINDOW_MICROS))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Backoff;
    use crate::framework::QueuedEntity;
    use crate::model::{Pod, Timestamp};

    #[test]
    fn it_doubles_up_to_the_longest() {
        let backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) };
        let want = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (31, 10), (32, 10), (33, 10), (1_000_000, 10)];
        for (count, seconds) in want {
            assert_eq!(backoff.duration(count), Duration::from_secs(seconds), "{count}");
        }
        let short = Backoff { initial: Duration::from_secs(20), max: Duration::from_secs(10) };
        assert_eq!(short.duration(1), Duration::from_secs(10));
    }

    #[test]
    fn errors_count_apart_from_unschedulable_attempts() {
        let backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) };
        let cases = [
            ("never tried", 0, 0, None),
            ("unschedulable three times", 3, 0, Some(104)),
            ("then one error", 3, 1, Some(101)),
            ("errors only", 0, 2, Some(102)),
        ];
        for (name, unschedulable, errors, want) in cases {
            let mut entity = QueuedEntity::new(Arc::new(Pod::default()), Timestamp::from_millis(100_900));
            entity.unschedulable_count = unschedulable;
            entity.consecutive_errors_count = errors;
            assert_eq!(backoff.expiration(&entity), want.map(Timestamp::from_secs), "{name}");
        }
        let off = Backoff { initial: Duration::from_secs(1), max: Duration::ZERO };
        let mut entity = QueuedEntity::new(Arc::new(Pod::default()), Timestamp::ZERO);
        entity.unschedulable_count = 5;
        assert_eq!(off.expiration(&entity), None);
    }

    #[test]
    fn it_lasts_until_the_second_in_which_it_ends_is_over() {
        let backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) };
        let mut entity = QueuedEntity::new(Arc::new(Pod::default()), Timestamp::from_millis(100_900));
        entity.unschedulable_count = 1;
        for (millis, waits) in [(100_900, true), (101_900, true), (101_999, true), (102_000, false)] {
            assert_eq!(backoff.is_backing_off(&entity, Timestamp::from_millis(millis)), waits, "{millis}");
        }
    }
}
