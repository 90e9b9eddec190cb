//! Cron schedules of five fields, descriptors and intervals, and when they fire. Pure.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Years that are searched for the next firing before a schedule counts as one that never fires.
const HORIZON_YEARS: i16 = 5;

/// When something happens again and again. Syntax: robfig/cron v3 `ParseStandard`, which upstream uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// At the minutes that all fields allow.
    Fields(Fields),
    /// Every so often, counted from the time asked about.
    Every(SignedDuration),
}

/// Allowed values as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// Whether day and weekday both restrict: then either is enough.
    either_day: bool,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Parses `text`; a leading `TZ=zone` or `CRON_TZ=zone` is answered beside the schedule.
pub(super) fn parse(text: &str) -> Result<(Schedule, Option<String>), String> {
    let mut text = text.trim();
    let mut zone = None;
    for prefix in ["TZ=", "CRON_TZ="] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let (name, rest) =
                rest.split_once(' ').ok_or_else(|| format!("missing schedule after time zone in {text:?}"))?;
            (zone, text) = (Some(name.to_owned()), rest.trim());
        }
    }
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => text,
    };
    if let Some(every) = text.strip_prefix("@every ") {
        return Ok((Schedule::Every(duration(every)?), zone));
    }
    if fields.starts_with('@') {
        return Err(format!("unrecognized descriptor: {text}"));
    }
    let parts: Vec<&str> = fields.split_whitespace().collect();
    let &[minute, hour, day, month, weekday] = parts.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    };
    let restricts = |field: &str| !field.starts_with('*') && !field.starts_with('?');
    let mut days = field(weekday, 0, 7, &WEEKDAYS)?;
    days |= days >> 7 & 1; // 7 is Sunday as well
    let fields = Fields {
        minute: field(minute, 0, 59, &[])?,
        hour: field(hour, 0, 23, &[])?,
        day: field(day, 1, 31, &[])?,
        month: field(month, 1, 12, &MONTHS)?,
        weekday: days,
        either_day: restricts(day) && restricts(weekday),
    };
    Ok((Schedule::Fields(fields), zone))
}

fn field(text: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    let number = |text: &str| -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(i) = names.iter().position(|name| *name == lower) {
            return u32::try_from(i).map(|i| i + u32::from(low == 1)).map_err(|error| error.to_string());
        }
        text.parse().map_err(|_| format!("failed to parse int from {text}"))
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (part, None),
        };
        let (from, to) = match range {
            "*" | "?" => (low, high),
            _ => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                // With a step, a single number is where it begins.
                None => (number(range)?, if step.is_some() { high } else { number(range)? }),
            },
        };
        if from < low || to > high || from > to {
            return Err(format!("value out of range ({low} - {high}): {part}"));
        }
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        let mut value = from;
        while value <= to {
            bits |= 1_u64 << value;
            value += step;
        }
    }
    Ok(bits)
}

/// A Go duration such as `1h30m`, at least one second.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("failed to parse duration @every {text}");
    let (mut seconds, mut digits) = (0_i64, String::new());
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        let value: i64 = digits.parse().map_err(|_| wrong())?;
        seconds = value.checked_mul(unit).and_then(|part| seconds.checked_add(part)).ok_or_else(wrong)?;
        digits.clear();
    }
    if digits.is_empty() && !text.trim().is_empty() {
        Ok(SignedDuration::from_secs(seconds.max(1)))
    } else {
        Err(wrong())
    }
}

impl Schedule {
    /// The first firing after `after`, in `zone`. `None` if there is none for years.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(period) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*period).ok(),
            Self::Fields(fields) => fields.next(&after.to_zoned(zone.clone())),
        }
    }

    /// The last firing after `after` and not after `now`, and how many there were; counting stops early when there are many.
    /// Upstream: cronjob/utils.go v1.36.2 `mostRecentScheduleTime`.
    pub(super) fn last(&self, after: Timestamp, now: Timestamp, zone: &TimeZone) -> (Option<Timestamp>, usize) {
        const MANY: usize = 100;
        let (mut last, mut missed, mut from) = (None, 0, after);
        while let Some(next) = self.next(from, zone).filter(|next| *next <= now) {
            (last, from) = (Some(next), next);
            missed += 1;
            if missed == MANY {
                // Too many to walk through: go on from shortly before now, as far back as two firings may be apart.
                let gap =
                    self.next(next, zone).map_or(SignedDuration::from_hours(24), |later| later.duration_since(next));
                let near = now - gap * 2 - SignedDuration::from_hours(24);
                from = from.max(near);
            }
            if missed > 10_000 {
                break;
            }
        }
        (last, missed)
    }
}

impl Fields {
    fn next(&self, after: &Zoned) -> Option<Timestamp> {
        let has = |bits: u64, value: i8| u32::try_from(value).is_ok_and(|value| bits >> value & 1 == 1);
        let zone = after.time_zone();
        let mut date = after.date();
        let last_year = date.year() + HORIZON_YEARS;
        let mut first = true;
        while date.year() <= last_year {
            let by_day = has(self.day, date.day());
            let by_weekday = has(self.weekday, date.weekday().to_sunday_zero_offset());
            let day = if self.either_day { by_day || by_weekday } else { by_day && by_weekday };
            if day && has(self.month, date.month()) {
                for hour in (0..24).filter(|hour| has(self.hour, *hour)) {
                    for minute in (0..60).filter(|minute| has(self.minute, *minute)) {
                        let time = Time::new(hour, minute, 0, 0).ok()?;
                        if first && time < Time::new(after.hour(), 0, 0, 0).ok()? {
                            continue;
                        }
                        let at = zone.to_ambiguous_zoned(date.to_datetime(time)).compatible().ok()?.timestamp();
                        if at > after.timestamp() {
                            return Some(at);
                        }
                    }
                }
            }
            first = false;
            date = date.tomorrow().ok()?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(text: &str, after: &str) -> String {
        let (schedule, _) = parse(text).expect("valid");
        let after: Timestamp = after.parse().expect("valid");
        schedule.next(after, &TimeZone::UTC).map_or("never".to_owned(), |at| at.to_string())
    }

    #[test]
    fn schedules_fire_when_cron_says() {
        for (text, after, want) in [
            ("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:45:00Z", "2026-01-01T01:00:00Z"),
            ("0 0 1 1 *", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("30 4 * * mon-fri", "2026-01-02T05:00:00Z", "2026-01-05T04:30:00Z"),
            ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "never"),
            ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(next(text, after), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in ["", "x", "* * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "@never", "@every x", "TZ=UTC"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("x").expect_err("one field"), "expected exactly 5 fields, found 1: [x]");
        assert_eq!(parse("CRON_TZ=Asia/Tokyo 0 0 * * *").expect("valid").1.as_deref(), Some("Asia/Tokyo"));
    }

    #[test]
    fn the_last_missed_firing_is_found_near_and_far() {
        let (schedule, _) = parse("*/5 * * * *").expect("valid");
        let at = |text: &str| text.parse::<Timestamp>().expect("valid");
        let (last, missed) = schedule.last(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:12:00Z"), &TimeZone::UTC);
        assert_eq!((last, missed), (Some(at("2026-01-01T00:10:00Z")), 2));
        let (last, missed) = schedule.last(at("2020-01-01T00:00:00Z"), at("2026-01-01T00:12:00Z"), &TimeZone::UTC);
        assert_eq!(last, Some(at("2026-01-01T00:10:00Z")));
        assert!(missed > 100);
        assert_eq!(schedule.last(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:04:00Z"), &TimeZone::UTC), (None, 0));
    }
}
