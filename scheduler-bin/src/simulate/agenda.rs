//! What will happen by itself, by time and then in the order in which it was planned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use scheduler_core::model::Timestamp;

/// Something that is due at a time.
#[derive(Debug)]
pub(crate) enum Due {
    /// A pod has done its work, or its time is over.
    Leave(Arc<str>),
    /// A node has been out of reach for long enough.
    Evict(Arc<str>),
    /// A CronJob runs.
    Cron(usize),
}

#[derive(Debug)]
struct Entry {
    at: Timestamp,
    order: u64,
    due: Due,
}

/// A queue by time.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    next_order: u64,
    /// Entries that bring the run to an end; those of CronJobs do not.
    n_finite: usize,
}

impl Agenda {
    /// Plans something.
    pub(crate) fn push(&mut self, at: Timestamp, due: Due) {
        self.n_finite += usize::from(!matches!(due, Due::Cron(_)));
        self.entries.push(Reverse(Entry { at, order: self.next_order, due }));
        self.next_order += 1;
    }

    /// When the next thing is due. Without `endless`, CronJobs alone do not count: they would never end.
    pub(crate) fn next(&self, endless: bool) -> Option<Timestamp> {
        let next = self.entries.peek().map(|Reverse(entry)| entry.at);
        next.filter(|_| endless || self.n_finite > 0)
    }

    /// The next thing that is due at `now` or earlier.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Due> {
        let Reverse(entry) = self.entries.peek()?;
        if entry.at > now {
            return None;
        }
        let Reverse(entry) = self.entries.pop()?;
        self.n_finite -= usize::from(!matches!(entry.due, Due::Cron(_)));
        Some(entry.due)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_by_time_and_then_in_order() {
        let mut agenda = Agenda::default();
        for (at, name) in [(5, "c"), (1, "a"), (1, "b")] {
            agenda.push(Timestamp::from_secs(at), Due::Leave(name.into()));
        }
        let mut names = Vec::new();
        while let Some(Due::Leave(name)) = agenda.pop(Timestamp::from_secs(4)) {
            names.push(name.to_string());
        }
        assert_eq!(names, ["a", "b"]);
        assert_eq!(agenda.next(false), Some(Timestamp::from_secs(5)));
    }

    #[test]
    fn a_cron_job_alone_does_not_keep_a_run_going() {
        let mut agenda = Agenda::default();
        agenda.push(Timestamp::ZERO, Due::Cron(0));
        assert_eq!((agenda.next(false), agenda.next(true)), (None, Some(Timestamp::ZERO)));
    }
}
