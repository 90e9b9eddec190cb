//! Processor time of this process: what a measurement costs even while others use the machine.

use std::time::{Duration, Instant};

/// The kernel's unit of processor time in `/proc`; a constant of its interface.
const TICKS_PER_SECOND: u32 = 100;

/// A moment on the clock, and the processor time until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the clock.
    pub(crate) at: Instant,
    /// Processor time of all threads so far; Linux only.
    pub(crate) cpu: Option<Duration>,
}

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), cpu: std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| used(&stat)) }
    }

    /// Processor time from `earlier` until this moment.
    pub(crate) fn cpu_since(&self, earlier: &Self) -> Option<Duration> {
        self.cpu?.checked_sub(earlier.cpu?)
    }
}

/// User and system time out of `/proc/self/stat`: the 14th and 15th field, counted behind the name, which may have blanks.
fn used(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u32> = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { return None };
    Some(Duration::from_secs(u64::from(user) + u64::from(system)) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "42 (a) name) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 100 0 0";
        assert_eq!(used(stat), Some(Duration::from_secs(3)));
        assert_eq!(used("42 (name) S 1"), None);
    }

    #[test]
    fn processor_time_does_not_go_back() {
        let first = Moment::now();
        let second = Moment::now();
        assert_eq!(second.cpu_since(&first).is_some(), first.cpu.is_some());
    }
}
