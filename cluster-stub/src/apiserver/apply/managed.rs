//! `metadata.managedFields`: reading, writing, and what an update that is no apply does to it.
//!
//! Upstream: apimachinery v1.36.2 `pkg/util/managedfields/internal`.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::creation::{self, Known};
use super::field_set::FieldSet;
use super::shape::Shape;
use super::walk::{Comparison, compare};
use crate::apiserver::registry::format_time;
use crate::apiserver::schema::{Schema, TypeIdx};

/// Update managers kept apart; older ones are merged. Upstream: `DefaultMaxUpdateManagers`.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of merged ones.
const OLD_UPDATES: &str = "ancient-changes";
/// The server's own metadata, which nobody manages. Upstream: `stripMeta`.
const STRIPPED: &[&[&str]] = &[
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:clusterName"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// Who writes, as far as field ownership goes.
pub struct Writer<'a> {
    /// The API types.
    pub schema: &'a Schema,
    /// The type of the object; `None` without a schema.
    pub ty: Option<TypeIdx>,
    /// The manager's name.
    pub manager: String,
    /// The subresource written through, empty for the object itself.
    pub subresource: &'a str,
    /// The `apiVersion` of the fields.
    pub api_version: &'a str,
    /// When.
    pub now: Timestamp,
}

/// The two ways to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    pub time: String,
    pub fields: FieldSet,
}

impl Entry {
    pub(super) fn new(writer: &Writer<'_>, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: writer.manager.clone(),
            operation,
            api_version: writer.api_version.to_string(),
            subresource: writer.subresource.to_string(),
            time: format_time(writer.now),
            fields,
        }
    }

    /// The entry as it is written, with these fields in place of its own.
    fn to_value(&self, fields: Value) -> Value {
        let mut value = json!({
            "manager": self.manager,
            "operation": if self.operation == Operation::Apply { "Apply" } else { "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
        });
        value["fieldsV1"] = fields;
        if !self.time.is_empty() {
            value["time"] = self.time.as_str().into();
        }
        if !self.subresource.is_empty() {
            value["subresource"] = self.subresource.as_str().into();
        }
        value
    }

    /// Whether both are the same manager: applies go on over versions, updates do not.
    pub(super) fn same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

/// The entries of an object; `None` when they cannot be read.
pub(super) fn read(object: &Value) -> Option<Vec<Entry>> {
    let list = match &object["metadata"]["managedFields"] {
        Value::Null => return Some(Vec::new()),
        list => list.as_array()?,
    };
    list.iter().map(read_entry).collect()
}

fn read_entry(value: &Value) -> Option<Entry> {
    let text = |key: &str| value[key].as_str().unwrap_or("").to_string();
    let operation = match value["operation"].as_str()? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let fields = match &value["fieldsV1"] {
        Value::Null => FieldSet::default(),
        fields => FieldSet::from_value(fields).ok()?,
    };
    Some(Entry {
        manager: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
        time: text("time"),
        fields,
    })
}

/// Writes entries into an object, in upstream's order.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            (
                entry.operation,
                entry.time.clone(),
                entry.manager.clone(),
                entry.api_version.clone(),
                entry.subresource.clone(),
            )
        };
        key(a).cmp(&key(b))
    });
    let list = entries.iter().map(|entry| entry.to_value(entry.fields.to_value()));
    metadata.insert("managedFields".to_string(), list.collect());
}

/// Takes the entries out of an object.
pub(super) fn clear(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// Records what a create, PUT or patch changed: the writer owns it now, others lose it. `live` is the object before, `reset`
/// are the members that this write cannot change.
pub fn track_update(writer: &Writer<'_>, live: Option<&Value>, object: &mut Value, reset: &[&str]) {
    let entries = match (writer.subresource, asks_for_reset(object)) {
        ("", true) => Vec::new(),
        ("", false) => match read(object) {
            Some(entries) if !entries.is_empty() => entries,
            _ => live.and_then(read).unwrap_or_default(),
        },
        _ => live.and_then(read).unwrap_or_default(),
    };
    clear(object);
    // An object that nobody tracks stays so until it is applied.
    if entries.is_empty() && live.is_some() {
        return;
    }
    if entries.is_empty() {
        return track_creation(writer, object, reset);
    }
    let entries = update(writer, live, object, entries, reset);
    write(object, entries);
}

/// The same for a new object that nobody tracks yet: its creator owns all that it states.
fn track_creation(writer: &Writer<'_>, object: &mut Value, reset: &[&str]) {
    static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);
    let fields = if std::ptr::eq(writer.schema, &raw const *Schema::builtin()) {
        KNOWN.fields(writer, object, reset)
    } else {
        creation::fields(writer, object, reset)
    };
    if let (Some(fields), Some(metadata)) = (fields, object["metadata"].as_object_mut()) {
        let mine = Entry::new(writer, Operation::Update, FieldSet::default());
        metadata.insert("managedFields".to_string(), Value::Array(vec![mine.to_value((*fields).clone())]));
    }
}

/// A client resets `managedFields` by an empty list or a list of one empty entry.
fn asks_for_reset(object: &Value) -> bool {
    object["metadata"]["managedFields"].as_array().is_some_and(|list| match list.as_slice() {
        [] => true,
        [one] => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    })
}

/// The entries after a write that is no apply.
pub(super) fn update(
    writer: &Writer<'_>,
    live: Option<&Value>,
    object: &Value,
    mut entries: Vec<Entry>,
    reset: &[&str],
) -> Vec<Entry> {
    let Comparison { added, modified, removed } = difference(writer, live, object, reset);
    let taken = if modified.is_empty() { added } else { modified.union(&added) };
    if !entries.is_empty() {
        release(&mut entries, &taken.union(&removed));
    }
    let mine = Entry::new(writer, Operation::Update, stripped(taken));
    if !mine.fields.is_empty() {
        match entries.iter_mut().find(|entry| entry.same_manager(&mine)) {
            Some(entry) => {
                entry.fields = entry.fields.union(&mine.fields);
                entry.time = mine.time;
            }
            None => entries.push(mine),
        }
    }
    cap(entries)
}

/// What a write changes, without the members that it cannot change.
pub(super) fn difference(writer: &Writer<'_>, live: Option<&Value>, object: &Value, reset: &[&str]) -> Comparison {
    let nothing;
    let live = match live {
        Some(live) => live,
        None => {
            nothing = writer.ty.map_or_else(|| json!({}), |ty| writer.schema.zero(ty));
            &nothing
        }
    };
    compare(writer.schema, Shape::root(writer.ty), Some(live), Some(object)).without(reset)
}

/// Takes fields from everybody; who has none left goes.
pub(super) fn release(entries: &mut Vec<Entry>, fields: &FieldSet) {
    for entry in entries.iter_mut() {
        entry.fields = entry.fields.difference(fields);
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// A set without the server's own metadata.
pub(super) fn stripped(mut fields: FieldSet) -> FieldSet {
    for path in STRIPPED {
        fields.remove(path);
    }
    fields
}

/// Merges the oldest update managers when there are too many.
fn cap(mut entries: Vec<Entry>) -> Vec<Entry> {
    while entries.iter().filter(|entry| entry.operation == Operation::Update).count() > MAX_UPDATE_MANAGERS {
        let mut updates: Vec<usize> =
            (0..entries.len()).filter(|at| entries[*at].operation == Operation::Update).collect();
        updates
            .sort_by(|a, b| (&entries[*a].time, &entries[*a].manager).cmp(&(&entries[*b].time, &entries[*b].manager)));
        let pair = updates.iter().enumerate().find_map(|(order, first)| {
            let version = &entries[*first].api_version;
            let second = updates[order + 1..].iter().find(|at| entries[**at].api_version == *version)?;
            Some((*first, *second))
        });
        let Some((first, second)) = pair else {
            break;
        };
        let fields = entries[first].fields.union(&entries[second].fields);
        let merged =
            Entry { manager: OLD_UPDATES.to_string(), subresource: String::new(), fields, ..entries[second].clone() };
        entries.remove(first.max(second));
        entries.remove(first.min(second));
        match entries.iter_mut().find(|entry| entry.same_manager(&merged)) {
            Some(bucket) => {
                bucket.fields = bucket.fields.union(&merged.fields);
                bucket.time = merged.time;
            }
            None => entries.push(merged),
        }
    }
    entries
}

/// Puts the old `managedFields` back when a write changed nothing but their times, so that it is no write at all.
///
/// Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/fieldmanager/equality.go`.
pub fn keep_times_if_unchanged(object: &mut Value, old: &Value) {
    if object["metadata"]["managedFields"] == old["metadata"]["managedFields"] {
        return;
    }
    let timeless = |value: &Value| {
        let mut list = value["metadata"]["managedFields"].clone();
        for entry in list.as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        list
    };
    let mut sorted = [timeless(object), timeless(old)];
    for list in &mut sorted {
        if let Some(list) = list.as_array_mut() {
            list.sort_by_key(ToString::to_string);
        }
    }
    if sorted[0] != sorted[1] {
        return;
    }
    let same = match (object.as_object(), old.as_object()) {
        (Some(new), Some(before)) => {
            new.len() == before.len()
                && new.iter().all(|(key, value)| key == "metadata" || before.get(key) == Some(value))
                && same_metadata(&new["metadata"], &before["metadata"])
        }
        _ => false,
    };
    if same {
        object["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
    }
}

fn same_metadata(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    new.len() == old.len() && new.iter().all(|(key, value)| key == "managedFields" || old.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TABLE, writer};
    use super::*;

    fn owners(object: &Value) -> Vec<(String, Value)> {
        read(object)
            .expect("entries that we wrote")
            .into_iter()
            .map(|entry| (entry.manager, entry.fields.to_value()))
            .collect()
    }

    #[test]
    fn the_creator_owns_what_it_sent() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let mut object = json!({"kind": "Root", "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}});
        track_update(&writer(&schema, "me"), None, &mut object, &["status"]);
        let want = json!({"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}});
        assert_eq!(owners(&object), [("me".to_string(), want)]);
    }

    #[test]
    fn an_update_takes_over_what_it_changes() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let mut object = json!({"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}});
        track_update(&writer(&schema, "me"), None, &mut object, &[]);
        let live = object.clone();
        object["data"] = json!({"k": "other"});
        track_update(&writer(&schema, "you"), Some(&live), &mut object, &[]);
        assert_eq!(
            owners(&object),
            [("me".to_string(), json!({"f:data": {}})), ("you".to_string(), json!({"f:data": {"f:k": {}}}))]
        );
    }

    #[test]
    fn untracked_objects_stay_untracked_and_a_reset_clears() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let live = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let mut object = json!({"metadata": {"name": "a"}, "data": {"k": "w"}});
        track_update(&writer(&schema, "me"), Some(&live), &mut object, &[]);
        assert!(owners(&object).is_empty());
        let mut object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        track_update(&writer(&schema, "me"), None, &mut object, &[]);
        let live = object.clone();
        object["metadata"]["managedFields"] = json!([{}]);
        track_update(&writer(&schema, "me"), Some(&live), &mut object, &[]);
        assert!(owners(&object).is_empty());
    }

    #[test]
    fn too_many_update_managers_are_merged() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let mut object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        track_update(&writer(&schema, "m0"), None, &mut object, &[]);
        for manager in 1..14 {
            let live = object.clone();
            object["data"][format!("k{manager}")] = "v".into();
            track_update(&writer(&schema, &format!("m{manager}")), Some(&live), &mut object, &[]);
        }
        let names: Vec<String> = owners(&object).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), MAX_UPDATE_MANAGERS);
        assert!(names.contains(&OLD_UPDATES.to_string()));
    }

    #[test]
    fn a_write_that_changes_only_times_is_none() {
        let entry = |time: &str| json!({"manager": "m", "operation": "Update", "time": time});
        let old = json!({"metadata": {"name": "a", "managedFields": [entry("1")]}, "data": {}});
        let mut same = json!({"metadata": {"name": "a", "managedFields": [entry("2")]}, "data": {}});
        keep_times_if_unchanged(&mut same, &old);
        assert_eq!(same, old);
        let mut other = json!({"metadata": {"name": "a", "managedFields": [entry("2")]}, "data": {"k": 1}});
        keep_times_if_unchanged(&mut other, &old);
        assert_eq!(other["metadata"]["managedFields"][0]["time"], "2");
    }
}
