//! CronJob schedules: five fields, or a word such as `@hourly`, in UTC. Upstream: robfig/cron `ParseStandard`.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ToSpan as _};
use scheduler_core::model::Timestamp;

/// Days after which a schedule without a run (such as 30 February) is given up.
const HORIZON_DAYS: i64 = 5 * 366;

/// When a CronJob runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// With both a day of the month and a weekday given, one of them is enough.
    either_day: bool,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// It has not five fields, or a field is malformed or out of range.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spelled = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = spelled.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!(
                "schedule {text:?} has {} fields, expected five such as \"*/5 * * * *\"",
                fields.len()
            ));
        };
        let wrong = |field: &str| format!("schedule {text:?}: {field:?} is malformed or out of range");
        let any = |field: &str| field.starts_with('*') || field == "?";
        let weekdays = bits(weekday, 0, 7, &WEEKDAYS, 0).ok_or_else(|| wrong(weekday))?;
        Ok(Self {
            minutes: bits(minute, 0, 59, &[], 0).ok_or_else(|| wrong(minute))?,
            hours: bits(hour, 0, 23, &[], 0).ok_or_else(|| wrong(hour))?,
            days: bits(day, 1, 31, &[], 0).ok_or_else(|| wrong(day))?,
            months: bits(month, 1, 12, &MONTHS, 1).ok_or_else(|| wrong(month))?,
            weekdays: weekdays | (weekdays >> 7 & 1),
            either_day: !any(day) && !any(weekday),
        })
    }

    /// The first run after `now`; `None` if there is none for years.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let start = Instant::from_microsecond(now.as_micros()).ok()?.to_zoned(TimeZone::UTC).datetime();
        let mut at = start.with().second(0).subsec_nanosecond(0).build().ok()?.checked_add(1.minute()).ok()?;
        let end = at.checked_add(HORIZON_DAYS.days()).ok()?;
        while at < end {
            if !self.has_day(at) {
                at = at.date().tomorrow().ok()?.to_datetime(jiff::civil::Time::midnight());
            } else if !has(self.hours, i64::from(at.hour())) {
                at = at.with().minute(0).build().ok()?.checked_add(1.hour()).ok()?;
            } else if has(self.minutes, i64::from(at.minute())) {
                let instant = at.to_zoned(TimeZone::UTC).ok()?.timestamp();
                return Some(Timestamp::from_micros(instant.as_microsecond()));
            } else {
                at = at.checked_add(1.minute()).ok()?;
            }
        }
        None
    }

    fn has_day(&self, at: DateTime) -> bool {
        let day = has(self.days, i64::from(at.day()));
        let weekday = has(self.weekdays, i64::from(at.weekday().to_sunday_zero_offset()));
        has(self.months, i64::from(at.month())) && if self.either_day { day || weekday } else { day && weekday }
    }
}

fn has(bits: u64, at: i64) -> bool {
    bits >> at & 1 == 1
}

fn bits(field: &str, low: u32, high: u32, names: &[&str], first: u32) -> Option<u64> {
    let value = |text: &str| -> Option<u32> {
        let named = names.iter().zip(first..).find(|(name, _)| text.eq_ignore_ascii_case(name));
        let number = named.map(|(_, number)| number).or_else(|| text.parse().ok())?;
        (low..=high).contains(&number).then_some(number)
    };
    let mut bits = 0_u64;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range {
            "*" | "?" => (low, high),
            _ => match range.split_once('-') {
                Some((from, to)) => (value(from)?, value(to)?),
                None if part.contains('/') => (value(range)?, high),
                None => (value(range)?, value(range)?),
            },
        };
        if from > to {
            return None;
        }
        bits |= (from..=to).step_by(step as usize).fold(0, |bits, at| bits | 1 << at);
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, now: &str) -> Option<String> {
        let now: Instant = now.parse().expect("RFC 3339");
        let next = Schedule::parse(schedule).expect("a schedule").next(Timestamp::from_micros(now.as_microsecond()))?;
        Some(Instant::from_microsecond(next.as_micros()).expect("in range").to_string())
    }

    #[test]
    fn the_next_run() {
        for (schedule, now, want) in [
            ("* * * * *", "2025-03-01T10:00:30Z", Some("2025-03-01T10:01:00Z")),
            ("*/15 * * * *", "2025-03-01T10:45:00Z", Some("2025-03-01T11:00:00Z")),
            ("30 2 * * *", "2025-03-01T03:00:00Z", Some("2025-03-02T02:30:00Z")),
            ("0 0 29 2 *", "2025-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("0 12 1 * mon", "2025-03-01T12:00:00Z", Some("2025-03-03T12:00:00Z")),
            ("0 9 * * 1-5", "2025-03-01T12:00:00Z", Some("2025-03-03T09:00:00Z")),
            ("0 0 * * 7", "2025-03-01T12:00:00Z", Some("2025-03-02T00:00:00Z")),
            ("@hourly", "2025-12-31T23:30:00Z", Some("2026-01-01T00:00:00Z")),
            ("0 0 30 2 *", "2025-03-01T00:00:00Z", None),
        ] {
            assert_eq!(next(schedule, now).as_deref(), want, "{schedule}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "a * * * *"] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }
}
