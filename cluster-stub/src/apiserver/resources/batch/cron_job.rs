//! CronJobs: defaults, schedules, validation, columns.
//!
//! Upstream: v1.36.2 `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation/validation.go` validateCronJobSpec.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::super::kind::{Kind, SPEC};
use super::super::pod::template;
use super::super::resource::Resource;
use super::job;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::format_selector;
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::{FieldError, Path};

const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Schedule"),
    Column::text("Timezone"),
    Column::boolean("Suspend"),
    Column::integer("Active"),
    Column::text("Last Schedule"),
    columns::AGE,
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// CronJob.
pub(super) fn resource() -> Resource {
    Kind::new("batch", "v1", "cronjobs", "CronJob")
        .short_names(&["cj"])
        .categories(&["all"])
        .generation()
        .status()
        .defaults(|object| {
            let spec = object.object_mut("spec");
            spec.default_to("concurrencyPolicy", "Allow");
            spec.default_to("suspend", false);
            spec.default_to("successfulJobsHistoryLimit", 3);
            spec.default_to("failedJobsHistoryLimit", 1);
            let job = spec.object_mut("jobTemplate").object_mut("spec");
            template::apply_defaults(job.object_mut("template"));
        })
        .validate(validate)
        .columns(COLUMNS, cells)
        .build()
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = object.at("spec");
    validate_schedule(spec, out);
    validate_nonnegative(spec.int("startingDeadlineSeconds"), &SPEC.child("startingDeadlineSeconds"), out);
    if spec.has("timeZone") {
        validate_time_zone(spec.text("timeZone"), &SPEC.child("timeZone"), out);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    let policy = spec.text("concurrencyPolicy");
    if !policies.contains(&policy) {
        out.push(FieldError::not_supported(&SPEC.child("concurrencyPolicy"), policy, &policies));
    }
    let template = SPEC.child("jobTemplate");
    let job = spec.at("jobTemplate").at("spec");
    let path = template.child("spec");
    if job.flag("manualSelector") {
        out.push(FieldError::not_supported(&path.child("manualSelector"), true, &["nil", "false"]));
    }
    job::validate_spec(job, &path, out);
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        validate_nonnegative(spec.int(key), &SPEC.child(key), out);
    }
    let name = object.at("metadata").text("name");
    if name.len() > 52 {
        let metadata = Path::root("metadata");
        out.push(FieldError::invalid(&metadata.child("name"), name, "must be no more than 52 characters"));
    }
}

fn validate_schedule(spec: &Value, out: &mut Vec<FieldError>) {
    let schedule = spec.text("schedule");
    let field = SPEC.child("schedule");
    if schedule.is_empty() {
        out.push(FieldError::required(&field, ""));
        return;
    }
    if let Some(why) = schedule_fault(schedule) {
        out.push(FieldError::invalid(&field, schedule, why));
    }
    if schedule.contains("TZ") {
        out.push(FieldError::invalid(
            &field,
            schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ));
    }
}

/// What is wrong with a standard schedule of five fields or a `@` word, in the words of upstream's parser.
fn schedule_fault(schedule: &str) -> Option<String> {
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        return None;
    }
    if let Some(word) = schedule.strip_prefix('@') {
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"].contains(&word);
        let every = word.strip_prefix("every ").is_some();
        return (!known && !every).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let found = fields.join(" ");
        return Some(format!("expected exactly 5 fields, found {}: [{found}]", fields.len()));
    }
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let bounds: [(u32, u32, &[&str], u32); 5] =
        [(0, 59, &[], 0), (0, 23, &[], 0), (1, 31, &[], 0), (1, 12, &MONTHS, 1), (0, 6, &DAYS, 0)];
    fields.iter().zip(bounds).flat_map(|(field, bounds)| field.split(',').map(move |range| (range, bounds))).find_map(
        |(range, (low, high, names, first_name))| {
            let number = |text: &str| -> Result<u32, String> {
                if let Some(at) = names.iter().position(|name| *name == text.to_lowercase()) {
                    return Ok(u32::try_from(at).unwrap_or(0) + first_name);
                }
                text.parse().map_err(|_| {
                    format!(
                        "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
                        crate::apiserver::validation::field::quote(text)
                    )
                })
            };
            range_fault(range, low, high, &number)
        },
    )
}

fn range_fault(range: &str, low: u32, high: u32, number: &dyn Fn(&str) -> Result<u32, String>) -> Option<String> {
    let mut step_parts = range.split('/');
    let span = step_parts.next().unwrap_or("");
    let step = step_parts.next();
    if step_parts.next().is_some() {
        return Some(format!("too many slashes: {range}"));
    }
    let (start, mut end) = if matches!(span, "*" | "?") {
        (low, high)
    } else {
        let mut ends = span.split('-');
        let start = match number(ends.next().unwrap_or("")) {
            Ok(start) => start,
            Err(why) => return Some(why),
        };
        let end = match ends.next().map(number) {
            Some(Err(why)) => return Some(why),
            Some(Ok(end)) => end,
            None => start,
        };
        if ends.next().is_some() {
            return Some(format!("too many hyphens: {range}"));
        }
        (start, end)
    };
    if let Some(step) = step {
        match number(step) {
            Err(why) => return Some(why),
            Ok(0) => return Some(format!("step of range should be a positive number: {range}")),
            Ok(_) if !span.contains('-') => end = high,
            Ok(_) => {}
        }
    }
    match () {
        () if start < low => Some(format!("beginning of range ({start}) below minimum ({low}): {range}")),
        () if end > high => Some(format!("end of range ({end}) above maximum ({high}): {range}")),
        () if start > end => Some(format!("beginning of range ({start}) beyond end of range ({end}): {range}")),
        () => None,
    }
}

fn validate_time_zone(zone: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if zone.is_empty() {
        out.push(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
    } else if zone.eq_ignore_ascii_case("local") {
        out.push(FieldError::invalid(
            path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        ));
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        out.push(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let job = spec.at("jobTemplate").at("spec");
    let [names, images] = columns::containers(job.at("template").at("spec"));
    let last = if status.has("lastScheduleTime") {
        columns::since(status.text("lastScheduleTime"), now)
    } else {
        "<none>".to_owned()
    };
    let suspend = match spec.at("suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    vec![
        columns::name(object),
        json!(spec.text("schedule")),
        json!(or_else(spec.text("timeZone"), "<none>")),
        json!(suspend),
        json!(status.items("active").len()),
        json!(last),
        columns::age(object, now),
        names,
        images,
        json!(format_selector(job.at("selector"))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_five_fields_within_bounds() {
        for good in ["0 0 1 1 *", "*/5 * * * *", "0 9-17 * * mon-fri", "@daily", "@every 1h", "0,30 * ? jan *"] {
            assert_eq!(schedule_fault(good), None, "{good}");
        }
        let cases = [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ];
        for (bad, want) in cases {
            assert_eq!(schedule_fault(bad).as_deref(), Some(want), "{bad}");
        }
    }
}
