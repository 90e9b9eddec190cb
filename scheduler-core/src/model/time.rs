//! Points in time as the engine sees them: numbers that the caller passes in. Nothing here reads a clock.

use std::fmt;
use std::time::Duration;

/// Microseconds since the Unix epoch. The engine never reads a clock: `now` is always an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The Unix epoch; what simulations and tests usually start from.
    pub const ZERO: Self = Self(0);

    /// A point `seconds` after the epoch.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// A point `millis` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// This point plus `duration`, saturating at the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}
