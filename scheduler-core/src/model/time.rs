//! Points in time as the engine sees them: numbers that the caller passes in. Nothing here reads a clock.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// Microseconds since the Unix epoch. The engine never reads a clock: `now` is always an argument. An `Option` of one takes
/// no more room than one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// The microseconds with the sign bit turned over: in the same order, and never zero.
    NonZeroU64,
);

/// The sign bit of the microseconds.
const SIGN: u64 = 1 << 63;

impl Timestamp {
    /// The Unix epoch; what simulations and tests usually start from.
    pub const ZERO: Self = Self::from_micros(0);

    /// The earliest point.
    pub const MIN: Self = Self::from_micros(i64::MIN);

    /// The latest point.
    pub const MAX: Self = Self::from_micros(i64::MAX);

    /// A point `micros` microseconds after the epoch. [`i64::MIN`] is taken for the number above it.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        match NonZeroU64::new(micros.cast_unsigned() ^ SIGN) {
            Some(turned) => Self(turned),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        (self.0.get() ^ SIGN).cast_signed()
    }

    /// A point `seconds` after the epoch.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// A point `millis` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// This point plus `duration`, saturating at the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_micros(self.as_micros().saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.as_micros().saturating_sub(earlier.as_micros())).unwrap_or(0))
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}us)", self.as_micros())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.as_micros()) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}us", self.as_micros()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_value_are_those_of_the_microseconds() {
        let micros = [i64::MIN + 1, -5, -1, 0, 1, 7_000_000, i64::MAX];
        let timestamps = micros.map(Timestamp::from_micros);
        assert!(timestamps.is_sorted(), "{timestamps:?}");
        assert_eq!(timestamps.map(Timestamp::as_micros), micros);
        assert_eq!((Timestamp::default(), Timestamp::from_secs(7)), (timestamps[3], timestamps[5]));
    }

    #[test]
    fn the_ends_of_time_are_kept() {
        assert_eq!(Timestamp::from_micros(i64::MIN), Timestamp::MIN);
        assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn an_absent_one_takes_no_room_of_its_own() {
        assert_eq!(size_of::<Option<Timestamp>>(), size_of::<i64>());
    }
}
