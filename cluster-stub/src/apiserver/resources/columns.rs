//! Table printing: the seam, and the cells that many kinds share. Columns of one kind live with the kind.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::apiserver::validation::json::JsonExt;

/// One column of a Table (`meta.k8s.io/v1` TableColumnDefinition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading, e.g. `Restarts`.
    pub name: Cow<'static, str>,
    /// Declared type of the cells: string, integer, boolean, number, date. The cell itself may be of another JSON type.
    pub kind: Cow<'static, str>,
    /// Declared format, `name` for the first column.
    pub format: Cow<'static, str>,
    /// What the column shows.
    pub description: Cow<'static, str>,
    /// 0 is always shown, 1 with `-o wide` only.
    pub priority: i32,
}

impl Column {
    const fn of(name: &'static str, kind: &'static str, format: &'static str, priority: i32) -> Column {
        Column {
            name: Cow::Borrowed(name),
            kind: Cow::Borrowed(kind),
            format: Cow::Borrowed(format),
            description: Cow::Borrowed(""),
            priority,
        }
    }

    /// A column of texts.
    pub const fn text(name: &'static str) -> Column {
        Column::of(name, "string", "", 0)
    }

    /// A column of texts that only `-o wide` shows.
    pub const fn wide(name: &'static str) -> Column {
        Column::of(name, "string", "", 1)
    }

    /// A column of numbers.
    pub const fn integer(name: &'static str) -> Column {
        Column::of(name, "integer", "", 0)
    }

    /// A column of yes or no.
    pub const fn boolean(name: &'static str) -> Column {
        Column::of(name, "boolean", "", 0)
    }
}

/// The first column of every table.
pub const NAME: Column = Column::of("Name", "string", "name", 0);
/// The age column.
pub const AGE: Column = Column::text("Age");
/// What kinds without columns of their own print.
pub const NAME_AND_CREATED: &[Column] = &[NAME, Column::of("Created At", "date", "", 0)];
/// Name and age.
pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// Cells of [`NAME_AND_CREATED`].
pub fn name_and_created(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), object.at("metadata").at("creationTimestamp").clone()]
}

/// Cells of [`NAME_AND_AGE`].
pub fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

/// The object's name.
pub fn name(object: &Value) -> Value {
    json!(object.at("metadata").text("name"))
}

/// The time since the object was created.
pub fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(object.at("metadata").text("creationTimestamp"), now))
}

/// The time since a timestamp in the words of kubectl, `<unknown>` without one.
pub fn since(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(timestamp) => human_duration(now.as_millisecond() - timestamp.as_millisecond()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Milliseconds in the words of kubectl: `5s`, `3m20s`, `2d`.
///
/// Upstream: apimachinery v1.36.2 `pkg/util/duration/duration.go` HumanDuration.
pub fn human_duration(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |first: i64, first_unit: &str, second: i64, second_unit: &str| {
        if second == 0 { format!("{first}{first_unit}") } else { format!("{first}{first_unit}{second}{second_unit}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", (hours / 24) % 365, "d"),
        () => format!("{}y", hours / 24 / 365),
    }
}

/// A text, or another when it is empty.
pub fn or_else<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// Names and images of containers, each joined by commas.
pub fn containers(pod_spec: &Value) -> [Value; 2] {
    let joined = |key: &str| {
        let texts: Vec<&str> = pod_spec.items("containers").iter().map(|container| container.text(key)).collect();
        json!(texts.join(","))
    };
    [joined("name"), joined("image")]
}

/// An integer or a percent as text.
pub fn int_or_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// At most three texts joined by commas, then how many more there are.
pub fn first_three<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = texts.into_iter().collect();
    let shown = all.iter().take(3).copied().collect::<Vec<_>>().join(",");
    if all.len() > 3 { format!("{shown} + {} more...", all.len() - 3) } else { shown }
}

/// How a kind prints as a Table.
pub trait Columns: Send + Sync {
    /// The columns.
    fn columns(&self) -> &[Column];

    /// One cell for each column. `now` is the time that ages count from.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        let (minute, hour, day) = (60, 3600, 86400);
        let cases = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (3 * minute + 20, "3m20s"),
            (10 * minute + 5, "10m"),
            (3 * hour, "3h"),
            (3 * hour + 5 * minute, "3h5m"),
            (10 * hour, "10h"),
            (3 * day, "3d"),
            (3 * day + 2 * hour, "3d2h"),
            (30 * day, "30d"),
            (800 * day, "2y70d"),
            (3000 * day, "8y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds * 1000), want, "{seconds}");
        }
    }

    #[test]
    fn long_lists_are_cut_after_three() {
        assert_eq!(first_three(["a", "b", "c"]), "a,b,c");
        assert_eq!(first_three(["a", "b", "c", "d", "e"]), "a,b,c + 2 more...");
    }
}
