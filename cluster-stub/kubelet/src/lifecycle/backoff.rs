//! Exponential back-off of one thing that fails: a crashing container, an image that cannot be pulled.

use jiff::{SignedDuration, Timestamp};

/// First wait. Upstream: pkg/kubelet v1.36.2 `initialCrashLoopBackOff`, and `imageBackOffPeriod`.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// Longest wait. Upstream: pkg/kubelet v1.36.2 `MaxCrashLoopBackOff`, `MaxImageBackOff`.
const LONGEST: SignedDuration = SignedDuration::from_secs(300);

/// How long to wait after the next failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    wait: Option<SignedDuration>,
    updated: Option<Timestamp>,
}

impl Backoff {
    /// Until when the thing that failed at `failed_at` has to wait; `None` if it may be tried at `now`.
    pub(crate) fn waits_until(&self, failed_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let wait = self.wait.filter(|_| !self.is_over(now))?;
        Some(failed_at + wait).filter(|until| *until > now)
    }

    /// The present wait, as messages print it: `10s`, `1m20s`.
    pub(crate) fn wait_text(&self) -> String {
        let seconds = self.wait.unwrap_or_default().as_secs();
        if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
    }

    /// Notes that it is tried again at `now`: the wait after another failure is longer.
    pub(crate) fn tried(&mut self, now: Timestamp) {
        self.wait = Some(match self.wait.filter(|_| !self.is_over(now)) {
            Some(wait) => (wait * 2).min(LONGEST),
            None => FIRST,
        });
        self.updated = Some(now);
    }

    /// Whether the last failure is so long ago that it no longer counts. Upstream: client-go v1.36.2 flowcontrol
    /// `hasExpired`, twice the longest wait.
    fn is_over(&self, now: Timestamp) -> bool {
        self.updated.is_some_and(|updated| now.duration_since(updated) > LONGEST * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn first_failure_is_tried_again_at_once_and_later_ones_wait_twice_as_long_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.waits_until(at(0), at(0)), None);
        let mut waits = Vec::new();
        for _ in 0..7 {
            backoff.tried(at(0));
            waits.push(backoff.wait_text());
        }
        assert_eq!(waits, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"]);
        assert_eq!(backoff.waits_until(at(100), at(150)), Some(at(400)));
        assert_eq!(backoff.waits_until(at(100), at(400)), None);
    }

    #[test]
    fn ten_quiet_minutes_wipe_the_slate() {
        let mut backoff = Backoff::default();
        backoff.tried(at(0));
        backoff.tried(at(10));
        assert_eq!(backoff.waits_until(at(611), at(611)), None);
        backoff.tried(at(611));
        assert_eq!(backoff.wait_text(), "10s");
    }
}
